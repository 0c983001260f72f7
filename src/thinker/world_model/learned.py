"""A world model that learns, put together: network, its copy for acting, replay and trainer (section 4.4)."""

from __future__ import annotations

from gymnasium import Space, spaces

from thinker.world_model.build import build_model, build_value_policy
from thinker.world_model.inference import InferenceModel, InferenceValuePolicy, Precision
from thinker.world_model.replay import Replay
from thinker.world_model.sizes import SIZES, ImageSize, ModelSize, choose_size
from thinker.world_model.trainer import ModelTrainer, TrainerSettings


def learned_model(
    observation_space: Space,
    action_space: Space,
    *,
    num_envs: int,
    discount: float,
    variant: str = "dual-feature",
    size: str | ModelSize | None = None,
    precision: Precision = "auto",
    give_states: bool = True,
    settings: TrainerSettings | None = None,
    replay_capacity: int = 200_000,
    total_transitions: int | None = None,
    seed: int = 0,
) -> tuple[InferenceModel, ModelTrainer]:
    """A world model with fresh weights to act with, and the trainer that keeps it learning; see `thinker.make`."""
    network = build_model(observation_space, _num_actions(action_space), variant=variant, size=size, seed=seed)
    copy = InferenceModel(network, precision, give_states=give_states)
    settings = settings or TrainerSettings()
    replay = _replay(observation_space, action_space, num_envs, discount, size, settings, replay_capacity, seed)
    return copy, ModelTrainer(network, replay, settings, total_transitions, inference=(copy,))


def learned_values(
    observation_space: Space,
    action_space: Space,
    *,
    num_envs: int,
    discount: float,
    size: str | ModelSize | None = None,
    precision: Precision = "auto",
    settings: TrainerSettings | None = None,
    replay_capacity: int = 200_000,
    total_transitions: int | None = None,
    seed: int = 0,
) -> tuple[InferenceValuePolicy, ModelTrainer]:
    """A base policy and value to learn beside a perfect simulator, and their trainer; see `thinker.make`."""
    network = build_value_policy(observation_space, _num_actions(action_space), size=size, seed=seed)
    copy = InferenceValuePolicy(network, precision)
    settings = settings or TrainerSettings()
    replay = _replay(observation_space, action_space, num_envs, discount, size, settings, replay_capacity, seed)
    return copy, ModelTrainer(network, replay, settings, total_transitions, inference=(copy,))


def _num_actions(space: Space) -> int:
    if not isinstance(space, spaces.Discrete):
        raise TypeError(f"a world model needs a Discrete action space, not {space}")
    return int(space.n)


def _replay(
    observation_space: Space,
    action_space: Space,
    num_envs: int,
    discount: float,
    size: str | ModelSize | None,
    settings: TrainerSettings,
    capacity: int,
    seed: int,
) -> Replay:
    assert isinstance(observation_space, spaces.Box)
    name = choose_size(observation_space) if size is None else size
    chosen = SIZES[name] if isinstance(name, str) else name
    return Replay(
        capacity,
        num_envs=num_envs,
        observation_space=observation_space,
        num_actions=_num_actions(action_space),
        discount=discount,
        unroll_length=settings.unroll_length,
        return_length=settings.return_length,
        priority_exponent=settings.priority_exponent,
        frame_stack=chosen.stacked_frames if isinstance(chosen, ImageSize) else 1,
        seed=seed,
    )
