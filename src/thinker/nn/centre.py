"""Centring of pictures, before the first layer of small networks."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class RunningCentre(nn.Module):
    """Subtracts the running mean of every pixel, and divides by the root mean square of what is left.

    Most of a picture is the same in every frame, and a ball is a few faint pixels: unless the mean is subtracted, the
    features of two frames hardly differ. Mean and mean square change only in `update`. They are parameters that no
    gradient changes, because they belong to the weights: the copies that act need them too.
    """

    SLOWEST = 0.001
    """Smallest weight of a new batch."""
    SMALLEST = 1e-2
    """Root mean squares are clamped to at least this."""

    updates: Tensor

    def __init__(self, shape: tuple[int, int, int]) -> None:
        super().__init__()
        channels, height, width = shape
        # In the memory format of pictures, channels_last: the subtraction is several times faster
        mean = torch.zeros(height, width, channels).permute(2, 0, 1)
        self.mean = nn.Parameter(mean, requires_grad=False)
        self.mean_square = nn.Parameter(torch.ones(()), requires_grad=False)
        self.register_buffer("updates", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        """``x`` [B, *shape] to the same shape."""
        return (x - self.mean).mul_(1 / self.mean_square.sqrt().clamp(min=self.SMALLEST))

    @torch.no_grad()
    def update(self, x: Tensor) -> None:
        """Update with a batch ``x`` [N, *shape]."""
        self.updates += 1
        weight = max(1 / int(self.updates), self.SLOWEST)
        self.mean.lerp_(x.mean(0), weight)
        self.mean_square.lerp_((x - self.mean).square_().mean(), weight)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        # Weights saved by earlier versions have no centre: then nothing is subtracted at first.
        state_dict.setdefault(prefix + "mean", torch.zeros_like(self.mean))
        state_dict.setdefault(prefix + "mean_square", torch.ones_like(self.mean_square))
        state_dict.setdefault(prefix + "updates", torch.full_like(self.updates, round(1 / self.SLOWEST)))
        super()._load_from_state_dict(state_dict, prefix, *rest)
