"""Saves and restores the real environments of a run exactly, in the middle of episodes, without pickle.

Vector environments that have ``snapshot()`` and ``restore(snapshot)`` are saved with these; `SnapshotEnvs` has them if
its single environments have. For all other Gymnasium environments there is `ReplayableEnvs`, which replays the running
episodes from their start.
"""

from __future__ import annotations

import array
import warnings
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import gymnasium as gym
import numpy as np
from gymnasium import error, spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv, VectorWrapper

from thinker.errors import UnsupportedError, UserError


class NotReproducibleError(UserError, RuntimeError):
    """An environment could not be restored to its saved state."""


class Restorable(Protocol):
    """A vector environment that can be saved.

    Snapshots are dicts of arrays, numbers, strings, lists and nested dicts, which can be stored in a checkpoint.
    """

    def snapshot(self) -> dict[str, Any]: ...

    def restore(self, snapshot: dict[str, Any]) -> None: ...


def environments_state(envs: VectorEnv) -> dict[str, Any]:
    """The exact state of ``envs``, for a checkpoint."""
    return {"type": type(envs).__name__, "num_envs": envs.num_envs, "snapshot": _restorable(envs).snapshot()}


def restore_environments(envs: VectorEnv, state: Mapping[str, Any]) -> None:
    """Restore a state from `environments_state` into ``envs``, which must have been created in the same way."""
    restorable = _restorable(envs)
    found = type(envs).__name__, envs.num_envs
    if found != (state["type"], state["num_envs"]):
        raise UserError(
            f"the state was saved from {state['num_envs']} environments in a {state['type']}, but it is to be restored "
            f"into {found[1]} in a {found[0]}; create the environments in the same way as before"
        )
    restorable.restore(state["snapshot"])


def check_spaces(env: gym.Env) -> None:
    """Raise an `UnsupportedError` unless actions are Discrete and observations are a Box."""
    if not isinstance(env.action_space, spaces.Discrete):
        raise UnsupportedError(
            f"{env.unwrapped} has the actions {env.action_space}, but only Discrete actions are supported; wrap the "
            f"environment so that it chooses among some of its actions, for instance in "
            f"gymnasium.wrappers.TransformAction"
        )
    if not isinstance(env.observation_space, spaces.Box):
        raise UnsupportedError(
            f"{env.unwrapped} has the observations {env.observation_space}, but only Box and Discrete observations are "
            f"supported; wrap the environment in gymnasium.wrappers.FlattenObservation"
        )


class SnapshotEnvs(SyncVectorEnv):
    """Gymnasium's `SyncVectorEnv` in autoreset mode SAME_STEP, of environments that have snapshots."""

    def __init__(self, env_fns: Sequence[Callable[[], gym.Env]]) -> None:
        super().__init__(env_fns, autoreset_mode=AutoresetMode.SAME_STEP)

    def snapshot(self) -> dict[str, Any]:
        """The snapshots of all environments."""
        return {"environments": [env.get_wrapper_attr("snapshot")() for env in self.envs]}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Restore every environment from its part of a `snapshot`."""
        for env, state in zip(self.envs, snapshot["environments"]):
            env.get_wrapper_attr("restore")(state)


class ReplayableEnvs(SyncVectorEnv):
    """Gymnasium's `SyncVectorEnv` in autoreset mode SAME_STEP, whose state can be saved and restored.

    It records how each running episode started (its seed, or the state of ``np_random``) and the actions since, and
    replays them to restore it. An environment must be deterministic except for its ``np_random``, and carry no other
    state from one episode to the next; `restore` verifies this with all observations and rewards of the episodes, and
    the first `snapshot` after an autoreset warns in advance. Actions must be Discrete, observations a Box.
    """

    def __init__(self, env_fns: Sequence[Callable[[], gym.Env]], copy: bool = True) -> None:
        super().__init__(
            [lambda make=make: _Recorder(make()) for make in env_fns],  # type: ignore[misc]
            copy=copy,
            autoreset_mode=AutoresetMode.SAME_STEP,
        )
        self._recorders = cast("list[_Recorder]", self.envs)
        self._tried = False
        check_spaces(self.envs[0])

    def snapshot(self) -> dict[str, Any]:
        """The starts of the running episodes, their actions, and checksums of the results."""
        if any(not recorder.has_started for recorder in self._recorders):
            raise error.ResetNeeded("call reset() before snapshot()")
        episodes = [recorder.episode() for recorder in self._recorders]
        self._try_once(episodes)
        return {
            "beginnings": [episode.beginning for episode in episodes],
            "lengths": np.array([len(episode.actions) for episode in episodes], np.int64),
            "actions": np.concatenate([episode.actions for episode in episodes]),
            "checksums": [episode.checksum for episode in episodes],
            "generators": [episode.generator for episode in episodes],
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Replay the episodes of a `snapshot`; raises a `NotReproducibleError` if the result differs."""
        actions = np.split(snapshot["actions"], np.cumsum(snapshot["lengths"])[:-1])
        episodes = map(
            _Episode, snapshot["beginnings"], actions, snapshot["checksums"], snapshot["generators"]
        )  # one for each environment, as checked before
        for index, (recorder, episode) in enumerate(zip(self._recorders, episodes)):
            recorder.replay(episode, f"environment {index}")

    def _try_once(self, episodes: list[_Episode]) -> None:
        """Restore one episode that was started by an autoreset in a new environment.

        A warning now is better than an error when the run is resumed.
        """
        autoreset = [index for index, episode in enumerate(episodes) if "generator" in episode.beginning]
        if self._tried or not autoreset:
            return
        self._tried = True
        longest = max(autoreset, key=lambda index: len(episodes[index].actions))
        env = cast("_Recorder", self.env_fns[longest]())
        if env.unwrapped is self._recorders[longest].unwrapped:
            return  # the function does not create a new environment
        try:
            env.replay(episodes[longest], "a new environment")
        except NotReproducibleError as problem:
            warnings.warn(f"a run with this environment cannot be resumed: {problem}", stacklevel=4)
        finally:
            env.close()


