"""Every kind of observation trains inside the augmented MDP, shortened: vectors, boards, pictures, stacked frames."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

import thinker.envs  # noqa: F401 - registers the environments
from thinker.augmented import ThinkerEnv
from thinker.world_model import (
    BoardModelSpec,
    DualModelSpec,
    LearnedValuesSimulatorSpec,
    ModelSpec,
    SingleModelSpec,
    TrainerSettings,
)
from thinker.world_model.spec import ModelContext

BOXOBAN = Path(__file__).parents[3] / "shared" / "boxoban" / "unfiltered" / "test"
TRAINING = TrainerSettings(warm_up_transitions=24, batch_size=4, unroll_length=3, replay_ratio=3)
SMALL_BATCHES = TrainerSettings(warm_up_transitions=24, batch_size=2, unroll_length=3, replay_ratio=3)


def sync(make, num_envs: int = 2) -> VectorEnv:
    return SyncVectorEnv([make] * num_envs, autoreset_mode=AutoresetMode.SAME_STEP)


def sokoban(**options) -> VectorEnv:
    return gym.make_vec("thinker/Sokoban-v0", 2, vectorization_mode="vector_entry_point", **options)


def train_a_little(spec: ModelSpec, envs: VectorEnv, real_steps: int) -> dict[str, float]:
    model = spec.build(
        ModelContext(
            envs.single_observation_space,
            envs.single_action_space,
            num_envs=envs.num_envs,
            discount=0.97,
            total_transitions=None,
            seed=0,
            device=torch.device("cpu"),
            board=envs.metadata.get("board"),
        )
    )
    env = ThinkerEnv(envs, model.for_envs(envs), stage_length=3, max_depth=2, sink=model.trainer, seed=0)
    random = np.random.default_rng(0)
    env.reset()
    weights = [p.detach().clone() for p in model.trainer.network.parameters()]
    for _ in range(3 * real_steps):
        observation, *_ = env.step(random.integers(0, (env.num_actions, 2), (envs.num_envs, 2)))
        assert all(np.isfinite(part.numpy()).all() for part in observation.values())
    assert model.trainer.trained_transitions > 0
    moved = [not np.array_equal(a, b.detach()) for a, b in zip(weights, model.trainer.network.parameters())]
    assert np.mean(moved) > 0.8
    return model.trainer.metrics


@pytest.mark.parametrize(
    "spec",
    [
        *(DualModelSpec(state_loss, training=TRAINING) for state_loss in ("feature", "l2", "none")),
        *(SingleModelSpec(state_loss, training=TRAINING) for state_loss in ("l2", "none")),
        LearnedValuesSimulatorSpec(training=TRAINING),
    ],
    ids=lambda spec: f"{type(spec).__name__}-{getattr(spec, 'state_loss', '')}",
)
def test_cart_pole_trains_with_every_learned_model(spec):
    metrics = train_a_little(spec, sync(partial(gym.make, "CartPole-v1")), real_steps=40)
    assert ("loss/state" in metrics) == (getattr(spec, "state_loss", "none") != "none")


BOARD_SPECS = [
    DualModelSpec(training=TRAINING),
    LearnedValuesSimulatorSpec(training=TRAINING),
    BoardModelSpec(training=TRAINING),
    BoardModelSpec(training=TRAINING, state_loss="feature", size="board-large", augmentation="symmetries"),
]


@pytest.mark.parametrize("spec", BOARD_SPECS, ids=lambda spec: f"{type(spec).__name__}-{spec.augmentation}")
def test_boards_of_ten_by_ten_train(spec):
    train_a_little(spec, sokoban(size=10, boxes=4), real_steps=30)


@pytest.mark.skipif(not BOXOBAN.exists(), reason="the Boxoban levels are not beside the project (../shared/boxoban)")
@pytest.mark.parametrize("kind", [DualModelSpec, BoardModelSpec])
def test_boxoban_levels_train(kind):
    train_a_little(kind(training=TRAINING), sokoban(levels=str(BOXOBAN)), real_steps=30)


@pytest.mark.slow
def test_pictures_of_eighty_by_eighty_train_with_the_papers_network():
    envs = sokoban(size=10, boxes=4, observation="rgb")
    train_a_little(DualModelSpec(size="paper", training=SMALL_BATCHES), envs, real_steps=18)


class Lights(gym.Env):
    """Planes of truth values, channels last, in which each action switches a row on or off."""

    observation_space = spaces.Box(0, 1, (10, 10, 4), bool)
    action_space = spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._board = self.np_random.random((10, 10, 4)) < 0.5
        self._time = 0
        return self._board.copy(), {}

    def step(self, action):
        self._board[action] ^= True
        self._time += 1
        return self._board.copy(), float(self._board[0, 0, 0]), self._time == 9, False, {}


@pytest.mark.parametrize("kind", [DualModelSpec, SingleModelSpec, LearnedValuesSimulatorSpec])
def test_boards_of_truth_values_train(kind):
    train_a_little(kind(training=TRAINING), sync(Lights), real_steps=30)


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


class StackedNoiseChannelsLast(StackedNoise):
    observation_space = spaces.Box(0, 255, (32, 32, 12), np.uint8)

    def reset(self, **options):
        observation, info = super().reset(**options)
        return observation.transpose(1, 2, 0), info

    def step(self, action):
        observation, *rest = super().step(action)
        return observation.transpose(1, 2, 0), *rest


@pytest.mark.slow
@pytest.mark.parametrize("make", [StackedNoise, StackedNoiseChannelsLast])
def test_stacked_frames_train_with_the_papers_network_for_them(make):
    train_a_little(DualModelSpec(size="paper-stacked", training=SMALL_BATCHES), sync(make), real_steps=18)
