"""Shared by the tests of the viewer: a log of all that an environment says, and small environments."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces

from thinker.augmented import ThinkerEnv
from thinker.envs.sokoban import SokobanVectorEnv
from thinker.viewer import Choice, Recording, record
from thinker.world_model.simulator import simulator


class Log:
    """Listens to ``env.reset`` and ``env.step``: the truth that a recording is compared with."""

    def __init__(self, env: ThinkerEnv) -> None:
        self.begin: tuple[dict, dict] = ({}, {})
        self.steps: list[dict[str, Any]] = []
        self._reset, self._step = env.reset, env.step
        env.reset, env.step = self.reset, self.step  # type: ignore[method-assign, assignment]

    def reset(self, **arguments: Any) -> Any:
        self.begin = self._reset(**arguments)
        self._info = self.begin[1]
        return self.begin

    def step(self, actions: Any) -> Any:
        observation, reward, terminated, truncated, info = self._step(actions)
        was_real = bool(self._info["next_is_real"][0])
        self.steps.append(
            dict(
                actions=np.asarray(torch.as_tensor(actions)).copy(),
                observation=observation,
                reward=reward,
                terminated=terminated,
            )
            | dict(truncated=truncated, info=info, was_real=was_real)
        )
        self._info = info
        return observation, reward, terminated, truncated, info


class RandomPolicy:
    """Draws from probabilities that it makes up and remembers."""

    def __init__(self, env: ThinkerEnv, seed: int, reset: float = 0.3) -> None:
        self._generator = np.random.default_rng(seed)
        self._shape, self._reset = (env.num_envs, env.num_actions), reset
        self.choices: list[Choice] = []

    def __call__(self, observation: dict, info: dict) -> Choice:
        policy = self._generator.dirichlet(np.ones(self._shape[1]), self._shape[0])
        actions = [self._generator.choice(self._shape[1], p=row) for row in policy]
        resets = self._generator.random(self._shape[0]) < self._reset
        choice = Choice(np.stack([actions, resets], 1).astype(np.int64), policy, np.full(self._shape[0], self._reset))
        self.choices.append(choice)
        return choice


def sokoban_env(num_envs: int = 2, *, max_steps: int = 12, observation: str = "tiles", **options: Any) -> ThinkerEnv:
    """Small boards with the perfect model, and values that it makes up."""
    envs = SokobanVectorEnv(
        num_envs, size=6, boxes=1, reverse_moves=(1, 2), max_steps=max_steps, observation=observation
    )
    options = {"stage_length": 6, "max_depth": 3, **options}
    return ThinkerEnv(envs, simulator(envs, policy_and_value), **options)


def policy_and_value(observation: torch.Tensor, last_action: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """A base policy and values that differ from board to board."""
    numbers = observation.flatten(1).double() @ torch.arange(observation[0].numel()).double()
    logits = (numbers.unsqueeze(1) * torch.tensor([0.1, 0.2, 0.3, 0.4, 0.5], dtype=torch.float64)).sin()
    return logits.softmax(1).float(), (numbers * 0.7).cos().float()


def sokoban_recording(episodes: int = 2, *, title: str = "", seed: int = 0, **options: Any) -> Recording:
    """Random play on small boards."""
    env = sokoban_env(episodes, **options)
    return record(env, RandomPolicy(env, seed), episodes=episodes, seed=seed, title=title)


class Pictures(gym.Env):
    """Noisy pictures, or vectors without bounds: states whose numbers tell the step and the actions so far."""

    def __init__(self, shape: tuple[int, ...], length: int = 5) -> None:
        image = len(shape) == 3
        self.observation_space = (
            spaces.Box(0, 255, shape, np.uint8) if image else spaces.Box(-np.inf, np.inf, shape, np.float32)
        )
        self.action_space = spaces.Discrete(3)
        self._length = length

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self._past = [int(self.np_random.integers(1000))]
        return self._state(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self._past.append(int(action))
        return self._state(), float(action) - 1.0, len(self._past) > self._length, False, {}

    def _state(self) -> np.ndarray:
        generator = np.random.default_rng(self._past)
        if self.observation_space.dtype == np.uint8:
            return generator.integers(0, 256, self.observation_space.shape, np.uint8)
        return (10 * generator.standard_normal(self.observation_space.shape)).astype(np.float32)
