"""Any Gymnasium environment as the environment of a run: given by its id, or by a function that creates it.

Held-out episodes are defined by their seeds: every episode is reset with its own seed, which training does not use.
"""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import json
import os
import sys
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

import gymnasium as gym
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from tyro.constructors import PrimitiveConstructorSpec

from thinker.envs.one_hot import with_vectors
from thinker.envs.replayable import ReplayableEnvs, check_spaces
from thinker.envs.spec import EnvironmentSpec, Split, check_counts, episode_number
from thinker.errors import UnsupportedError, UserError

HELD_OUT_SEEDS: Final[dict[Split, int]] = {"validation": 1_000_000_000, "test": 1_500_000_000}
"""The seed of episode 0 of each split; episode i has the i-th seed after it. Seeds of runs should be below both."""
HELD_OUT_COUNT: Final = 500_000_000
"""The number of held-out episodes in each split."""


class SingleEnvironmentsSpec(EnvironmentSpec):
    """Base class of specs that create single environments."""

    success: str | None = None  # info entry that reports success; None: the entry named by the environment's metadata

    @abstractmethod
    def make_env(self) -> gym.Env:
        """A new single environment with Discrete actions; raises a `UserError` if it cannot be created.

        Observations are a Box; Discrete ones are converted to one-hot vectors.
        """

    def build(self, num_envs: int) -> SyncVectorEnv:
        check_counts(num_envs)
        envs = ReplayableEnvs([self.make_env] * num_envs)
        self._describe(envs)
        return envs

    def held_out(self, split: Split, num_envs: int, count: int) -> SyncVectorEnv:
        """See `EnvironmentSpec.held_out`; after the ``count`` episodes the environments play more of them."""
        check_counts(num_envs, count)
        if count > HELD_OUT_COUNT:
            raise UserError(f"{count} {split} episodes were requested, but there are only {HELD_OUT_COUNT}")
        first = HELD_OUT_SEEDS[split]
        return self._seeded([first + e for e in range(num_envs)], stride=num_envs)

    def chosen_episode(self, episode: str, split: Split, num_envs: int) -> SyncVectorEnv:
        """See `EnvironmentSpec.chosen_episode`; the environments play the episode repeatedly."""
        check_counts(num_envs)
        seed = HELD_OUT_SEEDS[split] + episode_number(episode, HELD_OUT_COUNT)
        return self._seeded([seed] * num_envs, stride=0)

    def check(self) -> None:
        self.make_env().close()

    def _seeded(self, seeds: Sequence[int], stride: int) -> SyncVectorEnv:
        envs = SeededEpisodes(self.make_env, seeds, stride)
        self._describe(envs)
        return envs

    def _describe(self, envs: VectorEnv) -> None:
        if self.success is not None:
            envs.metadata = {**envs.metadata, "success": self.success}


def _parse_options(arguments: list[str]) -> dict[str, Any]:
    try:
        options = json.loads(arguments[0])
    except json.JSONDecodeError as problem:
        raise ValueError(f"{arguments[0]!r} is not JSON ({problem}); expected, for example, {_EXAMPLE}") from problem
    if not isinstance(options, dict):
        raise ValueError(f"{arguments[0]!r} is not a JSON object; expected, for example, {_EXAMPLE}")
    return options


_EXAMPLE: Final = """'{"name": "value", "number": 3}'"""
JsonObject = Annotated[
    dict[str, Any],
    PrimitiveConstructorSpec(
        nargs=1,
        metavar="JSON",
        instance_from_str=_parse_options,
        is_instance=lambda options: isinstance(options, dict),
        str_from_instance=lambda options: [json.dumps(options)],
    ),
]
"""A dict, given as a JSON object on the command line."""


