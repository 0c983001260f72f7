"""The network of a learned agent, as seen by actor and learner: inputs and memory to policies and values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from gymnasium import spaces
from torch import Tensor, nn

from thinker.augmented import Layout, ThinkerEnv
from thinker.errors import UserError
from thinker.nn.lstm_attention import Memory
from thinker.nn.seeding import seeded

if TYPE_CHECKING:
    from thinker.agents.trajectory import Unroll

LAST_REAL, LAST_IMAGINARY, LAST_RESET = 0, 1, 2
"""Columns of `AgentInput.last_action`."""
INITIAL_HEAD_SCALE = 0.01
"""Scale of the final layer's initial weights: new agents start with nearly uniform policies and values near 0."""


@dataclass(frozen=True)
class AgentInput:
    """The input of an agent's network. Leading dimensions: [E], or [T, B] in a trajectory."""

    observation: dict[str, Tensor]  # [..., *shape]
    episode_start: Tensor  # [...] bool         the first step of an episode
    next_is_real: Tensor  # [...] bool          the next action is a real one
    last_action: Tensor  # [..., 3] int64       real, imaginary, reset; NO_ACTION where there was none in this
    #                                           episode (real) or in this stage (imaginary, reset)
    last_reward: Tensor  # [..., R] float32     one column per kind of reward

    def map(self, change: Callable[[Tensor], Tensor]) -> AgentInput:
        """The same with ``change`` applied to every tensor."""
        return AgentInput(
            {key: change(value) for key, value in self.observation.items()},
            change(self.episode_start),
            change(self.next_is_real),
            change(self.last_action),
            change(self.last_reward),
        )


@dataclass(frozen=True)
class AgentOutput:
    """The output of an agent's network, with the leading dimensions of its input."""

    logits: Tensor  # [..., A]  of the next action, real or imaginary
    reset_logits: Tensor  # [..., 2]  zeros for agents that do not search
    value: Tensor  # [..., R]  for each kind of reward
    features: Tensor  # [..., F]  the final layer's input
    auxiliary: dict[str, Tensor] = field(default_factory=dict)  # [..., *]  for the network's own `auxiliary_losses`


class AgentNetwork(nn.Module, ABC):
    """The network of an agent.

    Subclasses must set:

    * ``num_actions``: A.
    * ``observes``: the keys of the observations that the network needs, as in ``ThinkerEnv(observe=...)``.
    * ``reward_names``: the kinds of reward it predicts values for: "real", and "planning" if it learns from that too.
    * ``layout``: of the tree representation it was built for; None if it does not see the tree.

    The final layer should be `Heads`, so that learning does not depend on the scale of the rewards.
    """

    num_actions: int
    observes: tuple[str, ...]
    reward_names: tuple[str, ...]
    layout: Layout | None = None

    def initial_memory(self, batch: int) -> Memory:
        """The initial memory for ``batch`` environments."""
        return {}

    @abstractmethod
    def forward(self, given: AgentInput, memory: Memory) -> tuple[AgentOutput, Memory]:
        """Inputs [T, B, ...] of consecutive steps, and the memory [B, ...] before the first one.

        Returns the outputs [T, B, ...] and the memory after the last step. Where ``given.episode_start`` is set, the
        output must not depend on earlier steps.
        """

    def auxiliary_losses(self, unroll: Unroll, output: AgentOutput) -> dict[str, Tensor]:
        """Losses [T, B] of each step beside those of the actor-critic, by name; none by default.

        ``output`` [T + 1, B, ...] is what `forward` returned for ``unroll.given``. The learner reduces these losses
        like its own and multiplies them by the settings' ``auxiliary_scales()``, which must have the same names.
        """
        return {}

    @torch.no_grad()
    def update_scales(self, given: AgentInput) -> None:
        """Update the running scales of the inputs, if any, from a trajectory [T, B, ...]."""

    def set_value_unit(self, unit: Tensor) -> None:
        """From now on, let the weights of all `Heads` predict values as multiples of ``unit`` [R]."""
        for module in self.modules():
            if isinstance(module, Heads):
                module.set_value_unit(unit)

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device


class FinalLayer(nn.Linear):
    """A linear layer whose outputs are near 0 at first."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs)
        with torch.no_grad():
            self.weight.mul_(INITIAL_HEAD_SCALE)
            self.bias.zero_()


class Heads(FinalLayer):
    """One linear layer for all heads of an actor-critic; the last one predicts the values.

    The weights predict values as multiples of a unit, for which the learner takes the size of the advantages. A
    gradient step is then equally large for all scales of rewards: with rewards a hundredth as large, each step would
    otherwise move the values by much more than they differ between states.

    Args:
        inputs: the number of features.
        sizes: the number of outputs of each head; of the last one R, the kinds of reward.
    """

    value_unit: Tensor

    def __init__(self, inputs: int, sizes: tuple[int, ...]) -> None:
        super().__init__(inputs, sum(sizes))
        self.sizes = sizes
        self.register_buffer("value_unit", torch.ones(sizes[-1]))

    def forward(self, input: Tensor) -> tuple[Tensor, ...]:  # type: ignore[override]
        """``input`` [..., inputs] to the outputs of each head, [..., size]."""
        *logits, value = super().forward(input).split(self.sizes, -1)
        return *logits, value * self.value_unit

    @torch.no_grad()
    def set_value_unit(self, unit: Tensor) -> None:
        """Change the unit [R]; the values stay what they are."""
        ratio = self.value_unit / unit
        self.weight[-len(unit) :].mul_(ratio.unsqueeze(1))
        self.bias[-len(unit) :].mul_(ratio)
        self.value_unit.copy_(unit)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        # Weights saved by earlier versions have no unit.
        state_dict.setdefault(prefix + "value_unit", torch.ones_like(self.value_unit))
        super()._load_from_state_dict(state_dict, prefix, *rest)


def build_seeded(make: Callable[[], AgentNetwork], seed: int, device: torch.device) -> AgentNetwork:
    """A network whose weights depend only on ``seed``; the global random state is not changed."""
    with seeded(seed):
        network = make()
    return network.to(device)


def observation_spaces(env: ThinkerEnv) -> dict[str, spaces.Box]:
    """The observation space of a single environment of ``env`` for each key."""
    found = {}
    for key, space in env.single_observation_space.spaces.items():  # type: ignore[attr-defined]  # a Dict of Boxes
        if not isinstance(space, spaces.Box):
            raise UserError(f"the observation {key!r} is a {space}; agents take observations of type Box")
        found[key] = space
    return found


def real_state_space(env: ThinkerEnv) -> spaces.Box:
    """The space of the real state, for agents that see nothing else of ``env``."""
    seen = observation_spaces(env)
    if tuple(seen) != ("real_state",):
        raise UserError(
            f"this agent sees only the real state, but the environment shows {', '.join(seen)}; create the environment "
            f"with observe=('real_state',)"
        )
    return seen["real_state"]
