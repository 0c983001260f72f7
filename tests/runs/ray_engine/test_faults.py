"""What happens when processes of a distributed run fail: real processes, killed or raising errors."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.runs.ray_engine.conftest import STORE_BYTES
from tests.runs.ray_engine.failing import ID
from tests.runs.support import tiny
from thinker.envs.gymnasium import GymnasiumSpec
from thinker.errors import UserError
from thinker.runs import checkpoint
from thinker.runs.engines.ray.spec import RaySpec
from thinker.runs.metrics import read_metrics

REPOSITORY = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def fault(tmp_path_factory) -> Path:
    """The file that lets the environments of `engine` fail."""
    return tmp_path_factory.mktemp("fault") / "fault"


@pytest.fixture(scope="module")
def engine(cluster, fault: Path) -> Iterator[Any]:
    """Two workers that act while the agent learns by V-trace."""
    settings = tiny(
        "cartpole",
        device="cpu",
        real_steps=100_000,
        environment=GymnasiumSpec(id=ID, options={"fault": str(fault)}),
        exploration_steps=0,
    )
    settings = dataclasses.replace(settings, agent=dataclasses.replace(settings.agent, objective="v-trace"))
    spec = RaySpec(workers=2, worker_retries=1)
    started = spec.start(spec.build_run(settings))
    yield started
    started.close()


def pid_of(actor: Any) -> int:
    import ray

    return int(ray.get(actor.pid.remote()))


def advanced(engine: Any, rounds: int) -> dict[str, float]:
    """So many rounds later: the last metrics; every round trains each real step exactly once."""
    metrics: dict[str, float] = {}
    for _ in range(rounds):
        before = engine.run.real_steps
        episodes, metrics = engine.advance()
        assert episodes.real_steps == 8 * 4  # environments times stages of an unroll
        assert engine.run.real_steps == before + episodes.real_steps
        assert metrics["ray/agent_staleness_max"] <= 1
    return metrics


def trained_on(engine: Any) -> tuple[int, int, float]:
    """Transitions collected, and trained on: as counted by the trainer, and as they should be."""
    trainer = engine.state_dict()["trainer"]
    collected, trained = trainer["collected_transitions"], trainer["trained_transitions"]
    return collected, trained, collected - trainer["uncounted_transitions"]


@pytest.mark.slow
def test_a_killed_worker_is_replaced_and_nothing_is_trained_twice(engine, capfd):
    advanced(engine, 5)
    victim = engine.pool.actors[1]
    os.kill(pid_of(victim), signal.SIGKILL)
    metrics = advanced(engine, 4)
    assert metrics["ray/lost_unrolls"] == metrics["ray/replaced_workers"] == 1
    assert engine.pool.actors[1] is not victim
    assert "worker 1 is replaced and its unroll is lost" in capfd.readouterr().err
    collected, trained, counted = trained_on(engine)
    assert collected == engine.run.real_steps
    settings = engine.run.settings.model.training
    batch = settings.batch_size * settings.unroll_length
    # The last unroll has been stored and is trained on in the next round.
    due = settings.replay_ratio * (counted - 8 * 4)
    assert trained <= due < trained + batch


@pytest.mark.slow
def test_a_full_object_store_slows_training_down_but_does_not_stop_it(engine):
    import ray

    ballast = [ray.put(np.ones(STORE_BYTES // 8, np.uint8)) for _ in range(9)]  # more than there is room for
    lost = engine.pool.lost_unrolls
    advanced(engine, 3)
    assert engine.pool.lost_unrolls == lost
    assert all(ray.get(one)[0] == 1 for one in ballast)


@pytest.mark.slow
def test_a_worker_that_raises_is_reported_and_after_some_retries_ends_the_run(engine, fault: Path, capfd):
    lost = engine.pool.lost_unrolls
    fault.touch()
    try:
        with pytest.raises(UserError, match=r"(?s)failed 2 times in a row.*failing.py.*the pole is broken"):
            advanced(engine, 3)
    finally:
        fault.unlink()
    assert lost + 2 <= engine.pool.lost_unrolls <= lost + 3  # the other worker may have failed once
    reported = capfd.readouterr().err
    assert re.search(r"(?s)worker \d is replaced and its unroll is lost.*failing.py.*the pole is broken", reported)


# -------------------------------------------------------------------------------- the driver, the learner

TRAIN = [
    "train", "gymnasium-raw", "--environment.id", "CartPole-v1", "--run", "mortal", "--engine", "ray", "--workers", "1",
    "--real-steps", "200000", "--num-envs", "8", "--agent.unroll-stages", "4", "--agent.batch-size", "4", "--log-every",
    "64", "--checkpoint-minutes", "0", "--evaluation.episodes", "4",
]  # fmt: skip


def start(root: Path) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "thinker", *TRAIN, "--root", str(root)]
    path = os.pathsep.join([str(REPOSITORY / "src"), str(REPOSITORY)])
    environment = {**os.environ, "PYTHONPATH": path}
    environment.pop("RAY_ADDRESS", None)
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)


def wait_for(condition: Any, process: subprocess.Popen[str], seconds: float = 300.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if process.poll() is not None:
            assert process.stdout is not None
            raise AssertionError(f"the run ended with {process.returncode}: {process.stdout.read()}")
        assert time.monotonic() < deadline, "it takes too long"
        time.sleep(0.1)


def parts_of(driver: int) -> dict[str, int]:
    """The processes of the run that ``driver`` started, by the names that Ray gives them."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            title = (entry / "cmdline").read_bytes().decode(errors="replace").strip("\0")
            ancestors, pid = [], int(entry.name)
            while pid > 1:
                ancestors.append(pid)
                pid = int((Path("/proc") / str(pid) / "stat").read_text().rsplit(")", 1)[1].split()[1])
        except OSError:  # it has ended
            continue
        if driver in ancestors and title.startswith("ray::"):
            found[title.removeprefix("ray::").split(".")[0].split(":")[0]] = int(entry.name)
    return found