@dataclass(frozen=True)
class GymnasiumSpec(SingleEnvironmentsSpec):
    """A registered Gymnasium environment."""

    id: str = ""  # as for gymnasium.make; MODULE:ID imports MODULE first, also from the current folder
    options: JsonObject = field(default_factory=dict, hash=False)  # keyword arguments of the environment, as JSON
    max_steps: int | None = None  # real steps after which an episode is truncated; None: the environment's own limit
    success: str | None = None  # info entry that reports success; None: the entry named by the environment's metadata

    @property
    def name(self) -> str:
        return self.id

    def make_env(self) -> gym.Env:
        """The environment ``id``, created by ``gymnasium.make``."""
        module, _, registered = self.id.rpartition(":")
        if not registered or ":" in module:
            raise UserError(f"{self.id!r} is not the id of an environment; expected, for example, CartPole-v1")
        if module:
            self._import(module)
        try:
            env = gym.make(self.id, max_episode_steps=self.max_steps, **self.options)
        except UserError:
            raise  # already has a helpful message
        except ModuleNotFoundError as problem:
            raise UserError(
                f"the environment {self.id!r} needs a package that is not installed: {problem}"
            ) from problem
        except gym.error.DependencyNotInstalled as problem:
            raise UserError(f"the environment {self.id!r} cannot be created: {problem}") from problem
        except gym.error.Error as problem:
            raise UserError(f"there is no environment {self.id!r}: {problem} {_suggestion(registered)}") from problem
        except TypeError as problem:
            if "argument" not in str(problem):
                raise
            reason = problem.__cause__ or problem  # Gymnasium adds text to the constructor's message
            raise UserError(
                f"the environment {self.id!r} cannot be created with the options {self.options}: {reason}"
            ) from problem
        env = with_vectors(env)
        check_spaces(env)
        return env

    def check(self) -> None:
        if self.max_steps is not None and self.max_steps < 1:
            raise UserError(f"max_steps is {self.max_steps}; expected at least 1")
        try:
            json.dumps(self.options)
        except (TypeError, ValueError) as problem:
            raise UserError(
                f"the options {self.options} cannot be saved with a run because they are not valid JSON ({problem})"
            ) from problem
        super().check()

    def rendering(self) -> GymnasiumSpec:
        if "render_mode" in self.options:
            return self
        env = self.make_env()
        modes = env.metadata.get("render_modes") or ()
        env.close()
        if "rgb_array" not in modes:
            return self
        return dataclasses.replace(self, options={**self.options, "render_mode": "rgb_array"})

    def _import(self, module: str) -> None:
        """Import the module that registers the environment; the current folder is searched last."""
        if os.getcwd() not in sys.path:
            sys.path.append(os.getcwd())
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as problem:
            if problem.name is not None and f"{module}.".startswith(f"{problem.name}."):
                raise UserError(
                    f"there is no module {module!r} for the environment {self.id!r}; install it, or run this from the "
                    f"folder that contains it (the current folder is {os.getcwd()})"
                ) from problem
            raise UserError(f"the module {module!r} needs a package that is missing: {problem}") from problem


@dataclass(frozen=True)
class FunctionSpec(SingleEnvironmentsSpec):
    """An environment created by a function; for use from Python, since a run's settings cannot store functions."""

    make: Callable[[], gym.Env]  # called once for each environment; must return a new one every time
    success: str | None = None  # info entry that reports success; None: the entry named by the environment's metadata

    @property
    def name(self) -> str:
        return getattr(self.make, "__name__", type(self.make).__name__)

    def make_env(self) -> gym.Env:
        """A new environment from the function."""
        env = self.make()
        if not isinstance(env, gym.Env):
            raise UnsupportedError(f"{self.name} returned a {type(env).__name__}; expected a gymnasium.Env")
        env = with_vectors(env)
        check_spaces(env)
        return env


class SeededEpisodes(SyncVectorEnv):
    """Single environments in autoreset mode SAME_STEP that play episodes with given seeds.

    The episodes of environment e are reset with the seeds ``seeds[e]``, ``seeds[e] + stride`` and so on. Every
    ``reset()`` starts again with the first ones; a seed passed to it has no effect. Where ``metadata["unfinished"]``
    tells that a game goes on in the next episode, that episode is reset without a seed.
    """

    def __init__(self, make: Callable[[], gym.Env], seeds: Sequence[int], stride: int) -> None:
        super().__init__(
            [lambda seed=seed: _SeededEnv(make(), seed, stride) for seed in seeds],  # type: ignore[misc]
            autoreset_mode=AutoresetMode.SAME_STEP,
        )

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        if options:
            raise UserError(f"options={options}: held-out episodes are reset without options")
        for env in self.envs:
            env.get_wrapper_attr("rewind")()
        return super().reset()


class _SeededEnv(gym.Wrapper):
    """Resets every episode with the next one of its seeds."""

    def __init__(self, env: gym.Env, seed: int, stride: int) -> None:
        super().__init__(env)
        self.metadata = dict(env.metadata)  # a copy: a vector environment may add entries, and env's may be its class's
        self._first = self._next = seed
        self._stride = stride
        self._unfinished = False

    def rewind(self) -> None:
        """Start again with the first seed at the next reset."""
        self._next, self._unfinished = self._first, False

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        result = self.env.step(action)
        self._unfinished = bool(result[4].get(self.metadata.get("unfinished", ""), False))
        return result

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        seed = None
        if not self._unfinished:
            seed = self._next
            self._next += self._stride
        return self.env.reset(seed=seed, options=options)


def _suggestion(registered: str) -> str:
    known = {name.lower(): name for name in gym.registry}
    near = difflib.get_close_matches(registered.lower(), known, n=3)
    if near:
        return f"Close matches: {', '.join(known[name] for name in near)}"
    return "If another module registers it, prefix the id with that module: MODULE:ID"
