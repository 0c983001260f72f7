"""What happens when processes of a distributed run fail: real processes, killed or raising errors."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.runs.ray_engine.conftest import STORE_BYTES
from tests.runs.ray_engine.failing import ID
from tests.runs.support import TINY_MODEL, differences, tiny
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
def test_a_worker_that_dies_while_it_loads_or_starts_is_replaced(engine, capfd):
    advanced(engine, 1)
    state = engine.state_dict()
    os.kill(pid_of(engine.pool.actors[0]), signal.SIGKILL)
    engine.load_state_dict(state)
    assert "worker 0 is replaced: it died" in capfd.readouterr().err
    again = engine.state_dict()["workers"]["states"]
    assert differences(again["0"]["worker"]["env"], state["workers"]["states"]["0"]["worker"]["env"]) == []
    advanced(engine, 1)

    known = set(parts_of(os.getpid(), "WorkerPart"))
    killer = threading.Thread(target=kill_first, args=(known,))
    killer.start()
    engine.pool.renew(7)
    killer.join()
    assert "is replaced: it died" in capfd.readouterr().err
    advanced(engine, 2)


def kill_first(known: set[int]) -> None:
    """Kill the first worker that starts."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for pid in parts_of(os.getpid(), "WorkerPart"):
            if pid not in known:
                os.kill(pid, signal.SIGKILL)
                return
        time.sleep(0.01)


@pytest.mark.slow
def test_a_full_object_store_slows_training_down_but_does_not_stop_it(cluster):
    import ray
    from ray._private.internal_api import memory_summary

    settings = tiny("sokoban-quick", device="cpu", num_envs=64, real_steps=10_000, exploration_steps=0)
    agent = dataclasses.replace(settings.agent, unroll_stages=20, batch_size=64, objective="v-trace")
    training = dataclasses.replace(settings.model.training, replay_ratio=0.1)
    model = dataclasses.replace(settings.model, training=training)
    settings = dataclasses.replace(settings, agent=agent, model=model)
    spec = RaySpec(workers=2)
    engine = spec.start(spec.build_run(settings))
    try:
        # Views of objects in the store: as long as they exist, Ray cannot move these objects to disk.
        ballast = [ray.get(ray.put(np.ones(STORE_BYTES // 10, np.uint8))) for _ in range(9)]
        for _ in range(3):
            episodes, metrics = engine.advance()
            assert episodes.real_steps == 64 * 20
            assert metrics["ray/unroll_megabytes"] > 1  # Ray would keep small objects elsewhere
        # Two batches of two unrolls, and weights, do not fit in what is left.
        assert 4 * metrics["ray/unroll_megabytes"] * 1e6 > STORE_BYTES / 10
        assert "Spilled" in memory_summary(ray.get_runtime_context().gcs_address, stats_only=True)
        assert metrics["ray/lost_unrolls"] == 0
        assert all(one.all() for one in ballast)
    finally:
        engine.close()


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
    "train", "cartpole", "--run", "mortal", "--engine", "ray", "--workers", "1", "--real-steps", "200000", "--num-envs",
    "8", "--agent.unroll-stages", "4", "--agent.batch-size", "4", "--log-every", "64", "--checkpoint-minutes", "0",
    "--evaluation.episodes", "4", *TINY_MODEL,
]  # fmt: skip


def start(root: Path) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "thinker", *TRAIN, "--root", str(root)]
    path = os.pathsep.join([str(REPOSITORY / "src"), str(REPOSITORY)])
    environment = {**os.environ, "PYTHONPATH": path}
    environment.pop("RAY_ADDRESS", None)
    return subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, start_new_session=True
    )


def wait_for(condition: Any, process: subprocess.Popen[str], seconds: float = 300.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if process.poll() is not None:
            assert process.stdout is not None
            raise AssertionError(f"the run ended with {process.returncode}: {process.stdout.read()}")
        assert time.monotonic() < deadline, "it takes too long"
        time.sleep(0.1)


def parts_of(driver: int, name: str) -> list[int]:
    """The processes of parts ``name`` of the run that ``driver`` started, by the names that Ray gives them."""
    found = []
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
        if driver in ancestors and title.startswith(f"ray::{name}"):
            found.append(int(entry.name))
    return found


def is_alive(pid: int) -> bool:
    """Whether the process computes; one that has ended may stay in /proc until its parent takes note."""
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


PARTS = ("WorkerPart", "LearnerPart", "TrainerPart")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds processes in /proc")
def test_after_the_death_of_any_process_and_after_ctrl_c_the_same_command_goes_on(tmp_path: Path):
    pytest.importorskip("ray", reason="needs Ray: pip install 'thinker[ray]'")
    saved = tmp_path / "mortal" / "checkpoints"
    steps = [0]
    for event in ("driver", "LearnerPart", "TrainerPart", "SIGTERM", "SIGINT"):
        process = start(tmp_path)
        try:
            newest = checkpoint.list_checkpoints(saved)[-1:]
            wait_for(lambda newest=newest: checkpoint.list_checkpoints(saved)[-1:] != newest, process)
            parts = [pid for name in PARTS for pid in parts_of(process.pid, name)]
            assert len(parts) == 3
            if event == "driver":
                process.kill()
                process.wait()
            elif event in PARTS:
                os.kill(parts_of(process.pid, event)[0], signal.SIGKILL)
                out = " ".join(process.communicate(timeout=120)[0].split())
                assert process.returncode == 1
                assert f"the process of the {'agent' if event == 'LearnerPart' else 'model'}'s" in out
                assert "has died" in out
                assert "Run the same command again to continue from the last checkpoint" in out
            else:  # as a terminal does: the whole group of processes
                os.killpg(process.pid, getattr(signal, event))
                out = " ".join(process.communicate(timeout=120)[0].split())
                assert process.returncode == 1
                assert "real steps and saved; run the same command again to continue" in out
            deadline = time.monotonic() + 60  # Ray's own agents notice it later than the parts of the run
            while any(map(is_alive, parts)) and time.monotonic() < deadline:
                time.sleep(0.2)
            assert not any(map(is_alive, parts)), "processes are left"
        finally:
            if process.poll() is None:
                process.kill()
        steps.append(checkpoint.load_latest(saved)[0])
        assert steps[-1] > steps[-2], event
    lines = [line["step"] for line in read_metrics(tmp_path / "mortal")]
    assert lines == sorted(set(lines))  # nothing was done twice
    assert json.loads((tmp_path / "mortal" / "config.json").read_text())["engine"]["workers"] == 1
