"""Small networks and random batches for the tests of the networks, the losses and acting copies."""

from __future__ import annotations

from functools import partial

import gymnasium as gym
import numpy as np
import torch

from thinker.nn.sizes import ImageSize, ModelSize, SmallImageSize, TilesSize, VectorSize
from thinker.world_model.batch import SequenceBatch
from thinker.world_model.build import build_dual, build_single
from thinker.world_model.losses import LossOutput, model_losses
from thinker.world_model.network import LearnedModel, TrainableNetwork
from thinker.world_model.trainer import TrainerSettings

NUM_ACTIONS = 3

_infinity = np.inf
CARTPOLE = gym.spaces.Box(
    np.array([-4.8, -_infinity, -0.42, -_infinity], np.float32), np.array([4.8, _infinity, 0.42, _infinity], np.float32)
)
KINDS: dict[str, tuple[gym.Space, ModelSize]] = {
    "image": (gym.spaces.Box(0, 255, (3, 9, 17), np.uint8), ImageSize(channels=16, unroll_blocks=2)),
    "image-channels-last": (gym.spaces.Box(0, 255, (17, 9, 1), np.uint8), ImageSize(channels=16, unroll_blocks=1)),
    "stacked": (gym.spaces.Box(0, 255, (4, 9, 16), np.uint8), ImageSize(16, unroll_blocks=1, stacked_frames=4)),
    "small-image": (gym.spaces.Box(0, 255, (3, 9, 17), np.uint8), SmallImageSize()),
    "small-stacked": (gym.spaces.Box(0, 255, (4, 9, 16), np.uint8), SmallImageSize(unroll_blocks=1, stacked_frames=4)),
    "tiles": (gym.spaces.Box(0, 1, (3, 4, 5), np.uint8), TilesSize(channels=8, state_reward_channels=4)),
    "bools": (gym.spaces.Box(0, 1, (5, 5, 4), bool), TilesSize(channels=8, state_reward_channels=4)),
    "vector": (CARTPOLE, VectorSize(channels=16)),
}

VARIANTS = {
    "dual-feature": partial(build_dual, state_loss="feature"),
    "dual-l2": partial(build_dual, state_loss="l2"),
    "dual-no-state": partial(build_dual, state_loss="none"),
    "single-l2": partial(build_single, state_loss="l2"),
    "single-no-state": partial(build_single, state_loss="none"),
}


def small_model(kind: str, variant: str = "dual-feature", **options) -> LearnedModel:
    """A model of one of the `VARIANTS` for one of the `KINDS` of observations."""
    space, size = KINDS[kind]
    return VARIANTS[variant](space, NUM_ACTIONS, size=size, **options)


def paper_scales(network: TrainableNetwork) -> dict[str, float]:
    """The paper's scales of the losses that this network has."""
    return {name: TrainerSettings().loss_scales[name] for name in network.loss_names}


def losses_of(network: TrainableNetwork, batch: SequenceBatch) -> LossOutput:
    return model_losses(network.predict(batch), batch, paper_scales(network))


def random_observations(space: gym.Space, shape: tuple[int, ...], rng: np.random.Generator) -> torch.Tensor:
    """Observations [*shape, *observation_shape] inside of the space's bounds."""
    if isinstance(space, gym.spaces.Box) and np.issubdtype(space.dtype, np.floating):
        high = np.minimum(space.high, 3.0)
        return torch.from_numpy((rng.uniform(-1, 1, (*shape, *space.shape)) * high).astype(space.dtype))
    high = int(space.high.max()) if isinstance(space, gym.spaces.Box) else 1
    return torch.from_numpy(rng.integers(0, high + 1, (*shape, *space.shape)).astype(space.dtype))


def random_batch(space: gym.Space, num_sequences: int, unroll_length: int, *, seed: int = 0) -> SequenceBatch:
    """A batch in which every field and every mask is random."""
    rng = np.random.default_rng(seed)

    def uniform(*shape: int) -> torch.Tensor:
        return torch.from_numpy(rng.uniform(-1, 1, shape).astype(np.float32))

    def coin(*shape: int) -> torch.Tensor:
        return torch.from_numpy((rng.random(shape) < 0.7).astype(np.float32))

    n, length = num_sequences, unroll_length
    return SequenceBatch(
        observation=random_observations(space, (n, length + 1), rng),
        last_action=torch.from_numpy(rng.integers(-1, NUM_ACTIONS, n)),
        action=torch.from_numpy(rng.integers(0, NUM_ACTIONS, (n, length))),
        reward=uniform(n, length),
        termination=coin(n, length),
        value_target=uniform(n, length + 1),
        policy_target=uniform(n, length + 1, NUM_ACTIONS).mul(3).softmax(-1),
        state_mask=coin(n, length),
        reward_mask=coin(n, length),
        termination_mask=coin(n, length),
        value_mask=coin(n, length + 1),
        policy_mask=coin(n, length + 1),
        weight=uniform(n) + 1.5,
        index=np.arange(n),
    )
