"""Tests on held-out episodes: which ones, that they are the same for everyone, and that the run stays as it is."""

from __future__ import annotations

import dataclasses

import gymnasium as gym
import numpy as np
import pytest
import torch

from tests.fakes import FakeModel
from tests.runs.support import advance, bits, differences, engine, tiny
from thinker.augmented import ThinkerEnv
from thinker.envs.gymnasium import HELD_OUT_SEEDS, FunctionSpec
from thinker.errors import UserError
from thinker.interfaces import Actor
from thinker.planners import BasePolicy
from thinker.runs.evaluate import Evaluation, evaluate, evaluate_run
from thinker.runs.folder import RunFolder
from thinker.runs.load import load_run
from thinker.runs.train import train
from thinker.world_model.no_model import NoModel


class Numbered(gym.Env):
    """Every held-out episode has its own length and its own return; observations are its number and the time."""

    observation_space = gym.spaces.Box(-1, np.inf, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.number, self.time = seed - HELD_OUT_SEEDS["test"], 0
        return self._observe(), {}

    def step(self, action):
        self.time += 1
        ended = self.time == length_of(self.number)
        info = {"is_success": self.number % 3 == 0} if ended and self.tells_success else {}
        return self._observe(), float(self.number if ended else 0), ended and self.number % 2 == 0, ended, info

    tells_success = True

    def _observe(self):
        return np.array([self.number, self.time], np.float32)


class Silent(Numbered):
    tells_success = False


def length_of(episode: int) -> int:
    return 1 + (7 * episode) % 5


class Witness:
    """Acts like another actor, and remembers the observations at which episodes began."""

    def __init__(self, actor: Actor, env: ThinkerEnv) -> None:
        self.actor, self.env = actor, env
        self.began: set[tuple[int, int]] = set()  # (environment, episode)

    def begin(self, *arguments):
        self.actor.begin(*arguments)

    def act(self):
        for e, (number, time) in enumerate(self.env.real_observation):
            if time == 0:
                self.began.add((e, int(number)))
        return self.actor.act()

    def observe(self, *arguments):
        self.actor.observe(*arguments)


def play(num_envs: int, episodes: int, *, stage_length: int = 1, seed: int = 0, kind=Numbered):
    envs = FunctionSpec(kind).held_out("test", num_envs, episodes)
    model = FakeModel(2) if stage_length > 1 else NoModel(2, torch.device("cpu"))
    observe = ("tree", "hidden") if stage_length > 1 else ("real_state",)
    env = ThinkerEnv(envs, model, stage_length=stage_length, observe=observe, seed=5)
    witness = Witness(BasePolicy(env, seed=seed), env)
    return evaluate(env, witness, episodes), witness.began


@pytest.mark.parametrize(("num_envs", "episodes"), [(3, 7), (3, 9), (4, 4), (5, 3), (1, 6), (2, 31)])
def test_each_environment_plays_its_own_episodes_and_all_together_as_many_as_asked_for(num_envs, episodes):
    result, began = play(num_envs, episodes)
    numbers = np.arange(episodes)
    np.testing.assert_array_equal(result.returns, numbers)
    np.testing.assert_array_equal(result.lengths, [length_of(number) for number in numbers])
    np.testing.assert_array_equal(result.success, numbers % 3 == 0)
    assert {(number % num_envs, number) for number in range(episodes)} <= began
    assert all(number % num_envs == environment for environment, number in began)


def test_the_episodes_are_the_same_for_other_actors_and_other_stage_lengths():
    results = [play(3, 8, stage_length=k, seed=seed)[0] for k, seed in ((1, 0), (1, 1), (4, 0), (4, 9))]
    assert [result.stage_length for result in results] == [1, 1, 4, 4]
    for result in results[1:]:
        np.testing.assert_array_equal(result.returns, results[0].returns)
        np.testing.assert_array_equal(result.lengths, results[0].lengths)


def test_success_is_unknown_where_the_environment_does_not_tell():
    result, _ = play(3, 7, kind=Silent)
    assert result.success is None
    assert result.success_interval() is None
    assert result.metrics() == {"eval/return": 3.0, "eval/length": result.lengths.mean()}


@pytest.mark.parametrize(
    ("solved", "count", "interval"),
    [(0, 10, (0.0, 0.2775)), (5, 10, (0.2366, 0.7634)), (10, 10, (0.7225, 1.0)), (81, 263, (0.2553, 0.3662))],
)
def test_the_interval_is_wilsons(solved, count, interval):
    success = np.arange(count) < solved
    result = Evaluation(1, np.zeros(count), np.ones(count, np.int64), success)
    assert result.success_interval() == pytest.approx(interval, abs=5e-5)
    assert result.metrics()["eval/solved"] == solved / count


# ------------------------------------------------------------------------------------------------------- of a run


def test_evaluating_a_reloaded_run_gives_what_was_logged_and_changes_nothing(tmp_path):
    settings = tiny("sokoban-quick", real_steps=224)
    summary = train(settings, tmp_path, "run")
    run = load_run(RunFolder(tmp_path, "run"))
    assert run.settings == settings
    before = bits(run.state_dict())
    result = evaluate_run(run)
    assert result.metrics() == {name: summary[name] for name in result.metrics()}
    assert (result.stage_length, len(result.returns)) == (3, 12)
    assert result.lengths.min() >= 1
    assert bits(run.state_dict()) == before


@pytest.mark.parametrize("name", ["sokoban-quick", "sokoban-raw", "cartpole"])
def test_evaluations_between_two_unrolls_do_not_change_the_run(name):
    expected = advance(engine(tiny(name)), 4).run.state_dict()
    moved = advance(engine(tiny(name)), 2)
    for who in ("agent", "base-policy") if name != "sokoban-raw" else ("agent",):
        evaluate_run(moved.run, who, episodes=6)
    assert differences(advance(moved, 2).run.state_dict(), expected) == []


def test_the_budget_the_actor_and_the_split_can_be_chosen():
    run = engine(tiny("sokoban-quick")).run
    base = evaluate_run(run, "base-policy", episodes=20)
    assert (base.stage_length, len(base.success)) == (1, 20)
    assert evaluate_run(run, stage_length=7, episodes=5).stage_length == 7
    np.testing.assert_array_equal(base.returns, evaluate_run(run, "base-policy", episodes=20).returns)
    assert (base.returns != evaluate_run(run, "base-policy", episodes=20, split="test").returns).any()
    # A greedy actor draws nothing, so it does the same in an episode whichever others are played beside it.
    short, long = (evaluate_run(run, greedy=True, episodes=count) for count in (5, 10))
    np.testing.assert_array_equal(short.returns, long.returns[:5])


def test_held_out_episodes_may_last_longer_than_those_of_training():
    settings = tiny("sokoban-quick")
    for wanted in (None, 9):
        environment = dataclasses.replace(settings.environment, max_steps=5, held_out_max_steps=wanted)
        run = engine(dataclasses.replace(settings, environment=environment)).run
        lengths = evaluate_run(run, "base-policy").lengths
        assert lengths.max() == (wanted or 5)  # random play does not solve all twelve levels so soon


def test_wrong_requests_are_errors_of_the_user():
    run = engine(tiny("sokoban-quick")).run
    for options, message in [
        ({"episodes": 0}, "episodes is 0"),
        ({"stage_length": 0}, "stage_length is 0; it must be at least 1"),
        ({"episodes": 100_001}, "only 100000"),
    ]:
        with pytest.raises(UserError, match=message):
            evaluate_run(run, **options)
    larger = dataclasses.replace(run.settings.environment, size=6).build(2)
    with pytest.raises(UserError, match="trained on"):
        run.wrap(larger)
