"""DRC(D, N), deep repeated ConvLSTM (Guez et al., 2019): D recurrent layers that tick N times for each real step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from gymnasium import spaces
from torch import Tensor, nn

from thinker.agents.network import AgentInput, Memory
from thinker.agents.real_state import RealStateNetwork, RealStateSpec, SameConv2d, at_least_one
from thinker.agents.settings import check_choice
from thinker.interfaces import BoardStructure
from thinker.nn.blocks import pass_on
from thinker.nn.conv_lstm import ConvLSTM, OutputGate, Pooling

Readout = Literal["sum", "concatenation"]
FEATURES = 256


class DRCNetwork(RealStateNetwork):
    """Two convolutions, the recurrent layers, and a linear layer over the whole board.

    The convolutions, without nonlinearities, have 4x4 kernels for boards. For pictures they have 8x8 and 4x4 kernels
    with strides 4 and 2, so that 80x80 pixels become 10x10 squares.

    Args:
        space, num_actions, board: see `RealStateNetwork`.
        layers: D.
        ticks: N.
        channels: of the encoded input and of each layer.
        readout: what the linear layer sees: the highest layer's output plus the encoded input, or both.
        output_gate, pooling: see `ConvLSTM` and `ConvLSTMCell`.
    """

    def __init__(
        self,
        space: spaces.Box,
        num_actions: int,
        board: BoardStructure | None = None,
        *,
        layers: int = 3,
        ticks: int = 3,
        channels: int = 32,
        readout: Readout = "sum",
        output_gate: OutputGate = "tanh",
        pooling: Pooling = "per-channel",
    ) -> None:
        super().__init__(space, num_actions, board, FEATURES)
        self.readout = readout
        if self.kind == "board":
            self.encoder = nn.Sequential(SameConv2d(self.planes, channels, 4), SameConv2d(channels, channels, 4))
        else:
            self.encoder = nn.Sequential(
                nn.Conv2d(self.planes, channels, 8, stride=4, padding=2),
                nn.Conv2d(channels, channels, 4, stride=2, padding=1),
            )
        with torch.no_grad():
            height, width = self.encoder(torch.zeros(1, self.planes, *self.spatial)).shape[2:]
        self.core = ConvLSTM(channels, (height, width), layers, ticks, output_gate, pooling)
        inputs = channels * height * width * (1 if readout == "sum" else 2)
        self.linear = nn.Linear(inputs, FEATURES)
        for layer in (*self.encoder, self.linear):  # LeCun's initialisation
            nn.init.normal_(layer.weight, std=1 / math.sqrt(layer.weight[0].numel()))
            nn.init.zeros_(layer.bias)
        for layer in self.encoder:
            if isinstance(layer, SameConv2d):
                pass_on(layer)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def initial_memory(self, batch: int) -> Memory:
        return self.core.initial_memory(batch)

    def features(self, state: Tensor, given: AgentInput, memory: Memory) -> tuple[Tensor, Memory]:
        encoded = self.encoder(state)
        hidden, memory = self.core(encoded, given.episode_start, memory)
        read = hidden + encoded if self.readout == "sum" else torch.cat((hidden, encoded), 1)
        # A view in channels_last memory
        features: Tensor = self.linear(read.permute(0, 2, 3, 1).flatten(1)).relu()
        return features, memory


@dataclass(frozen=True)
class DRCSpec(RealStateSpec):
    """DRC(D, N). The network's defaults are those of the best known agent of this kind, DRC(3, 3)."""

    layers: int = 3  # D, recurrent layers
    ticks: int = 3  # N, ticks per real step
    channels: int = 32  # of every layer
    readout: Readout = "sum"  # of the highest layer's output and the encoded input, or their concatenation
    output_gate: OutputGate = "tanh"  # nonlinearity of the output gates
    pooling: Pooling = "per-channel"  # pool-and-inject: weights for each channel, or a linear layer

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least_one(self, "layers", "ticks", "channels")
        check_choice(self, "readout", get_args(Readout))
        check_choice(self, "output_gate", get_args(OutputGate))
        check_choice(self, "pooling", get_args(Pooling))

    def make_network(self, space: spaces.Box, num_actions: int, board: BoardStructure | None) -> DRCNetwork:
        return DRCNetwork(
            space,
            num_actions,
            board,
            layers=self.layers,
            ticks=self.ticks,
            channels=self.channels,
            readout=self.readout,
            output_gate=self.output_gate,
            pooling=self.pooling,
        )
