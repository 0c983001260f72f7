"""The steps of the LSTM-attention network, forwards and backwards (see `thinker.nn.lstm_attention`).

The steps of a recurrence cannot be computed together, but much of their work can. What does not depend on the
recurrence is computed for many steps at once. So are the gradients of the weights: the pass backwards through time
leaves the gradients of the layers' outputs, from which one product gives the gradient of a weight. That pass is written
out (`Recurrence.backward`), because automatic differentiation would take one product per weight and step.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

GATES = ("output", "forget", "input_cell", "input_attention", "candidate")
"""The order of a cell's gates. Query, key and value follow."""

NORM_EPSILON = 1e-5  # as in torch.nn.LayerNorm
ROWS_OF_A_CHUNK = 512

aten = torch.ops.aten


class Weights(NamedTuple):
    """The parameters of N cells, or of one without the dimension N. w: width, d: width of a head."""

    input_weight: Tensor  # [N, w, 8w]
    below_weight: Tensor  # [N, w, 8w]
    recurrent_weight: Tensor  # [N, w, 5w]
    gate_bias: Tensor  # [N, 5w]
    attended_weight: Tensor  # [N, w, w]
    attended_bias: Tensor  # [N, w]
    norm_weight: Tensor  # [N, w]
    norm_bias: Tensor  # [N, w]
    position_key: Tensor  # [N, heads, window, d]
    position_bias: Tensor  # [N, heads, window]

    def of_each_cell(self) -> list[Weights]:
        return [Weights(*one) for one in zip(*(weight.unbind() for weight in self))]


class _Chunk(NamedTuple):
    """What the pass forwards over C steps leaves for the pass backwards; of one step and cell without N and C."""

    gates: Tensor  # [N, C, B, 8w]      after the sigmoids, but the candidate before its tanh; then query, key, value
    partners: Tensor  # [N, C, B, 4w]   what the gates are multiplied by: tanh(c_t), c_{t-1}, tanh(candidate), tanh(a_t)
    hidden: Tensor  # [N, C, B, w]      the cells' outputs
    previous: Tensor  # [N, C, B, w]    their outputs of the previous step, 0 at the start of an episode
    attention: Tensor  # [N, C, B, heads, window]  how much each step in the ring is attended to
    attended: Tensor  # [N, C, B, w]    the sums of values
    before_norm: Tensor  # [N, C, B, w]
    mean: Tensor  # [N, C, B, 1]        of before_norm
    inverse_deviation: Tensor  # [N, C, B, 1]

    def step(self, index: int) -> list[_Chunk]:
        """A step of each cell."""
        return [_Chunk(*one) for one in zip(*(tensor.select(1, index).unbind() for tensor in self))]


