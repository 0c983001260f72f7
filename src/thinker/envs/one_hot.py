"""Converts Discrete observations to one-hot vectors."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
from gymnasium import spaces


class OneHotObservation(gym.ObservationWrapper):
    """Converts observations of a Discrete space with n values to one-hot uint8 vectors [n]."""

    def __init__(self, env: gym.Env, space: spaces.Discrete) -> None:
        super().__init__(env)
        self._first, self._count = int(space.start), int(space.n)
        self.observation_space = spaces.Box(0, 1, (self._count,), np.uint8)

    def observation(self, observation: np.integer | int) -> np.ndarray:
        vector = np.zeros(self._count, np.uint8)
        vector[int(observation) - self._first] = 1
        return vector


def with_vectors(env: gym.Env) -> gym.Env:
    """``env``, wrapped in `OneHotObservation` if its observations are Discrete."""
    space = env.observation_space
    return OneHotObservation(env, space) if isinstance(space, spaces.Discrete) else env
