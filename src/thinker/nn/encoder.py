"""State encoders for images (appendix C), boards and vectors (our own)."""

from __future__ import annotations

from collections.abc import Sequence

import gymnasium as gym
from torch import Tensor, nn

from thinker.nn.blocks import ActionLayer, Layers, residual_blocks
from thinker.nn.centre import RunningCentre
from thinker.nn.codec import ObservationCodec
from thinker.nn.sizes import ImageSize, ModelSize, SmallImageSize, TilesSize


class Encoder(nn.Module):
    """g(s): maps a state and the one-hot action that led to it to a hidden state."""

    def __init__(self, first: ActionLayer, *rest: nn.Module, centre: RunningCentre | None = None) -> None:
        super().__init__()
        self.first = first
        self.rest = nn.Sequential(*rest)
        self.centre = centre

    def forward(self, state: Tensor, action: Tensor) -> Tensor:
        """``state`` [B, *state_shape] and ``action`` [B, A] to [B, *hidden_shape]."""
        state = state if self.centre is None else self.centre(state)
        x = self.first(state.to(self.first.action_weight.dtype), action)
        encoded: Tensor = self.rest(x)
        return encoded


class Architecture:
    """Builds the parts of the networks for an observation space, a number of actions and a size.

    ``border``: see `ObservationCodec`.
    """

    def __init__(
        self,
        observation_space: gym.Space,
        num_actions: int,
        size: ModelSize,
        border: Sequence[int] | None = None,
    ) -> None:
        self.observation_space = observation_space
        self.border = border
        self.codec = ObservationCodec(observation_space, size, border)
        self.size = size
        self.num_actions = num_actions
        height_width = self.codec.state_shape[1:]
        if isinstance(size, ImageSize):
            self.resolutions = [(height_width[0], height_width[1])]  # full, half, quarter, and in the paper eighth
            for _ in range(3 if isinstance(size, SmallImageSize) else 4):
                height, width = self.resolutions[-1]
                self.resolutions.append(((height + 1) // 2, (width + 1) // 2))
            self.layers = Layers(2 * size.channels, self.resolutions.pop(), num_actions)
        elif isinstance(size, TilesSize):
            self.layers = Layers(size.channels, (height_width[0], height_width[1]), num_actions)
        else:
            self.layers = Layers(size.channels, None, num_actions)

    def encoder(self) -> Encoder:
        size, layers = self.size, self.layers
        inputs, channels = self.codec.state_shape[0], size.channels
        if not isinstance(size, ImageSize):
            return Encoder(layers.action_layer(inputs, channels), residual_blocks(layers, channels, size.blocks))
        first = ActionLayer(inputs, channels, self.num_actions, self.resolutions[0], stride=2)
        if isinstance(size, SmallImageSize):
            return Encoder(
                first,
                nn.Conv2d(channels, 2 * channels, 3, stride=2, padding=1),
                nn.ReLU(),
                nn.Conv2d(2 * channels, 2 * channels, 3, stride=2, padding=1),
                residual_blocks(layers, 2 * channels, size.blocks),
                centre=RunningCentre((inputs, *self.resolutions[0])),
            )
        return Encoder(
            first,
            residual_blocks(layers, channels, size.blocks),
            nn.Conv2d(channels, 2 * channels, 3, stride=2, padding=1),
            nn.ReLU(),
            residual_blocks(layers, 2 * channels, size.blocks),
            nn.AvgPool2d(3, stride=2, padding=1, count_include_pad=False),
            residual_blocks(layers, 2 * channels, size.blocks),
            nn.AvgPool2d(3, stride=2, padding=1, count_include_pad=False),
        )
