"""The raw MDP as an augmented MDP with stages of one step and no imaginary steps (the paper's baseline)."""

from __future__ import annotations

import torch
from torch import Tensor

from thinker.interfaces import NodeOutput


class NoModel:
    """A placeholder world model that is never unrolled."""

    hidden_shape = (1,)

    def __init__(self, num_actions: int, device: torch.device) -> None:
        self.num_actions = num_actions
        self.device = device

    def root(self, observation: Tensor, last_action: Tensor) -> NodeOutput:
        """A uniform policy; everything else is 0."""
        zeros = torch.zeros(len(observation), device=self.device)
        policy = torch.full((len(observation), self.num_actions), 1 / self.num_actions, device=self.device)
        return NodeOutput(zeros.unsqueeze(1), zeros, policy, zeros, zeros, None)

    def unroll(self, hidden: Tensor, action: Tensor) -> NodeOutput:
        raise RuntimeError("a stage of one step has nothing to unroll; use a world model for longer stages")
