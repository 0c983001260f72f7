"""`thinker.make`: environments by name, from a function or as they are; models by name, by spec or of one's own."""

from __future__ import annotations

import dataclasses

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import thinker
from tests.fakes import FakeModel
from thinker.envs.sokoban import SokobanVectorEnv

SMALL = thinker.DualModelSpec(
    size=thinker.VectorSize(channels=8),
    replay_capacity=500,
    training=thinker.TrainerSettings(warm_up_transitions=20, batch_size=4, learning_rate=1e-3),
)


class Corridor(gym.Env):
    """Walk to the right end; positions are observed."""

    observation_space = gym.spaces.Box(0, 100, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, length: int = 4) -> None:
        self.length = length

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.position = int(self.np_random.integers(self.length))
        return self._observe(), {}

    def step(self, action):
        self.position = max(0, self.position + 2 * int(action) - 1)
        return self._observe(), -1.0, self.position >= self.length, False, {}

    def _observe(self):
        return np.array([self.position, self.length], np.float32)


def steps(env: thinker.ThinkerEnv, count: int, seed: int = 0) -> list[np.ndarray]:
    """Rewards of so many augmented steps at random."""
    random = np.random.default_rng(seed)
    env.reset()
    actions = [random.integers(0, (env.num_actions, 2), (env.num_envs, 2)) for _ in range(count)]
    return [env.step(action)[1] for action in actions]


def test_a_function_makes_the_environments_and_its_options_reach_it():
    env = thinker.make(Corridor, num_envs=3, model=SMALL, stage_length=3, env_options={"length": 7}, seed=1)
    assert isinstance(env, thinker.ThinkerEnv)
    assert env.num_envs == 3
    observation, _ = env.reset()
    assert set(observation) == {"tree", "hidden"}
    assert (env.real_observation[:, 1] == 7).all()
    assert len({id(one.unwrapped) for one in env.envs.envs}) == 3
    steps(env, 60)
    assert env.sink.collected_transitions == 3 * 20
    assert env.sink.trained_transitions > 0
    assert np.isfinite(env.sink.metrics["loss/state"])


@pytest.mark.parametrize("vectorization", ["auto", "sync", "async"])
def test_functions_can_be_run_in_one_process_or_in_many(vectorization):
    env = thinker.make(
        Corridor, num_envs=2, model=SMALL, stage_length=2, seed=3, vectorization=vectorization, observe=("real_state",)
    )
    first = env.reset()[0]["real_state"]
    env.close()
    expected = thinker.make(Corridor, num_envs=2, model=SMALL, stage_length=2, seed=3, observe=("real_state",))
    assert torch.equal(first, expected.reset()[0]["real_state"])


def test_a_vector_environment_is_taken_as_it_is():
    envs = SyncVectorEnv([Corridor] * 5, autoreset_mode=AutoresetMode.SAME_STEP)
    env = thinker.make(envs, num_envs=2, model=SMALL, stage_length=2, seed=0)
    assert env.envs is envs
    assert env.num_envs == 5
    same = thinker.make(Corridor, num_envs=5, model=SMALL, stage_length=2, seed=0)
    np.testing.assert_array_equal(steps(env, 20), steps(same, 20))


def test_a_native_vector_environment_is_taken_with_its_own_simulator():
    envs = SokobanVectorEnv(3, size=5, boxes=1)
    env = thinker.make(envs, model="simulator", stage_length=3, seed=0)
    assert env.num_envs == 3
    assert env.sink is None
    assert all(reward.shape == (3,) for reward in steps(env, 9))


def test_the_single_view_of_a_function_is_an_ordinary_environment():
    env = thinker.make(Corridor, num_envs=None, model=SMALL, stage_length=2, env_options={"length": 2}, seed=0)
    assert isinstance(env, thinker.SingleThinkerEnv)
    observation, _ = env.reset()
    assert observation in env.observation_space
    ended, taken = False, 0
    while not ended:
        _, reward, ended, _, info = env.step(np.array([1, 0]))
        taken += 1
        assert info["step_kind"] == taken % 2
        assert reward == (-1.0 if taken % 2 == 0 else 0.0)
    assert taken in (2, 4)


