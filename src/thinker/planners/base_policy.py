"""The base policy of the world model as an actor, without search; and random play."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from thinker.augmented import ROOT, ThinkerEnv
from thinker.interfaces import Decision


class BasePolicy:
    """Samples real actions from the base policy of the root. Imaginary steps, if any, follow the base policy as well.

    Args:
        env: the environments to act in; with ``stage_length=1`` there are no imaginary steps.
        seed: of the generator that samples actions.
        greedy: take the most likely actions instead of sampling.
    """

    def __init__(self, env: ThinkerEnv, *, seed: int = 0, greedy: bool = False) -> None:
        self._env = env
        self._greedy = greedy
        self._next_is_real = np.zeros(env.num_envs, bool)
        self._generator = torch.Generator().manual_seed(seed)

    def begin(self, observation: dict[str, Tensor], info: dict[str, Any]) -> None:
        """See `Actor`."""
        self._next_is_real = info["next_is_real"]

    def act(self) -> Decision:
        """See `Actor`."""
        tree = self._env.search_tree()
        node = np.where(self._next_is_real, ROOT, tree.position)
        policy = torch.from_numpy(tree.policy[np.arange(len(node)), node])
        if self._greedy:
            action = policy.argmax(1, keepdim=True)
        else:
            action = torch.multinomial(policy, 1, generator=self._generator)
        return Decision(torch.cat((action, torch.zeros_like(action)), 1), policy)

    def observe(
        self,
        decision: Decision,
        observation: dict[str, Tensor],
        reward: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
        info: dict[str, Any],
    ) -> None:
        """See `Actor`."""
        self._next_is_real = info["next_is_real"]

    def refresh(self, observation: dict[str, Tensor]) -> None:
        """See `Actor`: the policy is read from the tree when it is needed."""

    def state_dict(self) -> dict[str, Any]:
        """See `Actor`."""
        return {"generator": self._generator.get_state(), "next_is_real": self._next_is_real}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See `Actor`."""
        self._generator.set_state(state["generator"])
        self._next_is_real = state["next_is_real"]


class RandomPlay(BasePolicy):
    """Takes every action with the same probability: what scores of agents are compared with."""

    def act(self) -> Decision:
        """See `Actor`."""
        env = self._env
        action = torch.randint(env.num_actions, (env.num_envs, 1), generator=self._generator)
        policy = torch.full((env.num_envs, env.num_actions), 1 / env.num_actions)
        return Decision(torch.cat((action, torch.zeros_like(action)), 1), policy)
