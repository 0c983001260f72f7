"""Gymnasium's episode statistics in real steps, and the success of episodes."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from thinker.augmented.real import RealStep


class EpisodeTracker:
    """Return, length, duration and success of the running episodes of E environments.

    ``success`` is the entry of ``info`` that reports whether an episode that ends was a success.
    """

    def __init__(self, num_envs: int, success: str) -> None:
        self._success_entry = success
        self._reports_success = False
        self._success = np.zeros(num_envs, bool)
        self._return = np.zeros(num_envs)
        self._length = np.zeros(num_envs, np.int64)
        self._start = np.zeros(num_envs)

    def reset(self) -> None:
        """Start new episodes in all environments."""
        self._return[:] = 0
        self._length[:] = 0
        self._success[:] = False
        self._start[:] = time.perf_counter()

    def count(self, info: dict[str, Any], real: RealStep, ended: np.ndarray, now_ended: np.ndarray) -> None:
        """Count one real step; where episodes ``ended``, put their statistics into ``info``.

        They replace those of a wrapper, which does not know about waiting rows. ``now_ended`` is True where this step
        ended an episode, whether that is reported now or one stage later (see `RealStep`).
        """
        self._return += real.reward
        self._length += real.happened
        reported = self._reported_success(info) if now_ended.any() else None
        if reported is not None:
            self._reports_success = True
            self._success[now_ended] = reported[now_ended]
        if not ended.any():
            return
        now = time.perf_counter()
        info["episode"] = {
            "r": np.where(ended, self._return, 0.0),
            "l": np.where(ended, self._length, 0),
            "t": np.where(ended, now - self._start, 0.0),
        }
        info["_episode"] = ended.copy()
        if self._reports_success:
            info["episode"]["success"] = self._success & ended
        self._return[ended] = 0
        self._length[ended] = 0
        self._success[ended] = False
        self._start[ended] = now

    def _reported_success(self, info: dict[str, Any]) -> np.ndarray | None:
        """The success of episodes that have just ended as reported by the environments, [E] bool."""
        for source in (info.get("final_info"), info):
            if isinstance(source, dict) and self._success_entry in source:
                return np.asarray(source[self._success_entry]).astype(bool)
        return None

    def state_dict(self) -> dict[str, Any]:
        """Returns, lengths, successes and durations so far."""
        return {
            "return": self._return,
            "length": self._length,
            "success": self._success,
            "tells_success": self._reports_success,
            "seconds": time.perf_counter() - self._start,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from ``state``."""
        self._success[:] = state["success"]
        self._reports_success = bool(state["tells_success"])
        self._return[:] = state["return"]
        self._length[:] = state["length"]
        self._start[:] = time.perf_counter() - state["seconds"]
