"""Running normalisation of the network's inputs; the tree representation itself stays exact."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

NOT_SCALED = -1
"""The group of features that need no scaling: one-hot vectors, probabilities, flags."""


class RunningScale(nn.Module):
    """Divides features by the running root mean square of their group; zero stays zero.

    Only `update` changes the scale, and only the learner calls it, so that acting and learning see the same inputs.
    """

    SLOWEST = 0.01
    """Smallest weight of a new batch, so that old batches are forgotten while the model changes."""
    LARGEST = 3.0
    """Scaled features are clipped to this magnitude. A new world model's values and features soon grow many times
    larger; until the scale follows, they must not overwhelm a new agent."""
    SMALLEST = 1e-3
    """Root mean squares are clamped to at least this: smaller groups are only noise so far."""

    mean_square: Tensor
    updates: Tensor
    factor: Tensor
    groups: Tensor

    def __init__(self, groups: Sequence[int]) -> None:
        """``groups``: for each feature the index of its group, or `NOT_SCALED`."""
        super().__init__()
        self.register_buffer("groups", torch.tensor(groups), persistent=False)
        self.register_buffer("mean_square", torch.zeros(max(groups) + 1))
        self.register_buffer("updates", torch.zeros((), dtype=torch.int64))
        self.register_buffer("factor", torch.ones(len(groups)))

    def forward(self, x: Tensor) -> Tensor:
        """``x`` [..., features] to float32 of the same shape."""
        return (x.float() * self.factor).clamp_(-self.LARGEST, self.LARGEST)

    @torch.no_grad()
    def update(self, x: Tensor) -> None:
        """Update the scale with a batch ``x`` [N, features]."""
        scaled = self.groups != NOT_SCALED
        square = x.float().square().mean(0)[scaled]
        group = self.groups[scaled]
        total = torch.zeros_like(self.mean_square).index_add_(0, group, square)
        mean = total / torch.bincount(group, minlength=len(total))
        self.updates += 1
        weight = max(1 / int(self.updates), self.SLOWEST)
        self.mean_square.lerp_(mean, weight)
        # A group that has always been zero is left unscaled.
        root = torch.where(self.mean_square > 0, self.mean_square.sqrt(), torch.ones_like(self.mean_square))
        self.factor[scaled] = 1 / root.clamp(min=self.SMALLEST)[group]
