"""The ticks of a stack of convolutional LSTM cells as one function, with its gradients.

PyTorch would record dozens of small operations for every tick. Here a tick is one convolution, one product and a few
operations in place, and the gradients of the weights are computed for all ticks together.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

PER_LAYER = 4
"""The number of arguments of `ConvRecurrence` for each layer."""


class _Layer(NamedTuple):
    """What one layer computes in S = T * ticks ticks of B environments. After the last tick, slot S is the memory."""

    inputs: Tensor  # [S + 1, B, H, W, 2C]  output of the layer below, own last output
    states: Tensor  # [S + 1, B, H, W, C]   cell state before the tick
    gates: Tensor  # [S, B, H, W, 4C]       after their nonlinearities: candidate, output, input, forget
    cell_tanh: Tensor  # [S, B, H, W, C]    of the cell state after the tick
    pooled: Tensor  # [S, B, 2C]            maximum and mean of the own last output

    @staticmethod
    def begin(hidden: Tensor, cell: Tensor, ticks: int) -> _Layer:
        """From memory, each [B, H, W, C]."""
        *shape, channels = hidden.shape

        def empty(slots: int, width: int) -> Tensor:
            return hidden.new_empty(slots, *shape, width * channels)

        pooled = hidden.new_empty(ticks, shape[0], 2 * channels)
        layer = _Layer(empty(ticks + 1, 2), empty(ticks + 1, 1), empty(ticks, 4), empty(ticks, 1), pooled)
        layer.inputs[0, ..., channels:] = hidden
        layer.states[0] = cell
        return layer

    def by_tick(self) -> _Ticks:
        """Views of the slots: made at once, because single ones cost as much time as small operations."""
        channels = self.states.shape[-1]
        below, own = self.inputs.split(channels, -1)
        parts = (self.inputs, below, own, self.states, self.gates, self.cell_tanh, self.pooled)
        return _Ticks(*(part.unbind(0) for part in parts), *by_gate(self.gates))


class _Ticks(NamedTuple):
    """The slots of a `_Layer`."""

    inputs: tuple[Tensor, ...]
    below: tuple[Tensor, ...]
    own: tuple[Tensor, ...]
    states: tuple[Tensor, ...]
    gates: tuple[Tensor, ...]
    cell_tanh: tuple[Tensor, ...]
    pooled: tuple[Tensor, ...]
    candidate: tuple[Tensor, ...]
    output: tuple[Tensor, ...]
    into: tuple[Tensor, ...]
    forget: tuple[Tensor, ...]


def by_gate(gates: Tensor) -> list[tuple[Tensor, ...]]:
    """Views of [S, ..., 4C]: for each of the four gates, S of shape [..., C]."""
    return [gate.unbind(0) for gate in gates.chunk(4, -1)]


class ConvRecurrence(torch.autograd.Function):
    """See `ConvLSTM` for the equations; C channels, P = H * W squares, N layers."""

    @staticmethod
    def forward(
        ctx: Any,
        kept: Tensor,  # [T, B]  0 where an episode starts, else 1
        hidden: Tensor,  # [B, N, H, W, C]  before the first step
        cell: Tensor,  # [B, N, H, W, C]
        ticks: int,
        output_gate: str,
        # N times: gates of the input [T, B, P * 4C], weight [4C, 2C, 3, 3], table [C, P * 4C], pool (see `_mixed`)
        *of_layers: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The highest layer's outputs [T, B, H, W, C]; outputs and cell states [B, N, H, W, C] after the last step."""
        (time, batch), (*spatial, channels) = kept.shape, hidden.shape[2:]
        arguments = [of_layers[i : i + PER_LAYER] for i in range(0, len(of_layers), PER_LAYER)]
        made = [_Layer.begin(*one, time * ticks) for one in zip(hidden.unbind(1), cell.unbind(1))]
        slots = [layer.by_tick() for layer in made]
        lowest, highest = slots[0], slots[-1]
        lowest.below[0].copy_(highest.own[0])
        results = hidden.new_empty(time, batch, *spatial, channels)
        for tick in range(time * ticks):
            t = tick // ticks
            if tick % ticks == 0:
                keep = kept[t].view(-1, 1, 1, 1)
                for slot in slots:
                    slot.states[tick].mul_(keep)
                    slot.own[tick].mul_(keep)
                lowest.below[tick].mul_(keep)
            for n, ((given, weight, table, pool), slot) in enumerate(zip(arguments, slots)):
                own, gates, pooled = slot.own[tick], slot.gates[tick], slot.pooled[tick]
                torch.cat((own.amax((1, 2)), own.mean((1, 2))), 1, out=pooled)
                torch.addmm(given[t], _mixed(pooled, pool), table, out=gates.view(batch, -1))
                gates.add_(F.conv2d(slot.inputs[tick].permute(0, 3, 1, 2), weight, padding=1).permute(0, 2, 3, 1))
                bounded, others = _split(gates, output_gate)
                bounded.tanh_()
                others.sigmoid_()
                state, cell_tanh = slot.states[tick + 1], slot.cell_tanh[tick]
                torch.mul(slot.states[tick], slot.forget[tick], out=state)
                state.addcmul_(slot.candidate[tick], slot.into[tick])
                torch.tanh(state, out=cell_tanh)
                torch.mul(slot.output[tick], cell_tanh, out=slot.own[tick + 1])
                above = lowest.below[tick + 1] if slot is highest else slots[n + 1].below[tick]
                above.copy_(slot.own[tick + 1])
            if tick % ticks == ticks - 1:
                results[t].copy_(highest.own[tick + 1])
        ctx.ticks, ctx.output_gate = ticks, output_gate
        ctx.save_for_backward(kept, *of_layers, *(tensor for layer in made for tensor in layer))
        final = torch.stack([slot.own[-1] for slot in slots], 1), torch.stack([slot.states[-1] for slot in slots], 1)
        ctx.mark_non_differentiable(*final)
        return results, *final

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of the arguments of each layer."""
        kept, *saved = ctx.saved_tensors
        width = len(_Layer._fields)
        layers = len(saved) // (PER_LAYER + width)
        arguments = [saved[i : i + PER_LAYER] for i in range(0, layers * PER_LAYER, PER_LAYER)]
        made = [_Layer(*saved[i : i + width]) for i in range(layers * PER_LAYER, len(saved), width)]
        slots = [layer.by_tick() for layer in made]
        (time, batch), ticks, channels = kept.shape, ctx.ticks, gradient.shape[-1]
        squares = gradient[0, 0].numel() // channels
        tanh_backward, sigmoid_backward = torch.ops.aten.tanh_backward, torch.ops.aten.sigmoid_backward

        # Gradients with respect to what the names say
        of_gates = [torch.empty_like(layer.gates) for layer in made]
        of_each_gate = [by_gate(of_gate) for of_gate in of_gates]
        of_mixed = [layer.pooled.new_empty(time * ticks, batch, channels) for layer in made]
        outputs = [torch.zeros_like(gradient[0]) for _ in made]
        states = [torch.zeros_like(gradient[0]) for _ in made]
        for tick in reversed(range(time * ticks)):
            if tick % ticks == ticks - 1:
                outputs[-1] += gradient[tick // ticks]
            for n in reversed(range(layers)):
                (_given, weight, table, pool), slot = arguments[n], slots[n]
                cell_tanh, of_gate, of_output, of_state = slot.cell_tanh[tick], of_gates[n][tick], outputs[n], states[n]
                of_candidate, of_output_gate, of_into, of_forget = (one[tick] for one in of_each_gate[n])
                of_state += tanh_backward(of_output * slot.output[tick], cell_tanh)
                torch.mul(of_output, cell_tanh, out=of_output_gate)
                torch.mul(of_state, slot.into[tick], out=of_candidate)
                torch.mul(of_state, slot.candidate[tick], out=of_into)
                torch.mul(of_state, slot.states[tick], out=of_forget)
                of_state *= slot.forget[tick]
                bounded, others = _split(slot.gates[tick], ctx.output_gate)
                of_bounded, of_others = _split(of_gate, ctx.output_gate)
                tanh_backward(of_bounded, bounded, grad_input=of_bounded)
                sigmoid_backward(of_others, others, grad_input=of_others)
                of_inputs = _convolution_backward(of_gate, slot.inputs[tick], weight, (True, False))[0]
                below, own = of_inputs.permute(0, 2, 3, 1).split(channels, -1)
                mixed = torch.mm(of_gate.view(batch, -1), table.t(), out=of_mixed[n][tick])
                of_largest, of_mean = _unmixed(mixed, pool)
                largest = slot.pooled[tick][:, None, None, :channels]
                is_largest = (slot.own[tick] == largest).to(own.dtype)
                of_largest = of_largest / is_largest.sum((1, 2))
                outputs[n] = (own + (of_mean / squares)[:, None, None]).addcmul_(is_largest, of_largest[:, None, None])
                outputs[n - 1] += below  # of the layer below in this tick, or of the highest in the tick before
            if tick % ticks == 0:
                keep = kept[tick // ticks].view(-1, 1, 1, 1)
                outputs, states = [one * keep for one in outputs], [one * keep for one in states]

        found: list[Tensor | None] = []
        for (_given, weight, _table, pool), layer, of_gate, mixed in zip(arguments, made, of_gates, of_mixed):
            flat, pooled, mixed = (
                of_gate.view(time * ticks * batch, -1),
                layer.pooled.flatten(0, 1),
                mixed.flatten(0, 1),
            )
            found += [
                of_gate.view(time, ticks, batch, -1).sum(1),
                _convolution_backward(of_gate.flatten(0, 1), layer.inputs[:-1].flatten(0, 1), weight, (False, True))[1],
                _mixed(pooled, pool).t() @ flat,
                (pooled * mixed.repeat(1, 2)).sum(0).view(2, -1) if len(pool) == 2 else pooled.t() @ mixed,
            ]
        return *[None] * 5, *found


def _split(gates: Tensor, output_gate: str) -> tuple[Tensor, Tensor]:
    """The gates [..., 4C] that a tanh bounds, and those of a sigmoid."""
    bounded = gates.shape[-1] // (2 if output_gate == "tanh" else 4)
    return gates[..., :bounded], gates[..., bounded:]


def _mixed(pooled: Tensor, pool: Tensor) -> Tensor:
    """Maximum and mean [B, 2C], combined with weights [2, C] for each channel or by a matrix [2C, C], to [B, C]."""
    if len(pool) == 2:
        largest, mean = pooled.chunk(2, 1)
        return torch.addcmul(largest * pool[0], mean, pool[1])
    return pooled @ pool


def _unmixed(mixed: Tensor, pool: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of maximum and mean from that of what `_mixed` returns, each [B, C]."""
    if len(pool) == 2:
        return mixed * pool[0], mixed * pool[1]
    largest, mean = (mixed @ pool.t()).chunk(2, 1)
    return largest, mean


def _convolution_backward(
    gradient: Tensor, inputs: Tensor, weight: Tensor, wanted: tuple[bool, bool]
) -> tuple[Tensor, Tensor]:
    """Gradients of input [B, inputs, H, W] and weight of a convolution; ``gradient``, ``inputs``: [B, H, W, ...]."""
    of_inputs, of_weight, _ = torch.ops.aten.convolution_backward(
        gradient.permute(0, 3, 1, 2),
        inputs.permute(0, 3, 1, 2),
        weight,
        None,
        (1, 1),
        (1, 1),
        (1, 1),
        False,
        (0, 0),
        1,
        (*wanted, False),
    )
    return of_inputs, of_weight
