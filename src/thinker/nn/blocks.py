"""Building blocks of the networks of appendix C: residual blocks, unrolling functions, predictors.

Each supports convolutional hidden states (channels, height, width) and plain vectors; `Layers` says which.
All convolutional tensors are kept in channels_last memory.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from thinker.nn.pooling import mean_and_max

Layer = nn.Linear | nn.Conv2d
"""The layer inside residual blocks: linear for vectors, a 3x3 convolution for inputs with spatial positions."""


def one_hot_action(action: Tensor, num_actions: int) -> Tensor:
    """Actions [B] to float32 [B, A]; all zeros for `NO_ACTION`."""
    return (action.unsqueeze(-1) == torch.arange(num_actions, device=action.device)).float()


class ActionLayer(nn.Module):
    """A layer with ReLU over the concatenation of the input and the one-hot action, without concatenating them.

    A layer over [x, action] is the layer over x plus the action's contribution, which takes only A different values.
    For convolutions the action is tiled to planes as large as the input, so its contribution differs at the borders;
    the table holds it for each position.
    """

    inside: Tensor  # [positions, 9]  which squares under the kernel lie inside the board; only with ``spatial``
    table: Tensor | None  # the result of `action_table` at the last call of `keep_table`

    def __init__(
        self, inputs: int, outputs: int, num_actions: int, spatial: tuple[int, int] | None, stride: int = 1
    ) -> None:
        super().__init__()
        self.spatial, self.stride = spatial, stride
        kernel = () if spatial is None else (3, 3)
        self.layer: Layer = (
            nn.Linear(inputs, outputs) if spatial is None else nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1)
        )
        self.action_weight = nn.Parameter(torch.empty(outputs, num_actions, *kernel))
        # PyTorch's default initialisation of a layer with inputs + num_actions inputs
        bound = 1 / math.sqrt((inputs + num_actions) * math.prod(kernel))
        for parameter in (*self.layer.parameters(), self.action_weight):
            nn.init.uniform_(parameter, -bound, bound)
        self.register_buffer("table", None, persistent=False)
        if spatial is not None:
            inside = F.unfold(torch.ones(1, 1, *spatial), 3, padding=1, stride=stride)[0].t()
            self.register_buffer("inside", inside.contiguous(), persistent=False)

    def action_table(self) -> Tensor:
        """The contribution of each action to the output: [A, outputs] or [A, height * width * outputs]."""
        if self.spatial is None:
            return self.action_weight.t()
        # On an input of ones, a convolution is the sum of the weights that lie inside the board.
        by_action = self.action_weight.flatten(2).permute(1, 2, 0)  # [A, 9, outputs]
        return (self.inside.to(by_action.dtype) @ by_action).flatten(1)

    def keep_table(self) -> None:
        """Compute the table once and use it until the next call; the weights must not change in between."""
        with torch.no_grad():
            table = self.action_table()
            if self.table is None:
                self.table = table.clone()
            else:
                self.table.copy_(table)

    def forward(self, x: Tensor, action: Tensor) -> Tensor:
        """x [B, inputs, ...] and one-hot actions [B, A] to [B, outputs, ...]."""
        table = self.action_table() if self.table is None else self.table
        output: Tensor = self.layer(x)
        action = action.to(output.dtype)
        if self.spatial is None:
            return output.addmm(action, table).relu_()
        batch, channels, height, width = output.shape
        flat = output.permute(0, 2, 3, 1).flatten(1)  # a view in channels_last memory
        # In-place addition would save a copy, but with autograd, changing a view costs more copies in another layout.
        flat = flat.addmm(action, table) if flat.requires_grad else flat.addmm_(action, table)
        return flat.relu_().view(batch, height, width, channels).permute(0, 3, 1, 2)


@dataclass(frozen=True)
class Layers:
    """The hidden state's shape and the layers that preserve it: 3x3 convolutions, or linear layers for vectors."""

    channels: int
    spatial: tuple[int, int] | None
    num_actions: int

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.channels, *(self.spatial or ()))

    def layer(self, inputs: int, outputs: int) -> Layer:
        if self.spatial is None:
            return nn.Linear(inputs, outputs)
        return nn.Conv2d(inputs, outputs, 3, padding=1)

    def action_layer(self, inputs: int, outputs: int) -> ActionLayer:
        return ActionLayer(inputs, outputs, self.num_actions, self.spatial)