def test_models_are_given_by_name_by_spec_or_as_they_are():
    options = {"num_envs": 2, "stage_length": 2, "seed": 0}
    default = thinker.make(Corridor, **options)
    named = thinker.make(Corridor, model="dual", **options)
    spec = thinker.make(Corridor, model=thinker.DualModelSpec(), **options)
    weights = [{name: w.clone() for name, w in env.sink.network.state_dict().items()} for env in (default, named, spec)]
    for other in weights[1:]:
        assert all(torch.equal(other[name], weight) for name, weight in weights[0].items())
    own = FakeModel(2)
    mine = thinker.make(Corridor, model=own, **options)
    assert mine.model is own
    assert mine.sink is None
    again = thinker.make(Corridor, model=spec.model, **options)
    steps(again, 8)
    assert spec.sink.collected_transitions == 0, "another environment does not teach the model"


def test_learning_rates_are_annealed_over_the_length_of_the_run():
    rates = []
    for total in (None, 100):
        env = thinker.make(Corridor, num_envs=2, model=SMALL, stage_length=1, total_transitions=total, seed=0)
        steps(env, 40)  # 80 real transitions
        rates.append(env.sink.metrics["learning_rate/state_reward"])
    assert rates == pytest.approx([1e-3, 1e-3 * (1 - 80 / 100)], rel=1e-6)


def test_what_is_asked_for_reaches_the_environment():
    env = thinker.make(
        Corridor, num_envs=2, model=SMALL, stage_length=3, max_depth=None, discount=0.9, carry_tree=False,
        observe=["tree", "predicted_state"], mask=["hints"], extra=["termination"], output="numpy", keep_states=True,
    )  # fmt: skip
    assert (env.stage_length, env.max_depth, env.discount, env.carry_tree) == (3, None, 0.9, False)
    observation, _ = env.reset(seed=0)
    assert all(isinstance(part, np.ndarray) for part in observation.values())
    assert set(observation) == {"tree", "predicted_state"}
    env.step(np.zeros((2, 2), int))
    assert env.search_tree() is not None


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        (Corridor, {"model": "duel"}, "model='duel': choose one of dual, single, board, simulator"),
        (Corridor, {"vectorization": "threads"}, "choose one of auto, sync, async, native"),
        (Corridor, {"vectorization": "native"}, "needs the name of an environment"),
        (5, {}, "expected a name, a function that makes an environment, or a VectorEnv"),
        (Corridor, {"num_envs": None, "output": "torch"}, "the single view"),
        (SokobanVectorEnv(2, size=5, boxes=1), {"num_envs": None}, "which a vector environment cannot be"),
        (Corridor, {"device": "tpu"}, "choose auto, cpu, cuda or mps"),
        (Corridor, {"observe": ("trees",)}, "unknown name 'trees'"),
        (Corridor, {"mask": ("hint",)}, "unknown name 'hint'"),
        (Corridor, {"stage_length": 0}, "stage_length is 0"),
        (Corridor, {"num_envs": 0}, "num_envs"),
    ],
)
def test_wrong_requests_are_errors_of_the_user(source, options, message):
    with pytest.raises(thinker.UserError, match=message):
        thinker.make(source, **{"model": SMALL, **options})


def test_a_spec_that_predicts_no_states_cannot_show_them():
    silent = dataclasses.replace(SMALL, state_loss="none")
    with pytest.raises(thinker.UserError, match="predict"):
        env = thinker.make(Corridor, num_envs=2, model=silent, stage_length=2, observe=("predicted_state",))
        env.reset()
        env.step(np.zeros((2, 2), int))
