"""The raw MDP as the simplest augmented one: stages of one step, nothing imagined, only the real state to see.

The paper's baseline so runs through the same code as the agent that plans.
"""

from __future__ import annotations

import torch
from gymnasium import spaces
from gymnasium.vector import VectorEnv
from torch import Tensor

from thinker.augmented import ThinkerEnv
from thinker.world_model.protocol import NodeOutput


class NoModel:
    """A world model that knows nothing and is never unrolled."""

    def __init__(self, num_actions: int) -> None:
        self.num_actions = num_actions
        self.hidden_shape = (1,)

    def root(self, observation: Tensor, last_action: Tensor) -> NodeOutput:
        zeros = torch.zeros(len(observation))
        policy = torch.full((len(observation), self.num_actions), 1 / self.num_actions)
        return NodeOutput(zeros.unsqueeze(1), zeros, policy, zeros, zeros, None)

    def unroll(self, hidden: Tensor, action: Tensor) -> NodeOutput:
        raise RuntimeError("a stage of one step has nothing to unroll; use a world model for longer stages")


def raw_env(envs: VectorEnv, *, discount: float = 0.97, seed: int | None = None) -> ThinkerEnv:
    """``envs`` as they are, in the form that agents act in."""
    space = envs.single_action_space
    if not isinstance(space, spaces.Discrete):
        raise TypeError(f"the agents act in Discrete action spaces, not {space}; discretise the actions with a wrapper")
    return ThinkerEnv(
        envs, NoModel(int(space.n)), stage_length=1, discount=discount, observe=("real_state",), seed=seed
    )
