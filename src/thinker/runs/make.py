"""`thinker.make`: creates environments wrapped with a world model in one call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, get_args, overload

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from thinker.augmented import Extra, FeatureGroup, Observe, Output, SingleThinkerEnv, ThinkerEnv, single_vector
from thinker.augmented.checks import check_names
from thinker.envs.one_hot import with_vectors
from thinker.errors import UserError
from thinker.interfaces import WorldModel
from thinker.runs import registry
from thinker.runs.build import build_model
from thinker.runs.machine import Device, choose_device
from thinker.runs.settings import SearchSettings
from thinker.world_model.spec import BuiltModel, DualModelSpec, ModelSpec, NoModelSpec
from thinker.world_model.trainer import ModelTrainer

Vectorization = Literal["auto", "sync", "async", "native"]
EnvironmentSource = str | Callable[[], gym.Env] | VectorEnv


class GivenModel(BuiltModel):
    """A world model provided by the caller."""

    def __init__(self, model: WorldModel) -> None:
        self.trainer: ModelTrainer | None = None
        self._model = model

    def for_envs(self, envs: VectorEnv, *, predict_states: bool = False) -> WorldModel:
        return self._model


@overload
def make(env: EnvironmentSource, *, num_envs: int = 16, **options: Any) -> ThinkerEnv: ...
@overload
def make(env: EnvironmentSource, *, num_envs: None, **options: Any) -> SingleThinkerEnv: ...
def make(  # type: ignore[misc]  # **options of the overloads covers all options below
    env: EnvironmentSource,
    *,
    num_envs: int | None = 16,
    model: str | ModelSpec | WorldModel | None = None,
    stage_length: int = 20,
    max_depth: int | None = 5,
    discount: float = 0.97,
    carry_tree: bool = True,
    observe: Iterable[Observe] = ("tree", "hidden"),
    mask: Iterable[FeatureGroup] = (),
    extra: Iterable[Extra] = (),
    output: Output | None = None,
    copy: bool = True,
    keep_states: bool = False,
    seed: int | None = None,
    env_options: Mapping[str, Any] | None = None,
    vectorization: Vectorization = "auto",
    total_transitions: int | None = None,
    device: Device = "cpu",
) -> ThinkerEnv | SingleThinkerEnv:
    """Create the Thinker-augmented MDP of a Gymnasium environment.

    With the default model, the world model, base policy and base values are learned from scratch as you step the
    environment; ``env.sink.metrics`` has the losses. All arguments that are not listed here are those of `ThinkerEnv`.
    The single view always returns NumPy arrays.

    Args:
        env: the id of an environment, as for ``gymnasium.make``; a function that creates one; or a vector environment.
        num_envs: number of environments; None for the single view, an ordinary ``gymnasium.Env``. Ignored if ``env`` is
            a vector environment.
        model: the spec of a learned model or a simulator (default: ``DualModelSpec()``, the paper's), its name ("dual",
            "single", "simulator", "simulator-learned-values"), or your own `WorldModel`.
        seed: of the environments at the first ``reset``, and of the learned model.
        env_options: keyword arguments of the environment itself.
        vectorization: "sync" (environments are stepped one after another), "async" (one process each), "native" (the
            environment's own vector version); "auto": native for Thinker's own environments, else sync.
        total_transitions: the length of the run in real transitions over all environments; learning rates are annealed
            to 0 over it. With None they are constant.
        device: of the learned model and of the observations.
    """
    options = dict(env_options or {})
    if num_envs is None:
        if output not in (None, "numpy"):
            raise UserError(f"output={output!r}: the single view (num_envs=None) returns only NumPy arrays")
        if isinstance(env, VectorEnv):
            raise UserError("num_envs=None creates the single view, which a vector environment cannot be")
        one = gym.make(env, **options) if isinstance(env, str) else env(**options)
        envs: VectorEnv = single_vector(with_vectors(one))
    else:
        envs = _make_envs(env, num_envs, vectorization, options)
    place = choose_device(device)
    search = SearchSettings(
        stage_length=stage_length,
        max_depth=max_depth,
        discount=discount,
        carry_tree=carry_tree,
        observe=check_names("observe", observe, get_args(Observe)),
        mask=check_names("mask", mask, get_args(FeatureGroup)),
        extra=check_names("extra", extra, get_args(Extra)),
    )
    if stage_length != 1 and (model == "none" or isinstance(model, NoModelSpec)):
        raise UserError(f"there is no model to search, so stage_length must be 1, not {stage_length}")
    built = _model(
        model,
        envs,
        discount=discount,
        total_transitions=total_transitions,
        seed=int(np.random.default_rng().integers(2**31)) if seed is None else seed,
        device=place,
    )
    augmented = search.build(
        envs,
        built,
        device=place,
        keep_states=keep_states,
        output="numpy" if num_envs is None else output or "torch",
        copy=copy,
        sink=built.trainer,
        seed=seed,
        autoreset=num_envs is not None,
    )
    return SingleThinkerEnv(augmented) if num_envs is None else augmented


def _make_envs(env: EnvironmentSource, num_envs: int, vectorization: str, options: dict[str, Any]) -> VectorEnv:
    if isinstance(env, VectorEnv):
        if options or vectorization != "auto":
            raise UserError("env_options and vectorization are for environments that make() creates, not a VectorEnv")
        return env
    if num_envs < 1:
        raise UserError(f"num_envs is {num_envs}; it must be at least 1, or None for the single view")
    if vectorization not in get_args(Vectorization):
        raise UserError(f"vectorization={vectorization!r}: choose one of {', '.join(get_args(Vectorization))}")
    if not isinstance(env, str):
        if not callable(env):
            raise UserError(f"env is {env!r}; expected a name, a function that makes an environment, or a VectorEnv")
        if vectorization == "native":
            raise UserError("vectorization='native' needs the name of an environment, not a function")
        made: type = gym.vector.AsyncVectorEnv if vectorization == "async" else gym.vector.SyncVectorEnv
        functions = [lambda: with_vectors(env(**options))] * num_envs
        vector: VectorEnv = made(functions, autoreset_mode=AutoresetMode.SAME_STEP)
        return vector
    namespace, _, _ = gym.envs.registration.parse_env_id(env.rpartition(":")[2])
    if vectorization == "native" or (vectorization == "auto" and namespace == "thinker"):
        return gym.make_vec(env, num_envs, vectorization_mode="vector_entry_point", **options)
    mode = "sync" if vectorization == "auto" else vectorization
    same_step = {"autoreset_mode": AutoresetMode.SAME_STEP}
    wrappers: list[Any] = [with_vectors]
    return gym.make_vec(env, num_envs, vectorization_mode=mode, vector_kwargs=same_step, wrappers=wrappers, **options)


def _model(model: str | ModelSpec | WorldModel | None, envs: VectorEnv, **arguments: Any) -> BuiltModel:
    if model is None:
        model = DualModelSpec()
    if isinstance(model, str):
        if model not in registry.MODELS:
            known = ", ".join(registry.MODELS)
            raise UserError(f"model={model!r}: choose one of {known}, or pass a ModelSpec or your own WorldModel")
        spec: ModelSpec = registry.MODELS[model]()
        return build_model(spec, envs, **arguments)
    if isinstance(model, ModelSpec):
        return build_model(model, envs, **arguments)
    return GivenModel(model)
