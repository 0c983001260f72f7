"""The real environments as seen by the augmented MDP: any Gymnasium vector environment in any autoreset mode.

`ThinkerEnv` works in SAME_STEP mode: the step that ends an episode also returns the next episode's first observation.
The classes here convert every mode to that one and keep the final observations, which the model learns from.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from thinker.errors import UnsupportedError, UserError


@dataclass(frozen=True)
class RealStep:
    """One step of all E real environments."""

    observation: np.ndarray  # [E, ...]  where the next stage starts: a new episode where one ended
    final_observation: np.ndarray  # [E, ...]  the result of the action; differs only where an episode ended
    reward: np.ndarray  # [E] float64
    terminated: np.ndarray  # [E] bool  reported together with the new episode's observation
    truncated: np.ndarray  # [E] bool
    info: dict[str, Any]
    happened: np.ndarray  # [E] bool  False where a waiting environment only reset itself
    now_terminated: np.ndarray  # [E] bool  this action terminated the episode, reported now or one stage later
    now_truncated: np.ndarray  # [E] bool


class RealEnvs(ABC):
    """Steps the environments in their own autoreset mode and checks their spaces, observations and rewards."""

    def __init__(self, envs: VectorEnv) -> None:
        self.envs = envs
        self.num_envs = envs.num_envs
        self.num_actions, self._first_action = _discrete_actions(envs)
        self.observation_space = _box_observations(envs)
        self._check_floats = bool(np.issubdtype(self.observation_space.dtype, np.floating))

    def reset(self, seed: int | list[int | None] | None, options: dict[str, Any] | None) -> tuple[np.ndarray, dict]:
        observation, info = self.envs.reset(seed=seed, options=options)  # type: ignore[arg-type]
        return self._checked(observation), info

    @abstractmethod
    def step(self, actions: np.ndarray) -> RealStep:
        """Step with ``actions`` [E], 0 .. A - 1."""

    def state_dict(self) -> dict[str, np.ndarray]:
        """State kept in addition to that of the environments; not copies."""
        return {}

    def load_state_dict(self, state: dict[str, np.ndarray]) -> None:
        """Continue from ``state``."""
        for name, array in self.state_dict().items():
            array[...] = state[name]

    def _step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        if self._first_action != 0:
            actions = actions + self._first_action
        observation, reward, terminated, truncated, info = self.envs.step(actions)
        reward = np.asarray(reward, np.float64)
        if not np.isfinite(reward).all():
            wrong = int(np.flatnonzero(~np.isfinite(reward))[0])
            raise UserError(
                f"the real environment {wrong} returned the reward {reward[wrong]}; rewards must be finite. Fix the "
                f"environment, or clip its rewards with a wrapper"
            )
        # Copies: an environment may return its own buffers, and the transition outlives the next step.
        return self._checked(observation), reward, np.array(terminated, bool), np.array(truncated, bool), info

    def _checked(self, observation: Any) -> np.ndarray:
        observation = np.array(observation)
        expected = (self.num_envs, *self.observation_space.shape)
        if observation.shape != expected or observation.dtype != self.observation_space.dtype:
            raise UserError(
                f"the real environments returned observations of shape {observation.shape} and dtype "
                f"{observation.dtype}, but their observation space promises {expected} and "
                f"{self.observation_space.dtype}"
            )
        if self._check_floats and not np.isfinite(observation).all():
            wrong = int(np.argwhere(~np.isfinite(observation))[0][0])
            raise UserError(f"the real environment {wrong} returned an observation with NaN or infinity")
        return observation


class SameStep(RealEnvs):
    """Environments in SAME_STEP mode, used as they are."""

    def step(self, actions: np.ndarray) -> RealStep:
        observation, reward, terminated, truncated, info = self._step(actions)
        ended = terminated | truncated
        final = observation
        if ended.any():
            if "final_obs" not in info:
                raise UserError(
                    "an environment in SAME_STEP autoreset mode ended an episode without info['final_obs'], which "
                    "Gymnasium requires; add it, or use autoreset mode DISABLED"
                )
            final = observation.copy()
            final[ended] = np.stack(list(np.asarray(info["final_obs"])[ended]))
        every = np.ones(self.num_envs, bool)
        return RealStep(observation, final, reward, terminated, truncated, info, every, terminated, truncated)


class PartialReset(RealEnvs):
    """Environments that can be reset one by one, with Gymnasium's ``reset(options={"reset_mask": ...})``.

    With ``autoreset=False`` the caller resets them, as in the single-environment view.
    """

    def __init__(self, envs: VectorEnv, autoreset: bool = True) -> None:
        super().__init__(envs)
        self._autoreset = autoreset

    def step(self, actions: np.ndarray) -> RealStep:
        final, reward, terminated, truncated, info = self._step(actions)
        ended = terminated | truncated
        observation = final
        if ended.any():
            info = {**info, "final_info": info, "_final_info": ended.copy()}
            if self._autoreset:
                fresh, fresh_info = self.reset(None, {"reset_mask": ended.copy()})
                observation = final.copy()
                observation[ended] = fresh[ended]
                _merge(info, fresh_info, ended)
        every = np.ones(self.num_envs, bool)
        return RealStep(observation, final, reward, terminated, truncated, info, every, terminated, truncated)


class Waiting(RealEnvs):
    """Environments in NEXT_STEP mode that cannot be reset one by one: an ended row resets itself in its next step.

    Such a row waits for one stage in its final state, where actions have no effect; only then is the end reported,
    together with the new episode. No reward is given in between, so returns are the same as in the other modes.
    """

    def __init__(self, envs: VectorEnv) -> None:
        super().__init__(envs)
        self._terminated = np.zeros(self.num_envs, bool)
        self._truncated = np.zeros(self.num_envs, bool)
        self._final = np.zeros((self.num_envs, *self.observation_space.shape), self.observation_space.dtype)

    def reset(self, seed: int | list[int | None] | None, options: dict[str, Any] | None) -> tuple[np.ndarray, dict]:
        self._terminated[:] = False
        self._truncated[:] = False
        return super().reset(seed, options)

    def step(self, actions: np.ndarray) -> RealStep:
        observation, reward, terminated, truncated, info = self._step(actions)
        waited = self._terminated | self._truncated
        final = observation
        if waited.any():
            final = observation.copy()
            final[waited] = self._final[waited]
        reported = self._terminated.copy(), self._truncated.copy()
        step = RealStep(observation, final, reward, *reported, info, ~waited, terminated, truncated)
        self._terminated[:] = terminated
        self._truncated[:] = truncated
        ended = terminated | truncated
        self._final[ended] = observation[ended]
        return step

    def state_dict(self) -> dict[str, np.ndarray]:
        """Which rows are waiting, and their final states."""
        return {"terminated": self._terminated, "truncated": self._truncated, "final": self._final}


def adapt(envs: VectorEnv, autoreset: bool = True) -> RealEnvs:
    """Choose how to step ``envs`` from the autoreset mode they declare."""
    if not isinstance(envs, VectorEnv):
        raise UnsupportedError(
            f"ThinkerEnv wraps a gymnasium.vector.VectorEnv, not {type(envs).__name__}; wrap a single environment as "
            f"gymnasium.vector.SyncVectorEnv([lambda: env]), or use thinker.make(..., num_envs=None)"
        )
    declared = envs.metadata.get("autoreset_mode")
    if declared is None:
        raise UserError(
            f"{envs} does not declare its autoreset mode; set metadata['autoreset_mode'] to one of "
            f"gymnasium.vector.AutoresetMode, as Gymnasium >= 1.1 requires"
        )
    mode = AutoresetMode(declared) if not isinstance(declared, AutoresetMode) else declared
    if not autoreset and mode is not AutoresetMode.DISABLED:
        raise UserError(f"autoreset=False needs environments in autoreset mode DISABLED; these are in {mode.name}")
    if mode is AutoresetMode.SAME_STEP:
        return SameStep(envs)
    if mode is AutoresetMode.DISABLED or isinstance(envs.unwrapped, SyncVectorEnv | AsyncVectorEnv):
        return PartialReset(envs, autoreset)
    return Waiting(envs)


def _discrete_actions(envs: VectorEnv) -> tuple[int, int]:
    space = envs.single_action_space
    if not isinstance(space, spaces.Discrete):
        raise UnsupportedError(
            f"ThinkerEnv supports environments with a Discrete action space, not {space}; the search tree has one "
            f"branch per action. Discretise the actions with a wrapper"
        )
    return int(space.n), int(space.start)


def _box_observations(envs: VectorEnv) -> spaces.Box:
    space = envs.single_observation_space
    if not isinstance(space, spaces.Box):
        raise UnsupportedError(
            f"ThinkerEnv supports observation spaces of type Box, of any shape, not {space}; flatten the observation, "
            f"for instance with gymnasium.wrappers.FlattenObservation"
        )
    return space


def _merge(info: dict[str, Any], fresh: dict[str, Any], ended: np.ndarray) -> None:
    """Replace the rows ``ended`` of the step's info with those of the reset's info."""
    for key, value in fresh.items():
        old = info.get(key)
        if isinstance(value, dict):
            info[key] = dict(old) if isinstance(old, dict) else {}
            _merge(info[key], value, ended)
        elif isinstance(value, np.ndarray) and isinstance(old, np.ndarray) and old.shape == value.shape:
            info[key] = old.copy()
            info[key][ended] = value[ended]
        else:
            info[key] = value
