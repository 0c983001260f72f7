"""A model's trainer in a process of its own: the same results, and errors that reach the run."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from tests.runs.support import advance, differences, engine, tiny
from thinker.runs.engines.local import LocalEngine
from thinker.runs.engines.trainer_process import RemoteTrainer, TrainerProcess
from thinker.world_model.trainer import ModelDivergedError, ModelTrainer


@pytest.fixture(scope="module")
def process() -> Iterator[TrainerProcess]:
    started = TrainerProcess()
    assert started.is_ready(timeout=120)
    return started


def moved(to: TrainerProcess, which: LocalEngine) -> LocalEngine:
    which.run.trainer = RemoteTrainer(to, which.run.trainer)
    return which


@pytest.mark.parametrize("moment", [0, 3])
def test_a_trainer_that_moves_at_any_moment_gives_the_same_run_bit_for_bit(process, moment):
    settings = tiny("sokoban-quick", exploration_ratio=1.0)
    expected = advance(engine(settings), 6).run
    run = advance(moved(process, advance(engine(settings), moment)), 6 - moment).run
    assert expected.trainer.trained_transitions > 0
    assert differences(run.state_dict(), expected.state_dict()) == []
    assert differences(run.trainer.network.state_dict(), expected.trainer.network.state_dict()) == []


def test_the_core_seconds_of_a_run_include_those_of_the_other_process(process):
    run = advance(moved(process, engine(tiny("sokoban-quick"))), 1).run
    before, used = run.trainer.core_seconds, run.core_seconds
    moved_run = advance(LocalEngine(run), 2).run
    assert moved_run.trainer.core_seconds > before
    assert moved_run.core_seconds - used > moved_run.trainer.core_seconds - before


def test_a_run_whose_trainer_has_moved_goes_on_from_a_saved_state(process):
    settings = tiny("sokoban-quick")
    saved = advance(engine(settings), 3).run.state_dict()
    other = advance(moved(process, engine(settings)), 1)
    other.run.load_state_dict(saved)
    expected = engine(settings)
    expected.run.load_state_dict(saved)
    assert differences(advance(other, 2).run.state_dict(), advance(expected, 2).run.state_dict()) == []


def test_an_error_of_the_trainer_is_raised_in_the_run(process):
    run = advance(engine(tiny("sokoban-quick")), 4).run
    with torch.no_grad():
        next(iter(run.trainer.network.parameters())).fill_(np.nan)
    run.trainer = RemoteTrainer(process, run.trainer)
    with pytest.raises(ModelDivergedError, match="Lower the learning rate"):
        run.trainer.train_more(100)
    transition = run.worker.env.last_transition
    run.trainer.store(dataclasses.replace(transition, valid=transition.valid[:1]))
    with pytest.raises(Exception, match="valid has shape"):
        run.trainer.state_dict()


def test_a_trainer_that_cannot_move_stays_and_a_warning_says_so():
    class Local(ModelTrainer):
        """Cannot be imported by another process."""

    stays = engine(tiny("sokoban-quick", threads=2))
    stays.run.trainer.__class__ = Local
    stays.wait_for_process()
    with pytest.warns(UserWarning, match="trained in a thread"):
        advance(stays, 2)
    assert isinstance(stays.run.trainer, Local)
    assert stays.run.trainer.acting


def test_the_trainer_moves_as_soon_as_the_process_has_started():
    run = engine(tiny("sokoban-quick", threads=2))
    run.wait_for_process()
    assert isinstance(advance(run, 1).run.trainer, RemoteTrainer)


def test_a_process_that_has_ended_is_reported():
    ended = TrainerProcess()
    assert ended.is_ready(timeout=120)
    run = moved(ended, engine(tiny("sokoban-quick"))).run
    ended._process.kill()
    ended._process.wait()
    with pytest.raises(RuntimeError, match=r"ended with status -9.*--threads 1"):
        run.trainer.train()
