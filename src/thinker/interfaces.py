"""The interfaces between Thinker's packages: world models, actors, and real transitions to learn from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

if TYPE_CHECKING:  # environments describe themselves with this module and do not need PyTorch
    from torch import Tensor

NO_ACTION = -1
"""Placeholder for a last action that does not exist: an episode has just started, or no imaginary step was taken."""

# ------------------------------------------------------------------------------------------------ world models


@dataclass(frozen=True)
class NodeOutput:
    """What a world model predicts for B nodes of the search trees."""

    hidden: Tensor  # [B, *hidden_shape]
    value: Tensor  # [B]
    policy: Tensor  # [B, A]  probabilities
    reward: Tensor  # [B]     zeros from root()
    termination: Tensor  # [B]     probability that the episode ends on reaching this node; zeros from root()
    state: Tensor | None  # [B, *observation_shape] predicted state (the real one at the root)


@runtime_checkable
class WorldModel(Protocol):
    """A deterministic model of the real MDP with a base policy and its value.

    B is the number of nodes in a call; it may be any size and change from call to call. Three members are optional:

    * ``device``: where the model computes (default: the CPU). Its inputs are moved there.
    * ``hidden_shape``: the shape of one visible hidden state. Without it, ``root`` is called once with a zero
      observation to find out.
    * ``visible_hidden(hidden) -> Tensor``: the part of the hidden state that agents see, for models whose hidden state
      holds more than that. Without it, agents see all of it.
    """

    @property
    def num_actions(self) -> int: ...

    def root(self, observation: Tensor, last_action: Tensor) -> NodeOutput:
        """Start a search at real observations [B, *observation_shape], reached by ``last_action`` [B].

        ``last_action`` is `NO_ACTION` where an episode has just started. At the start of a stage the rows are all real
        environments in order. The final observations of episodes that have just ended are passed in a separate call;
        those nodes are never unrolled.
        """
        ...

    def unroll(self, hidden: Tensor, action: Tensor) -> NodeOutput:
        """Imagine ``action`` [B] in each of the nodes ``hidden`` [B, *hidden_shape]."""
        ...


PolicyAndValue = Callable[["Tensor", "Tensor"], "tuple[Tensor, Tensor]"]
"""(observation [B, *observation_shape], last action [B]) -> base policy [B, A] as probabilities, its value [B]."""


@runtime_checkable
class OffersSimulator(Protocol):
    """An environment with its own fast perfect model, used instead of the generic simulator."""

    def simulator(self, policy_and_value: PolicyAndValue | None = None) -> WorldModel:
        """The real dynamics as a world model; without ``policy_and_value`` the policy is uniform and values are 0."""
        ...


# -------------------------------------------------------------------------------------------------------- boards


@dataclass(frozen=True)
class BoardStructure:
    """What is known in advance of observations that are planes over a board, [C, H, W] or [H, W, C].

    Environments declare it in ``metadata["board"]``. Turning or mirroring the board, and the actions with it, must give
    the same environment: the same rewards, the same ends of episodes, the turned or mirrored next observation.
    """

    border: tuple[int, ...] | None
    """The C planes of every square of the outermost ring, if they never change; None if they may."""
    turned_actions: tuple[int, ...] | None
    """Action a becomes ``turned_actions[a]`` when the board is turned like torch.rot90(board, 1, (rows, columns)).

    None if the environment changes when it is turned.
    """
    mirrored_actions: tuple[int, ...] | None
    """Action a becomes ``mirrored_actions[a]`` when left and right are swapped, as by torch.flip over the columns.

    None if the environment changes when it is mirrored.
    """
    player_planes: tuple[int, ...] | None = None
    """The planes that mark the one square from which actions are taken; None if there is no such square."""


# ---------------------------------------------------------------------------------------------- real transitions


@dataclass(frozen=True)
class RealTransition:
    """One real step of all E environments. The receiver may keep the arrays: they are not reused."""

    observation: np.ndarray  # [E, *observation_shape]  s_t, in the environment's own dtype
    action: np.ndarray  # [E] int64                 a_t, 0 .. A-1
    policy: np.ndarray | None  # [E, A] float32     the base policy's target, if given: the agent's distribution of a_t
    root_value: np.ndarray  # [E] float32           the search's value of s_t: the root's mean return, if none is given
    reward: np.ndarray  # [E] float32               r_{t+1}
    terminated: np.ndarray  # [E] bool              d_{t+1}
    truncated: np.ndarray  # [E] bool
    next_observation: np.ndarray  # [E, *observation_shape]  s_{t+1}; the episode's final one where it ended
    final_value: np.ndarray  # [E] float32          the model's root value of s_{t+1} where the episode ended, else 0
    valid: np.ndarray  # [E] bool                   False where no real transition took place (a waiting row)
    random_play: bool = False  # actions were random, not an agent's: teaches states, rewards and terminations only


class TransitionSink(Protocol):
    """Receives every real step of a `ThinkerEnv`, before the model evaluates the next root."""

    def add(self, transition: RealTransition) -> object:
        """Receive one real step of all environments."""
        ...

    def abandon_episodes(self) -> None:
        """Called when a reset of the environments cuts off all running episodes."""
        ...


# -------------------------------------------------------------------------------------------------------- actors


@dataclass(frozen=True)
class Decision:
    """What an actor does next in every environment."""

    actions: Tensor  # [E, 2] int64     primary action, reset action: what ThinkerEnv.step takes
    policy: Tensor | None = None  # [E, A] float32    probabilities of the primary action: a target for the base policy
    reset_probability: Tensor | None = None  # [E] float32
    log_prob: Tensor | None = None  # [E, 2] float32    of both actions, if the actor can learn from them
    value: Tensor | None = None  # [E, R] float32    the actor's value estimate for each kind of reward
    root_value: Tensor | None = None  # [E] float32   the real states' values, if the actor searched outside of the tree


class Actor(Protocol):
    """Chooses actions in a `ThinkerEnv`: learned agents, the base policy, planners.

    ```python
    actor.begin(*env.reset(seed=0))
    while True:
        decision = actor.act()
        actor.observe(decision, *env.step(decision.actions, decision.policy, decision.root_value))
    ```
    """

    def begin(self, observation: dict[str, Tensor], info: dict[str, Any]) -> None:
        """Receive the result of ``env.reset`` and clear all memory."""
        ...

    def act(self) -> Decision:
        """Choose the next augmented step of all environments."""
        ...

    def observe(
        self,
        decision: Decision,
        observation: dict[str, Tensor],
        reward: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
        info: dict[str, Any],
    ) -> None:
        """Receive the result of ``env.step`` after ``decision``."""
        ...

    def refresh(self, observation: dict[str, Tensor]) -> None:
        """Receive the result of ``env.refresh``: the same step, observed with a model that has been trained since."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Everything that later decisions depend on, except for weights."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state of `state_dict`."""
        ...


@runtime_checkable
class TrainingActor(Protocol):
    """An actor that acts differently in training, for instance with exploration noise."""

    def begin_unroll(self, progress: float) -> None:
        """Called in training before every unroll, and never outside of it.

        ``progress``, 0 .. 1, is the fraction of the run completed.
        """
        ...