class Recurrence(torch.autograd.Function):
    """All steps of all cells, forwards and backwards.

    The steps are taken in chunks: few enough that a chunk stays in the processor's cache, many enough that products
    over all steps of a chunk are fast.

    The keys and values in the window are kept in a ring: step s in slot (s - T) modulo window, so that after the last
    step the slots are in the order of time. At step t slot j is therefore position (j + T - 1 - t) modulo window.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,  # [T, B, w]
        keep: Tensor,  # [T, B] bool   whether the step is not the first of its episode
        steps: Tensor,  # [T, B] int64  how many of the previous steps in the window belong to the step's episode
        hidden: Tensor,  # [B, N, w]
        cell: Tensor,  # [B, N, w]
        keys: Tensor,  # [B, N, w, window]
        values: Tensor,  # [B, N, window, w]
        *parameters: Tensor,
    ) -> tuple[Tensor, ...]:
        """Outputs [T, B, w] and the new hidden, cell, keys and values."""
        weights = Weights(*parameters)
        (time, batch, w), cells = x.shape, len(weights.gate_bias)
        heads, window, head_width = weights.position_key.shape[1:]
        scale = 1 / math.sqrt(head_width)
        kept = keep.to(x.dtype).unsqueeze(-1)  # [T, B, 1]
        position = _positions(time, window, x.device)
        outside = (window - 1 - position).unsqueeze(1) > steps.unsqueeze(-1)  # [T, B, window]
        position_bias = weights.position_bias[..., position].transpose(1, 2).unsqueeze(2)  # [N, T, 1, heads, window]
        position_key = _repeated(weights.position_key)
        gate_bias = functional.pad(weights.gate_bias, (0, 3 * w)).unsqueeze(1)
        attended_bias = weights.attended_bias[:, None, None]
        of_cell = weights.of_each_cell()

        key_ring, value_ring = _advanced(keys, 3, time), _advanced(values, 2, time)
        key_ring_of, value_ring_of = key_ring.unbind(1), value_ring.unbind(1)
        queries = _BlockDiagonal(x.new_zeros(batch, heads, w))
        by_head = _BlockDiagonal(x.new_empty(batch, heads, w))
        hidden, cell = hidden.transpose(0, 1), _copied(cell.transpose(0, 1))  # [N, B, w]
        cell_of = cell.unbind()
        chunks = []
        for start, stop in _chunks(time, batch):
            size = (cells, stop - start, batch)
            # What does not depend on the recurrence is put where the steps will add to it.
            projected = torch.baddbmm(gate_bias, _for_each_cell(x[start:stop], cells), weights.input_weight)
            biases = torch.where(outside[start:stop].unsqueeze(2), -torch.inf, position_bias[:, start:stop])
            made = _Chunk(
                gates=projected.view(*size, 8 * w),
                partners=x.new_empty(*size, 4 * w),
                hidden=x.new_empty(*size, w),
                previous=x.new_empty(*size, w),
                attention=torch.empty_like(biases),
                attended=x.new_empty(*size, w),
                before_norm=x[start:stop] + attended_bias,
                mean=x.new_empty(*size, 1),
                inverse_deviation=x.new_empty(*size, 1),
            )
            chunks.append(made)
            for t in range(start, stop):
                slot = (t - time) % window
                torch.mul(hidden, kept[t], out=made.previous.select(1, t - start))
                torch.mul(cell, kept[t], out=made.partners.select(1, t - start).narrow(2, w, w))
                hidden = made.hidden.select(1, t - start)
                new = made.step(t - start)
                key_now, value_now = key_ring.select(3, slot).unbind(1), value_ring.select(2, slot).unbind(1)
                position_key_now = position_key.narrow(2, window - 1 - slot, window).unbind()
                scores_now = biases.select(1, t - start).unbind()
                below = new[-1].previous
                for n, (one, weight) in enumerate(zip(new, of_cell)):
                    one.gates.addmm_(below, weight.below_weight)
                    one.gates.narrow(1, 0, 5 * w).addmm_(one.previous, weight.recurrent_weight)
                    sigmoids, candidate, query, key, value = one.gates.split((4 * w, w, w, w, w), 1)
                    key_now[n].copy_(key)
                    value_now[n].copy_(value)
                    queries.fill(query)
                    scores_now[n].view(-1, window).addmm_(queries.rows, position_key_now[n], alpha=scale)
                    scores_now[n].baddbmm_(queries.whole, key_ring_of[n], alpha=scale)
                    torch.softmax(scores_now[n], -1, out=one.attention)
                    torch.bmm(one.attention, value_ring_of[n], out=by_head.whole)
                    by_head.extract(one.attended)
                    one.before_norm.addmm_(one.attended, weight.attended_weight)
                    normalised, mean, inverse_deviation = torch.native_layer_norm(
                        one.before_norm, (w,), weight.norm_weight, weight.norm_bias, NORM_EPSILON
                    )
                    one.mean.copy_(mean)
                    one.inverse_deviation.copy_(inverse_deviation)

                    output, forget, input_cell, input_attention = sigmoids.sigmoid_().split(w, 1)
                    cell_tanh, cell_before, candidate_tanh, attention_tanh = one.partners.split(w, 1)
                    torch.mul(forget, cell_before, out=cell_of[n])
                    cell_of[n].addcmul_(input_cell, torch.tanh(candidate, out=candidate_tanh))
                    cell_of[n].addcmul_(input_attention, torch.tanh(normalised, out=attention_tanh))
                    below = torch.mul(output, torch.tanh(cell_of[n], out=cell_tanh), out=one.hidden)
        saved = (tensor for made in chunks for tensor in made)
        ctx.save_for_backward(x, kept, keys, values, key_ring, value_ring, *weights, *saved)
        # The pass backwards needs the rings unchanged. If they are changed before it, it is an error: PyTorch counts.
        final = (*(_copied(state.transpose(0, 1)) for state in (hidden, cell)), key_ring, value_ring)
        ctx.mark_non_differentiable(*final)
        return torch.cat([made.hidden[-1] for made in chunks]), *final

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, output_gradient: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of x and of the parameters."""
        x, kept, keys_before, values_before, key_ring, value_ring, *saved = ctx.saved_tensors
        weights, saved = Weights(*saved[: len(Weights._fields)]), saved[len(Weights._fields) :]
        chunks = [_Chunk(*saved[i : i + len(_Chunk._fields)]) for i in range(0, len(saved), len(_Chunk._fields))]
        (time, batch, w), cells = x.shape, len(weights.gate_bias)
        heads, window, head_width = weights.position_key.shape[1:]
        scale = 1 / math.sqrt(head_width)

        # Gradients with respect to what the names say
        bounds = list(_chunks(time, batch))
        longest = bounds[0][1]
        of_chunk = _ChunkGradients(
            gates=x.new_empty(cells, longest, batch, 8 * w),
            normalised=x.new_empty(cells, longest, batch, w),
            before_norm=x.new_empty(cells, longest, batch, w),
            scores=x.new_empty(cells, longest, batch, heads, window),
        )
        of_weights = Weights(*(torch.zeros_like(weight) for weight in weights))
        of_x = torch.empty_like(x)
        hidden, cell = x.new_zeros(cells, batch, w), x.new_zeros(cells, batch, w)
        keys, values = x.new_zeros(cells, batch, window, w), x.new_zeros(cells, batch, window, w)
        scores = x.new_empty(cells, batch, heads, window)  # in the order of the ring, times scale
        attention = x.new_empty(batch, heads, window)  # times scale
        hidden_of, cell_of, keys_of, values_of = hidden.unbind(), cell.unbind(), keys.unbind(), values.unbind()

        # Weights and rings as the products read them fastest
        below_weight, recurrent_weight, attended_weight = (
            weight.transpose(1, 2).contiguous()
            for weight in (weights.below_weight, weights.recurrent_weight, weights.attended_weight * scale)
        )
        position_key = _repeated(weights.position_key).transpose(1, 2).contiguous()  # [N, 2 * window, w]
        # [N, B, window, w] and [N, B, w, window]
        key_ring, value_ring = (_copied(ring.permute(1, 0, 3, 2)) for ring in (key_ring, value_ring))
        key_ring_of, value_ring_of = key_ring.unbind(), value_ring.unbind()
        of_cell = weights.of_each_cell()
        queries, attendeds, by_head = (_BlockDiagonal(x.new_zeros(batch, heads, w)) for _ in range(3))
        factors = x.new_empty(cells, batch, 7, w)
        by_output, by_state, by_normalised, by_cell_tanh = (
            factor.squeeze(2).unbind() for factor in factors.split((1, 4, 1, 1), 2)
        )
        for (start, stop), made in zip(reversed(bounds), reversed(chunks)):
            for t in reversed(range(start, stop)):
                slot = (t - time) % window
                # Derivatives of the states by the gates and by what the gates are multiplied by
                sigmoids = made.gates.select(1, t - start).narrow(2, 0, 4 * w).unflatten(2, (4, w))
                partners = made.partners.select(1, t - start).unflatten(2, (4, w))
                aten.sigmoid_backward.grad_input(partners, sigmoids, grad_input=factors[:, :, :4])
                aten.tanh_backward.grad_input(sigmoids[:, :, 2:], partners[:, :, 2:], grad_input=factors[:, :, 4:6])
                aten.tanh_backward.grad_input(sigmoids[:, :, 0], partners[:, :, 0], grad_input=factors[:, :, 6])
                hidden_of[-1].add_(output_gradient[t])
                old, new = made.step(t - start), of_chunk.step(t - start)
                key_now, value_now = keys.select(2, slot), values.select(2, slot)
                position_key_now = position_key.narrow(1, window - 1 - slot, window)
                for n in reversed(range(cells)):
                    one, score = new[n], scores[n]
                    output, states, query, key, value = one.gates.split((w, 4 * w, w, w, w), 1)
                    cell_of[n].addcmul_(hidden_of[n], by_cell_tanh[n])
                    torch.mul(hidden_of[n], by_output[n], out=output)
                    torch.mul(cell_of[n].unsqueeze(1), by_state[n], out=states.unflatten(1, (4, w)))
                    torch.mul(cell_of[n], by_normalised[n], out=one.normalised)
                    one.before_norm.copy_(_norm_backward(one.normalised, old[n], of_cell[n], (True, False, False))[0])
                    attendeds.fill(torch.mm(one.before_norm, attended_weight[n]))  # times scale
                    torch.bmm(attendeds.whole, value_ring_of[n], out=attention)
                    aten._softmax_backward_data.out(attention, old[n].attention, -1, x.dtype, grad_input=score)
                    torch.bmm(score, key_ring_of[n], out=by_head.whole)
                    by_head.rows.addmm_(score.flatten(0, 1), position_key_now[n])
                    by_head.extract(query)
                    queries.fill(old[n].gates.narrow(1, 5 * w, w))
                    keys_of[n].baddbmm_(score.transpose(1, 2), queries.whole)
                    values_of[n].baddbmm_(old[n].attention.transpose(1, 2), attendeds.whole, alpha=1 / scale)
                    key.copy_(key_now[n])
                    value.copy_(value_now[n])
                    if n:
                        hidden_of[n - 1].addmm_(one.gates, below_weight[n])
                torch.bmm(of_chunk.gates.select(1, t - start).narrow(2, 0, 5 * w), recurrent_weight, out=hidden)
                hidden_of[-1].addmm_(new[0].gates, below_weight[0])
                hidden.mul_(kept[t])
                cell.mul_(sigmoids[:, :, 1]).mul_(kept[t])
                # In the order of time
                in_time = of_chunk.scores.select(1, t - start)
                in_time[..., window - 1 - slot :].copy_(scores[..., : slot + 1])
                in_time[..., : window - 1 - slot].copy_(scores[..., slot + 1 :])
                # Back to the step that this one replaced in the ring
                key_now.zero_()
                value_now.zero_()
                if t >= window:
                    replaced = chunks[(t - window) // longest].gates.select(1, (t - window) % longest)
                    key_ring.select(2, slot).copy_(replaced[..., 6 * w : 7 * w])
                    value_ring.select(3, slot).copy_(replaced[..., 7 * w :])
                else:
                    key_ring.select(2, slot).copy_(keys_before.select(3, t).transpose(0, 1))
                    value_ring.select(3, slot).copy_(values_before.select(2, t).transpose(0, 1))
            of_chunk.finish(made, weights, x[start:stop], of_x[start:stop], of_weights)
        return of_x, *[None] * 6, *of_weights


class _ChunkGradients(NamedTuple):
    """Gradients with respect to what the steps of a chunk compute; of one step and cell without N and C."""

    gates: Tensor  # [N, C, B, 8w]        before their nonlinearities
    normalised: Tensor  # [N, C, B, w]
    before_norm: Tensor  # [N, C, B, w]
    scores: Tensor  # [N, C, B, heads, window]  before softmax, in the order of time, times scale

    def step(self, index: int) -> list[_ChunkGradients]:
        """A step of each cell."""
        return [_ChunkGradients(*one) for one in zip(*(tensor.select(1, index).unbind() for tensor in self))]

    def finish(self, made: _Chunk, weights: Weights, x: Tensor, of_x: Tensor, of_weights: Weights) -> None:
        """Write the gradient of ``x`` and add to those of the weights, by products over all steps of the chunk."""
        cells, w = len(self.gates), x.shape[-1]
        heads, _, head_width = weights.position_key.shape[1:]
        gates, normalised, before_norm, scores = (tensor[:, : len(x)].flatten(1, 2) for tensor in self)
        made = _Chunk(*(tensor.flatten(1, 2) for tensor in made))
        own_gates = gates[:, :, : 5 * w]
        below = torch.cat((made.previous[-1:], made.hidden[:-1]))
        of_weights.input_weight.baddbmm_(_for_each_cell(x, cells).transpose(1, 2), gates)
        of_weights.below_weight.baddbmm_(below.transpose(1, 2), gates)
        of_weights.recurrent_weight.baddbmm_(made.previous.transpose(1, 2), own_gates)
        of_weights.gate_bias.add_(own_gates.sum(1))
        of_weights.attended_weight.baddbmm_(made.attended.transpose(1, 2), before_norm)
        of_weights.attended_bias.add_(before_norm.sum(1))
        of_weights.position_bias.add_(scores.sum(1), alpha=math.sqrt(head_width))
        query = made.gates[..., 5 * w : 6 * w].unflatten(2, (heads, head_width))
        of_x = torch.sum(before_norm, 0, out=of_x.view(-1, w))
        for n, (old, weight, of_weight) in enumerate(
            zip([_Chunk(*one) for one in zip(*made)], weights.of_each_cell(), of_weights.of_each_cell())
        ):
            of_x.addmm_(gates[n], weight.input_weight.T)
            of_weight.position_key.baddbmm_(scores[n].permute(1, 2, 0), query[n].transpose(0, 1))
            _, by_weight, by_bias = _norm_backward(normalised[n], old, weight, (False, True, True))
            of_weight.norm_weight.add_(by_weight)
            of_weight.norm_bias.add_(by_bias)


def _norm_backward(gradient: Tensor, made: _Chunk, weight: Weights, wanted: tuple[bool, bool, bool]) -> list[Tensor]:
    """Gradients of the layer norm's input, weight and bias."""
    gradients: list[Tensor] = aten.native_layer_norm_backward(
        gradient,
        made.before_norm,
        gradient.shape[-1:],
        made.mean,
        made.inverse_deviation,
        weight.norm_weight,
        weight.norm_bias,
        wanted,
    )
    return gradients


def _chunks(time: int, batch: int) -> Iterator[tuple[int, int]]:
    """The first step of each chunk, and the first after it."""
    length = max(1, ROWS_OF_A_CHUNK // max(1, batch))
    for start in range(0, time, length):
        yield start, min(start + length, time)


def _copied(tensor: Tensor) -> Tensor:
    return tensor.clone(memory_format=torch.contiguous_format)


def _for_each_cell(x: Tensor, cells: int) -> Tensor:
    """``x`` as [N, C * B, w], without copying."""
    return x.reshape(1, -1, x.shape[-1]).expand(cells, -1, -1)


def _positions(time: int, window: int, device: torch.device) -> Tensor:
    """The position in the window [T, window] of the step in each slot of the ring, at each step."""
    slot = torch.arange(window, device=device)
    return (slot + torch.arange(time - 1, -1, -1, device=device).unsqueeze(1)) % window


def _repeated(position_key: Tensor) -> Tensor:
    """Two copies one after the other, [N, w, 2 * window], so that a slice is in the order of the ring's slots."""
    return position_key.transpose(2, 3).flatten(1, 2).repeat(1, 1, 2)


def _advanced(steps: Tensor, dimension: int, time: int) -> Tensor:
    """A ring for the next ``time`` steps from the last steps in the order of time, without the oldest of them."""
    steps, window, shift = steps.contiguous(), steps.shape[dimension], time % steps.shape[dimension]
    ring, stride = torch.empty_like(steps), steps.stride(dimension)
    # One block of memory: copying a slice of each row takes several times as long. What gets into the wrong slots is
    # overwritten, either below or by the first step.
    ring.view(-1)[: ring.numel() - shift * stride] = steps.view(-1)[shift * stride :]
    if shift > 1:
        ring.narrow(dimension, window - shift + 1, shift - 1).copy_(steps.narrow(dimension, 1, shift - 1))
    return ring


class _BlockDiagonal:
    """A block-diagonal matrix [heads, w] for each row, with which one product does the work of all heads.

    Products of many small matrices are slow: the zeros cost less than the calls.
    """

    def __init__(self, whole: Tensor) -> None:
        batch, heads, w = whole.shape
        self.whole, self.rows = whole, whole.flatten(0, 1)
        self.blocks = whole.view(batch, heads, heads, w // heads).diagonal(0, 1, 2).transpose(1, 2)

    def fill(self, vectors: Tensor) -> None:
        """Take the blocks from ``vectors`` [B, w]."""
        self.blocks.copy_(vectors.view(self.blocks.shape))

    def extract(self, vectors: Tensor) -> None:
        """Write the blocks to ``vectors`` [B, w]."""
        vectors.view(self.blocks.shape).copy_(self.blocks)
