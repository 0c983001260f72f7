"""Builds networks with new weights: the dual networks, the paper's single-network ablations, the value-policy half.

All functions take the observation space of one environment (not of the vector environment), a size (a name in `SIZES`,
a `ModelSize`, or None for the one that fits), what is known of the boards, if anything, how values and rewards are
predicted (default: as numbers), and a seed. The weights depend only on the seed, not on the device: they are drawn on
the CPU. The global random state is not changed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import gymnasium as gym
import torch
from torch import nn

from thinker.errors import UserError
from thinker.interfaces import BoardStructure
from thinker.nn.blocks import initialise
from thinker.nn.seeding import seeded
from thinker.nn.sizes import ModelSize, TilesSize, UnsupportedSpaceError, size_for
from thinker.world_model.acting import Network
from thinker.world_model.architecture import ModelArchitecture
from thinker.world_model.board import BoardNetwork, BoardStateLoss, BoardValueNetwork, NotBoardsError
from thinker.world_model.dual import DualNetwork
from thinker.world_model.heads import Head
from thinker.world_model.network import SingleStateLoss, StateLoss
from thinker.world_model.single import SingleNetwork
from thinker.world_model.value_policy import ValuePolicyNetwork

CPU = torch.device("cpu")
ValueNetworkName = Literal["dual", "board"]
"""The model whose value-policy half is used: the paper's dual network, or the one for boards."""
ValueNetwork = ValuePolicyNetwork | BoardValueNetwork


def build_dual(
    observation_space: gym.Space,
    num_actions: int,
    *,
    state_loss: StateLoss = "feature",
    size: str | ModelSize | None = None,
    board: BoardStructure | None = None,
    head: Head | None = None,
    seed: int = 0,
    device: torch.device = CPU,
) -> DualNetwork:
    """The paper's model; other values of ``state_loss`` give its ablations."""
    return _build(
        lambda parts: DualNetwork(parts, state_loss), observation_space, num_actions, size, board, head, seed, device
    )


def build_single(
    observation_space: gym.Space,
    num_actions: int,
    *,
    state_loss: SingleStateLoss = "l2",
    size: str | ModelSize | None = None,
    board: BoardStructure | None = None,
    head: Head | None = None,
    seed: int = 0,
    device: torch.device = CPU,
) -> SingleNetwork:
    """One network for everything; without a state loss it is MuZero's model."""
    return _build(
        lambda parts: SingleNetwork(parts, state_loss), observation_space, num_actions, size, board, head, seed, device
    )


def build_board(
    observation_space: gym.Space,
    num_actions: int,
    *,
    state_loss: BoardStateLoss = "cross-entropy",
    size: str | ModelSize | None = "board",
    board: BoardStructure | None = None,
    head: Head | None = None,
    seed: int = 0,
    device: torch.device = CPU,
) -> BoardNetwork:
    """A dual network without memory, for boards that contain the whole state."""

    def make(architecture: ModelArchitecture) -> BoardNetwork:
        return BoardNetwork(architecture, state_loss, None if board is None else board.player_planes)

    return _build_for_boards(make, observation_space, num_actions, size, board, head, seed, device)


def build_value_policy(
    observation_space: gym.Space,
    num_actions: int,
    *,
    network: ValueNetworkName = "dual",
    size: str | ModelSize | None = None,
    board: BoardStructure | None = None,
    head: Head | None = None,
    seed: int = 0,
    device: torch.device = CPU,
) -> ValueNetwork:
    """A value-policy network alone, to be trained for use with a perfect simulator."""
    if network == "dual":
        return _build(ValuePolicyNetwork, observation_space, num_actions, size, board, head, seed, device)

    def make(architecture: ModelArchitecture) -> BoardValueNetwork:
        return BoardValueNetwork(architecture, None if board is None else board.player_planes)

    size = "board" if size is None else size
    return _build_for_boards(make, observation_space, num_actions, size, board, head, seed, device)


def _build_for_boards(
    make: Callable[[ModelArchitecture], Network], observation_space: gym.Space, *arguments: Any
) -> Network:
    try:
        return _build(make, observation_space, *arguments)
    except UnsupportedSpaceError as error:
        raise NotBoardsError(observation_space) from error


def _build(
    make: Callable[[ModelArchitecture], Network],
    observation_space: gym.Space,
    num_actions: int,
    size: str | ModelSize | None,
    board: BoardStructure | None,
    head: Head | None,
    seed: int,
    device: torch.device,
) -> Network:
    if num_actions < 1:
        raise UserError(f"num_actions must be at least 1, got {num_actions}")
    with seeded(seed):
        architecture = ModelArchitecture(
            observation_space,
            num_actions,
            size_for(observation_space, size),
            None if board is None else board.border,
            head,
        )
        network = make(architecture)
        if isinstance(architecture.size, TilesSize):  # images and vectors keep PyTorch's default initialisation
            initialise(network)
    _to_channels_last(network)
    return network.to(device)


def _to_channels_last(module: nn.Module) -> None:
    """Convert weights to the memory format in which convolutions are fastest on CPUs."""
    for parameter in module.parameters():
        if parameter.ndim == 4:
            parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)
