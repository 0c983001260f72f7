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


def thinker(*commands: list[str]) -> list[str]:
    """A process that runs ``commands`` as the `thinker` script does: the current folder is not on the path."""
    return [sys.executable, "-I", "-c", CODE, json.dumps(commands)]


def run(folder: Path, *commands: list[str], status: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(thinker(*commands), cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stderr
    return done


@pytest.fixture
def folder(tmp_path) -> Path:
    (tmp_path / "my_package").mkdir()
    (tmp_path / "my_package" / "__init__.py").write_text(PACKAGE)
    return tmp_path


def train_until_stopped(folder: Path) -> str:
    """What a training prints that is asked to stop after its first checkpoint."""
    process = subprocess.Popen(thinker(TRAIN), cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    checkpoints = folder / "runs" / "gymnasium" / "checkpoints"
    deadline = time.monotonic() + 120
    while not checkpoint.list_checkpoints(checkpoints) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGTERM)
    printed, _ = process.communicate(timeout=120)
    assert process.returncode == 1, printed
    return printed


@pytest.mark.slow
def test_an_environment_of_ones_own_is_trained_resumed_tested_drawn_measured_and_watched(folder):
    stopped = train_until_stopped(folder)
    assert re.search(r"stopped at \d+ real steps and saved; run the same command again to continue", stopped)
    resumed = run(folder, TRAIN)
    assert "1,024 of 1,024 real steps" in resumed.stdout
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

    used = run(
        folder,
        ["eval", "gymnasium", "--episodes", "8", "--stage-length", "1", "5", "--device", "cpu"],
        ["plot", "gymnasium", "--out", "curves.png"],
        ["bench", *TRAIN[1:], "--seconds", "1"],
    )
    assert "8 test episodes" in used.stdout
    assert len(re.findall(r"agent +\W +[15] ", used.stdout)) == 2
    assert "base-policy" in used.stdout
    assert (folder / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert re.search(r"gymnasium: [\d,]+ real steps/s", used.stdout)

    watched = run(folder, ["watch", "gymnasium", "--episodes", "2", "--out", "plan.html", "--recording", "plan.json"])
    recording = json.loads((folder / "plan.json").read_text(encoding="utf-8"))
    assert [episode["solved"] for episode in recording["episodes"]] == [None, None]
    page = (folder / "plan.html").read_text(encoding="utf-8")
    assert "<html" in page
    assert re.findall("sokoban|boxoban", page + json.dumps(recording), re.IGNORECASE) == []

    # Nothing printed or kept speaks of someone else's environment, nor of success, which this one does not tell.
    files = [folder / "runs" / "gymnasium" / name for name in ("config.json", "metrics.jsonl", "summary.json")]
    printed = [text for done in (resumed, used, watched) for text in (done.stdout, done.stderr)]
    assert (
        re.findall(
            "sokoban|boxoban|solved", "".join([stopped, *printed, *(file.read_text() for file in files)]), re.IGNORECASE
        )
        == []
    )


def test_a_mistyped_option_of_the_environment_is_named_before_there_is_a_folder(folder):
    words = [word.replace("difficulty", "dificulty") for word in TRAIN]
    done = run(folder, words, status=1)
    assert done.stderr.startswith("thinker: ")
    assert "dificulty" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (folder / "runs").exists()
