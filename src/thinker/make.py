"""`thinker.make`: an environment by name, wrapped with a world model, in one call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypedDict, get_args, overload

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from thinker.augmented.env import Observe, Output, ThinkerEnv
from thinker.augmented.representation import Extra, Hidden
from thinker.augmented.single import SingleThinkerEnv, single_vector
from thinker.world_model.build import VARIANTS
from thinker.world_model.inference import Precision
from thinker.world_model.learned import learned_model, learned_values
from thinker.world_model.protocol import WorldModel
from thinker.world_model.simulator import simulator
from thinker.world_model.sizes import ModelSize
from thinker.world_model.trainer import ModelTrainer, TrainerSettings

Vectorization = Literal["auto", "sync", "async", "native"]
SIMULATORS = ("simulator", "simulator-learned-values")


class LearningOptions(TypedDict):
    """What the functions of `thinker.world_model.learned` share."""

    num_envs: int
    discount: float
    size: str | ModelSize | None
    precision: Precision
    settings: TrainerSettings
    replay_capacity: int
    total_transitions: int | None
    seed: int


@overload
def make(env_id: str, *, num_envs: int = 16, **options: Any) -> ThinkerEnv: ...
@overload
def make(env_id: str, *, num_envs: None, **options: Any) -> SingleThinkerEnv: ...
def make(  # type: ignore[misc]  # the overloads stand for all options below
    env_id: str,
    *,
    num_envs: int | None = 16,
    model: str | WorldModel = "dual-feature",
    stage_length: int = 20,
    max_depth: int | None = 5,
    discount: float = 0.97,
    carry_tree: bool = True,
    observe: Iterable[Observe] = ("tree", "hidden"),
    hide: Iterable[Hidden] = (),
    extra: Iterable[Extra] = (),
    output: Output | None = None,
    copy: bool = True,
    seed: int | None = None,
    env_options: Mapping[str, Any] | None = None,
    vectorization: Vectorization = "auto",
    model_size: str | ModelSize | None = None,
    precision: Precision = "auto",
    training: TrainerSettings | None = None,
    replay_capacity: int = 200_000,
    total_transitions: int | None = None,
) -> ThinkerEnv | SingleThinkerEnv:
    """Make the Thinker-augmented MDP of a registered Gymnasium environment.

    With the default model, its world model, base policy and base values are learned from scratch while you step it.

    Args:
        env_id: the environment's name, as for ``gymnasium.make``.
        num_envs: how many of it, in one vector environment; None for the single view, an ordinary ``gymnasium.Env``.
        model: a learned one by name ("dual-feature" is the paper's, see `thinker.world_model.build.VARIANTS`);
            "simulator" for the perfect model with a uniform base policy, "simulator-learned-values" for the perfect
            model with a learned base policy and value; or a `WorldModel` of your own.
        stage_length, max_depth, discount, carry_tree, observe, hide, extra, output, copy: see `ThinkerEnv`. The single
            view always gives NumPy arrays.
        seed: seeds the environments at the first ``reset`` and everything that is random in the learned model.
        env_options: keyword arguments of the environment itself, for instance ``{"size": 7, "boxes": 1}``.
        vectorization: "sync" (environments one after the other), "async" (one process each), "native" (the
            environment's own vector version); "auto": native for Thinker's own environments, else sync.
        model_size: of a learned model, see `thinker.world_model.sizes`; None chooses by the observation space.
        precision: of a learned model while acting, "auto", "float32" or "bfloat16".
        training: how a learned model is trained, see `TrainerSettings`.
        replay_capacity: real transitions that are kept to learn from.
        total_transitions: the length of the run in real transitions, all environments together; learning rates are
            annealed to 0 over it. None leaves them constant.
    """
    options = dict(env_options or {})
    if num_envs is None:
        if output not in (None, "numpy"):
            raise ValueError(f"output={output!r}: the single view (num_envs=None) gives NumPy arrays only")
        envs: VectorEnv = single_vector(gym.make(env_id, **options))
    else:
        envs = _make_envs(env_id, num_envs, vectorization, options)
    learning: LearningOptions = {
        "num_envs": envs.num_envs,
        "discount": discount,
        "size": model_size,
        "precision": precision,
        "settings": training or TrainerSettings(),
        "replay_capacity": replay_capacity,
        "total_transitions": total_transitions,
        "seed": int(np.random.default_rng().integers(2**31)) if seed is None else seed,
    }
    world_model, trainer = _make_model(envs, model, learning, "predicted_state" in (observe := tuple(observe)))
    env = ThinkerEnv(
        envs,
        world_model,
        stage_length=stage_length,
        max_depth=max_depth,
        discount=discount,
        carry_tree=carry_tree,
        observe=observe,
        hide=hide,
        extra=extra,
        output="numpy" if num_envs is None else output or "torch",
        copy=copy,
        learner=trainer,
        seed=seed,
        autoreset=num_envs is not None,
    )
    return SingleThinkerEnv(env) if num_envs is None else env


def _make_envs(env_id: str, num_envs: int, vectorization: str, options: dict[str, Any]) -> VectorEnv:
    if vectorization not in get_args(Vectorization):
        raise ValueError(f"vectorization={vectorization!r}: choose one of {', '.join(get_args(Vectorization))}")
    if vectorization == "native" or (vectorization == "auto" and env_id.startswith("thinker/")):
        return gym.make_vec(env_id, num_envs, vectorization_mode="vector_entry_point", **options)
    mode = "sync" if vectorization == "auto" else vectorization
    same_step = {"autoreset_mode": AutoresetMode.SAME_STEP}
    return gym.make_vec(env_id, num_envs, vectorization_mode=mode, vector_kwargs=same_step, **options)


def _make_model(
    envs: VectorEnv, model: str | WorldModel, learning: LearningOptions, give_states: bool
) -> tuple[WorldModel, ModelTrainer | None]:
    if not isinstance(model, str):
        return model, None
    if model == "simulator":
        return simulator(envs), None
    if model == "simulator-learned-values":
        values, trainer = learned_values(envs.single_observation_space, envs.single_action_space, **learning)
        return simulator(envs, values), trainer
    if model not in VARIANTS:
        known = ", ".join((*VARIANTS, *SIMULATORS))
        raise ValueError(f"model={model!r}: choose one of {known}, or give a WorldModel of your own")
    return learned_model(
        envs.single_observation_space, envs.single_action_space, variant=model, give_states=give_states, **learning
    )
