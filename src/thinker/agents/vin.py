"""Value iteration networks (Tamar et al., 2016): planning on the squares of the board as repeated convolutions."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from gymnasium import spaces
from torch import Tensor, nn

from thinker.agents.network import AgentInput, Memory
from thinker.agents.real_state import RealStateNetwork, RealStateSpec, at_least_one
from thinker.interfaces import BoardStructure
from thinker.nn.blocks import initialise

FEATURES = 256


class ValueIteration(nn.Module):
    """Value iteration on a map of rewards, with learned transitions that are the same everywhere.

    q = convolution([r, v]), v = max over the channels of q, where v is 0 at first and every channel of q stands for an
    action on the map.

    Args:
        rewards: channels of the map of rewards.
        actions: channels of q.
        iterations: k.
    """

    def __init__(self, rewards: int, actions: int, iterations: int) -> None:
        super().__init__()
        self.iterations = iterations
        self.of_reward = nn.Conv2d(rewards, actions, 3, padding=1, bias=False)
        self.of_value = nn.Parameter(torch.empty(actions, 1, 3, 3))
        bound = 1 / 3  # PyTorch's default for these nine inputs
        nn.init.uniform_(self.of_value, -bound, bound)

    def forward(self, reward: Tensor) -> Tensor:
        """Rewards [B, rewards, H, W] to q [B, actions, H, W] after k iterations."""
        from_reward: Tensor = self.of_reward(reward)
        q = from_reward  # the first iteration, as v is 0
        for _ in range(self.iterations - 1):
            q = from_reward + F.conv2d(q.amax(1, keepdim=True), self.of_value, padding=1)
        return q


class VINNetwork(RealStateNetwork):
    """A map of rewards from two convolutions, `ValueIteration` on it, attention, and a linear layer.

    The linear layer sees q and the first convolution's output at the player's square. On boards that declare no
    player, it sees their mean and maximum over the board instead.

    Args:
        space, num_actions, board: see `RealStateNetwork`.
        iterations: k.
        hidden_channels: of the first convolution.
        map_actions: channels of q.
    """

    def __init__(
        self,
        space: spaces.Box,
        num_actions: int,
        board: BoardStructure | None = None,
        *,
        iterations: int = 10,
        hidden_channels: int = 150,
        map_actions: int = 10,
    ) -> None:
        super().__init__(space, num_actions, board, FEATURES)
        self.player_planes = None if board is None else board.player_planes
        self.first = nn.Conv2d(self.planes, hidden_channels, 3, padding=1)
        self.reward = nn.Conv2d(hidden_channels, 1, 1, bias=False)
        self.value_iteration = ValueIteration(1, map_actions, iterations)
        attended = (hidden_channels + map_actions) * (2 if self.player_planes is None else 1)
        self.linear = nn.Linear(attended, FEATURES)
        initialise(self.first)
        initialise(self.linear)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def features(self, state: Tensor, given: AgentInput, memory: Memory) -> tuple[Tensor, Memory]:
        hidden = self.first(state).relu()
        q = self.value_iteration(self.reward(hidden))
        features: Tensor = self.linear(self.attend(torch.cat((hidden, q), 1), state)).relu()
        return features, memory

    def attend(self, maps: Tensor, state: Tensor) -> Tensor:
        """``maps`` [N, channels, H, W] at the player's square of ``state`` [N, channels], or their mean and maximum
        [N, 2 channels]."""
        if self.player_planes is None:
            return torch.cat((maps.mean((2, 3)), maps.amax((2, 3))), 1)
        player = torch.stack([state[:, plane] for plane in self.player_planes]).sum(0)  # [N, H, W]
        return torch.einsum("nchw,nhw->nc", maps, player)


@dataclass(frozen=True)
class VINSpec(RealStateSpec):
    """An actor-critic with a value iteration network."""

    iterations: int = 10  # k, iterations of value iteration: how far values travel over the board
    hidden_channels: int = 150  # of the convolution before the map of rewards
    map_actions: int = 10  # channels of q, the actions of value iteration

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least_one(self, "iterations", "hidden_channels", "map_actions")

    def make_network(self, space: spaces.Box, num_actions: int, board: BoardStructure | None) -> VINNetwork:
        return VINNetwork(
            space,
            num_actions,
            board,
            iterations=self.iterations,
            hidden_channels=self.hidden_channels,
            map_actions=self.map_actions,
        )
