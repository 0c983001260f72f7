"""The encoders of the actor-critic for hidden states and real states (appendix C)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Literal

import gymnasium as gym
import torch
from torch import Tensor, nn
from torch.nn import functional

from thinker.agents.settings import NetworkSize
from thinker.errors import UserError
from thinker.interfaces import BoardStructure
from thinker.nn.blocks import Layers, one_hot_action, residual_blocks
from thinker.nn.board_features import FEATURES, BoardFeatures
from thinker.nn.encoder import Architecture
from thinker.nn.scale import RunningScale
from thinker.nn.sizes import SIZES, ImageSize, TilesSize, choose_size

SAMPLED_STEPS = 500
"""Running scales of planes are updated with at most this many steps of a trajectory."""


class Planes(nn.Module):
    """A CNN from planes (channels, height, width) to a vector of ``width`` features.

    "paper" is the network of appendix C. "small" is a 1x1 convolution to few channels, followed by one 3x3 convolution
    with stride 2.
    """

    def __init__(self, shape: tuple[int, ...], size: NetworkSize) -> None:
        super().__init__()
        channels, height, width = shape
        layers: list[nn.Module] = []
        if size == "paper":
            self.width = 256
            self.first = nn.Conv2d(channels, 64, 3, padding=1)
            for inputs, outputs in ((64, 64), (64, 32)):
                layers += residual_blocks(Layers(inputs, (height, width), 0), inputs, 2)
                layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(inplace=True)]
            layers += residual_blocks(Layers(32, (height, width), 0), 32, 2)
        else:
            self.width = 128
            self.first = nn.Conv2d(channels, 16, 1)
            layers += [nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU(inplace=True)]
            height, width = (height + 1) // 2, (width + 1) // 2
        self.body = nn.Sequential(*layers)
        self.linear = nn.Linear(32 * height * width, self.width)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, planes: Tensor, factor: Tensor | None = None) -> Tensor:
        """``planes`` [B, channels, height, width], times ``factor``, to [B, width]."""
        # The factor is applied to the weights, which are smaller than the planes.
        weight = self.first.weight if factor is None else self.first.weight * factor
        planes = planes.contiguous(memory_format=torch.channels_last)
        features = functional.conv2d(planes, weight, self.first.bias, padding=self.first.padding).relu_()
        features = self.body(features).permute(0, 2, 3, 1).flatten(1)  # a view in channels_last memory
        return self.linear(features).relu_()


class Vector(nn.Module):
    """Fully connected layers over a vector."""

    def __init__(self, inputs: int, size: NetworkSize, layers: int = 2) -> None:
        super().__init__()
        self.width = 256 if size == "paper" else 128
        parts: list[nn.Module] = []
        for _ in range(layers):
            parts += [nn.Linear(inputs, self.width), nn.ReLU()]
            inputs = self.width
        self.body = nn.Sequential(*parts)

    def forward(self, vector: Tensor) -> Tensor:
        encoded: Tensor = self.body(vector)
        return encoded


def planes_or_vector(shape: tuple[int, ...], size: NetworkSize) -> Planes | Vector:
    """The encoder for a shape: `Planes` for three dimensions, otherwise `Vector`."""
    return Planes(shape, size) if len(shape) == 3 else Vector(math.prod(shape), size)


def sample_of(steps: Tensor) -> Tensor:
    """At most `SAMPLED_STEPS` of the planes [N, ...], evenly spaced: enough for a running scale."""
    return steps[torch.linspace(0, len(steps) - 1, min(len(steps), SAMPLED_STEPS), device=steps.device).long()]


class ObservationEncoder(nn.Module, ABC):
    """Base class of the encoders of one observation; subclasses set ``width``, the number of features."""

    width: int

    @abstractmethod
    def forward(self, observation: Tensor, action: Tensor) -> Tensor:
        """``observation`` [B, *shape] and the action [B] that led to it to features [B, width]."""

    @torch.no_grad()
    def update_scale(self, observation: Tensor) -> None:
        """Update the running scale of the input, if there is one, with ``observation`` [N, *shape]."""


class HiddenEncoder(ObservationEncoder):
    """Encodes the model's hidden state, scaled as a whole if it is planes and per feature if it is a vector.

    One layer is enough for a vector: the model has computed its features already.
    """

    def __init__(self, shape: tuple[int, ...], size: NetworkSize) -> None:
        super().__init__()
        self.is_planes = len(shape) == 3
        self.scale = RunningScale([0] if self.is_planes else range(math.prod(shape)))
        self.body = Planes(shape, size) if self.is_planes else Vector(math.prod(shape), size, layers=1)
        self.width = self.body.width

    def forward(self, observation: Tensor, action: Tensor) -> Tensor:
        """``observation`` [B, *shape] to [B, width]; ``action`` is not used: the hidden state already contains it."""
        if self.is_planes:
            encoded: Tensor = self.body(observation.float(), self.scale.factor)
        else:
            encoded = self.body(self.scale(observation.flatten(1)))
        return encoded

    def update_scale(self, observation: Tensor) -> None:
        # Of planes, a sample of the steps has enough numbers.
        self.scale.update(sample_of(observation).reshape(-1, 1) if self.is_planes else observation.flatten(1))


class StateEncoder(ObservationEncoder):
    """Encodes a real or predicted state: an encoder like the world model's, followed by the actor-critic's CNN.

    ``board``: what the environment declares of its boards, if anything.
    """

    def __init__(
        self, space: gym.Space, num_actions: int, size: NetworkSize, board: BoardStructure | None = None
    ) -> None:
        super().__init__()
        model_size = SIZES[choose_size(space)]
        if isinstance(model_size, TilesSize):  # at least one residual block, for a larger receptive field
            model_size = replace(model_size, blocks=max(model_size.blocks, 1))
        elif isinstance(model_size, ImageSize) and size == "small":
            model_size = SIZES["image-small" if model_size.stacked_frames == 1 else "image-small-stacked"]
        border = None if board is None else board.border
        architecture = Architecture(space, num_actions, model_size, border=border)
        self.num_actions = num_actions
        self.codec = architecture.codec
        self.encoder = architecture.encoder().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.body = planes_or_vector(architecture.layers.shape, size)
        self.width = self.body.width

    def forward(self, observation: Tensor, action: Tensor) -> Tensor:
        """``observation`` [B, *observation_shape] and the action [B] that led to it to [B, width]."""
        encoded = self.encoder(self.codec.encode(observation), one_hot_action(action, self.num_actions))
        features: Tensor = self.body(encoded.relu_())
        return features

    def update_scale(self, observation: Tensor) -> None:
        if self.encoder.centre is not None:
            self.encoder.centre.update(self.codec.encode(sample_of(observation)))


RawNetworkSize = Literal["paper", "small", "board"]
"""Sizes of the encoders of agents on the raw MDP; board: the board model's, for boards of 0s and 1s."""


def raw_encoder(
    space: gym.Space, num_actions: int, size: RawNetworkSize, board: BoardStructure | None = None
) -> StateEncoder | BoardEncoder:
    """The encoder of real states for an agent on the raw MDP."""
    if size == "board":
        return BoardEncoder(space, num_actions, board)
    return StateEncoder(space, num_actions, size, board)


class BoardEncoder(BoardFeatures, ObservationEncoder):
    """Encodes a board of 0s and 1s like the value-policy half of `BoardModelSpec`, without the action before it."""

    width = FEATURES

    def __init__(self, space: gym.Space, num_actions: int, board: BoardStructure | None) -> None:
        if choose_size(space) != "tiles":
            raise UserError(f"network_size is 'board', but observations are not boards of 0s and 1s: {space}")
        border, player_planes = (None, None) if board is None else (board.border, board.player_planes)
        architecture = Architecture(space, num_actions, SIZES["board"], border=border)
        super().__init__(architecture, player_planes)
        self.codec = architecture.codec
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, observation: Tensor, action: Tensor) -> Tensor:
        """``observation`` [B, *observation_shape] to [B, width]; ``action`` is not used."""
        return self.features(self.codec.encode(observation))
