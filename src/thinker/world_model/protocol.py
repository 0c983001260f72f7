"""What the augmented MDP needs of a world model, and nothing more (the paper's section 4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from torch import Tensor

from thinker.world_model.transition import RealTransition

EPISODE_START = -1
"""`last_action` where an episode has just begun, so that no action led to the observation."""


@dataclass(frozen=True)
class NodeOutput:
    """What a world model says of B nodes of the search trees."""

    hidden: Tensor  # [B, *hidden_shape]
    value: Tensor  # [B]
    policy: Tensor  # [B, A]  probabilities
    reward: Tensor  # [B]     zeros from root()
    termination: Tensor  # [B]     probability that the episode ends on reaching this node; zeros from root()
    state: Tensor | None  # [B, *observation_shape] predicted state (the real one at the root)


@runtime_checkable
class WorldModel(Protocol):
    """A deterministic model of the real MDP with a base policy and its value.

    B is the number of nodes asked for; it may be any size and change from call to call. Two optional members are
    used where they exist:

    * ``hidden_shape``: the shape of one observed hidden state. Without it, ``root`` is asked once with a zero
      observation to find out.
    * ``observe_hidden(hidden) -> Tensor``: what of the hidden state the agent sees, for models whose hidden state
      carries more than the agent should be shown. Without it the agent sees all of it.
    """

    @property
    def num_actions(self) -> int: ...

    def root(self, observation: Tensor, last_action: Tensor) -> NodeOutput:
        """Begin a search at real observations [B, *observation_shape], reached by ``last_action`` [B].

        ``last_action`` is `EPISODE_START` where an episode has just begun. At a stage's start the rows are all real
        environments in order. The final observations of episodes that have just ended are asked for in a call of
        their own; those nodes are never unrolled.
        """
        ...

    def unroll(self, hidden: Tensor, action: Tensor) -> NodeOutput:
        """Imagine ``action`` [B] in each of the nodes ``hidden`` [B, *hidden_shape]."""
        ...


class Learner(Protocol):
    """Whoever learns from the real steps: told of each one before the model is asked for the next root."""

    def observe(self, transition: RealTransition) -> object:
        """Take in one real step of all environments, and train if training is due."""
        ...

    def abandon(self) -> None:
        """All episodes under way were cut off by a reset of the environments."""
        ...
