"""The memoryless encoders of the actor-critic (appendix C): hidden states, real states, the tree."""

from __future__ import annotations

import math
from dataclasses import replace

import gymnasium as gym
import torch
from torch import Tensor, nn
from torch.nn import functional

from thinker.agents.settings import NetworkSize
from thinker.augmented.representation import Layout
from thinker.nn.blocks import Layers, one_hot_action, residual_blocks
from thinker.nn.encoder import Architecture
from thinker.nn.scale import NOT_SCALED, RunningScale
from thinker.nn.sizes import SIZES, TilesSize, choose_size


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
    """Two layers over a vector."""

    def __init__(self, inputs: int, size: NetworkSize) -> None:
        super().__init__()
        self.width = 256 if size == "paper" else 128
        self.body = nn.Sequential(
            nn.Linear(inputs, self.width), nn.ReLU(), nn.Linear(self.width, self.width), nn.ReLU()
        )

    def forward(self, vector: Tensor) -> Tensor:
        encoded: Tensor = self.body(vector)
        return encoded


def planes_or_vector(shape: tuple[int, ...], size: NetworkSize) -> Planes | Vector:
    """The encoder for a shape: `Planes` for three dimensions, otherwise `Vector`."""
    return Planes(shape, size) if len(shape) == 3 else Vector(math.prod(shape), size)


class HiddenEncoder(nn.Module):
    """Encodes the model's hidden state, scaled as a whole if it is planes and per feature if it is a vector."""

    SAMPLED_STEPS = 500

    def __init__(self, shape: tuple[int, ...], size: NetworkSize) -> None:
        super().__init__()
        self.is_planes = len(shape) == 3
        self.scale = RunningScale([0] if self.is_planes else range(math.prod(shape)))
        self.body = planes_or_vector(shape, size)
        self.width = self.body.width

    def forward(self, hidden: Tensor, action: Tensor) -> Tensor:
        """``hidden`` [B, *shape] to [B, width]; ``action`` is not used, since the hidden state already contains it."""
        if self.is_planes:
            encoded: Tensor = self.body(hidden.float(), self.scale.factor)
        else:
            encoded = self.body(self.scale(hidden.flatten(1)))
        return encoded

    def update_scale(self, hidden: Tensor) -> None:
        if self.is_planes:  # a sample of the steps has enough numbers
            hidden = hidden[:: -(-len(hidden) // self.SAMPLED_STEPS)]
        self.scale.update(hidden.reshape(-1, 1) if self.is_planes else hidden.flatten(1))


class StateEncoder(nn.Module):
    """Encodes a real or predicted state: an encoder like the world model's, followed by the actor-critic's CNN."""

    def __init__(self, space: gym.Space, num_actions: int, size: NetworkSize) -> None:
        super().__init__()
        model_size = SIZES[choose_size(space)]
        if isinstance(model_size, TilesSize):  # at least one residual block, for a larger receptive field
            model_size = replace(model_size, blocks=max(model_size.blocks, 1))
        architecture = Architecture(space, num_actions, model_size)
        self.num_actions = num_actions
        self.codec = architecture.codec
        self.encoder = architecture.encoder().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.body = planes_or_vector(architecture.layers.shape, size)
        self.width = self.body.width

    def forward(self, state: Tensor, action: Tensor) -> Tensor:
        """``state`` [B, *observation_shape] and the action [B] that led to it to [B, width]."""
        encoded = self.encoder(self.codec.encode(state), one_hot_action(action, self.num_actions))
        features: Tensor = self.body(encoded.relu_())
        return features

    def update_scale(self, state: Tensor) -> None:
        """Nothing to do: states are scaled by the declared bounds of their space."""


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
