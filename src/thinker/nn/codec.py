"""Conversion between an environment's observations (its own dtype, layout and units) and the networks' float states."""

from __future__ import annotations

from collections.abc import Sequence

import gymnasium as gym
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from thinker.errors import UserError
from thinker.nn.sizes import (
    ImageSize,
    ModelSize,
    TilesSize,
    UnsupportedSpaceError,
    VectorSize,
    bounds_of,
    channels_come_last,
    is_binary,
)

WIDEST_LINEAR_RANGE = 1e4
"""Vector features with a wider declared range than this are compressed by a logarithm, others scaled to -1 .. 1."""


class ObservationCodec(nn.Module):
    """Converts observations [B, *observation_shape] to float32 states [B, *state_shape] and back.

    States are (channels, height, width) in channels_last memory, or (features,). Images and boards are scaled to
    0 .. 1 by the declared bounds. Vector features are scaled to -1 .. 1, or by sign(x) log(1 + |x|) if unbounded.

    ``border``: the values [channels] of all squares in the outermost ring of a board, if that ring never changes. It is
    left out of the states, which makes convolutions cheaper, and added to decoded observations.
    """

    border: Tensor | None
    offset: Tensor
    scale: Tensor
    unbounded: Tensor
    lowest: Tensor
    highest: Tensor

    def __init__(self, space: gym.Space, size: ModelSize, border: Sequence[int] | None = None) -> None:
        super().__init__()
        low, high = bounds_of(space)
        self.space = space
        self.observation_shape: tuple[int, ...] = low.shape
        self.observation_dtype = torch.from_numpy(np.empty(0, space.dtype)).dtype
        self.is_vector = isinstance(size, VectorSize)
        self.is_binary = isinstance(size, TilesSize)
        if low.ndim != (1 if self.is_vector else 3) or low.size == 0:
            raise UnsupportedSpaceError(space, f"{type(size).__name__} cannot take the shape {low.shape}")
        if self.is_binary and not is_binary(space):
            raise UnsupportedSpaceError(space, "TilesSize takes only the integers 0 and 1")
        self.channels_last = not self.is_vector and channels_come_last(low.shape)
        self.state_shape = (low.shape[2], *low.shape[:2]) if self.channels_last else low.shape
        self.register_buffer("border", None, persistent=False)
        if border is not None and self.is_binary:
            self._set_border(border)
        if isinstance(size, ImageSize):
            if not (np.isfinite(low).all() and np.isfinite(high).all()):
                raise UnsupportedSpaceError(space, "images need finite bounds")
            if self.state_shape[0] % size.stacked_frames:
                raise UnsupportedSpaceError(
                    space, f"its {self.state_shape[0]} channels are not {size.stacked_frames} stacked frames"
                )
        if not self.is_vector:
            low, high = low.min(), high.max()
        with np.errstate(over="ignore", invalid="ignore"):
            unbounded = ~(high - low <= WIDEST_LINEAR_RANGE) & self.is_vector
            scale = np.where(unbounded, 1.0, np.maximum(high - low, 1e-8) / (2 if self.is_vector else 1))
            offset = np.where(unbounded, 0.0, low + scale if self.is_vector else low)
        self.register_buffer("offset", torch.as_tensor(offset, dtype=torch.float32), persistent=False)
        self.register_buffer("scale", torch.as_tensor(scale, dtype=torch.float32), persistent=False)
        self.register_buffer("unbounded", torch.as_tensor(unbounded), persistent=False)
        # float64 only if the observations are float64: some devices do not support it.
        exact = torch.float64 if self.observation_dtype == torch.float64 else torch.float32
        self.register_buffer("lowest", torch.as_tensor(low, dtype=exact), persistent=False)
        self.register_buffer("highest", torch.as_tensor(high, dtype=exact), persistent=False)
        bytes_only = self.observation_dtype == torch.uint8 and not self.is_vector and low == 0 and high == 255
        self.always_inside = self.observation_dtype == torch.bool or bytes_only

    def _set_border(self, border: Sequence[int]) -> None:
        channels, height, width = self.state_shape
        if len(border) != channels or min(height, width) < 3:
            raise UserError(
                f"the declared border has {len(border)} channels, but the boards are {self.state_shape} (channels, "
                "height, width); a border needs one value for each channel and at least 3 rows and columns"
            )
        self.border = torch.tensor(border, dtype=torch.bool).view(channels, 1, 1)
        self.state_shape = (channels, height - 2, width - 2)

    def check(self, observation: Tensor) -> None:
        """Raise an error if observations [B, *observation_shape] do not lie in the declared space."""
        expected, received = self.observation_shape, tuple(observation.shape[1:])
        if received != expected or observation.dtype != self.observation_dtype:
            raise UserError(
                f"observations must have shape (batch, {', '.join(map(str, expected))}) and dtype "
                f"{self.observation_dtype} as their space declares, got {tuple(observation.shape)} of "
                f"{observation.dtype}"
            )
        if self.border is not None:
            self._check_border(observation.permute(0, 3, 1, 2) if self.channels_last else observation)
        if self.always_inside:
            return
        if observation.is_floating_point() and not torch.isfinite(observation).all():
            raise UserError("observations contain NaN or infinity; find out where the environment produces them")
        inside = (observation >= self.lowest) & (observation <= self.highest)
        if not inside.all():
            raise UserError(
                f"an observation contains {observation[~inside][0].item()}, outside of the bounds that its space "
                f"{self.space} declares; correct the space (gymnasium.wrappers.TransformObservation takes a new one) "
                "or clip the observations"
            )

    def _check_border(self, planes: Tensor) -> None:
        assert self.border is not None
        edges = planes[..., [0, -1], :].flatten(2), planes[..., [0, -1]].flatten(2)  # [B, channels, squares]
        if not all(torch.equal(edge, self.border.squeeze(2).to(edge.dtype).expand_as(edge)) for edge in edges):
            raise UserError(
                "the outermost squares of an observation differ from the border that the environment declares in "
                'metadata["board"]; set its border to None if it varies'
            )

    def encode(self, observation: Tensor) -> Tensor:
        """Observations [B, *observation_shape] to states [B, *state_shape]."""
        if self.is_vector:
            state = (observation.float() - self.offset) / self.scale
            return torch.where(self.unbounded, state.sign() * state.abs().log1p(), state)
        if self.channels_last:
            observation = observation.permute(0, 3, 1, 2)
        if self.border is not None:
            observation = observation[:, :, 1:-1, 1:-1]
        state = observation.to(torch.float32, memory_format=torch.channels_last)
        return state if self.is_binary else (state - self.offset) / self.scale

    def decode(self, state: Tensor) -> Tensor:
        """States [B, *state_shape] to observations [B, *observation_shape]; integers are rounded and clipped."""
        if self.is_vector:
            state = torch.where(self.unbounded, state.sign() * state.abs().expm1(), state)
        if self.is_binary:
            observation = state > 0.5
            if self.border is not None:
                inside = F.pad(observation, (1, 1, 1, 1))
                observation = inside | (self.border & self._ring())
        else:
            observation = state.float() * self.scale + self.offset
            if not self.observation_dtype.is_floating_point:
                observation = observation.round_().clamp_(self.lowest, self.highest)
        if self.channels_last:
            observation = observation.permute(0, 2, 3, 1)
        return observation.to(self.observation_dtype)

    def _ring(self) -> Tensor:
        """bool [height, width] of an observation: True on the outermost squares."""
        _, height, width = self.state_shape
        return ~F.pad(torch.ones(height, width, dtype=torch.bool, device=self.lowest.device), (1, 1, 1, 1))
