"""World models by name: `build_model` for the paper's variants, `build_value_policy` for use beside a simulator."""

from __future__ import annotations

import gymnasium as gym
import torch
from torch import nn

from thinker.world_model.architecture import Architecture
from thinker.world_model.blocks import initialise
from thinker.world_model.dual import DualNetwork
from thinker.world_model.network import LearnedModel
from thinker.world_model.single import SingleNetwork
from thinker.world_model.sizes import SIZES, ModelSize, TilesSize, choose_size
from thinker.world_model.value_policy import ValuePolicyNetwork

VARIANTS = ("dual-feature", "dual-l2", "dual-no-state", "single-l2", "single-no-state")
"""The paper's model and its ablations; ``single-no-state`` is MuZero's model."""


def build_model(
    observation_space: gym.Space,
    num_actions: int,
    *,
    variant: str = "dual-feature",
    size: str | ModelSize | None = None,
    seed: int = 0,
) -> LearnedModel:
    """A world model with fresh weights for one environment's ``observation_space`` (not the vector environment's).

    ``variant`` is one of `VARIANTS`; ``size`` a name in `SIZES`, a size of your own, or None for `choose_size`. The
    weights depend on ``seed`` alone; the global random state is left as it was.
    """
    if variant not in VARIANTS:
        raise ValueError(f"unknown variant {variant!r}; choose one of {', '.join(VARIANTS)}")
    architecture = _architecture(observation_space, num_actions, size)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: LearnedModel
        if variant == "dual-feature":
            model = DualNetwork(architecture, state_loss="feature")
        elif variant == "dual-l2":
            model = DualNetwork(architecture, state_loss="l2")
        elif variant == "dual-no-state":
            model = DualNetwork(architecture, state_loss=None)
        elif variant == "single-l2":
            model = SingleNetwork(architecture, state_loss="l2")
        else:
            model = SingleNetwork(architecture, state_loss=None)
        _initialise(model, architecture)
    _to_channels_last(model)
    return model


def build_value_policy(
    observation_space: gym.Space, num_actions: int, *, size: str | ModelSize | None = None, seed: int = 0
) -> ValuePolicyNetwork:
    """A value-policy network alone, to be learned beside a perfect simulator. Arguments as for `build_model`."""
    architecture = _architecture(observation_space, num_actions, size)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = ValuePolicyNetwork(architecture)
        _initialise(network, architecture)
    _to_channels_last(network)
    return network


def _architecture(observation_space: gym.Space, num_actions: int, size: str | ModelSize | None) -> Architecture:
    if num_actions < 1:
        raise ValueError(f"num_actions must be at least 1, got {num_actions}")
    if size is None:
        size = choose_size(observation_space)
    if isinstance(size, str):
        if size not in SIZES:
            raise ValueError(f"unknown size {size!r}; choose one of {', '.join(SIZES)} or give a ModelSize")
        size = SIZES[size]
    return Architecture(observation_space, num_actions, size)


def _initialise(module: nn.Module, architecture: Architecture) -> None:
    """Pictures and vectors keep PyTorch's own initialisation: for them nothing else has been measured."""
    if isinstance(architecture.size, TilesSize):
        initialise(module)


def _to_channels_last(module: nn.Module) -> None:
    """The memory format in which CPUs convolve fastest."""
    for parameter in module.parameters():
        if parameter.ndim == 4:
            parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)
