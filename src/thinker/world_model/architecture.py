"""The parts of a world model other than the encoder: unrolling functions, predictors and decoders (appendix C)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

import gymnasium as gym
import torch
from torch import Tensor, nn

from thinker.nn.blocks import Layers, Predictor, UnrollFunction, residual_blocks
from thinker.nn.encoder import Architecture
from thinker.nn.sizes import ImageSize, ModelSize, SmallImageSize, TilesSize
from thinker.world_model.heads import Head, ScalarHead


class Decoder(nn.Module, ABC):
    """Predicts the next state from the next hidden state and the previous state.

    ``carried_shape`` is the shape of the part of the previous state that `forward` needs. It is stored with the hidden
    state.
    """

    carried_shape: tuple[int, ...]

    def carry(self, state: Tensor) -> Tensor:
        """The part of a state [B, *state_shape] that the next call needs: [B, *carried_shape]."""
        return state

    @abstractmethod
    def forward(self, hidden: Tensor, previous: Tensor) -> Tensor:
        """``hidden`` [B, *hidden_shape] and ``previous`` [B, *carried_shape] to the next state [B, *state_shape]."""


class UpsampleTo(nn.Module):
    """ReLU and a transposed convolution (kernel 4, stride 2), cropped to an exact height and width.

    Where the encoder rounded an odd size up, doubling yields one extra row or column.
    """

    def __init__(self, inputs: int, outputs: int, spatial: tuple[int, int]) -> None:
        super().__init__()
        self.spatial = spatial
        self.convolution = nn.ConvTranspose2d(inputs, outputs, 4, stride=2, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        height, width = self.spatial
        output: Tensor = self.convolution(x.relu())
        return output[:, :, :height, :width]


class ImageDecoder(Decoder):
    """Decodes the newest frame; stacked older frames are shifted, not predicted."""

    def __init__(
        self, layers: Layers, resolutions: list[tuple[int, int]], state_channels: int, size: ImageSize
    ) -> None:
        super().__init__()
        wide, narrow = layers.channels, layers.channels // 2
        self.frame_channels = state_channels // size.stacked_frames
        self.carried_shape = (state_channels - self.frame_channels, *resolutions[0])
        full, half, quarter, eighth = resolutions
        self.body = nn.Sequential(
            residual_blocks(layers, wide, size.blocks),
            UpsampleTo(wide, wide, eighth),
            residual_blocks(layers, wide, size.blocks),
            UpsampleTo(wide, wide, quarter),
            UpsampleTo(wide, narrow, half),
            residual_blocks(layers, narrow, size.blocks),
            UpsampleTo(narrow, self.frame_channels, full),
        )

    def carry(self, state: Tensor) -> Tensor:
        return state[:, self.frame_channels :]

    def forward(self, hidden: Tensor, previous: Tensor) -> Tensor:
        frame = self.body(hidden).float()
        return torch.cat((previous, frame), 1) if self.carried_shape[0] else frame


class FrameChangeDecoder(Decoder):
    """Predicts the change of the newest frame from the hidden state and the frames before; initialised to no change.

    Gradients do not flow through the frames before, only through the hidden states.
    """

    def __init__(
        self, layers: Layers, resolutions: list[tuple[int, int]], state_channels: int, size: SmallImageSize
    ) -> None:
        super().__init__()
        wide, narrow = layers.channels, layers.channels // 2
        self.frame_channels = state_channels // size.stacked_frames
        older = state_channels - self.frame_channels
        kept = max(older, self.frame_channels)
        self.shifted = slice(kept - older, None)  # channels of the frames before that are part of the next state
        full, half, quarter = resolutions
        self.carried_shape = (kept, *full)
        self.enlarge = nn.Sequential(UpsampleTo(wide, wide, quarter), UpsampleTo(wide, narrow, half))
        self.look = nn.Conv2d(kept, narrow, 3, stride=2, padding=1)
        self.combine = nn.Conv2d(narrow, narrow, 3, padding=1)
        self.output = UpsampleTo(narrow, self.frame_channels, full)
        for parameter in self.output.parameters():
            nn.init.zeros_(parameter)

    def carry(self, state: Tensor) -> Tensor:
        """All frames but the oldest, unless there is only one; predicted values are limited to those of states."""
        return state[:, -self.carried_shape[0] :].detach().clamp(0, 1)

    def forward(self, hidden: Tensor, previous: Tensor) -> Tensor:
        features = self.enlarge(hidden) + self.look(previous.to(hidden.dtype))
        change: Tensor = self.output(self.combine(features.relu_())).float()
        frame = previous[:, -self.frame_channels :] + change
        return torch.cat((previous[:, self.shifted], frame), 1)


class ChangeDecoder(Decoder):
    """Predicts the change from the previous state, for vectors; initialised to no change."""

    def __init__(self, layers: Layers, state_shape: tuple[int, ...], blocks: int) -> None:
        super().__init__()
        self.carried_shape = state_shape
        self.body = residual_blocks(layers, layers.channels, blocks)
        self.output = layers.layer(layers.channels, state_shape[0])
        for parameter in self.output.parameters():
            nn.init.zeros_(parameter)

    def forward(self, hidden: Tensor, previous: Tensor) -> Tensor:
        change: Tensor = self.output(self.body(hidden).relu())
        return previous + change


class BoardDecoder(ChangeDecoder):
    """Predicts the change of a board of 0s and 1s, as real numbers near 0 and 1.

    They are rounded before the next change is added, so that small errors do not accumulate. Gradients do not flow
    through the rounding, only through the hidden states.
    """

    def carry(self, state: Tensor) -> Tensor:
        return (state > 0.5).to(state.dtype)


class ModelArchitecture(Architecture):
    """Builds all parts of a world model for an observation space, a number of actions and a size.

    ``border``: see `ObservationCodec`. ``head``: how values and rewards are predicted; default: as numbers.
    """

    def __init__(
        self,
        observation_space: gym.Space,
        num_actions: int,
        size: ModelSize,
        border: Sequence[int] | None = None,
        head: Head | None = None,
    ) -> None:
        super().__init__(observation_space, num_actions, size, border)
        self.head = ScalarHead() if head is None else head

    def of_state_reward(self) -> ModelArchitecture:
        """The architecture of a dual network's state-reward half, which may be narrower."""
        if not isinstance(self.size, TilesSize):
            return self
        size = replace(self.size, channels=self.size.state_reward_channels)
        return ModelArchitecture(self.observation_space, self.num_actions, size, self.border, self.head)

    @property
    def seen_state_channels(self) -> int:
        """Channels of the last state that a state-reward network sees next to its hidden state: all, for boards."""
        return self.codec.state_shape[0] if isinstance(self.size, TilesSize) else 0

    def unroll_function(self, inputs: int) -> UnrollFunction:
        """An unrolling function with ``inputs`` input channels."""
        return UnrollFunction(self.layers, inputs, self.size.unroll_blocks)

    def predictor(self, inputs: int, outputs: Mapping[str, int]) -> Predictor:
        """A predictor from ``inputs`` channels to ``outputs``: the number of values of each quantity by name."""
        channels = self.layers.channels
        if isinstance(self.size, ImageSize):
            return Predictor(self.layers, (inputs, channels // 2, channels // 4), outputs)
        positions: Literal["flatten", "pool"] = "pool" if isinstance(self.size, TilesSize) else "flatten"
        return Predictor(self.layers, (inputs, channels), outputs, positions=positions)

    def transition_predictor(self, inputs: int) -> Predictor:
        """A predictor of reward and termination from ``inputs`` channels."""
        return self.predictor(inputs, {"reward": self.head.outputs, "termination": 1})

    def evaluation_predictor(self, inputs: int) -> Predictor:
        """A predictor of value and policy from ``inputs`` channels."""
        return self.predictor(inputs, {"value": self.head.outputs, "policy": self.num_actions})

    def decoder(self) -> Decoder:
        size, state_shape = self.size, self.codec.state_shape
        if isinstance(size, SmallImageSize):
            return FrameChangeDecoder(self.layers, self.resolutions, state_shape[0], size)
        if isinstance(size, ImageSize):
            return ImageDecoder(self.layers, self.resolutions, state_shape[0], size)
        kind = BoardDecoder if isinstance(size, TilesSize) else ChangeDecoder
        return kind(self.layers, state_shape, size.blocks)
