"""What differs between pictures, boards and vectors: encoder and decoder (pictures: appendix C; the others: ours)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace

import gymnasium as gym
import torch
from torch import Tensor, nn

from thinker.world_model.blocks import ActionLayer, Layers, Predictor, UnrollFunction, residual_blocks
from thinker.world_model.observations import ObservationCodec
from thinker.world_model.sizes import ImageSize, ModelSize, TilesSize


class Encoder(nn.Module):
    """g(s): the state and the one-hot action that led to it, to a hidden state."""

    def __init__(self, first: ActionLayer, *rest: nn.Module) -> None:
        super().__init__()
        self.first = first
        self.rest = nn.Sequential(*rest)

    def forward(self, state: Tensor, action: Tensor) -> Tensor:
        """``state`` [B, *state_shape], ``action`` [B, A], to [B, *hidden_shape]."""
        x = self.first(state.to(self.first.action_weight.dtype), action)
        encoded: Tensor = self.rest(x)
        return encoded


class Decoder(nn.Module, ABC):
    """The next state from the next hidden state and the state before.

    ``carried_shape`` is the shape of what `forward` needs of the state before. It travels in the hidden state.
    """

    carried_shape: tuple[int, ...]

    def carry(self, state: Tensor) -> Tensor:
        """What of a state [B, *state_shape] the next call needs: [B, *carried_shape]."""
        return state

    @abstractmethod
    def forward(self, hidden: Tensor, previous: Tensor) -> Tensor:
        """``hidden`` [B, *hidden_shape] and ``previous`` [B, *carried_shape] to the next state [B, *state_shape]."""


class UpsampleTo(nn.Module):
    """ReLU and a transposed convolution (kernel 4, stride 2) that ends at an exact height and width.

    Doubling overshoots by one row or column wherever the encoder rounded an odd number up; they are cut off.
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
    """The newest frame decoded; where frames are stacked the older ones are shifted, not predicted."""

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


class ChangeDecoder(Decoder):
    """The change from the state before, for boards and vectors. At the beginning: no change.

    Boards are predicted as plain numbers near 0 and 1, not as logits: those are flat where the board before is certain,
    and learned more slowly in short trials on Sokoban (one seed). They are rounded before the next change is added, so
    that small errors do not pile up from step to step. No gradient goes through the rounding; the hidden states carry
    it over the steps.
    """

    def __init__(self, layers: Layers, state_shape: tuple[int, ...], blocks: int, *, rounds: bool) -> None:
        super().__init__()
        self.carried_shape = state_shape
        self.rounds = rounds
        self.body = residual_blocks(layers, layers.channels, blocks)
        self.output = layers.layer(layers.channels, state_shape[0])
        for parameter in self.output.parameters():
            nn.init.zeros_(parameter)

    def carry(self, state: Tensor) -> Tensor:
        return (state > 0.5).to(state.dtype) if self.rounds else state

    def forward(self, hidden: Tensor, previous: Tensor) -> Tensor:
        change: Tensor = self.output(self.body(hidden).relu())
        return previous + change


class Architecture:
    """Builds the parts of the networks for one observation space, number of actions and size."""

    def __init__(self, observation_space: gym.Space, num_actions: int, size: ModelSize) -> None:
        self.observation_space = observation_space
        self.codec = ObservationCodec(observation_space, size)
        self.size = size
        self.num_actions = num_actions
        height_width = self.codec.state_shape[1:]
        if isinstance(size, ImageSize):
            self.resolutions = [(height_width[0], height_width[1])]  # full, half, quarter, eighth
            for _ in range(4):
                height, width = self.resolutions[-1]
                self.resolutions.append(((height + 1) // 2, (width + 1) // 2))
            self.layers = Layers(2 * size.channels, self.resolutions.pop(), num_actions)
        elif isinstance(size, TilesSize):
            self.layers = Layers(size.channels, (height_width[0], height_width[1]), num_actions)
        else:
            self.layers = Layers(size.channels, None, num_actions)

    def of_state_reward(self) -> Architecture:
        """The architecture of a dual network's state-reward half, which may be narrower."""
        if not isinstance(self.size, TilesSize):
            return self
        size = replace(self.size, channels=self.size.state_reward_channels)
        return Architecture(self.observation_space, self.num_actions, size)

    def encoder(self) -> Encoder:
        size, layers = self.size, self.layers
        inputs, channels = self.codec.state_shape[0], size.channels
        if not isinstance(size, ImageSize):
            return Encoder(layers.action_layer(inputs, channels), residual_blocks(layers, channels, size.blocks))
        return Encoder(
            ActionLayer(inputs, channels, self.num_actions, self.resolutions[0], stride=2),
            residual_blocks(layers, channels, size.blocks),
            nn.Conv2d(channels, 2 * channels, 3, stride=2, padding=1),
            nn.ReLU(),
            residual_blocks(layers, 2 * channels, size.blocks),
            nn.AvgPool2d(3, stride=2, padding=1, count_include_pad=False),
            residual_blocks(layers, 2 * channels, size.blocks),
            nn.AvgPool2d(3, stride=2, padding=1, count_include_pad=False),
        )

    def unroll_function(self, *, takes_encoded: bool) -> UnrollFunction:
        return UnrollFunction(self.layers, self.size.unroll_blocks, takes_encoded=takes_encoded)

    def state_unroll_function(self) -> UnrollFunction:
        """Of the state-reward network, where the last state can be seen."""
        count, seen = self.size.unroll_blocks, self._seen_state_channels
        return UnrollFunction(self.layers, count, takes_encoded=False, state_channels=seen)

    @property
    def _seen_state_channels(self) -> int:
        sees_board = isinstance(self.size, TilesSize) and self.size.sees_board
        return self.codec.state_shape[0] if sees_board else 0

    def predictor(self, outputs: Mapping[str, int]) -> Predictor:
        channels = self.layers.channels
        if isinstance(self.size, ImageSize):
            return Predictor(self.layers, (channels // 2, channels // 4), outputs, pool=False)
        return Predictor(self.layers, (channels,), outputs, pool=isinstance(self.size, TilesSize))

    def reward_predictor(self) -> Predictor:
        """Of reward and termination, where a predicted state can be seen."""
        outputs, seen = {"reward": 1, "termination": 1}, self._seen_state_channels
        if not seen:
            return self.predictor(outputs)
        return Predictor(self.layers, (self.layers.channels,), outputs, pool=True, state_channels=seen)

    def decoder(self) -> Decoder:
        size, state_shape = self.size, self.codec.state_shape
        if isinstance(size, ImageSize):
            return ImageDecoder(self.layers, self.resolutions, state_shape[0], size)
        return ChangeDecoder(self.layers, state_shape, size.blocks, rounds=self.codec.is_binary)
