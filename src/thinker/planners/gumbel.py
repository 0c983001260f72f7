"""Gumbel MuZero's search: sequential halving at the root, completed Q values, an improved policy as target."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from thinker.augmented import ROOT, ThinkerEnv
from thinker.interfaces import NodeOutput, WorldModel
from thinker.planners import selection
from thinker.planners.actor import PlannerActor
from thinker.planners.mcts import UNLIMITED
from thinker.planners.planner import PlannerSpec, SearchResult, check_at_least, check_max_depth, make_spec
from thinker.planners.tree_search import TreeSearch


@dataclass(frozen=True)
class GumbelMCTSSpec(PlannerSpec):
    """Tree search with a policy improvement for any number of simulations, as mctx's ``gumbel_muzero_policy``.

    The improved policy is softmax(logits + σ(completed Q)). The action is the best of the most visited ones by Gumbel
    noise plus logit plus σ(q); the greedy choice has no noise. There is no other exploration.
    """

    simulations: int = 50  # per real step; each evaluates at most one new node
    max_depth: int | None = None  # of the tree; None for no limit
    considered_actions: int = 16  # maximum number of actions that are tried at the root
    gumbel_scale: float = 1.0  # of the noise at the root
    value_scale: float = 0.1  # of σ(q) = value_scale (visit_offset + largest number of visits) q
    visit_offset: float = 50.0  # in σ(q)
    unroll_stages: int = 8  # real steps between two updates of the model in training

    def __post_init__(self) -> None:
        for name in ("simulations", "considered_actions", "unroll_stages"):
            check_at_least(self, name, 1)
        check_max_depth(self.max_depth)
        for name in ("gumbel_scale", "value_scale", "visit_offset"):
            check_at_least(self, name, 0.0)

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
        """See `PlannerSpec`."""
        search = TreeSearch(model, root, simulations=self.simulations, discount=discount, keep_states=keep_states)
        shape = search.batch, search.num_actions
        logits = np.log(np.maximum(search.tree.policy[:, ROOT], selection.SMALLEST_PROBABILITY).astype(np.float64))
        perturbed = logits - logits.max(1, keepdims=True)
        if not greedy:
            perturbed += self.gumbel_scale * random.gumbel(size=shape)
        considered = considered_visits(min(self.considered_actions, search.num_actions), self.simulations)
        max_depth = UNLIMITED if self.max_depth is None else self.max_depth
        scratch = np.empty(search.num_actions)

        def select(simulation: int) -> int:
            return selection.select_by_gumbel(
                search.tree, search.leaves, perturbed, considered[simulation], search.rows_used, max_depth,
                self.value_scale, self.visit_offset, scratch,
            )  # fmt: skip

        search.run(select)
        action, improved = np.empty(search.batch, np.int64), np.empty(shape)
        selection.gumbel_decision(search.tree, perturbed, self.value_scale, self.visit_offset, action, improved)
        return search.result(action, improved)


class GumbelMCTS(PlannerActor):
    """Gumbel MuZero's search as an actor; ``settings`` are those of `GumbelMCTSSpec`, see also `PlannerActor`."""

    def __init__(
        self, env: ThinkerEnv, *, seed: int = 0, greedy: bool = False, keep_states: bool = False, **settings: Any
    ) -> None:
        super().__init__(env, make_spec(GumbelMCTSSpec, settings), seed=seed, greedy=greedy, keep_states=keep_states)


def considered_visits(num_actions: int, simulations: int) -> list[int]:
    """Sequential halving: how often the action that simulation 0, 1, … tries at the root has been visited before.

    In every phase the actions still considered are visited equally often; then the better half of them stays, but never
    fewer than two. The phases share the simulations equally.
    """
    if num_actions == 1:
        return list(range(simulations))
    phases = math.ceil(math.log2(num_actions))
    schedule: list[int] = []
    visits, considered = 0, num_actions
    while len(schedule) < simulations:
        for _ in range(max(1, simulations // (phases * considered))):
            schedule += [visits] * considered
            visits += 1
        considered = max(2, considered // 2)
    return schedule[:simulations]
