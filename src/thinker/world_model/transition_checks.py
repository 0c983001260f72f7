"""Checks of the real transitions that a replay receives."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Box, MultiBinary

from thinker.errors import UnsupportedError, UserError
from thinker.interfaces import RealTransition


class TransitionChecks:
    """Checks the transitions of ``num_envs`` environments against their spaces."""

    def __init__(self, observation_space: Space, num_envs: int, num_actions: int) -> None:
        if not isinstance(observation_space, (Box, MultiBinary)):
            raise UnsupportedError(
                f"observation_space={observation_space}: the replay stores Box or MultiBinary observations"
            )
        self.num_envs = num_envs
        self.num_actions = num_actions
        self.shape: tuple[int, ...] = observation_space.shape
        self.dtype: np.dtype = np.dtype(observation_space.dtype)
        self._bounds = _bounds_to_check(observation_space)

    def check(self, transition: RealTransition, starts: np.ndarray) -> None:
        """Raise an error if a valid row of ``transition`` is wrong.

        ``observation`` is checked only in the rows ``starts`` [E]: the others were checked as next_observation.
        """
        self._check_observation("observation", transition.observation, starts)
        self._check_observation("next_observation", transition.next_observation, transition.valid)
        self._check_numbers(transition)
        self._check_policy(transition)

    def _check_observation(self, name: str, array: np.ndarray, used: np.ndarray) -> None:
        expected = (self.num_envs, *self.shape)
        if array.shape != expected or array.dtype != self.dtype:
            raise UserError(
                f"{name} has shape {array.shape} and dtype {array.dtype}, expected {expected} and {self.dtype} "
                "as in the observation space"
            )
        if self._bounds is None or not used.any():
            return
        low, high = self._bounds
        array = array if used.all() else array[used]
        inside = (array >= low) & (array <= high)  # False for NaN
        if not inside.all():
            raise UserError(
                f"{name} contains {array[~inside][0]}, outside the bounds that the observation space declares "
                f"(low {low.min()}, high {high.max()}), or not finite: correct the environment or its space"
            )

    def _check_numbers(self, transition: RealTransition) -> None:
        rows, valid = (self.num_envs,), transition.valid
        for name in ("action", "root_value", "reward", "terminated", "truncated", "final_value"):
            array = getattr(transition, name)
            if array.shape != rows:
                raise UserError(f"{name} has shape {array.shape}, expected one per environment: {rows}")
        for name in ("root_value", "reward", "final_value"):
            array = getattr(transition, name)
            if not np.isfinite(array[valid]).all():
                raise UserError(f"{name} is not finite: {array}")
        action = transition.action
        if action.dtype.kind not in "iu" or ((action < 0) | (action >= self.num_actions))[valid].any():
            raise UserError(f"action must be integers from 0 to {self.num_actions - 1}, got {action.dtype} {action}")

    def _check_policy(self, transition: RealTransition) -> None:
        policy = transition.policy
        if policy is None:
            return
        if policy.shape != (self.num_envs, self.num_actions):
            raise UserError(f"policy has shape {policy.shape}, expected {(self.num_envs, self.num_actions)}")
        total = policy.sum(axis=1)
        # Not (a & b) rather than a | b, so that NaN is caught.
        if not ((policy.min(axis=1) >= 0.0) & (np.abs(total - 1.0) < 1e-3))[transition.valid].all():
            raise UserError(f"policy must contain probabilities that sum to 1 in every row, got sums {total}")


def _bounds_to_check(space: Box | MultiBinary) -> tuple[np.ndarray, np.ndarray] | None:
    """The bounds that an observation of the right dtype could still violate, or None."""
    dtype: Any = space.dtype
    if isinstance(space, MultiBinary):
        return np.zeros(space.shape, dtype), np.ones(space.shape, dtype)
    if dtype.kind == "f":  # clipped to finite numbers, so that an unbounded space still rejects infinity
        largest = np.finfo(dtype).max
        return np.clip(space.low, -largest, largest), np.clip(space.high, -largest, largest)
    lowest, highest = (False, True) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    everything_allowed = (space.low == lowest).all() and (space.high == highest).all()
    return None if everything_allowed else (space.low, space.high)
