"""The probe of a trained run: perfect models and values come out as perfect, broken ones as broken."""

import dataclasses
import json
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from benchmarks import limits
from benchmarks.solver_probe import (
    Played,
    Shadowed,
    UniformSearch,
    WithSolverValues,
    Wrapper,
    play,
    roots,
    to_boards,
    to_planes,
)
from tests.runs.support import tiny
from thinker.augmented import ThinkerEnv
from thinker.envs.sokoban import engine, generate_levels
from thinker.envs.sokoban.solver import Solutions
from thinker.envs.sokoban.spec import SokobanSpec
from thinker.envs.sokoban.vector_env import SokobanVectorEnv
from thinker.errors import UserError
from thinker.interfaces import NO_ACTION, NodeOutput, WorldModel
from thinker.runs.build import build_run
from thinker.runs.evaluate import evaluate

DISCOUNT = 0.97
EPISODES = 12
SOLUTIONS = Solutions(DISCOUNT)


class NoPushes(Wrapper):
    """Believes that boxes cannot be pushed."""

    def unroll(self, hidden: Tensor, action: Tensor) -> NodeOutput:
        output = super().unroll(hidden, action)
        before, boxes = hidden.numpy(), (engine.BOX, engine.BOX_ON_TARGET)
        moved = np.isin(before, boxes) != np.isin(output.hidden.numpy(), boxes)
        pushed = torch.from_numpy(moved.any((1, 2)))
        state = torch.where(pushed[:, None, None, None], torch.from_numpy(to_planes(before)), output.state)
        return dataclasses.replace(output, state=state)


class Forgetful(Wrapper):
    """Loses the player whenever it would move up, and believes that every step down ends the episode."""

    def unroll(self, hidden: Tensor, action: Tensor) -> NodeOutput:
        output = super().unroll(hidden, action)
        state = output.state
        assert state is not None
        state[action == engine.UP, engine.PLAYER :] = 0
        return dataclasses.replace(output, termination=(action == engine.DOWN).float())


def held_out(num_envs: int = 5) -> SokobanVectorEnv:
    return SokobanSpec(size=6, boxes=2, max_steps=60).held_out("validation", num_envs, EPISODES)


def searching(model: WorldModel, envs: SokobanVectorEnv, stage_length: int) -> ThinkerEnv:
    return ThinkerEnv(envs, model, stage_length=stage_length, discount=DISCOUNT, observe=("tree",))


def uniform_play(model: WorldModel, envs: SokobanVectorEnv, lead: Solutions | None = None) -> Played:
    env = searching(model, envs, 4)
    return play(env, UniformSearch(env, seed=0), EPISODES, lead)


def test_boards_and_planes_are_inverse() -> None:
    boards = generate_levels(3, 6, 2, seed=0).boards
    envs = SokobanVectorEnv(3, levels=generate_levels(3, 6, 2, seed=0), order="sequential")
    np.testing.assert_array_equal(to_planes(boards), envs.reset()[0])
    np.testing.assert_array_equal(to_boards(to_planes(boards)), boards)


def test_uniform_search_with_perfect_model_and_values_solves_every_level_and_without_values_does_not() -> None:
    envs = held_out()
    env = searching(WithSolverValues(envs.simulator(), SOLUTIONS), envs, 40)
    perfect = evaluate(env, UniformSearch(env, seed=0), EPISODES)
    assert perfect.success is not None
    assert perfect.success.all()
    envs = held_out()
    env = searching(envs.simulator(), envs, 3)
    blind = evaluate(env, UniformSearch(env, seed=0), EPISODES)
    assert blind.success is not None
    assert blind.success.mean() < 0.7


