"""Any environment from the command line: a package in the current folder, trained, resumed, tested and drawn."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from thinker.runs import checkpoint

pytestmark = pytest.mark.slow  # several processes, one after another

PACKAGE = '''
"""A walk on a line, to be ended at its right end; it does not tell whether that was a success."""

import gymnasium as gym
import numpy as np


class Walk(gym.Env):
    def __init__(self, difficulty: int) -> None:
        self.length = 3 * difficulty
        self.observation_space = gym.spaces.Box(0, 100, (3,), np.float32)
        self.action_space = gym.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.position = int(self.np_random.integers(self.length))
        self.wind = int(self.np_random.integers(2))
        return self._observe(), {}

    def step(self, action):
        self.position = max(0, self.position + int(action) - 1 + (self.wind and int(self.np_random.integers(2))))
        return self._observe(), -0.1, self.position >= self.length, False, {}

    def _observe(self):
        return np.array([self.position, self.length, self.wind], np.float32)


gym.register("my/Env-v0", entry_point="my_package:Walk", max_episode_steps=12)
'''
TRAIN = [
    "train", "gymnasium", "--environment.id", "my_package:my/Env-v0", "--environment.options", '{"difficulty": 2}',
    "--real-steps", "1024", "--num-envs", "4", "--threads", "1", "--search.stage-length", "3", "--log-every", "200",
    "--agent.unroll-stages", "4", "--agent.batch-size", "4", "--evaluation.episodes", "6", "--evaluation.num-envs", "3",
    "--model.training.warm-up-transitions", "100", "--model.training.batch-size", "8", "--model.size", "vector",
    "--model.replay-capacity", "2000", "--checkpoint-minutes", "0",
]  # fmt: skip
CODE = """
import json, sys
from thinker.cli import main
for words in json.loads(sys.argv[1]):
    status = main(words)
    print("status", status, flush=True)
    if status:
        sys.exit(status)
"""
SOMEONE_ELSES = re.compile(r"sokoban|boxoban|solved", re.IGNORECASE)


def thinker(*commands: list[str]) -> list[str]:
    """A process that runs ``commands`` as the `thinker` script does: the current folder is not on the path."""
    return [sys.executable, "-I", "-c", CODE, json.dumps(commands)]


def run(folder: Path, *commands: list[str], status: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(thinker(*commands), cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stderr
    return done


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("work")
    (folder / "my_package").mkdir()
    (folder / "my_package" / "__init__.py").write_text(PACKAGE)
    return folder


@pytest.fixture(scope="module")
def printed(folder) -> str:
    """What a training prints that is stopped once and then resumed to its end."""
    process = subprocess.Popen(thinker(TRAIN), cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    checkpoints = folder / "runs" / "gymnasium" / "checkpoints"
    deadline = time.monotonic() + 120
    while not checkpoint.list_checkpoints(checkpoints) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGTERM)
    stopped, _ = process.communicate(timeout=120)
    assert process.returncode == 1, stopped
    assert re.search(r"stopped at \d+ real steps and saved; run the same command again to continue", stopped)
    resumed = run(folder, TRAIN)
    return stopped + resumed.stdout + resumed.stderr


def test_it_is_trained_and_resumed_to_its_end(folder, printed):
    assert "1,024 of 1,024 real steps" in printed
    summary = json.loads((folder / "runs" / "gymnasium" / "summary.json").read_text())
    assert summary["real_steps"] == 1024
    assert 1 <= summary["eval/length"] <= 12
    config = json.loads((folder / "runs" / "gymnasium" / "config.json").read_text())
    assert config["preset"] == "gymnasium"
    assert config["settings"]["environment"] == {
        "type": "gymnasium",
        "id": "my_package:my/Env-v0",
        "options": {"difficulty": 2},
        "max_steps": None,
        "success": None,
    }


def test_nothing_that_is_printed_or_kept_speaks_of_someone_elses_environment(folder, printed):
    assert SOMEONE_ELSES.findall(printed) == []
    for name in ("config.json", "metrics.jsonl", "summary.json"):
        text = (folder / "runs" / "gymnasium" / name).read_text()
        assert SOMEONE_ELSES.findall(text) == [], name


@pytest.mark.usefixtures("printed")
def test_it_is_tested_drawn_and_measured(folder):
    done = run(
        folder,
        ["eval", "gymnasium", "--episodes", "8", "--stage-length", "1", "5", "--device", "cpu"],
        ["plot", "gymnasium", "--out", "curves.png"],
        ["bench", *TRAIN[1:], "--seconds", "1"],
    )
    assert SOMEONE_ELSES.findall(done.stdout + done.stderr) == []
    assert "8 test episodes" in done.stdout
    assert len(re.findall(r"agent +\W +[15] ", done.stdout)) == 2
    assert "base-policy" in done.stdout
    assert (folder / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert re.search(r"gymnasium: [\d,]+ real steps/s", done.stdout)


@pytest.mark.usefixtures("printed")
def test_a_mistyped_option_of_the_environment_is_named(folder):
    words = [word.replace("difficulty", "dificulty") for word in TRAIN]
    done = run(folder, [*words, "--run", "other"], status=1)
    assert done.stderr.startswith("thinker: ")
    assert "dificulty" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (folder / "runs" / "other").exists()


@pytest.mark.usefixtures("printed")
def test_it_is_watched(folder):
    """The last test of this file: it needs the viewer."""
    done = run(folder, ["watch", "gymnasium", "--episodes", "2", "--out", "plan.html", "--recording", "plan.json"])
    assert SOMEONE_ELSES.findall(done.stdout + done.stderr) == []
    recording = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
    assert [episode["solved"] for episode in recording["episodes"]] == [None, None]
    page = (folder / "plan.html").read_text(encoding="utf-8")
    assert "<html" in page
    assert re.findall("sokoban|boxoban", page + json.dumps(recording), re.IGNORECASE) == []
