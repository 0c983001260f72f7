"""The LSTM-attention network (appendix C): an LSTM whose cells also attend to the last steps."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from thinker.errors import UserError
from thinker.nn.recurrence import GATES, Recurrence, Weights

Memory = dict[str, Tensor]
"""A network's recurrent state: tensors [B, ...], one row per environment; empty for networks without memory."""

CURRENT_STEP_BIAS = 5.0
"""The paper's prior that the current step gets the most attention."""

FORGET_BIAS = 1.0
"""Added to the initial bias of the forget gates, so that a cell remembers before it has learned to."""


class LSTMAttention(nn.Module):
    """A stack of ``cells`` cells; the lowest receives the top cell's output of the previous step.

    A cell's input is stack([x, h_below]): the network's input x and the output of the cell below. Every linear layer on
    it is split into the part on x and the part on h_below. The skip connection of the attention module is x: the paper
    adds the cell's input, which has twice the required width.

    Args:
        width: of inputs, outputs and all layers.
        heads: attention heads; they share the width.
        window: how many steps each step attends to, itself included. The paper means two stages.
        cells: the height of the stack.
    """

    def __init__(self, width: int = 128, heads: int = 8, window: int = 40, cells: int = 3) -> None:
        super().__init__()
        if width % heads:
            raise UserError(f"width {width} is not a multiple of the number of heads {heads}")
        if window < 1:
            raise UserError(f"the attention window must hold at least the current step, not {window} steps")
        self.width, self.heads, self.window, self.cells = width, heads, window, cells

        def weight(*shape: int) -> nn.Parameter:
            bound = 1 / math.sqrt(width)
            return nn.Parameter(torch.empty(cells, *shape).uniform_(-bound, bound))

        # Weights are [inputs, outputs]: products of few rows are fastest that way.
        self.input_weight = weight(width, 8 * width)  # on x
        self.below_weight = weight(width, 8 * width)  # on h_below
        self.recurrent_weight = weight(width, 5 * width)  # on the cell's own output of the previous step: gates only
        self.gate_bias = weight(5 * width)
        self.attended_weight = weight(width, width)
        self.attended_bias = weight(width)
        self.norm_weight = nn.Parameter(torch.ones(cells, width))
        self.norm_bias = nn.Parameter(torch.zeros(cells, width))
        # Positions in the window, the current step last
        self.position_key = nn.Parameter(torch.zeros(cells, heads, window, width // heads))  # U_r
        self.position_bias = nn.Parameter(torch.zeros(cells, heads, window))  # b_r
        with torch.no_grad():
            self.position_bias[..., -1] = CURRENT_STEP_BIAS
            self.gate_bias.unflatten(1, (len(GATES), width))[:, GATES.index("forget")] += FORGET_BIAS

    def initial_memory(self, batch: int) -> Memory:
        """Empty memory for ``batch`` environments."""
        cells, zeros = self.cells, self.input_weight.new_zeros
        return {
            "hidden": zeros(batch, cells, self.width),
            "cell": zeros(batch, cells, self.width),
            # Of the last steps, the latest last
            "keys": zeros(batch, cells, self.width, self.window),
            "values": zeros(batch, cells, self.window, self.width),
            # How many of the previous steps in the window belong to the same episode
            "steps": zeros(batch, dtype=torch.int64),
        }

    def forward(self, x: Tensor, episode_start: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        """``x`` [T, B, width] to outputs of the same shape; memory is cleared where ``episode_start`` [T, B] is set.

        Memory is data: no gradient flows into it or out of it. The memory given is not changed.
        """
        steps, final_steps = self._steps_before(episode_start, memory["steps"])
        outputs, *final = Recurrence.apply(
            x,
            ~episode_start,
            steps,
            *(memory[name].detach() for name in ("hidden", "cell", "keys", "values")),
            *Weights(**{name: getattr(self, name) for name in Weights._fields}),
        )
        return outputs, {**dict(zip(("hidden", "cell", "keys", "values"), final)), "steps": final_steps}

    def _steps_before(self, episode_start: Tensor, steps: Tensor) -> tuple[Tensor, Tensor]:
        """How many of the previous steps in the window belong to each step's episode [T, B]; and after the last [B]."""
        time = torch.arange(len(episode_start), device=steps.device).unsqueeze(1)
        first = torch.where(episode_start, time, -steps).cummax(0).values
        before = (time - first).clamp(max=self.window - 1)
        return before, (before[-1] + 1).clamp(max=self.window - 1)
