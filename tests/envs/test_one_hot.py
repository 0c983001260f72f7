"""Discrete observations are taken as one-hot vectors."""

import gymnasium as gym
import numpy as np
import pytest

import thinker
from thinker.envs.gymnasium import GymnasiumSpec
from thinker.envs.one_hot import with_vectors
from thinker.errors import UnsupportedError


def test_a_discrete_observation_becomes_a_one_hot_vector_in_every_episode():
    plain, env = gym.make("FrozenLake-v1"), with_vectors(gym.make("FrozenLake-v1"))
    assert env.observation_space == gym.spaces.Box(0, 1, (16,), np.uint8)
    for number, vector in ((plain.reset(seed=3)[0], env.reset(seed=3)[0]), (plain.step(1)[0], env.step(1)[0])):
        assert vector in env.observation_space
        assert vector.sum() == 1
        assert vector.argmax() == number


def test_other_observations_are_left_alone():
    env = gym.make("CartPole-v1")
    assert with_vectors(env) is env


@pytest.mark.parametrize("source", ["FrozenLake-v1", lambda: gym.make("FrozenLake-v1")])
def test_thinker_make_takes_environments_with_discrete_observations(source):
    env = thinker.make(source, num_envs=2, model="simulator", stage_length=3, observe=("real_state",), seed=0)
    observation, _ = env.reset()
    assert observation["real_state"].shape == (2, 16)


def test_dict_and_tuple_observations_are_refused_with_the_wrapper_that_helps():
    with pytest.raises(UnsupportedError, match="FlattenObservation"):
        GymnasiumSpec(id="Blackjack-v1").check()
    with pytest.raises(UnsupportedError, match="FlattenObservation"):
        thinker.make("Blackjack-v1", num_envs=2)
