"""Mean and maximum over positions or actions, as one operation."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def mean_and_max(x: Tensor) -> Tensor:
    """``x`` [B, positions, features] to its mean and its maximum over the positions, [B, 2 * features].

    Positions that share the maximum share its gradient equally.
    """
    if not x.requires_grad:
        return torch.cat((x.mean(1), x.amax(1)), 1)
    pooled: Tensor = _MeanAndMax.apply(x)
    return pooled


class _MeanAndMax(torch.autograd.Function):
    """The gradient takes three passes over ``x``; PyTorch's own gradient of a maximum alone takes more."""

    @staticmethod
    def forward(context: Any, x: Tensor) -> Tensor:
        largest = x.amax(1)
        context.save_for_backward(x, largest)
        return torch.cat((x.mean(1), largest), 1)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Tensor:
        x, largest = context.saved_tensors
        of_mean, of_largest = gradient.unsqueeze(1).chunk(2, 2)
        is_largest = torch.eq(x, largest.unsqueeze(1), out=torch.empty_like(x))  # as numbers
        share = of_largest / is_largest.sum(1, keepdim=True)
        return torch.addcmul(of_mean / x.shape[1], is_largest, share)
