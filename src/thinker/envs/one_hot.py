"""Discrete observations as one-hot vectors, which networks can take."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
from gymnasium import spaces


class OneHotObservation(gym.ObservationWrapper):
    """Turns an observation of a Discrete space of n values into a uint8 vector [n] of zeros and a one."""

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
