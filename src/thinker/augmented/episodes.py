"""Gymnasium's episode statistics, counted in real steps."""

from __future__ import annotations

import time
from typing import Any

import numpy as np


class Episodes:
    """Return, length and seconds of the episodes under way in E environments."""

    def __init__(self, num_envs: int) -> None:
        self._return = np.zeros(num_envs)
        self._length = np.zeros(num_envs, np.int64)
        self._start = np.zeros(num_envs)

    def reset(self) -> None:
        """New episodes begin everywhere."""
        self._return[:] = 0
        self._length[:] = 0
        self._start[:] = time.perf_counter()

    def count(self, info: dict[str, Any], reward: np.ndarray, happened: np.ndarray, ended: np.ndarray) -> None:
        """Count one real step; where episodes ``ended``, put their statistics into ``info``, unless they are there."""
        self._return += reward
        self._length += happened
        if not ended.any():
            return
        now = time.perf_counter()
        if "episode" not in info:
            info["episode"] = {
                "r": np.where(ended, self._return, 0.0),
                "l": np.where(ended, self._length, 0),
                "t": np.where(ended, now - self._start, 0.0),
            }
            info["_episode"] = ended.copy()
        self._return[ended] = 0
        self._length[ended] = 0
        self._start[ended] = now

    def state_dict(self) -> dict[str, np.ndarray]:
        """Returns, lengths and seconds so far."""
        return {"return": self._return, "length": self._length, "seconds": time.perf_counter() - self._start}

    def load_state_dict(self, state: dict[str, np.ndarray]) -> None:
        """Go on from ``state``."""
        self._return[:] = state["return"]
        self._length[:] = state["length"]
        self._start[:] = time.perf_counter() - state["seconds"]
