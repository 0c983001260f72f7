"""Perfect models in the augmented MDP: what is imagined is what happens."""

from __future__ import annotations

from functools import partial

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import thinker
from tests.fakes import RandomEpisodes, random_episodes
from thinker.augmented import ThinkerEnv
from thinker.envs.sokoban.simulator import SokobanSimulator
from thinker.errors import UnsupportedError
from thinker.interfaces import NO_ACTION
from thinker.world_model.simulator import EnvSimulator


def test_simulator_of_sokoban_agrees_with_the_real_environment():
    for observation in ("tiles", "rgb"):
        envs = gym.make_vec("thinker/Sokoban-v0", 8, size=7, boxes=2, observation=observation)
        model = SokobanSimulator(envs.single_observation_space)
        random = np.random.default_rng(0)
        obs, _ = envs.reset(seed=0)
        for _ in range(200):
            actions = random.integers(0, 5, 8)
            root = model.root(torch.from_numpy(obs), torch.full((8,), NO_ACTION))
            imagined = model.unroll(root.hidden, torch.from_numpy(actions))
            obs, reward, terminated, truncated, _ = envs.step(actions)
            going_on = ~(terminated | truncated)
            np.testing.assert_allclose(imagined.reward.numpy(), reward, rtol=1e-6)
            np.testing.assert_array_equal(imagined.termination.numpy() > 0.5, terminated)
            np.testing.assert_array_equal(imagined.state.numpy()[going_on], obs[going_on])


class Snapshots(RandomEpisodes):
    """The same environment, offering its own snapshots and forbidding copies."""

    def snapshot(self):
        return self.time

    def restore(self, snapshot):
        self.time = snapshot

    def __deepcopy__(self, memo):
        raise RuntimeError("copied")


@pytest.mark.parametrize("kind", [RandomEpisodes, Snapshots])
def test_general_simulator_foresees_the_real_environment_and_does_not_disturb_it(kind):
    envs = SyncVectorEnv([partial(kind, n, 2, 0.2) for n in range(3)], autoreset_mode=AutoresetMode.SAME_STEP)
    undisturbed = random_episodes(end_rate=0.2)
    env = ThinkerEnv(envs, EnvSimulator(envs), stage_length=3, observe=("tree", "predicted_state", "hidden"))
    env.reset(seed=0)
    undisturbed.reset(seed=0)
    random = np.random.default_rng(0)
    for _ in range(40):
        actions = random.integers(0, 2, (3, 2))
        imagined, *_ = env.step(np.stack([actions[:, 0], np.ones(3, int)], 1))
        predicted_reward = env.decode(imagined["tree"])["current_reward"]
        env.step(random.integers(0, 2, (3, 2)))
        obs, reward, terminated, truncated, info = env.step(actions)
        true_obs, true_reward, *_ = undisturbed.step(actions[:, 0])
        np.testing.assert_allclose(predicted_reward, reward, rtol=1e-5)
        np.testing.assert_allclose(reward, true_reward)
        np.testing.assert_array_equal(obs["predicted_state"], true_obs)
        going_on = ~(terminated | truncated)
        np.testing.assert_array_equal(imagined["predicted_state"].numpy()[going_on], true_obs[going_on])
        np.testing.assert_array_equal(imagined["hidden"].numpy(), imagined["predicted_state"].float().numpy())


def test_an_environment_that_cannot_be_copied_is_an_error_that_says_what_to_do():
    class Uncopyable(RandomEpisodes):
        def __deepcopy__(self, memo):
            raise RuntimeError("no copies")

    envs = SyncVectorEnv([partial(Uncopyable, 0, 2, 0.0)], autoreset_mode=AutoresetMode.SAME_STEP)
    env = ThinkerEnv(envs, EnvSimulator(envs), stage_length=2)
    env.reset()
    with pytest.raises(UnsupportedError, match=r"cannot be deep-copied \(no copies\); give it snapshot\(\)"):
        env.step(np.zeros((1, 2), int))


def test_the_single_view_of_sokoban_uses_the_native_simulator_and_outlives_the_step_limit():
    options = {"size": 6, "boxes": 1, "max_steps": 5}
    env = thinker.make("thinker/Sokoban-v0", num_envs=None, model="simulator", stage_length=4, env_options=options)
    assert isinstance(env.vector_env.model, SokobanSimulator)
    env.reset(seed=0)
    random = np.random.default_rng(0)
    ended = 0
    for _ in range(100):
        _, _, terminated, truncated, _ = env.step(random.integers(0, (5, 2)))
        if terminated or truncated:
            ended += 1
            env.reset()
    assert ended >= 4


def test_the_general_simulator_goes_on_where_the_real_environment_is_at_its_step_limit():
    env = thinker.make(
        "CartPole-v1", num_envs=2, model="simulator", stage_length=4, env_options={"max_episode_steps": 3}
    )
    env.reset(seed=0)
    for _ in range(40):
        env.step(np.array([[1, 0], [0, 0]]))