class ResidualBlock(nn.Module):
    """x + layer(relu(layer(relu(x)))), with the number of channels unchanged."""

    def __init__(self, layers: Layers, channels: int) -> None:
        super().__init__()
        self.first = layers.layer(channels, channels)
        self.second = layers.layer(channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.second(self.first(x.relu()).relu_())
        return output.add_(x)


def residual_blocks(layers: Layers, channels: int, count: int) -> nn.Sequential:
    return nn.Sequential(*(ResidualBlock(layers, channels) for _ in range(count)))


class GlobalBlock(nn.Module):
    """A residual block in which every square also sees the mean and the maximum over the whole board."""

    def __init__(self, layers: Layers, channels: int) -> None:
        super().__init__()
        self.first = layers.layer(channels, channels)
        self.inject = nn.Linear(2 * channels, channels)
        self.second = layers.layer(channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        """x [B, channels, height, width], not activated, to the same shape."""
        active = x.relu()
        pooled = mean_and_max(active.permute(0, 2, 3, 1).flatten(1, 2))  # a view in channels_last memory
        inner = self.first(active) + self.inject(pooled)[:, :, None, None]
        output: Tensor = self.second(inner.relu_())
        return output.add_(x)


class UnrollFunction(nn.Module):
    """Maps the last hidden state and the action to the next hidden state: ``count`` residual blocks.

    The first block takes ``inputs`` channels (everything to predict from, concatenated) and the action. Its shortcut
    carries the input that is closest to the output.
    """

    def __init__(self, layers: Layers, inputs: int, count: int) -> None:
        super().__init__()
        channels = layers.channels
        self.first = layers.action_layer(inputs, channels)
        self.second = layers.layer(channels, channels)
        self.blocks = residual_blocks(layers, channels, count - 1)

    def forward(self, x: Tensor, action: Tensor, shortcut: Tensor) -> Tensor:
        """``x`` [B, inputs, ...] and one-hot ``action`` [B, A] to [B, *hidden_shape], the shape of ``shortcut``."""
        output: Tensor = self.second(self.first(x, action))
        advanced: Tensor = self.blocks(output.add_(shortcut))
        return advanced


class OutputLayer(nn.Linear):
    """A final linear layer, initialised to zero (appendix C) and computed in float32 for inputs of any dtype."""

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.weight)
        nn.init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input.to(self.weight.dtype))


class Predictor(nn.Module):
    """Scalars and logits from an activated hidden state: a few layers with ReLU, then one linear layer per quantity.

    The input must have gone through a ReLU: hidden states end with a linear layer, which the first layer here would
    otherwise merge with.

    The features at the positions of a convolutional hidden state are combined in one of two ways: "flatten"
    concatenates them, as in the paper; "pool" takes their mean and maximum over the positions and combines these with
    one more layer.
    """

    POOLED_WIDTH = 128

    def __init__(
        self,
        layers: Layers,
        widths: tuple[int, ...],  # channels of the input and of each layer's output
        outputs: Mapping[str, int],
        *,
        positions: Literal["flatten", "pool"] = "flatten",
    ) -> None:
        super().__init__()
        self.trunk = nn.ModuleList(layers.layer(*pair) for pair in pairwise(widths))
        self.positions = positions
        self.outputs = dict(outputs)
        # The linear layers of all quantities share one matrix, split by rows.
        inputs = widths[-1] * math.prod(layers.spatial or ())
        self.combine: nn.Module = nn.Identity()
        if positions == "pool":
            inputs = self.POOLED_WIDTH
            self.combine = nn.Sequential(nn.Linear(2 * widths[-1], inputs), nn.ReLU(inplace=True))
        self.output = OutputLayer(inputs, sum(outputs.values()))

    def forward(self, hidden: Tensor) -> dict[str, Tensor]:
        """Activated hidden states [B, widths[0], ...] to a dict of [B, outputs[name]]."""
        for layer in self.trunk:
            hidden = layer(hidden).relu_()
        if hidden.ndim > 2:
            features = hidden.permute(0, 2, 3, 1).flatten(1, 2)  # [B, positions, channels], free in channels_last
            pooled = self.positions == "pool"
            hidden = mean_and_max(features) if pooled else features.flatten(1)
        hidden = self.combine(hidden)
        return dict(zip(self.outputs, self.output(hidden).split(tuple(self.outputs.values()), 1)))


RESIDUAL_SCALE = 0.3
"""Scale of the initial weights of layers whose output is added to a shortcut, relative to other layers."""


def pass_on(convolution: nn.Conv2d) -> None:
    """Initialise a convolution with no nonlinearity before it: it mixes channels, orthogonally, but not squares.

    This is the delta-orthogonal initialisation of Xiao et al. (2018). With random weights everywhere, a few such layers
    in a row would blur a board until nobody could tell where the player is.
    """
    height, width = convolution.kernel_size
    with torch.no_grad():
        convolution.weight.zero_()
        nn.init.orthogonal_(convolution.weight[:, :, (height - 1) // 2, (width - 1) // 2])
        if convolution.bias is not None:
            convolution.bias.zero_()


def initialise(module: nn.Module) -> None:
    """Initialise weights so that activations keep their scale from layer to layer; layers that are zero stay zero.

    PyTorch's default initialisation shrinks activations at every layer, and a policy on top of such small features
    hardly changes at first.
    """
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear) and layer.weight.any():
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
        if isinstance(layer, ActionLayer):
            nn.init.normal_(layer.action_weight, std=math.sqrt(2 / layer.layer.weight[0].numel()))
    with torch.no_grad():
        for block in module.modules():
            if isinstance(block, ResidualBlock | GlobalBlock | UnrollFunction):
                block.second.weight.mul_(RESIDUAL_SCALE)
