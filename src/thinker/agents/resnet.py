"""IMPALA's residual networks: the one of Guez et al. (2019) for boards, and the deep one of Espeholt et al. (2018)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from gymnasium import spaces
from torch import Tensor, nn

from thinker.agents.network import LAST_REAL, AgentInput, Memory
from thinker.agents.real_state import RealStateNetwork, RealStateSpec, SameConv2d
from thinker.agents.settings import check_choice
from thinker.errors import UserError
from thinker.interfaces import BoardStructure
from thinker.nn.blocks import Layers, initialise, one_hot_action, pass_on, residual_blocks

ResNetName = Literal["guez", "impala-deep"]
FEATURES = 256
RESIDUAL_SCALE = 0.3
"""Scale of the initial weights of convolutions whose output is added to a shortcut."""


class _Shortcut(nn.Module):
    """x + convolution(relu(x))."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.convolution = SameConv2d(channels, channels, 4)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.convolution(x.relu())
        return output.add_(x)


class GuezResNet(RealStateNetwork):
    """Sequences of a convolution and two residual convolutions, with 4x4 kernels, and a linear layer over the board.

    For pictures, the first convolution has an 8x8 kernel and stride 4 and the second sequence starts with stride 2, so
    that 80x80 pixels become 10x10 squares.

    Args:
        space, num_actions, board: see `RealStateNetwork`.
        channels: of each sequence.
    """

    def __init__(
        self,
        space: spaces.Box,
        num_actions: int,
        board: BoardStructure | None = None,
        *,
        channels: tuple[int, ...] = (32, 32, *[64] * 7),
    ) -> None:
        super().__init__(space, num_actions, board, FEATURES)
        strides = {0: (8, 4), 1: (4, 2)} if self.kind == "picture" else {}
        layers: list[nn.Module] = []
        inputs = self.planes
        for index, outputs in enumerate(channels):
            if index in strides:
                kernel, stride = strides[index]
                layers += [nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=(kernel - stride) // 2)]
            else:
                layers += [SameConv2d(inputs, outputs, 4)]
            layers += [_Shortcut(outputs), _Shortcut(outputs)]
            inputs = outputs
        self.body = nn.Sequential(*layers)
        self.linear = nn.Linear(_outputs(self.body, self.codec.state_shape), FEATURES)
        initialise(self.body)
        initialise(self.linear)
        with torch.no_grad():
            for layer in self.body:
                if isinstance(layer, _Shortcut):
                    layer.convolution.weight.mul_(RESIDUAL_SCALE)
                elif isinstance(layer, SameConv2d):
                    pass_on(layer)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def features(self, state: Tensor, given: AgentInput, memory: Memory) -> tuple[Tensor, Memory]:
        features: Tensor = self.linear(self.body(state).relu().permute(0, 2, 3, 1).flatten(1))
        return features.relu(), memory


class DeepImpalaNetwork(RealStateNetwork):
    """Sequences of a 3x3 convolution, 3x3 max-pooling with stride 2 and two residual blocks; a linear layer; an LSTM.

    The LSTM also sees the last action and the last reward, clipped to -1 .. 1.

    Args:
        space, num_actions, board: see `RealStateNetwork`.
        channels: of each sequence.
    """

    def __init__(
        self,
        space: spaces.Box,
        num_actions: int,
        board: BoardStructure | None = None,
        *,
        channels: tuple[int, ...] = (16, 32, 32),
    ) -> None:
        super().__init__(space, num_actions, board, FEATURES)
        layers: list[nn.Module] = []
        inputs = self.planes
        for outputs in channels:
            layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.MaxPool2d(3, stride=2, padding=1)]
            layers += residual_blocks(Layers(outputs, self.spatial, 0), outputs, 2)
            inputs = outputs
        self.body = nn.Sequential(*layers)
        self.linear = nn.Linear(_outputs(self.body, self.codec.state_shape), FEATURES)
        self.lstm = nn.LSTMCell(FEATURES + num_actions + 1, FEATURES)
        initialise(self.body)
        initialise(self.linear)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def initial_memory(self, batch: int) -> Memory:
        return {name: self.linear.weight.new_zeros(batch, FEATURES) for name in ("hidden", "cell")}

    def features(self, state: Tensor, given: AgentInput, memory: Memory) -> tuple[Tensor, Memory]:
        encoded = self.linear(self.body(state).relu().permute(0, 2, 3, 1).flatten(1)).relu()
        last_action = one_hot_action(given.last_action[..., LAST_REAL], self.num_actions)
        inputs = torch.cat(
            (encoded.unflatten(0, last_action.shape[:2]), last_action, given.last_reward.clamp(-1, 1)), 2
        )
        kept = (~given.episode_start).to(inputs.dtype).unsqueeze(-1)
        hidden, cell = memory["hidden"], memory["cell"]
        outputs = []
        for x, keep in zip(inputs, kept):
            hidden, cell = self.lstm(x, (hidden * keep, cell * keep))
            outputs.append(hidden)
        return torch.cat(outputs), {"hidden": hidden.detach(), "cell": cell.detach()}


def _outputs(body: nn.Module, shape: tuple[int, ...]) -> int:
    """How many numbers ``body`` makes of one state."""
    with torch.no_grad():
        found: int = body(torch.zeros(1, *shape)).numel()
    return found


NETWORKS: dict[ResNetName, type[GuezResNet] | type[DeepImpalaNetwork]] = {
    "guez": GuezResNet,
    "impala-deep": DeepImpalaNetwork,
}


@dataclass(frozen=True)
class ResNetSpec(RealStateSpec):
    """An actor-critic with a residual network, without planning."""

    network: ResNetName = "guez"  # for boards and 80x80 pictures of them; or the deep one of IMPALA, for pictures
    channels: tuple[int, ...] | None = None  # of each sequence; None: 32 32 and 64 seven times, or 16 32 32

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice(self, "network", get_args(ResNetName))
        if self.channels is not None and (not self.channels or min(self.channels) < 1):
            raise UserError(f"channels is {self.channels}; it must hold a number of at least 1 for each sequence")

    def make_network(self, space: spaces.Box, num_actions: int, board: BoardStructure | None) -> RealStateNetwork:
        network = NETWORKS[self.network]
        if self.channels is None:
            return network(space, num_actions, board)
        return network(space, num_actions, board, channels=self.channels)
