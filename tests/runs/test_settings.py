"""Settings: they survive JSON and the command line, and what does not fit is refused with what would."""

from __future__ import annotations

import dataclasses
import json
import shlex
from typing import Any

import pytest

import thinker
from thinker.agents import LearnedAgentSpec
from thinker.cli import main
from thinker.envs.gymnasium import FunctionSpec, GymnasiumSpec
from thinker.envs.sokoban.spec import SokobanSpec
from thinker.errors import UserError
from thinker.nn.sizes import TilesSize, VectorSize
from thinker.planners import MCTSSpec
from thinker.runs import registry
from thinker.runs.presets import PRESETS, preset, training_command
from thinker.runs.settings import EvaluationSettings, RunSettings, SearchSettings, settings_from_dict
from thinker.world_model.spec import DualModelSpec, LearnedSpec, NoModelSpec, SingleModelSpec
from thinker.world_model.trainer import TrainerSettings


def through_json(settings: RunSettings) -> RunSettings:
    return settings_from_dict(json.loads(json.dumps(settings.to_dict())))


def changed(name: str) -> RunSettings:
    """The preset with every kind of setting changed: numbers, names, lists, None, yes and no."""
    settings = preset(name)
    raw = settings.agent.acts_in() != "augmented"
    search = dataclasses.replace(
        settings.search,
        stage_length=1 if raw else 3,
        max_depth=None,
        carry_tree=False,
        observe=("tree", "real_state", "hidden"),
        mask=("hints",),
        extra=("termination", "action_sequence"),
    )
    agent: Any = settings.agent
    if isinstance(agent, LearnedAgentSpec):
        agent = dataclasses.replace(agent, learning_rate=3e-5, normalise_advantages=False, objective="v-trace")
    else:
        agent = dataclasses.replace(agent, simulations=3, max_depth=9)
    if isinstance(agent, MCTSSpec):
        agent = dataclasses.replace(agent, temperatures=(3.0, 2.0, 1.0))
    model: Any = settings.model
    if isinstance(model, LearnedSpec):
        training = dataclasses.replace(model.training, adam_betas=(0.5, 0.75), gradient_clip=None, return_length=7)
        model = dataclasses.replace(
            model, training=training, precision="float32", replay_capacity=1_000, support_size=9
        )
    environment: Any = settings.environment
    if isinstance(environment, GymnasiumSpec):
        options = {"difficulty": 2, "name": "two words", "deep": {"list": [1, None]}}
        environment = dataclasses.replace(environment, id="my_package:my/Env-v0", options=options, max_steps=9)
    elif isinstance(environment, SokobanSpec):
        environment = dataclasses.replace(environment, reverse_moves=(2, 3), levels="my levels/train", boxes=2)
    return dataclasses.replace(
        settings,
        seed=7,
        real_steps=50_000,
        annealing_steps=60_000,
        device="cpu",
        environment=environment,
        search=search,
        model=model,
        agent=agent,
        evaluation=EvaluationSettings(episodes=3, every=500),
    )


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_survives_json(name):
    for settings in (preset(name), changed(name)):
        assert through_json(settings) == settings
        assert json.loads(json.dumps(settings.to_dict())) == json.loads(json.dumps(through_json(settings).to_dict()))


@pytest.mark.parametrize("name", PRESETS)
def test_the_training_command_leads_to_the_same_settings(name, monkeypatch):
    seen: list[tuple[RunSettings, str]] = []

    def train(preset_name: str, options: object, settings: RunSettings) -> None:
        seen.append((settings, preset_name))

    monkeypatch.setattr("thinker.cli.train._train", train)
    assert training_command(name, preset(name)) == f"thinker train {name}"
    for settings in (preset(name), changed(name)):
        program, *words = shlex.split(training_command(name, settings))
        assert program == "thinker"
        assert main(words) == 0
        assert seen.pop() == (settings, name)


def test_every_registered_type_survives_json():
    base = preset("gymnasium")
    for environment in registry.ENVIRONMENTS.values():
        for model in registry.MODELS.values():
            for agent in registry.AGENTS.values():
                where, nothing = agent().acts_in(), model is NoModelSpec
                if nothing != (where == "raw"):
                    continue
                search = SearchSettings(stage_length=4 if where == "augmented" else 1)
                settings = dataclasses.replace(
                    base, environment=environment(), model=model(), agent=agent(), search=search
                )
                assert through_json(settings) == settings


@pytest.mark.parametrize("size", [None, "tiles", TilesSize(channels=8), VectorSize(channels=16)])
def test_a_models_size_survives_json_by_name_and_as_an_object(size):
    settings = dataclasses.replace(preset("cartpole"), model=DualModelSpec(size=size))
    assert through_json(settings) == settings


