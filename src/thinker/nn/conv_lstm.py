"""The recurrent core of DRC (Guez et al., 2019): a stack of convolutional LSTM cells that ticks N times a step."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from thinker.nn.lstm_attention import Memory

OutputGate = Literal["tanh", "sigmoid"]
Pooling = Literal["per-channel", "linear"]


class ConvLSTMCell(nn.Module):
    """One layer of the stack.

    The four gates are 3x3 convolutions, with zeros around the board, over the encoded input, the output of the layer
    below, the cell's own last output, its pooled last output as constant planes, and a boundary plane: ones around
    the board, on the squares that the convolutions otherwise see as zeros. In this order, the gates are candidate,
    output, input and forget:

        c' = sigmoid(forget) c + tanh(candidate) sigmoid(input),    h' = output_gate(output) tanh(c')

    Args:
        channels: of the encoded input, of outputs and of cell states.
        spatial: height and width of the board.
        output_gate: the nonlinearity of the output gate.
        pooling: how the maximum and the mean of the last output over the board are combined: "per-channel", by two
            weights for each channel, or "linear", by a linear layer from all of them to ``channels`` numbers.
    """

    inside: Tensor  # [positions, 9]  1 where the square under the kernel lies on the board

    def __init__(
        self,
        channels: int,
        spatial: tuple[int, int],
        output_gate: OutputGate = "tanh",
        pooling: Pooling = "per-channel",
    ) -> None:
        super().__init__()
        gates = 4 * channels
        self.output_gate, self.pooling = output_gate, pooling
        self.given = nn.Conv2d(channels, gates, 3, padding=1)  # on the encoded input; its bias is the gates'
        self.recurrent = nn.Conv2d(2 * channels, gates, 3, padding=1, bias=False)  # on the layer below, own output
        self.pooled = nn.Parameter(torch.empty(gates, channels, 3, 3))
        self.boundary = nn.Parameter(torch.empty(gates, 1, 3, 3))
        self.pool = nn.Parameter(torch.empty((2, channels) if pooling == "per-channel" else (2 * channels, channels)))
        inside = F.unfold(torch.ones(1, 1, *spatial), 3, padding=1)[0].t()
        self.register_buffer("inside", inside.contiguous(), persistent=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """LeCun's initialisation, where the three inputs from outside count as one; biases are zero."""
        channels = self.pooled.shape[1]
        below, own = self.recurrent.weight.split(channels, 1)
        fan_in = [(self.given.weight, 27 * channels), (below, 27 * channels), (self.pooled, 27 * channels)]
        fan_in += [(own, 9 * channels), (self.boundary, 9), (self.pool, len(self.pool))]
        with torch.no_grad():
            for weight, inputs in fan_in:
                weight.normal_(std=1 / math.sqrt(inputs))
        nn.init.zeros_(self.given.bias)  # type: ignore[arg-type]

    def gates_of_input(self, encoded: Tensor) -> Tensor:
        """What the encoded input [N, channels, H, W] and the boundary contribute, [N, H * W * gates]."""
        boundary = (1 - self.inside) @ self.boundary.flatten(1).t()  # [positions, gates]
        return _flat(self.given(encoded)) + boundary.flatten()

    def pooled_table(self) -> Tensor:
        """The gates [channels, H * W * gates] of each pooled number: a convolution over a constant plane is the sum of
        the weights that lie on the board."""
        by_channel = self.pooled.flatten(2).permute(1, 2, 0)  # [channels, 9, gates]
        return (self.inside @ by_channel).flatten(1)

    def pool_output(self, hidden: Tensor) -> Tensor:
        """Outputs [B, channels, H, W] to the numbers [B, channels] that are injected."""
        largest, mean = hidden.amax((2, 3)), hidden.mean((2, 3))
        if self.pooling == "per-channel":
            return torch.addcmul(largest * self.pool[0], mean, self.pool[1])
        return torch.cat((largest, mean), 1) @ self.pool

    def forward(
        self, gates_of_input: Tensor, below: Tensor, hidden: Tensor, cell: Tensor, table: Tensor
    ) -> tuple[Tensor, Tensor]:
        """One tick: new outputs and cell states [B, channels, H, W].

        ``gates_of_input`` [B, H * W * gates] and ``table`` come from the methods above; ``below``, ``hidden`` and
        ``cell`` are [B, channels, H, W].
        """
        gates: Tensor = self.recurrent(torch.cat((below, hidden), 1))
        without = torch.addmm(gates_of_input, self.pool_output(hidden), table)
        gates.add_(without.view_as(gates.permute(0, 2, 3, 1)).permute(0, 3, 1, 2))
        first, second = gates.chunk(2, 1)
        into, forget = second.sigmoid().chunk(2, 1)
        if self.output_gate == "tanh":
            candidate, output = first.tanh().chunk(2, 1)
        else:
            candidate, output = first.chunk(2, 1)
            candidate, output = candidate.tanh(), output.sigmoid()
        cell = torch.addcmul(candidate * into, forget, cell)
        return output * cell.tanh(), cell


def _flat(planes: Tensor) -> Tensor:
    """Planes [N, channels, H, W] as [N, H * W * channels], a view in channels_last memory."""
    return planes.permute(0, 2, 3, 1).flatten(1)


class ConvLSTM(nn.Module):
    """``layers`` cells, one above the other, that tick ``ticks`` times for every step.

    In each tick, every layer sees the encoded input and the output that the layer below has just computed; the lowest
    sees the highest one's of the tick before. Other arguments: see `ConvLSTMCell`.
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
        self.ticks = ticks
        self.cells = nn.ModuleList(ConvLSTMCell(channels, spatial, output_gate, pooling) for _ in range(layers))

    def initial_memory(self, batch: int) -> Memory:
        """Outputs and cell states of ``batch`` environments at the start of an episode: zeros."""
        zeros = next(self.parameters()).new_zeros
        return {name: zeros(batch, *self.shape) for name in ("hidden", "cell")}  # [B, layers, H, W, channels]

    def forward(self, encoded: Tensor, episode_start: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        """``encoded`` [T * B, channels, H, W] to the highest layer's outputs after each step, of the same shape.

        Memory is cleared where ``episode_start`` [T, B] is set. The memory given is not changed.
        """
        time, batch = episode_start.shape
        gates = [cell.gates_of_input(encoded).unflatten(0, (time, batch)).unbind() for cell in self.cells]
        tables = [cell.pooled_table() for cell in self.cells]
        kept = (~episode_start).to(encoded.dtype)[:, :, None, None, None]
        states = _States.of(memory)
        outputs = []
        for t in range(time):
            states = states.times(kept[t])
            for _ in range(self.ticks):
                below = states.hidden[-1]
                for layer, cell in enumerate(self.cells):
                    below, states.cell[layer] = cell(
                        gates[layer][t], below, states.hidden[layer], states.cell[layer], tables[layer]
                    )
                    states.hidden[layer] = below
            outputs.append(states.hidden[-1])
        return torch.cat(outputs), states.memory()


class _States(NamedTuple):
    """Outputs and cell states of each layer, [B, channels, H, W]."""

    hidden: list[Tensor]
    cell: list[Tensor]

    @staticmethod
    def of(memory: Memory) -> _States:
        def of_each_layer(stacked: Tensor) -> list[Tensor]:
            return [one.permute(0, 3, 1, 2).contiguous(memory_format=torch.channels_last) for one in stacked.unbind(1)]

        return _States(of_each_layer(memory["hidden"]), of_each_layer(memory["cell"]))

    def times(self, factor: Tensor) -> _States:
        """All states times ``factor`` [B, 1, 1, 1]."""
        return _States([one * factor for one in self.hidden], [one * factor for one in self.cell])

    def memory(self) -> Memory:
        return {
            "hidden": torch.stack(self.hidden, 1).permute(0, 1, 3, 4, 2).detach(),
            "cell": torch.stack(self.cell, 1).permute(0, 1, 3, 4, 2).detach(),
        }
