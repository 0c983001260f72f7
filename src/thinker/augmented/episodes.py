"""Gymnasium's episode statistics in real steps, and the success of episodes."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from thinker.augmented.real import RealStep


class EpisodeTracker:
    """Return, length, duration and success of the running episodes of E environments.

    The other arguments are names of entries of ``info``:

    * ``success`` reports whether an episode that ends was a success.
    * ``reported_reward``, if given, is the reward of each step that returns are made of, where the environments let
      agents learn from another one.
    * ``unfinished``, if given, reports of an episode that ends whether its game goes on in the next episode. Statistics
      are those of whole games.
    """

    def __init__(
        self, num_envs: int, success: str, *, reported_reward: str | None = None, unfinished: str | None = None
    ) -> None:
        self._success_entry = success
        self._reward_entry = reported_reward
        self._unfinished_entry = unfinished
        self._unfinished = np.zeros(num_envs, bool)
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
        self._unfinished[:] = False
        self._start[:] = time.perf_counter()

    def count(self, info: dict[str, Any], real: RealStep, ended: np.ndarray, now_ended: np.ndarray) -> None:
        """Count one real step; where episodes ``ended``, put the statistics of finished games into ``info``.

        They replace those of a wrapper, which does not know about waiting rows. ``now_ended`` is True where this step
        ended an episode, whether that is reported now or one stage later (see `RealStep`).
        """
        reward = None if self._reward_entry is None else _entry(info, self._reward_entry)
        self._return += real.reward if reward is None else np.where(real.happened, reward, 0.0)
        self._length += real.happened
        success = _entry(info, self._success_entry) if now_ended.any() else None
        if success is not None:
            self._reports_success = True
            self._success[now_ended] = success[now_ended].astype(bool)
        unfinished = None if self._unfinished_entry is None else _entry(info, self._unfinished_entry)
        if unfinished is not None:
            self._unfinished[now_ended] = unfinished[now_ended].astype(bool)
        if not ended.any():
            return
        ended = ended & ~self._unfinished
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

    def state_dict(self) -> dict[str, Any]:
        """Returns, lengths, successes and durations so far."""
        return {
            "return": self._return,
            "length": self._length,
            "success": self._success,
            "unfinished": self._unfinished,
            "tells_success": self._reports_success,
            "seconds": time.perf_counter() - self._start,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from ``state``."""
        self._success[:] = state["success"]
        self._unfinished[:] = state.get("unfinished", False)
        self._reports_success = bool(state["tells_success"])
        self._return[:] = state["return"]
        self._length[:] = state["length"]
        self._start[:] = time.perf_counter() - state["seconds"]


def _entry(info: dict[str, Any], name: str) -> np.ndarray | None:
    """The entry ``name`` [E] of a step's info; where the step ended an episode, that of its final info."""
    final = info.get("final_info")
    if not isinstance(final, dict) or name not in final:
        return np.asarray(info[name]) if name in info else None
    if name not in info:
        return np.asarray(final[name])
    return np.where(info.get("_final_info", True), final[name], info[name])