def test_solver_values_are_those_of_the_predicted_boards_and_broken_boards_are_unsolvable() -> None:
    envs = held_out()
    observation, _ = envs.reset()
    model = WithSolverValues(Forgetful(envs.simulator()), SOLUTIONS)
    root = model.root(torch.from_numpy(observation), torch.full((5,), NO_ACTION))
    np.testing.assert_allclose(root.value, SOLUTIONS.values(to_boards(observation)), atol=1e-5)
    right = model.unroll(root.hidden, torch.full((5,), engine.RIGHT))
    assert right.state is not None
    np.testing.assert_allclose(right.value, SOLUTIONS.values(to_boards(right.state)), atol=1e-5)
    up = model.unroll(root.hidden, torch.full((5,), engine.UP))
    np.testing.assert_allclose(up.value, SOLUTIONS.unsolvable_value, atol=1e-5)


def test_an_actor_that_is_led_plays_shortest_solutions_but_its_own_choices_are_kept() -> None:
    envs = held_out()
    played = uniform_play(envs.simulator(), envs, SOLUTIONS)
    assert played.solved.all()
    first = np.flatnonzero(played.last_action == NO_ACTION)
    assert len(first) == EPISODES
    np.testing.assert_array_equal(np.bincount(played.episode), SOLUTIONS.steps(played.board[first]))
    assert SOLUTIONS.optimal_actions(played.board)[np.arange(len(played.board)), played.action].all()
    assert (played.chosen != played.action).any()


def test_recorded_play_is_one_episode_after_another_and_follows_the_rules() -> None:
    envs = held_out()
    played = uniform_play(envs.simulator(), envs)
    assert (np.diff(played.episode) >= 0).all()
    boards, reward = played.board.copy(), np.empty(len(played.board))
    engine.step_boards(boards, played.action, reward, np.empty(len(boards), np.bool_))
    same = played.episode[1:] == played.episode[:-1]
    np.testing.assert_array_equal(boards[:-1][same], played.board[1:][same])
    np.testing.assert_allclose(reward, played.reward)
    np.testing.assert_array_equal(played.last_action[1:], np.where(same, played.action[:-1], NO_ACTION))
    assert played.terminated.sum() == played.solved.sum()


def test_a_perfect_model_is_measured_as_perfect_in_imagined_and_in_real_play() -> None:
    envs = held_out(num_envs=EPISODES)  # boards idle as soon as they have played their only level
    shadowed = Shadowed(envs.simulator(), envs)
    played = uniform_play(shadowed, envs)
    real = limits.measure_real_play(envs.simulator(), played, 10_000, seed=0)
    for numbers in (shadowed.accuracy.numbers(), real):
        steps = numbers.pop("steps")
        perfect = {"exact_1": 1, "exact_push": 1, "broken": 0, "reward_error": 0, "missed_ends": 0, "false_ends": 0}
        assert {name: numbers[name] for name in perfect} == pytest.approx(perfect, abs=1e-6)
        assert steps > 100
    assert real["exact_5"] == 1
    assert np.isnan(shadowed.accuracy.numbers()["exact_5"])  # K = 4: nothing is imagined five steps ahead


def test_wrong_boards_and_ends_are_counted() -> None:
    envs = held_out()
    shadowed = Shadowed(Forgetful(envs.simulator()), envs)
    played = uniform_play(shadowed, envs)
    numbers = shadowed.accuracy.numbers()
    assert 0.1 < numbers["broken"] < 0.3  # an action in five
    assert numbers["exact_1"] == pytest.approx(1 - numbers["broken"], abs=0.1)
    assert 0.1 < numbers["false_ends"] < 0.3
    assert limits.measure_real_play(Forgetful(envs.simulator()), played, 10_000, seed=0)["missed_ends"] > 0.3


def test_pushes_are_counted_apart() -> None:
    envs = held_out()
    shadowed = Shadowed(NoPushes(envs.simulator()), envs)
    uniform_play(shadowed, envs)
    numbers = shadowed.accuracy.numbers()
    assert numbers["exact_push"] == 0
    assert 0.8 < numbers["exact_1"] < 1