@pytest.mark.parametrize(
    ("where", "value", "message"),
    [
        ((), {"sed": 1}, r"RunSettings has no setting sed\b.*seed"),
        (("environment",), {"type": "sokoban", "bokses": 2}, r"SokobanSpec has no setting bokses\b.*boxes"),
        (("model", "training"), {"batch_sise": 2}, r"TrainerSettings has no setting batch_sise\b.*batch_size"),
        (("environment",), {"type": "chess"}, "no type 'chess'; known are sokoban, minatar, atari, gymnasium"),
        (("model",), {"type": "duel"}, "no type 'duel'; known are dual, single, board, simulator"),
        (("agent",), {"type": "human"}, "no type 'human'; known are thinker, raw"),
        (("agent",), {}, "no type None; known are thinker, raw"),
    ],
)
def test_unknown_settings_and_types_are_errors_that_say_what_fits(where, value, message):
    values = json.loads(json.dumps(preset("sokoban-quick").to_dict()))
    if not where:
        values |= value
    else:
        *path, last = where
        inner = values
        for name in path:
            inner = inner[name]
        inner[last] = value
    with pytest.raises(UserError, match=message):
        settings_from_dict(values)


def test_a_type_that_is_not_registered_cannot_be_saved():
    settings = dataclasses.replace(preset("cartpole"), environment=FunctionSpec(dict))
    with pytest.raises(
        UserError, match=r"FunctionSpec is not registered.*ENVIRONMENTS.*sokoban, minatar, atari, gymnasium"
    ):
        settings.to_dict()


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("sokoban-raw", {"search": SearchSettings(stage_length=8)}, r"RawAgentSpec.*stage_length must be 1, not 8"),
        ("sokoban-quick", {"model": NoModelSpec()}, r"ThinkerAgentSpec needs a model.*use dual, single, board"),
        (
            "sokoban-quick",
            {"model": DualModelSpec(state_loss="none"), "search": SearchSettings(observe=("tree", "predicted_state"))},
            "'predicted_state', but DualModelSpec .*use a model with a state loss",
        ),
        (
            "cartpole",
            {"model": SingleModelSpec(state_loss="none"), "search": SearchSettings(observe=("predicted_state",))},
            "'predicted_state', but SingleModelSpec ",
        ),
    ],
)
def test_wrong_combinations_are_errors_that_say_what_fits(name, changes, message):
    with pytest.raises(UserError, match=message):
        dataclasses.replace(preset(name), **changes)


def test_right_combinations_with_predicted_states_are_taken():
    search = SearchSettings(observe=("tree", "predicted_state"))
    for model in (DualModelSpec(), SingleModelSpec(), registry.MODELS["simulator"]()):
        dataclasses.replace(preset("cartpole"), model=model, search=search)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"real_steps": 0}, "real_steps is 0; it must be at least 1"),
        ({"num_envs": 0}, "num_envs is 0"),
        ({"log_every": 0}, "log_every is 0"),
        ({"exploration_steps": -1}, "exploration_steps is -1; it must be at least 0"),
        ({"exploration_length": 0}, "exploration_length is 0"),
        ({"threads": -1}, "threads is -1"),
        ({"seed": -1}, "seed is -1"),
        ({"evaluation": EvaluationSettings(episodes=0)}, "evaluation.episodes is 0"),
        ({"evaluation": EvaluationSettings(num_envs=0)}, "evaluation.num_envs is 0"),
        ({"evaluation": EvaluationSettings(every=-1)}, "evaluation.every is -1"),
        ({"real_steps": 300_001}, "annealing_steps is 300000: the learning rates would be 0 from there on"),
    ],
)
def test_numbers_out_of_range_are_refused(changes, message):
    with pytest.raises(UserError, match=message):
        dataclasses.replace(preset("sokoban-quick"), **changes)


def test_presets_are_found_by_name_and_mistyped_ones_are_guessed():
    assert preset("sokoban-quick").environment == SokobanSpec(size=7, boxes=1, max_steps=30, held_out_max_steps=60)
    assert thinker.preset("cartpole").environment.name == "CartPole-v1"
    with pytest.raises(UserError, match=r"did you mean 'sokoban-quick'\? presets are .*gymnasium"):
        preset("sokoban-quik")


def test_settings_are_immutable_and_equal_by_value():
    settings = preset("cartpole")
    assert settings == preset("cartpole") != preset("gymnasium")
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.seed = 3  # type: ignore[misc]
    assert DualModelSpec(training=TrainerSettings()) == DualModelSpec()
