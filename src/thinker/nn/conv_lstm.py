"""The recurrent core of DRC (Guez et al., 2019): a stack of convolutional LSTM cells that ticks N times a step."""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from thinker.nn.conv_recurrence import ConvRecurrence
from thinker.nn.lstm_attention import Memory

OutputGate = Literal["tanh", "sigmoid"]
Pooling = Literal["per-channel", "linear"]


class ConvLSTMCell(nn.Module):
    """One layer of the stack, without the ticks themselves.

    The four gates are 3x3 convolutions, with zeros around the board, over the encoded input, the output of the layer
    below, the cell's own last output, its pooled last output as constant planes, and a boundary plane: ones around
    the board, on the squares that the convolutions otherwise see as zeros. In this order, the gates are candidate,
    output, input and forget:

        c' = sigmoid(forget) c + tanh(candidate) sigmoid(input),    h' = output_gate(output) tanh(c')

    Args:
        channels: of the encoded input, of outputs and of cell states.
        spatial: height and width of the board.
        pooling: how the maximum and the mean of the last output over the board are combined: "per-channel", by two
            weights for each channel, or "linear", by a linear layer from all of them to ``channels`` numbers.
    """

    inside: Tensor  # [positions, 9]  1 where the square under the kernel lies on the board

    def __init__(
        self,
        channels: int,
        spatial: tuple[int, int],
        pooling: Pooling = "per-channel",
    ) -> None:
        super().__init__()
        gates = 4 * channels
        self.given = nn.Conv2d(channels, gates, 3, padding=1)  # on the encoded input; its bias is the gates'
        self.recurrent = nn.Parameter(torch.empty(gates, 2 * channels, 3, 3))  # on the layer below, own output
        self.pooled = nn.Parameter(torch.empty(gates, channels, 3, 3))
        self.boundary = nn.Parameter(torch.empty(gates, 1, 3, 3))
        self.pool = nn.Parameter(torch.empty((2, channels) if pooling == "per-channel" else (2 * channels, channels)))
        inside = F.unfold(torch.ones(1, 1, *spatial), 3, padding=1)[0].t()
        self.register_buffer("inside", inside.contiguous(), persistent=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """LeCun's initialisation, where the three inputs from outside count as one; biases are zero."""
        channels = self.pooled.shape[1]
        with torch.no_grad():
            below, own = self.recurrent.split(channels, 1)
            fan_in = [(self.given.weight, 27 * channels), (below, 27 * channels), (self.pooled, 27 * channels)]
            fan_in += [(own, 9 * channels), (self.boundary, 9), (self.pool, len(self.pool))]
            for weight, inputs in fan_in:
                weight.normal_(std=1 / math.sqrt(inputs))
        nn.init.zeros_(self.given.bias)  # type: ignore[arg-type]

    def forward(self, encoded: Tensor, leading: tuple[int, int]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The arguments of `ConvRecurrence` for this layer.

        ``encoded`` [T * B, channels, H, W] is the input of T steps of B environments, ``leading`` (T, B).
        """
        boundary = (1 - self.inside) @ self.boundary.flatten(1).t()  # [positions, gates]
        gates = self.given(encoded).permute(0, 2, 3, 1).flatten(1) + boundary.flatten()
        # A convolution over a constant plane is the sum of the weights that lie on the board.
        by_channel = self.pooled.flatten(2).permute(1, 2, 0)  # [channels, 9, gates]
        table = (self.inside @ by_channel).flatten(1)
        return gates.unflatten(0, leading), self.recurrent, table, self.pool


class ConvLSTM(nn.Module):
    """``layers`` cells, one above the other, that tick ``ticks`` times for every step.

    In each tick, every layer sees the encoded input and the output that the layer below has just computed; the lowest
    sees the highest one's of the tick before. ``output_gate`` is the nonlinearity of the output gates; other arguments:
    see `ConvLSTMCell`.
    """

    def __init__(
        self,
        channels: int,
        spatial: tuple[int, int],
        layers: int,
        ticks: int,
        output_gate: OutputGate = "tanh",
        pooling: Pooling = "per-channel",
    ) -> None:
        super().__init__()
        self.shape = (layers, *spatial, channels)
        self.ticks, self.output_gate = ticks, output_gate
        self.cells = nn.ModuleList(ConvLSTMCell(channels, spatial, pooling) for _ in range(layers))

    def initial_memory(self, batch: int) -> Memory:
        """Outputs and cell states of ``batch`` environments at the start of an episode: zeros."""
        zeros = next(self.parameters()).new_zeros
        return {name: zeros(batch, *self.shape) for name in ("hidden", "cell")}  # [B, layers, H, W, channels]

    def forward(self, encoded: Tensor, episode_start: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        """``encoded`` [T * B, channels, H, W] to the highest layer's outputs after each step, of the same shape.

        Memory is cleared where ``episode_start`` [T, B] is set. The memory given is not changed.
        """
        of_layers = [tensor for layer in self.cells for tensor in layer(encoded, episode_start.shape)]
        kept = (~episode_start).to(encoded.dtype)
        outputs, hidden, cell = ConvRecurrence.apply(
            kept, memory["hidden"].detach(), memory["cell"].detach(), self.ticks, self.output_gate, *of_layers
        )
        return outputs.flatten(0, 1).permute(0, 3, 1, 2), {"hidden": hidden, "cell": cell}
