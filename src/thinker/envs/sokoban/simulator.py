"""Sokoban's rules as a perfect world model (the paper's appendix H). It is stateless: the board is the hidden state."""

from __future__ import annotations

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from thinker.envs.sokoban import engine
from thinker.envs.sokoban.rendering import observation_sprites
from thinker.errors import UnsupportedError
from thinker.interfaces import NodeOutput, PolicyAndValue


class SokobanSimulator:
    """A `WorldModel` of ``thinker/Sokoban-v0``, on the CPU.

    Hidden states are the boards, uint8 [B, H, W]; agents see them as one-hot planes [B, 7, H, W]. The step limit is
    ignored: an imagined episode ends only when its level is solved.
    """

    num_actions = engine.NUM_ACTIONS
    device = torch.device("cpu")

    def __init__(self, observation_space: spaces.Box, policy_and_value: PolicyAndValue | None = None) -> None:
        """A simulator for observations in ``observation_space``, tiles or rgb.

        ``policy_and_value`` receives tensors on the CPU. Without it the policy is uniform and all values are 0.
        """
        shape = observation_space.shape
        self._sprites = observation_sprites("tiles" if shape[:1] == (engine.NUM_TILES,) else "rgb")  # [7, C, P, P]
        channels, pixels = self._sprites.shape[1:3]
        if len(shape) != 3 or shape[0] != channels or shape[1] % pixels or shape[2] % pixels:
            raise UnsupportedError(f"{observation_space} is not an observation space of thinker/Sokoban-v0")
        self._board_shape = (shape[1] // pixels, shape[2] // pixels)
        self.hidden_shape = (engine.NUM_TILES, *self._board_shape)
        self._policy_and_value = policy_and_value or _uniform
        # One number per sprite is enough to distinguish them.
        weights = np.random.default_rng(0).integers(1, 2**31, self._sprites[0].size)
        self._weights = weights.reshape(self._sprites.shape[1:])
        self._sprite_keys = (self._sprites * self._weights).sum((1, 2, 3))  # [7]

    def root(self, observation: Tensor, last_action: Tensor) -> NodeOutput:
        """Read the boards from real observations [B, *observation_shape]."""
        zeros = torch.zeros(len(observation))
        return self._output(self._read(observation.numpy()), observation, last_action, zeros, zeros)

    def unroll(self, hidden: Tensor, action: Tensor) -> NodeOutput:
        """Play ``action`` [B] on boards uint8 [B, H, W]."""
        boards = hidden.numpy().copy()
        count, channels, pixels = len(boards), *self._sprites.shape[1:3]
        reward, solved = np.empty(count, np.float32), np.empty(count, np.bool_)
        engine.step_boards(boards, action.numpy(), reward, solved)
        height, width = self._board_shape
        pictures = np.empty((count, channels, height * pixels, width * pixels), np.uint8)
        engine.draw_boards(boards, self._sprites, pictures)
        termination = torch.from_numpy(solved).float()
        return self._output(boards, torch.from_numpy(pictures), action, torch.from_numpy(reward), termination)

    def visible_hidden(self, hidden: Tensor) -> Tensor:
        """The boards [B, H, W] as one-hot planes [B, 7, H, W]."""
        planes = torch.nn.functional.one_hot(hidden.long(), engine.NUM_TILES)
        return planes.permute(0, 3, 1, 2).contiguous()

    def _output(
        self, boards: np.ndarray, state: Tensor, last_action: Tensor, reward: Tensor, termination: Tensor
    ) -> NodeOutput:
        policy, value = self._policy_and_value(state, last_action)
        hidden = torch.from_numpy(boards)
        return NodeOutput(hidden, value.to(self.device), policy.to(self.device), reward, termination, state)

    def _read(self, observation: np.ndarray) -> np.ndarray:
        """Tile codes [B, H, W] of observations [B, C, H * P, W * P]."""
        if observation.shape[1] == engine.NUM_TILES:
            return observation.argmax(1).astype(np.uint8)
        height, width = self._board_shape
        channels, pixels = self._sprites.shape[1:3]
        squares = observation.reshape(-1, channels, height, pixels, width, pixels)
        keys = np.einsum("bcyixj,cij->byx", squares, self._weights)
        return (keys[..., None] == self._sprite_keys).argmax(-1).astype(np.uint8)


def _uniform(observation: Tensor, last_action: Tensor) -> tuple[Tensor, Tensor]:
    count = len(observation)
    return torch.full((count, engine.NUM_ACTIONS), 1 / engine.NUM_ACTIONS), torch.zeros(count)
