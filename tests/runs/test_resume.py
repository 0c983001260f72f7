"""Runs are exact: broken off anywhere, even killed, they end bit for bit like unbroken ones, on one thread or two."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from tests.runs.support import TINY_QUICK, advance, bits, differences, engine, tiny
from thinker.cli import main
from thinker.runs import checkpoint

KINDS = ["sokoban-quick", "sokoban-dual", "sokoban-raw", "sokoban-drc", "sokoban-simulator", "cartpole"]


@pytest.mark.parametrize("name", KINDS)
def test_a_run_that_is_saved_and_loaded_at_any_moment_ends_bit_for_bit_like_an_unbroken_one(name, tmp_path):
    expected = advance(engine(tiny(name)), 6).run.state_dict()
    for moment in (1, 4):
        first = advance(engine(tiny(name)), moment).run
        checkpoint.save(tmp_path / str(moment), first.real_steps, first.state_dict())
        second = advance(engine(tiny(name)), 1)  # whatever it has done before must not matter
        second.run.load_state_dict(checkpoint.load_latest(tmp_path / str(moment))[1])
        assert second.run.real_steps == first.real_steps
        got = advance(second, 6 - moment).run.state_dict()
        assert differences(got, expected) == []


def test_a_run_goes_on_from_a_checkpoint_before_it_has_done_anything(tmp_path):
    expected = advance(engine(tiny("sokoban-quick")), 5).run.state_dict()
    first = advance(engine(tiny("sokoban-quick")), 3).run
    checkpoint.save(tmp_path, first.real_steps, first.state_dict())
    second = engine(tiny("sokoban-quick"))
    second.run.load_state_dict(checkpoint.load_latest(tmp_path)[1])
    assert differences(advance(second, 2).run.state_dict(), expected) == []


@pytest.mark.parametrize("threads", [1, 2])
def test_two_runs_with_the_same_seed_are_identical_and_another_seed_is_not(threads):
    one, same, other = (
        advance(engine(tiny("sokoban-quick", seed=seed, threads=threads, exploration_ratio=1.0)), 4).run.state_dict()
        for seed in (1, 1, 2)
    )
    assert differences(one, same) == []
    assert differences(one, other) != []


@pytest.mark.parametrize("name", ["sokoban-quick", "sokoban-simulator"])
def test_training_the_model_beside_acting_changes_nothing(name):
    torch.set_num_threads(1)  # two computations of one thread each, as on two cores
    states = []
    for threads in (1, 2):
        settings = tiny(name, threads=threads)
        assert settings.trains_model_concurrently == (threads == 2)
        run = advance(engine(settings), 8).run
        state = run.state_dict()
        assert state["trainer"]["trained_transitions"] > 0
        states.append(bits(state))
    assert states[0] == states[1]


def train(root: Path, name: str) -> list[str]:
    return [sys.executable, "-m", "thinker", "train", *TINY_QUICK, "--root", str(root), "--run", name]


@pytest.mark.slow
def test_a_killed_run_goes_on_and_ends_bit_for_bit_like_an_unbroken_one(tmp_path):
    subprocess.run(train(tmp_path, "unbroken"), check=True, capture_output=True)
    for seconds in (0.3, 0.6):
        process = subprocess.Popen(train(tmp_path, "broken"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for_a_checkpoint(process, tmp_path / "broken" / "checkpoints")
        time.sleep(seconds)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    subprocess.run(train(tmp_path, "broken"), check=True, capture_output=True)
    states = [checkpoint.load_latest(tmp_path / name / "checkpoints")[1] for name in ("unbroken", "broken")]
    assert differences(*states) == []


def wait_for_a_checkpoint(process: subprocess.Popen, folder: Path) -> None:
    deadline = time.monotonic() + 120
    while not (folder.exists() and checkpoint.list_checkpoints(folder)):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_the_command_line_above_has_the_tiny_settings(monkeypatch):
    seen = []
    monkeypatch.setattr("thinker.cli.train._train", lambda name, options, settings: seen.append(settings))
    assert main(["train", *TINY_QUICK]) == 0
    assert seen == [tiny("sokoban-quick")]
