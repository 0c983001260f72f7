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
    """What one layer computes in S = T * ticks ticks of B environments."""

    inputs: Tensor  # [S, B, H, W, 2C]  output of the layer below, own last output
    gates: Tensor  # [S, B, H, W, 4C]   after their nonlinearities: candidate, output, input, forget
    before: Tensor  # [S, B, H, W, C]   cell state before the tick
    cell_tanh: Tensor  # [S, B, H, W, C]  of the cell state after the tick
    pooled: Tensor  # [S, B, 2C]        maximum and mean of the own last output

    @staticmethod
    def empty(hidden: Tensor, ticks: int) -> _Layer:
        *shape, channels = hidden.shape  # [B, H, W]
        inputs, gates, before, cell_tanh = (hidden.new_empty(ticks, *shape, width * channels) for width in (2, 4, 1, 1))
        return _Layer(inputs, gates, before, cell_tanh, hidden.new_empty(ticks, shape[0], 2 * channels))


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
        outputs = [one.contiguous() for one in hidden.unbind(1)]
        states = [one.contiguous() for one in cell.unbind(1)]
        made = [_Layer.empty(one, time * ticks) for one in outputs]
        results = hidden.new_empty(time, batch, *spatial, channels)
        for tick in range(time * ticks):
            t = tick // ticks
            if tick % ticks == 0:
                keep = kept[t].view(-1, 1, 1, 1)
                outputs, states = [one * keep for one in outputs], [one * keep for one in states]
            below = outputs[-1]
            for n, ((given, weight, table, pool), layer) in enumerate(zip(arguments, made)):
                inputs, gates, pooled = layer.inputs[tick], layer.gates[tick], layer.pooled[tick]
                torch.cat((below, outputs[n]), -1, out=inputs)
                torch.cat((outputs[n].amax((1, 2)), outputs[n].mean((1, 2))), 1, out=pooled)
                torch.addmm(given[t], _mixed(pooled, pool), table, out=gates.view(batch, -1))
                gates.add_(F.conv2d(inputs.permute(0, 3, 1, 2), weight, padding=1).permute(0, 2, 3, 1))
                candidate, output, into, forget = gates.split(channels, -1)
                if output_gate == "tanh":
                    gates[..., : 2 * channels].tanh_()
                else:
                    candidate.tanh_()
                    output.sigmoid_()
                gates[..., 2 * channels :].sigmoid_()
                layer.before[tick].copy_(states[n])
                states[n] = (states[n] * forget).addcmul_(candidate, into)
                torch.tanh(states[n], out=layer.cell_tanh[tick])
                below = outputs[n] = output * layer.cell_tanh[tick]
            if tick % ticks == ticks - 1:
                results[t].copy_(below)
        ctx.ticks, ctx.output_gate = ticks, output_gate
        ctx.save_for_backward(kept, *of_layers, *(tensor for layer in made for tensor in layer))
        final = torch.stack(outputs, 1), torch.stack(states, 1)
        ctx.mark_non_differentiable(*final)
        return results, *final

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of the arguments of each layer."""
        kept, *saved = ctx.saved_tensors
        layers = len(saved) // (PER_LAYER + len(_Layer._fields))
        arguments = [saved[i : i + PER_LAYER] for i in range(0, layers * PER_LAYER, PER_LAYER)]
        width = len(_Layer._fields)
        made = [_Layer(*saved[i : i + width]) for i in range(layers * PER_LAYER, len(saved), width)]
        (time, batch), ticks, channels = kept.shape, ctx.ticks, gradient.shape[-1]
        squares = gradient[0, 0].numel() // channels

        # Gradients with respect to what the names say
        of_gates = [torch.empty_like(layer.gates) for layer in made]
        of_mixed = [layer.pooled.new_empty(time * ticks, batch, channels) for layer in made]
        outputs = [torch.zeros_like(gradient[0]) for _ in made]
        states = [torch.zeros_like(gradient[0]) for _ in made]
        for tick in reversed(range(time * ticks)):
            if tick % ticks == ticks - 1:
                outputs[-1] += gradient[tick // ticks]
            for n in reversed(range(layers)):
                (_given, weight, table, pool), layer = arguments[n], made[n]
                cell_tanh, of_gate = layer.cell_tanh[tick], of_gates[n][tick]
                candidate, output, into, forget = layer.gates[tick].split(channels, -1)
                of_candidate, of_output, of_into, of_forget = of_gate.split(channels, -1)
                of_tanh = outputs[n] * output
                states[n] += of_tanh.sub_(of_tanh * cell_tanh * cell_tanh)
                torch.mul(outputs[n], cell_tanh, out=of_output)
                torch.mul(states[n], into, out=of_candidate)
                torch.mul(states[n], candidate, out=of_into)
                torch.mul(states[n], layer.before[tick], out=of_forget)
                states[n] *= forget
                bounded = 2 if ctx.output_gate == "tanh" else 1
                first, second = (
                    x.split((bounded * channels, (4 - bounded) * channels), -1) for x in (layer.gates[tick], of_gate)
                )
                second[0].addcmul_(second[0] * first[0], first[0], value=-1)  # times 1 - y², the derivative of tanh
                second[1].mul_(first[1] - first[1] * first[1])  # times y (1 - y), that of the sigmoid
                of_inputs = _convolution_backward(of_gate, layer.inputs[tick], weight, (True, False))[0]
                below, own = of_inputs.permute(0, 2, 3, 1).split(channels, -1)
                mixed = torch.mm(of_gate.view(batch, -1), table.t(), out=of_mixed[n][tick])
                of_largest, of_mean = _unmixed(mixed, pool)
                largest = layer.pooled[tick, :, None, None, :channels]
                is_largest = (layer.inputs[tick][..., channels:] == largest).to(own.dtype)
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
                _convolution_backward(of_gate.flatten(0, 1), layer.inputs.flatten(0, 1), weight, (False, True))[1],
                _mixed(pooled, pool).t() @ flat,
                (pooled * mixed.repeat(1, 2)).sum(0).view(2, -1) if len(pool) == 2 else pooled.t() @ mixed,
            ]
        return *[None] * 5, *found


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