def test_values_and_policies_of_the_solver_are_measured_as_perfect() -> None:
    envs = held_out()

    class Perfect(WithSolverValues):
        def root(self, observation: Tensor, last_action: Tensor) -> NodeOutput:
            output = super().root(observation, last_action)
            best = torch.from_numpy(SOLUTIONS.best_actions(to_boards(observation)))
            return dataclasses.replace(output, policy=torch.nn.functional.one_hot(best, 5).float())

    played = uniform_play(envs.simulator(), envs)
    perfect = limits.measure_values(Perfect(envs.simulator(), SOLUTIONS), played, SOLUTIONS, 200, seed=0)
    ignorant = limits.measure_values(envs.simulator(), played, SOLUTIONS, 200, seed=0)
    assert perfect["states"] == 200
    assert perfect["explained_variance"] == pytest.approx(1)
    assert perfect["value_absolute_error"] == pytest.approx(0, abs=1e-5)
    assert perfect["base_policy_optimal"] == 1
    assert perfect["value_optimal"] > 0.9  # a longer solution may have a higher return
    assert ignorant["explained_variance"] == pytest.approx(0)
    assert ignorant["value_error_unsolvable"] == pytest.approx(0.01 / 0.03)
    assert ignorant["base_policy_optimal"] < 0.5
    assert 0 < ignorant["unsolvable"] < 1
    undecided = limits.measure_values(envs.simulator(), played, Solutions(DISCOUNT, 1), 20, seed=0)
    assert undecided["undecided"] == 1
    assert np.isnan(undecided["explained_variance"])


def solve_rates(none: float, values: float, model: float, both: float) -> dict[str, Any]:
    names = (f"{m} model, {v} values" for m in limits.MODELS for v in limits.VALUES)
    return {name: {8: {"solved": rate}} for name, rate in zip(names, (none, values, model, both))}


@pytest.mark.parametrize(
    ("agent", "rates", "expected"),
    [
        (0.5, (0.4, 0.9, 0.45, 1.0), {"values": 0.525, "model": 0.075, "search": -0.1}),
        (0.5, (0.4, 0.45, 0.9, 1.0), {"values": 0.075, "model": 0.525, "search": -0.1}),
        (0.5, (0.8, 0.85, 0.8, 0.85), {"values": 0.05, "model": 0.0, "search": 0.45}),
    ],
)
def test_what_the_agent_lacks_is_divided_among_values_model_and_search(
    agent: float, rates: tuple[float, ...], expected: dict[str, float]
) -> None:
    found = limits.limit({"solved": {"agent": agent, "uniform": solve_rates(*rates)}})
    assert found["parts"][8] == pytest.approx(expected)
    assert sum(found["parts"][8].values()) == pytest.approx(1 - agent)
    assert found["verdict"] == max(expected, key=lambda name: expected[name])


def test_the_probe_of_a_run_gives_every_number_a_table_and_a_verdict() -> None:
    run = build_run(tiny("sokoban-quick"), device="cpu")
    result = limits.probe(run, episodes=6, states=20, stage_lengths=(2, 4))
    assert result["limit"]["verdict"] in ("values", "model", "search")
    assert limits.verdict(result).startswith(f"Verdict: {result['limit']['verdict']}. The agent solves ")
    assert limits.table(result, "tiny").row_count > 25
    assert json.loads(json.dumps(result))["solved"]["uniform"]["simulator model, solver values"]["4"]["solved"] > 0
    assert result["values"]["solutions"]["unsolvable"] == 0
    with pytest.raises(UserError, match="has no model"):
        limits.probe(build_run(tiny("sokoban-raw"), device="cpu"))


def test_roots_are_those_of_the_real_boards() -> None:
    boards = generate_levels(3, 6, 2, seed=0).boards
    model = held_out().simulator()
    np.testing.assert_array_equal(roots(model, boards, np.full(3, NO_ACTION)).hidden, boards)
