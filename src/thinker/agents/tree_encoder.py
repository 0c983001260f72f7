"""How agents read the tree representation: the interface, and the paper's two encoders (appendices C and E)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor, nn

from thinker.agents.network import AgentInput, Memory
from thinker.agents.settings import NetworkSize
from thinker.augmented.representation import Layout
from thinker.nn.blocks import initialise
from thinker.nn.lstm_attention import LSTMAttention
from thinker.nn.scale import NOT_SCALED, RunningScale


class RecurrentSize(NamedTuple):
    """The size of `RecurrentTreeEncoder`."""

    width: int
    heads: int
    cells: int


RECURRENT_SIZES: dict[NetworkSize, RecurrentSize] = {
    "paper": RecurrentSize(128, 8, 3),
    "small": RecurrentSize(64, 4, 2),
}
"""The steps of a recurrence cannot be computed together, so its time is in proportion to the number of cells."""


class TreeOutput(NamedTuple):
    """What an encoder makes of N steps."""

    features: Tensor  # [N, width]  for the final layer
    logits: Tensor | None  # [N, A, 2]  added to the final layer's logits of real and of imaginary actions
    memory: Memory  # after the last step


class TreeEncoder(nn.Module, ABC):
    """Encodes tree representations; subclasses set ``width``, the number of their features."""

    width: int

    def initial_memory(self, batch: int) -> Memory:
        """The initial memory for ``batch`` environments."""
        return {}

    @abstractmethod
    def forward(self, flat: AgentInput, context: Tensor, episode_start: Tensor, memory: Memory) -> TreeOutput:
        """Encode N = T B steps.

        ``flat`` holds their inputs [N, ...], ``context`` [N, context width] everything else that is known of them and
        does not refer to single actions, ``episode_start`` [T, B] their arrangement, and ``memory`` [B, ...] precedes
        the first step.
        """

    @torch.no_grad()
    def update_scale(self, flat: AgentInput) -> None:
        """Update the running scales from the inputs [N, ...]."""


def tree_scale(layout: Layout) -> RunningScale:
    """The scale of a tree representation: one group for all returns, so that they stay comparable, one for rewards, one
    for visit counts; everything else is not scaled."""
    of_part = {"reward": 1, "child_visits": 2}
    of_part |= dict.fromkeys(("value", "child_mean_return", "child_max_return"), 0)
    by_name = {f"{node}_{part}": group for node in ("root", "current") for part, group in of_part.items()}
    by_name |= {"rollout_return": 0, "max_return": 0, "rollout_reward": 1}
    groups = [NOT_SCALED] * layout.size
    for name, part in layout.slices.items():
        groups[part] = [by_name.get(name, NOT_SCALED)] * (part.stop - part.start)
    return RunningScale(groups)


class SkipMLP(nn.Module):
    """The paper's MLP for the tree representation (appendix E): each layer sees the previous layer and the input."""

    WIDTH, LAYERS = 200, 3

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.first = nn.Linear(inputs, self.WIDTH)
        self.rest = nn.ModuleList(nn.Linear(self.WIDTH + inputs, self.WIDTH) for _ in range(self.LAYERS - 1))

    def forward(self, x: Tensor) -> Tensor:
        features = self.first(x).relu_()
        for layer in self.rest:
            features = layer(torch.cat((features, x), -1)).relu_()
        return features


class _ScaledTree(TreeEncoder):
    """Reads the whole representation as one vector."""

    def __init__(self, layout: Layout) -> None:
        super().__init__()
        self.scale = tree_scale(layout)

    def update_scale(self, flat: AgentInput) -> None:
        self.scale.update(flat.observation["tree"])


class MLPTreeEncoder(_ScaledTree):
    """ "mlp": `SkipMLP`, without memory."""

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout)
        self.body = SkipMLP(layout.size)
        self.width = SkipMLP.WIDTH
        initialise(self.body)

    def forward(self, flat: AgentInput, context: Tensor, episode_start: Tensor, memory: Memory) -> TreeOutput:
        return TreeOutput(self.body(self.scale(flat.observation["tree"])), None, memory)


class RecurrentTreeEncoder(_ScaledTree):
    """ "lstm-attention": a layer, the LSTM-attention network, which attends to the last two stages, and a layer."""

    def __init__(self, layout: Layout, size: NetworkSize) -> None:
        super().__init__(layout)
        self.width, heads, cells = RECURRENT_SIZES[size]
        self.before = nn.Sequential(nn.Linear(layout.size, self.width), nn.ReLU())
        self.recurrent = LSTMAttention(self.width, heads, 2 * layout.stage_length, cells)
        self.after = nn.Sequential(nn.Linear(self.width, self.width), nn.ReLU())
        initialise(self.before)
        initialise(self.after)

    def initial_memory(self, batch: int) -> Memory:
        return self.recurrent.initial_memory(batch)

    def forward(self, flat: AgentInput, context: Tensor, episode_start: Tensor, memory: Memory) -> TreeOutput:
        before: Tensor = self.before(self.scale(flat.observation["tree"]))
        encoded, memory = self.recurrent(before.unflatten(0, episode_start.shape), episode_start, memory)
        return TreeOutput(self.after(encoded.flatten(0, 1)), None, memory)