def is_alive(pid: int) -> bool:
    """Whether the process computes; one that has ended may stay in /proc until its parent takes note."""
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds processes in /proc")
def test_after_the_death_of_the_driver_or_the_learner_the_same_command_goes_on(tmp_path: Path):
    pytest.importorskip("ray", reason="needs Ray: pip install 'thinker[ray]'")
    saved = tmp_path / "mortal" / "checkpoints"
    first = start(tmp_path)
    try:
        wait_for(lambda: len(checkpoint.list_checkpoints(saved)) >= 2, first)
        # Ray's own agents notice it later than the parts of the run.
        parts = {name: pid for name, pid in parts_of(first.pid).items() if name.endswith("Part")}
        assert len(parts) == 2
        first.kill()
        first.wait()
        deadline = time.monotonic() + 60
        while any(map(is_alive, parts.values())) and time.monotonic() < deadline:
            time.sleep(0.2)
        assert not [name for name, pid in parts.items() if is_alive(pid)], "processes are left"
        step = checkpoint.load_latest(saved)[0]

        second = start(tmp_path)
        newest = checkpoint.list_checkpoints(saved)[-1]
        wait_for(lambda: checkpoint.list_checkpoints(saved)[-1] != newest, second)
        os.kill(parts_of(second.pid)["LearnerPart"], signal.SIGKILL)
        out, _ = second.communicate(timeout=120)
        assert second.returncode == 1
        assert "the process of the agent's learner has died" in out
        assert "Run the same command again to continue from the last checkpoint" in " ".join(out.split())
    finally:
        for process in (first, locals().get("second")):
            if process is not None and process.poll() is None:
                process.kill()
    assert checkpoint.load_latest(saved)[0] > step
    steps = [line["step"] for line in read_metrics(tmp_path / "mortal")]
    assert steps == sorted(set(steps))  # nothing was done twice
    assert json.loads((tmp_path / "mortal" / "config.json").read_text())["engine"]["workers"] == 1
