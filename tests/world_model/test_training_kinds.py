"""Every kind of observation trains inside the augmented MDP, shortened: vectors, boards, pictures, stacked frames."""

from __future__ import annotations

from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import thinker
from thinker.world_model.build import VARIANTS
from thinker.world_model.trainer import TrainerSettings

BOXOBAN = Path(__file__).parents[3] / "shared" / "boxoban" / "unfiltered" / "test"


def train_a_little(
    env_id: str, *, real_steps: int, batch_size: int = 4, num_envs: int = 2, **options
) -> dict[str, float]:
    training = TrainerSettings(warm_up_transitions=24, batch_size=batch_size, unroll_length=3, replay_ratio=3)
    env = thinker.make(env_id, num_envs=num_envs, stage_length=3, max_depth=2, seed=0, training=training, **options)
    random = np.random.default_rng(0)
    env.reset()
    weights = [p.detach().clone() for p in env.learner.network.parameters()]
    for _ in range(3 * real_steps):
        observation, *_ = env.step(random.integers(0, (env.num_actions, 2), (num_envs, 2)))
        assert all(np.isfinite(part.numpy()).all() for part in observation.values())
    assert env.learner.trained_transitions > 0
    moved = [not np.array_equal(a, b.detach()) for a, b in zip(weights, env.learner.network.parameters())]
    assert np.mean(moved) > 0.8
    return env.learner.metrics


@pytest.mark.parametrize("variant", VARIANTS)
def test_cart_pole_trains_with_every_variant(variant):
    metrics = train_a_little("CartPole-v1", real_steps=40, model=variant)
    assert ("loss/state" in metrics) == ("no-state" not in variant)


@pytest.mark.parametrize("model", ["dual-feature", "simulator-learned-values"])
def test_boards_of_ten_by_ten_train(model):
    train_a_little("thinker/Sokoban-v0", real_steps=30, model=model, env_options={"size": 10, "boxes": 4})


@pytest.mark.skipif(not BOXOBAN.exists(), reason="the Boxoban levels are not beside the project (../shared/boxoban)")
def test_boxoban_levels_train():
    train_a_little("thinker/Sokoban-v0", real_steps=30, env_options={"levels": str(BOXOBAN)})


@pytest.mark.slow
def test_pictures_of_eighty_by_eighty_train_with_the_papers_network():
    options = {"size": 10, "boxes": 4, "observation": "rgb"}
    train_a_little("thinker/Sokoban-v0", real_steps=18, batch_size=2, env_options=options)


class StackedNoise(gym.Env):
    """Four stacked colour frames, the newest last; every step shifts a new one in."""

    observation_space = spaces.Box(0, 255, (12, 32, 32), np.uint8)
    action_space = spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._frames = np.repeat(self._frame()[None], 4, 0)
        self._time = 0
        return self._frames.reshape(12, 32, 32), {}

    def _frame(self):
        return self.np_random.integers(0, 255, (3, 32, 32), dtype=np.uint8)

    def step(self, action):
        self._frames = np.concatenate([self._frames[1:], self._frame()[None]])
        self._time += 1
        return self._frames.reshape(12, 32, 32), float(action), self._time == 9, False, {}


@pytest.mark.slow
def test_stacked_frames_train_with_the_papers_atari_network():
    gym.register("tests/StackedNoise-v0", StackedNoise)
    train_a_little("tests/StackedNoise-v0", real_steps=18, batch_size=2, model_size="paper-atari")
