"""Features of whole boards, for values and policies."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from thinker.nn.blocks import GlobalBlock
from thinker.nn.encoder import Architecture
from thinker.nn.pooling import mean_and_max
from thinker.nn.sizes import TilesSize

FEATURES = 128
"""The number of features of a board."""


class BoardFeatures(nn.Module):
    """Boards to `FEATURES` features: a convolution and residual blocks, then a readout.

    The readout sees the mean and the maximum of the planes over the board, and the planes at the player's square, if
    the environment declares which observation planes mark it: what to do next depends on what is near the player.
    """

    def __init__(self, architecture: Architecture, player_planes: tuple[int, ...] | None) -> None:
        super().__init__()
        layers, size = architecture.layers, architecture.size
        assert isinstance(size, TilesSize)
        channels = layers.channels
        self.player_planes = player_planes
        self.encoder = layers.layer(architecture.codec.state_shape[0], channels)
        self.blocks = nn.Sequential(*(GlobalBlock(layers, channels) for _ in range(size.blocks)))
        self.combine = nn.Linear((2 if player_planes is None else 3) * channels, FEATURES)

    def features(self, state: Tensor) -> Tensor:
        """Boards [B, *state_shape] to [B, FEATURES], activated."""
        state = state.to(self.combine.weight.dtype)
        x = self.blocks(self.encoder(state)).relu_().permute(0, 2, 3, 1).flatten(1, 2)  # [B, squares, channels]
        parts = [mean_and_max(x)]
        if self.player_planes is not None:
            player = torch.stack([state[:, plane] for plane in self.player_planes]).sum(0)  # [B, height, width]
            parts.append((player.flatten(1).unsqueeze(1) @ x).squeeze(1))
        return self.combine(torch.cat(parts, 1)).relu_()
