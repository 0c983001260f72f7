"""The LSTM-attention network (appendix C): an LSTM whose cells also attend to the last steps."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from thinker.errors import UserError

Memory = dict[str, Tensor]
"""A network's recurrent state: tensors [B, ...], one row per environment; empty for networks without memory."""

CURRENT_STEP_BIAS = 5.0
"""The paper's prior that the current step gets the most attention."""


class LSTMAttentionCell(nn.Module):
    """One cell. Its input is stack([x, h_below]): the network's input x and the output of the cell below.

    Every linear layer on the stacked input is split into the part on x, which does not depend on the recurrence and is
    computed for all steps at once (`project`), and the part on h_below. The skip connection of the attention module is
    x: the paper adds the cell's input, which has twice the required width.
    """

    def __init__(self, width: int, heads: int, window: int) -> None:
        super().__init__()
        if width % heads:
            raise UserError(f"width {width} is not a multiple of the number of heads {heads}")
        self.width, self.heads, self.window = width, heads, window
        # Rows: the five gates f, i_c, i_a, o, c and then the attention's q, k, v.
        self.project = nn.Linear(width, 8 * width, bias=False)
        self.below = nn.Linear(width, 8 * width, bias=False)
        self.recurrent = nn.Linear(width, 5 * width)
        self.position_key = nn.Parameter(torch.zeros(heads, window, width // heads))  # U_r
        position_bias = torch.zeros(heads, window)
        position_bias[:, -1] = CURRENT_STEP_BIAS
        self.position_bias = nn.Parameter(position_bias)  # b_r
        self.attended = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        bound = 1 / math.sqrt(width)
        for layer in (self.project, self.below, self.recurrent):
            nn.init.uniform_(layer.weight, -bound, bound)

    def forward(
        self,
        x: Tensor,  # [B, width]
        projected: Tensor,  # [B, 8 * width]  project(x)
        below: Tensor,  # [B, width]
        hidden: Tensor,  # [B, width]
        cell: Tensor,  # [B, width]
        keys: Tensor,  # [B, heads, window, width / heads]  of the previous steps, the latest last
        values: Tensor,  # like keys
        in_episode: Tensor,  # [B, 1, window] bool  which steps belong to this episode, the current one last
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The new hidden, cell, keys and values."""
        gates, attended = (projected + self.below(below)).split((5 * self.width, 3 * self.width), 1)
        query, key, value = attended.view(len(x), 3, self.heads, -1).unbind(1)  # each [B, heads, d_e]
        keys = torch.cat((keys[:, :, 1:], key.unsqueeze(2)), 2)
        values = torch.cat((values[:, :, 1:], value.unsqueeze(2)), 2)

        scores = (keys @ query.unsqueeze(-1)).squeeze(-1)  # [B, heads, window]
        scores = scores + torch.einsum("hwd,bhd->bhw", self.position_key, query)
        scores = scores / math.sqrt(self.width // self.heads) + self.position_bias
        weights = scores.masked_fill(~in_episode, -torch.inf).softmax(-1)
        attended = (weights.unsqueeze(2) @ values).flatten(1)  # [B, width]
        attention = self.norm(self.attended(attended) + x)

        gates, candidate = (gates + self.recurrent(hidden)).split((4 * self.width, self.width), 1)
        forget, input_cell, input_attention, output = gates.sigmoid().chunk(4, 1)
        cell = forget * cell + input_cell * candidate.tanh() + input_attention * attention.tanh()
        return output * cell.tanh(), cell, keys, values


class LSTMAttention(nn.Module):
    """A stack of ``cells`` cells; the lowest receives the top cell's output of the previous step."""

    def __init__(self, width: int = 128, heads: int = 8, window: int = 40, cells: int = 3) -> None:
        super().__init__()
        self.width, self.window = width, window
        self.cells = nn.ModuleList(LSTMAttentionCell(width, heads, window) for _ in range(cells))
        self.head_shape = (heads, window, width // heads)
        self.register_buffer("steps_back", torch.arange(window - 1, -1, -1), persistent=False)

    steps_back: Tensor

    def initial_memory(self, batch: int) -> Memory:
        """Empty memory for ``batch`` environments."""
        device, count = self.steps_back.device, len(self.cells)
        return {
            "hidden": torch.zeros(batch, count, self.width, device=device),
            "cell": torch.zeros(batch, count, self.width, device=device),
            "keys": torch.zeros(batch, count, *self.head_shape, device=device),
            "values": torch.zeros(batch, count, *self.head_shape, device=device),
            # How many of the previous steps in the window belong to the same episode
            "steps": torch.zeros(batch, dtype=torch.int64, device=device),
        }

    def forward(self, x: Tensor, episode_start: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        """``x`` [T, B, width] to outputs of the same shape; memory is cleared where ``episode_start`` [T, B] is set."""
        state = [list(memory[name].unbind(1)) for name in ("hidden", "cell", "keys", "values")]
        hidden, cell, keys, values = state
        steps = memory["steps"]
        keep = (~episode_start).to(x.dtype).unsqueeze(-1)  # [T, B, 1]
        # For each cell T tensors [B, 8 * width]. unbind() rather than indexing by t: each index's gradient would be as
        # large as all steps together.
        projected = [one.project(x).unbind() for one in self.cells]  # type: ignore[operator]
        outputs = []
        for t, x_t in enumerate(x.unbind()):
            steps = torch.where(episode_start[t], 0, steps)
            in_episode = (self.steps_back <= steps.unsqueeze(1)).unsqueeze(1)  # [B, 1, window]
            hidden = [one * keep[t] for one in hidden]
            cell = [one * keep[t] for one in cell]
            below = hidden[-1]  # h^0_t, the top cell's output of the previous step
            for n, one in enumerate(self.cells):
                hidden[n], cell[n], keys[n], values[n] = one(
                    x_t, projected[n][t], below, hidden[n], cell[n], keys[n], values[n], in_episode
                )
                below = hidden[n]
            outputs.append(below)
            steps = (steps + 1).clamp(max=self.window - 1)
        stacked = (torch.stack(parts, 1) for parts in (hidden, cell, keys, values))
        new = dict(zip(("hidden", "cell", "keys", "values"), stacked))
        return torch.stack(outputs), {**new, "steps": steps}
