"""What all planners share: their settings and what a search returns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
import torch

from thinker.augmented import ThinkerEnv
from thinker.errors import UserError
from thinker.interfaces import NodeOutput, WorldModel

if TYPE_CHECKING:
    from thinker.planners.agent import PlannerAgent


@dataclass(frozen=True)
class SearchTree:
    """The nodes of B searches, in the order of their expansion; node 0 is the root."""

    parent: np.ndarray  # [B, N] int32     NO_NODE (-1) for the root, and for nodes that do not exist
    action: np.ndarray  # [B, N] int32     the action into the node; NO_ACTION (-1) likewise
    depth: np.ndarray  # [B, N] int32
    visits: np.ndarray  # [B, N] int32     including the node's own expansion; 0 for nodes that do not exist
    reward: np.ndarray  # [B, N] float32   on reaching the node
    value: np.ndarray  # [B, N] float32   the model's value of the node; 0 where ended
    mean_return: np.ndarray  # [B, N] float32   the search's value of the node, without the reward on reaching it
    policy: np.ndarray  # [B, N, A] float32  the base policy of the node
    ended: np.ndarray  # [B, N] bool      whether the model predicts that the episode ends on reaching the node
    state: np.ndarray | None = None  # [B, N, *observation_shape]  predicted states; None if they were not kept


@dataclass(frozen=True)
class SearchResult:
    """What a search found out about B roots."""

    action: np.ndarray  # [B] int64        the chosen action
    policy: np.ndarray  # [B, A] float32   the improved policy, a target for the base policy
    value: np.ndarray  # [B] float32      the value of the root after the search
    visits: np.ndarray  # [B, A] int32     of the root's children
    q: np.ndarray  # [B, A] float32   their values: reward plus discounted value; 0 where not visited
    simulations: int  # for each root
    tree: SearchTree


class PlannerSpec(ABC):
    """The settings of a planner, a frozen dataclass. It is an `AgentSpec`: a run can be trained with it."""

    unroll_stages: int = 8  # real steps between two updates of the model in training

    @abstractmethod
    def search(
        self,
        model: WorldModel,
        root: NodeOutput,
        *,
        discount: float,
        random: np.random.Generator,
        greedy: bool = False,
        exploring: bool = False,
        progress: float = 0.0,
        keep_states: bool = False,
    ) -> SearchResult:
        """Search from ``root``, the result of ``model.root``, for all B rows at once.

        Args:
            model: the world model to search in.
            root: its predictions for the roots.
            discount: γ of the real MDP.
            random: draws noise, ties and actions.
            greedy: choose the best actions instead of sampling.
            exploring: in training: with exploration noise, and a temperature that depends on ``progress``.
            progress: the completed fraction (0 .. 1) of the training run.
            keep_states: keep the predicted states in the result's tree, for looking at plans.
        """

    def rollout_ends(self, tree: SearchTree, row: int) -> np.ndarray:
        """The nodes of search ``row`` at which its rollouts ended, in order; the path to each is the rollout.

        For looking at plans. Here every new node ends a rollout.
        """
        return np.flatnonzero(tree.visits[row, 1:]) + 1

    def acts_in(self) -> Literal["augmented", "raw", "raw-with-model"]:
        """With real steps only: planners have a search tree of their own."""
        return "raw-with-model"

    def build(self, env: ThinkerEnv, *, seed: int, device: torch.device) -> PlannerAgent:
        """An agent that acts by searching; all that it learns is the world model."""
        from thinker.planners.agent import PlannerAgent

        return PlannerAgent(self)


def random_generator(seed: int) -> np.random.Generator:
    """The generator of a planner's draws: not the same stream as that of an environment with the same ``seed``."""
    return np.random.default_rng((0x9A77E2, seed))


Spec = TypeVar("Spec", bound=PlannerSpec)


def make_spec(kind: Callable[..., Spec], settings: dict[str, Any]) -> Spec:
    """A spec of type ``kind`` with ``settings`` by name; raises an error that lists the names if one is unknown."""
    known = list(getattr(kind, "__dataclass_fields__", {}))
    for name in settings:
        if name not in known:
            raise UserError(f"there is no setting {name!r}; known are {', '.join(known)}")
    return kind(**settings)


def check_at_least(spec: PlannerSpec, name: str, least: float) -> None:
    """Raise an error if the setting ``name`` is not a finite number of at least ``least``."""
    value = getattr(spec, name)
    if isinstance(least, int) and (isinstance(value, bool) or not isinstance(value, int | np.integer)):
        raise UserError(f"{name} is {value!r}; it must be an integer of at least {least}")
    if not (np.isfinite(value) and value >= least):
        raise UserError(f"{name} is {value!r}; it must be at least {least}")


def check_max_depth(max_depth: int | None) -> None:
    """Raise an error for an invalid maximum depth."""
    if max_depth is not None and (
        isinstance(max_depth, bool) or not isinstance(max_depth, int | np.integer) or max_depth < 1
    ):
        raise UserError(f"max_depth is {max_depth!r}; it must be an integer of at least 1, or None for no limit")
