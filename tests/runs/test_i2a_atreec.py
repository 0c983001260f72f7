"""Runs with I2A and ATreeC: the presets, models by choice, exact resume."""

from __future__ import annotations

import dataclasses

import pytest

from tests.runs.support import advance, differences, engine, tiny
from thinker.agents import ATreeCSpec, I2ASpec
from thinker.envs.gymnasium import GymnasiumSpec
from thinker.errors import UserError
from thinker.runs import checkpoint
from thinker.runs.evaluate import evaluate_run
from thinker.runs.folder import RunFolder
from thinker.runs.load import load_run
from thinker.runs.presets import preset
from thinker.runs.settings import RunSettings
from thinker.runs.train import train
from thinker.world_model.spec import BoardModelSpec, DualModelSpec, NoModelSpec, SimulatorSpec, SingleModelSpec

PRESETS = ["sokoban-i2a", "sokoban-atreec"]


def kinds() -> dict[str, RunSettings]:
    i2a = tiny("sokoban-i2a")
    cartpole = GymnasiumSpec(id="CartPole-v1", max_steps=9)
    return {
        "atreec": tiny("sokoban-atreec"),
        "i2a board": i2a,
        "i2a dual": dataclasses.replace(i2a, model=DualModelSpec(training=i2a.model.training, replay_capacity=2_000)),
        "i2a simulator": dataclasses.replace(i2a, model=SimulatorSpec(), exploration_steps=0),
        "i2a copies": dataclasses.replace(
            i2a,
            environment=cartpole,
            model=SimulatorSpec(),
            exploration_steps=0,
            agent=dataclasses.replace(i2a.agent, network_size="small"),
        ),
    }


@pytest.mark.parametrize("kind", kinds())
def test_a_run_that_is_saved_and_loaded_ends_bit_for_bit_like_an_unbroken_one(kind, tmp_path):
    settings = kinds()[kind]
    expected = advance(engine(settings), 6).run
    assert expected.learner.updates > 0
    assert expected.trainer is None or expected.trainer.trained_transitions > 0
    first = advance(engine(settings), 3).run
    checkpoint.save(tmp_path, first.real_steps, first.state_dict())
    second = advance(engine(settings), 2)  # whatever it has done before must not matter
    second.run.load_state_dict(checkpoint.load_latest(tmp_path)[1])
    assert differences(advance(second, 3).run.state_dict(), expected.state_dict()) == []


@pytest.mark.parametrize("name", PRESETS)
def test_the_presets_train_are_evaluated_and_loaded_like_any_other(name, tmp_path):
    settings = tiny(name, real_steps=160)
    summary = train(settings, tmp_path, "run", preset=name)
    assert summary["real_steps"] == 160
    assert 0 <= summary["eval/solved"] <= 1
    run = load_run(RunFolder(tmp_path, "run"))
    assert run.settings == settings
    same = [evaluate_run(run, episodes=6, greedy=True).returns.tolist() for _ in range(2)]
    assert same[0] == same[1]


def test_the_presets_have_the_levels_and_the_discount_of_the_raw_baseline():
    raw = preset("sokoban-raw")
    for name, kind in zip(PRESETS, (I2ASpec, ATreeCSpec)):
        settings = preset(name)
        assert isinstance(settings.agent, kind)
        assert (settings.environment, settings.search, settings.real_steps) == (
            raw.environment,
            raw.search,
            raw.real_steps,
        )


def test_the_model_of_i2a_learns_along_or_stays_as_random_play_left_it():
    settings = tiny("sokoban-i2a")
    assert isinstance(settings.model, BoardModelSpec)
    training = dataclasses.replace(settings.model.training, replay_ratio=1e-9)
    frozen = dataclasses.replace(settings, model=dataclasses.replace(settings.model, training=training))
    for chosen, changes in ((settings, True), (frozen, False)):
        moved = advance(engine(chosen), 1)  # random play
        before = {name: value.clone() for name, value in moved.run.trainer.network.state_dict().items()}
        advance(moved, 5)
        after = moved.run.trainer.network.state_dict()
        assert any(not after[name].equal(value) for name, value in before.items()) == changes


def test_i2a_needs_a_model_that_predicts_states():
    with pytest.raises(UserError, match="I2ASpec needs a model to search, and NoModelSpec has none"):
        tiny("sokoban-i2a", model=NoModelSpec())
    with pytest.raises(UserError, match="I2ASpec uses predicted states, but SingleModelSpec with these settings"):
        tiny("sokoban-i2a", model=SingleModelSpec(state_loss="none"))
    with pytest.raises(UserError, match="ATreeCSpec acts in the raw MDP and does not use BoardModelSpec"):
        tiny("sokoban-atreec", model=BoardModelSpec())