@dataclass(frozen=True)
class _Episode:
    """A running episode: its start, its actions, and its current state."""

    beginning: dict[str, Any]  # {"seed": given to reset} or {"generator": state before the reset}
    actions: np.ndarray  # [T] int64
    checksum: int  # of its observations and rewards
    generator: dict[str, Any]  # current state of np_random, on which the rest of the episode depends


class _Recorder(gym.Wrapper):
    """Records the start, the actions, and a checksum of the observations and rewards of the running episode."""

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        self.metadata = dict(env.metadata)  # a copy: a vector environment may add entries, and env's may be its class's
        self._beginning: dict[str, Any] = {}
        self._actions = array.array("q")  # fast to copy, since simulators deep-copy environments at every step
        self._checksum = 0

    @property
    def has_started(self) -> bool:
        return bool(self._beginning)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if options:
            raise UserError(f"options={options}: ReplayableEnvs cannot restore an episode that was reset with options")
        self._beginning = {"generator": self._generator_state()} if seed is None else {"seed": int(seed)}
        self._actions = array.array("q")
        observation, info = self.env.reset(seed=seed)
        self._checksum = zlib.crc32(np.ascontiguousarray(observation).data)
        return observation, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self._actions.append(int(action))
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._checksum = zlib.crc32(np.ascontiguousarray(observation).data, self._checksum)
        self._checksum = zlib.crc32(np.float64(reward).tobytes(), self._checksum)
        return observation, reward, terminated, truncated, info

    def episode(self) -> _Episode:
        return _Episode(self._beginning, np.array(self._actions, np.int64), self._checksum, self._generator_state())

    def replay(self, episode: _Episode, name: str) -> None:
        """Replay ``episode`` up to its current state."""
        problem = ""
        try:
            if "generator" in episode.beginning:
                self._set_generator_state(episode.beginning["generator"])
            self.reset(seed=episode.beginning.get("seed"))
            for number, action in enumerate(episode.actions, 1):
                _, _, terminated, truncated, _ = self.step(action)
                if terminated or truncated:
                    problem = f"its episode ended after {number} of {len(episode.actions)} steps"
                    break
        except NotReproducibleError as error:
            problem = str(error)
        if not problem and self._checksum != episode.checksum:
            problem = f"its observations or rewards in {len(episode.actions)} steps differ"
        if not problem and not _equal_states(self._generator_state(), episode.generator):
            problem = f"after {len(episode.actions)} steps its np_random is in another state"
        if problem:
            raise NotReproducibleError(
                f"{name} ({self.env}) could not be restored to its saved state: {problem}. It must be deterministic "
                f"except for self.np_random, and carry no other state from one episode to the next; fix that, or "
                f"write a VectorEnv with snapshot() and restore(snapshot)"
            )

    def _generator_state(self) -> dict[str, Any]:
        return cast("dict[str, Any]", self.env.unwrapped.np_random.bit_generator.state)

    def _set_generator_state(self, state: dict[str, Any]) -> None:
        generator = self.env.unwrapped.np_random.bit_generator
        try:
            generator.state = state
        except (ValueError, TypeError) as error:
            raise NotReproducibleError(
                f"its np_random is a {type(generator).__name__}, but was a {state['bit_generator']}"
            ) from error


def _equal_states(left: Any, right: Any) -> bool:
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(_equal_states(left[key], right[key]) for key in left)
    return np.array_equal(left, right)


def _restorable(envs: VectorEnv) -> Restorable:
    # A wrapper forwards snapshot() to the wrapped environment, but its own state would be lost.
    if isinstance(envs, VectorWrapper) or not (hasattr(envs, "snapshot") and hasattr(envs, "restore")):
        raise UnsupportedError(
            f"the state of {type(envs).__name__} cannot be saved; use ReplayableEnvs([make, ...]) and wrap the single "
            f"environments rather than the vector environment, or write a VectorEnv with snapshot() and "
            f"restore(snapshot)"
        )
    return cast(Restorable, envs)
