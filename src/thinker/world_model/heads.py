"""How a network predicts values and rewards: as numbers, or as distributions over bins (MuZero's appendix F).

A head is the meaning of a network's outputs for one number: what number they stand for, and the loss for a target.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal

import torch
from torch import Tensor, nn

from thinker.errors import UserError

HeadName = Literal["scalar", "categorical"]
LINEAR_SHARE = 0.001
"""ε of the transform: the slope that remains at large values, so that it can be inverted."""


def transform(x: Tensor) -> Tensor:
    """h(x) = sign(x) (sqrt(|x| + 1) - 1) + ε x, which brings large values closer together."""
    size = x.abs()
    # sqrt(size + 1) - 1 without its rounding error at small values
    return x.sign() * (size / ((size + 1).sqrt() + 1)) + LINEAR_SHARE * x


def inverse_transform(y: Tensor) -> Tensor:
    """The inverse of `transform`."""
    # With w = sqrt(|x| + 1) - 1, |h(x)| = ε w² + (1 + 2 ε) w and |x| = w (w + 2).
    size, linear = y.abs(), 1 + 2 * LINEAR_SHARE
    w = 2 * size / (linear + (linear**2 + 4 * LINEAR_SHARE * size).sqrt())
    return y.sign() * (w * (w + 2))


class Head(nn.Module, ABC):
    """The meaning of ``outputs`` numbers that a network predicts for one value or reward. It has no weights."""

    outputs: int

    @abstractmethod
    def decode(self, output: Tensor) -> Tensor:
        """The predicted values [...] of network outputs [..., ``outputs``]."""

    @abstractmethod
    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """The losses [...] of network outputs [..., ``outputs``] for target values [...]."""


class ScalarHead(Head):
    """The value itself, trained by its squared error."""

    outputs = 1

    def decode(self, output: Tensor) -> Tensor:
        return output.squeeze(-1)

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        return (output.squeeze(-1) - target).square()


class CategoricalHead(Head):
    """A distribution over bins of the transformed value, trained by its cross-entropy with a two-hot target.

    The bins are ``size`` numbers at equal distances from -``limit`` to ``limit``; a target between two of them is the
    distribution over these two that has the target as its mean. Larger targets count as the first or last bin.
    """

    support: Tensor  # [size]

    def __init__(self, size: int = 601, limit: float = 300.0) -> None:
        super().__init__()
        if size < 3 or size % 2 == 0:
            raise UserError(f"support_size={size}: must be an odd number of at least 3, so that 0 is one of the bins")
        if not 0 < limit < float("inf"):
            raise UserError(f"support_limit={limit}: must be above 0 and finite")
        self.outputs = size
        self.limit = float(limit)
        half = torch.linspace(0, self.limit, size // 2 + 1)[1:]
        support = torch.cat((-half.flip(0), torch.zeros(1), half))
        self.register_buffer("support", support, persistent=False)

    def decode(self, output: Tensor) -> Tensor:
        # Bins come in pairs -b and b: their difference is exact, so that equal logits mean a value of exactly 0.
        probability, half = output.softmax(-1), self.outputs // 2
        difference = probability[..., half + 1 :] - probability[..., :half].flip(-1)
        return inverse_transform((difference * self.support[half + 1 :]).sum(-1))

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        lower, share = self._bins(target)
        log_probability = output.log_softmax(-1)
        below = log_probability.gather(-1, lower.unsqueeze(-1)).squeeze(-1)
        above = log_probability.gather(-1, (lower + 1).unsqueeze(-1)).squeeze(-1)
        return -((1 - share) * below + share * above)

    def encode(self, value: Tensor) -> Tensor:
        """The two-hot distributions [..., size] of values [...]."""
        lower, share = self._bins(value)
        empty = torch.zeros(*value.shape, self.outputs, dtype=value.dtype, device=value.device)
        filled = empty.scatter(-1, lower.unsqueeze(-1), (1 - share).unsqueeze(-1))
        return filled.scatter(-1, (lower + 1).unsqueeze(-1), share.unsqueeze(-1))

    def _bins(self, value: Tensor) -> tuple[Tensor, Tensor]:
        """The lower of the two bins of values [...], an integer below size - 1, and the other bin's probability."""
        distance = 2 * self.limit / (self.outputs - 1)
        position = transform(value).clamp(-self.limit, self.limit) / distance + self.outputs // 2
        lower = position.floor().clamp(0, self.outputs - 2)
        return lower.long(), (position - lower).clamp(0, 1)  # rounding may lead out of the range
