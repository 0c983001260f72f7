"""Runs with a planner as the agent: what the model is trained on, exploration by progress, exact resume."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pytest
import torch

from tests.runs.support import advance, differences, engine, tiny
from thinker.errors import UserError
from thinker.planners import ExhaustiveSpec, GumbelMCTSSpec, MCTSSpec, PlannerActor, RandomSearchSpec
from thinker.planners.agent import PlannerAgent
from thinker.runs import checkpoint
from thinker.runs.evaluate import evaluate_run
from thinker.runs.folder import RunFolder
from thinker.runs.load import load_run
from thinker.runs.presets import preset
from thinker.runs.settings import RunSettings, SearchSettings, settings_from_dict
from thinker.runs.train import train
from thinker.world_model.heads import CategoricalHead
from thinker.world_model.spec import (
    BoardModelSpec,
    DualModelSpec,
    LearnedSpec,
    LearnedValuesSimulatorSpec,
    NoModelSpec,
    SimulatorSpec,
)

PRESETS = [
    "sokoban-muzero",
    "sokoban-muzero-board",
    "sokoban-muzero-simulator",
    "sokoban-gumbel",
    "sokoban-gumbel-board",
]


def with_model(name: str, spec: type[LearnedSpec], **changes: Any) -> RunSettings:
    """A tiny run of the preset ``name`` with another kind of model."""
    settings = tiny(name)
    assert isinstance(settings.model, LearnedSpec)
    training = dataclasses.replace(settings.model.training, unroll_length=2)
    model = spec(training=training, replay_capacity=2_000, **changes)
    return dataclasses.replace(settings, model=model, exploration_steps=0)


def searches(monkeypatch: pytest.MonkeyPatch, spec: type = MCTSSpec) -> list[dict[str, Any]]:
    """Records the arguments and results of all searches from now on."""
    seen: list[dict[str, Any]] = []
    search = spec.search

    def watched(self, model, root, **arguments):
        result = search(self, model, root, **arguments)
        seen.append({**arguments, "root": root, "result": result})
        return result

    monkeypatch.setattr(spec, "search", watched)
    return seen


# ------------------------------------------------------------------------------------- what the model is trained on


@pytest.mark.parametrize("name", PRESETS)
def test_improved_policies_and_values_of_the_search_become_targets(name, monkeypatch):
    moved = engine(tiny(name))
    run, stored = moved.run, []
    seen = searches(monkeypatch, type(run.settings.agent))
    store = run.trainer.store
    run.trainer.store = lambda transition: (stored.append(transition), store(transition))
    advance(moved, 3)
    acted = [transition for transition in stored if not transition.random_play]
    assert len(acted) == len(seen) == 8
    for transition, searched in zip(acted, seen):
        result = searched["result"]
        np.testing.assert_array_equal(transition.policy, result.policy)
        np.testing.assert_array_equal(transition.root_value, result.value)
        np.testing.assert_array_equal(transition.action, result.action)
        assert result.simulations == 5
        if name == "sokoban-muzero":
            np.testing.assert_allclose(result.policy, result.visits / result.visits.sum(1, keepdims=True), rtol=1e-6)
    rings = run.trainer.replay._rings
    stored_values = rings.transitions["root_value"][:, 8:16]  # after 8 steps of random play
    np.testing.assert_array_equal(stored_values.T, [searched["result"].value for searched in seen])


def test_value_targets_are_bootstrapped_with_the_value_that_the_search_found(monkeypatch):
    settings = with_model("sokoban-muzero", BoardModelSpec)
    assert settings.model.training.return_length == 10
    environment = dataclasses.replace(settings.environment, max_steps=100)
    moved = engine(dataclasses.replace(settings, environment=environment))
    search = MCTSSpec.search

    def sure(self, *arguments, **options):
        result = search(self, *arguments, **options)
        return dataclasses.replace(result, value=np.full_like(result.value, 100.0))

    monkeypatch.setattr(MCTSSpec, "search", sure)
    advance(moved, 4)
    batch = moved.run.trainer.replay.sample(30, 0.0)
    # ten rewards between -0.1 and 11, then the bootstrap; no episode ends except for those that are solved
    bootstrapped = 100 * 0.93**10
    far = batch.value_target[:, 0] > 15
    assert far.sum() > 10
    assert (batch.value_target[far, 0] > bootstrapped - 1.1).all()
    assert (batch.value_target[far, 0] < bootstrapped + 11).all()


def test_random_play_teaches_no_values_before_the_planner_acts():
    moved = engine(tiny("sokoban-muzero"))
    before = {name: parameter.clone() for name, parameter in moved.run.networks()["model"].named_parameters()}
    moved.advance()
    after = dict(moved.run.networks()["model"].named_parameters())
    changed = {name.split(".")[0] for name, parameter in after.items() if not torch.equal(parameter, before[name])}
    assert "transition_predictor" in changed
    assert "evaluation_predictor" not in changed


# --------------------------------------------------------------------------------------------- noise and temperature


def test_planners_explore_in_training_as_far_as_it_has_come_and_never_outside(monkeypatch):
    settings = tiny("sokoban-muzero", real_steps=320)
    moved = engine(settings)
    seen, steps = searches(monkeypatch), []
    while not moved.run.finished:
        before = len(seen)
        steps += [moved.run.real_steps] * (0 if moved.run.real_steps < settings.exploration_steps else 4)
        moved.advance()
        assert len(seen) == len(steps), before
    assert all(searched["exploring"] for searched in seen)
    assert [searched["progress"] for searched in seen] == [step / 320 for step in steps]
    spec = settings.agent
    assert isinstance(spec, MCTSSpec)
    temperatures = [spec.temperature(searched["progress"]) for searched in seen]
    expected = [1.0 if step < 160 else 0.5 if step < 240 else 0.25 for step in steps]
    assert temperatures == expected
    assert set(expected) == {1.0, 0.5, 0.25}
    seen.clear()
    evaluate_run(moved.run, episodes=5)
    assert seen
    assert not any(searched["exploring"] for searched in seen)


def test_the_schedule_is_that_of_the_run_even_if_annealing_ends_later(monkeypatch):
    moved = engine(tiny("sokoban-muzero", real_steps=128, annealing_steps=10_000))
    seen = searches(monkeypatch)
    advance(moved, 3)
    assert [searched["progress"] for searched in seen] == [0.5] * 4 + [0.75] * 4


# ---------------------------------------------------------------------------------------------------------- exactness


def kinds() -> dict[str, RunSettings]:
    return {
        "mcts single": tiny("sokoban-muzero"),
        "gumbel single": tiny("sokoban-gumbel"),
        "mcts board": with_model("sokoban-muzero", BoardModelSpec, value_head="categorical"),
        "gumbel dual": with_model("sokoban-gumbel", DualModelSpec),
        "mcts board values": tiny("sokoban-muzero-simulator"),
        "mcts learned values": with_model("sokoban-muzero", LearnedValuesSimulatorSpec, value_head="categorical"),
        "mcts simulator": dataclasses.replace(tiny("sokoban-muzero"), model=SimulatorSpec()),
        "exhaustive": tiny("sokoban-muzero", agent=ExhaustiveSpec(depth=2, unroll_stages=4)),
        "random search": tiny("sokoban-muzero", agent=RandomSearchSpec(simulations=6, unroll_stages=4)),
    }


@pytest.mark.parametrize("kind", kinds())
def test_a_run_that_is_saved_and_loaded_ends_bit_for_bit_like_an_unbroken_one(kind, tmp_path):
    settings = kinds()[kind]
    expected = advance(engine(settings), 6).run
    assert expected.trainer is None or expected.trainer.trained_transitions > 0
    for moment in (1, 4):
        first = advance(engine(settings), moment).run
        checkpoint.save(tmp_path / str(moment), first.real_steps, first.state_dict())
        second = advance(engine(settings), 2)  # whatever it has done before must not matter
        second.run.load_state_dict(checkpoint.load_latest(tmp_path / str(moment))[1])
        assert differences(advance(second, 6 - moment).run.state_dict(), expected.state_dict()) == []


@pytest.mark.parametrize("name", PRESETS)
def test_training_the_model_beside_acting_changes_nothing(name):
    torch.set_num_threads(1)
    one, two = (advance(engine(tiny(name, threads=threads)), 6).run for threads in (1, 2))
    assert one.trainer.trained_transitions > 0
    assert differences(one.state_dict(), two.state_dict()) == []


# ------------------------------------------------------------------------------------------------ runs of planners


@pytest.mark.parametrize("name", PRESETS)
def test_the_presets_train_are_evaluated_and_loaded_like_any_other(name, tmp_path):
    summary = train(tiny(name, real_steps=160), tmp_path, "run", preset=name)
    assert summary["real_steps"] == 160
    assert 0 <= summary["eval/solved"] <= 1
    run = load_run(RunFolder(tmp_path, "run"))
    assert run.settings == tiny(name, real_steps=160)
    assert run.learner is None
    assert list(run.networks()) == ["model"]
    assert isinstance(run.worker.actor, PlannerActor)
    assert evaluate_run(run, episodes=5).stage_length == 1
    assert evaluate_run(run, "base-policy", episodes=5).stage_length == 1
    same = [evaluate_run(run, episodes=6, greedy=True).returns.tolist() for _ in range(2)]
    assert same[0] == same[1]


def test_the_presets_have_the_levels_of_sokoban_quick_and_muzeros_model():
    muzero, gumbel, quick = preset("sokoban-muzero"), preset("sokoban-gumbel"), preset("sokoban-quick")
    assert muzero.environment == gumbel.environment == quick.environment
    assert (muzero.real_steps, muzero.search.discount) == (quick.real_steps, quick.search.discount)
    assert isinstance(muzero.agent, MCTSSpec)
    assert isinstance(gumbel.agent, GumbelMCTSSpec)
    assert not muzero.model.predicts_states
    assert isinstance(engine(tiny("sokoban-muzero")).run.trainer.network.head, CategoricalHead)


def test_an_agent_of_a_planner_learns_nothing_itself():
    run = engine(tiny("sokoban-muzero")).run
    assert isinstance(run.agent, PlannerAgent)
    assert run.agent.learner is None
    assert run.agent.trajectory(run.worker.env) is None
    assert run.agent.unroll_stages == 4


def test_a_planner_needs_a_model_and_stages_of_one_step():
    with pytest.raises(UserError, match="MCTSSpec needs a model to search, and NoModelSpec has none; use dual, single"):
        tiny("sokoban-muzero", model=NoModelSpec())
    with pytest.raises(UserError, match=r"MCTSSpec .*search.stage_length must be 1, not 3"):
        tiny("sokoban-muzero", search=SearchSettings(stage_length=3))


def test_settings_saved_before_there_were_heads_mean_scalar_ones():
    for name in ("sokoban-quick", "sokoban-dual", "sokoban-single", "sokoban-simulator"):
        saved = json.loads(json.dumps(preset(name).to_dict()))
        for key in ("value_head", "support_size", "support_limit"):
            del saved["model"][key]
        assert settings_from_dict(saved) == preset(name)
