"""Exhaustive search: all sequences of n actions (the paper's appendix H)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from thinker.augmented import ThinkerEnv
from thinker.errors import UserError
from thinker.interfaces import NodeOutput, WorldModel
from thinker.planners.actor import PlannerActor
from thinker.planners.planner import PlannerSpec, SearchResult, SearchTree, check_at_least, make_spec
from thinker.planners.rollouts import CheckedModel, Expanded, best_action

_MOST_NODES = 20_000_000
"""In all trees of one search: about 1 GB."""


@dataclass(frozen=True)
class ExhaustiveSpec(PlannerSpec):
    """All sequences of ``depth`` actions; the real action is the first of the best one.

    A sequence a_1 ... a_n is worth its rollout return r_1 + γ r_2 + ... + γ^(n-1) r_n + γ^n v_n. Where the model
    predicts the end of the episode, the sequence ends there and v is 0. Equally good actions are equally likely; if
    greedy, the first of them is taken. There is no exploration in training.

    The number of simulations is A + A² + ... + A^n for A actions. In the result, ``q`` is the highest rollout return
    of the sequences that start with an action, ``value`` the highest of all, and ``visits`` counts the nodes of a
    subtree. The tree has a place for every sequence, level by level; below predicted ends the places are empty.
    """

    depth: int = 3  # n, actions in a sequence
    nodes_per_call: int = 8_192  # a bound on the batches sent to the model, and so on memory
    unroll_stages: int = 8  # real steps between two updates of the model in training

    def __post_init__(self) -> None:
        for name in ("depth", "nodes_per_call", "unroll_stages"):
            check_at_least(self, name, 1)

    @property
    def max_depth(self) -> int:
        """The depth of the tree."""
        return self.depth

    def num_simulations(self, num_actions: int) -> int:
        """A + A² + ... + A^n."""
        return sum(num_actions**level for level in range(1, self.depth + 1))

    def rollout_ends(self, tree: SearchTree, row: int) -> np.ndarray:
        """See `PlannerSpec`: the ends of all sequences, in the order of their first, second, ... actions."""
        exists = tree.visits[row] > 0
        exists[0] = False
        inner = np.zeros_like(exists)
        inner[tree.parent[row, exists]] = True
        ends = np.flatnonzero(exists & ~inner)
        # The place of a sequence in the last level, or of the first that starts with it, gives its order.
        num_actions, place = tree.policy.shape[2], ends.copy()
        first = sum(num_actions**level for level in range(self.depth))
        for _ in range(self.depth):
            place = np.where(place < first, place * num_actions + 1, place)
        ends_in_order: np.ndarray = ends[np.argsort(place, kind="stable")]
        return ends_in_order

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
        count, num_actions = len(root.hidden), model.num_actions
        simulations = self.num_simulations(num_actions)
        if count * simulations > _MOST_NODES:
            raise UserError(
                f"exhaustive search of depth {self.depth} with {num_actions} actions takes {simulations:,} simulations "
                f"in each of {count:,} environments, but there is room for {_MOST_NODES:,} in all; choose a lower depth"
            )
        checked = CheckedModel(model, root, keep_states=keep_states)
        levels = _Levels(checked, count, self.depth)
        # As many roots at a time as fit into one call with their whole last level.
        at_once = max(1, self.nodes_per_call // num_actions**self.depth)
        for first in range(0, count, at_once):
            rows = np.arange(first, min(first + at_once, count))
            self._expand(checked, levels, rows, root.hidden[first : first + at_once])
        best_return, q = levels.back_up(discount)
        tree = levels.tree(best_return)
        action, policy = best_action(q, np.ones_like(q, bool), random, greedy)
        return SearchResult(
            action=action,
            policy=policy,
            value=best_return[:, 0].astype(np.float32),
            visits=tree.visits[:, 1 : num_actions + 1].copy(),
            q=q.astype(np.float32),
            simulations=simulations,
            tree=tree,
        )

    def _expand(self, model: CheckedModel, levels: _Levels, rows: np.ndarray, hidden: Tensor) -> None:
        """Expand the trees of the searches ``rows`` [n] with the root states ``hidden`` [n, ...], level by level."""
        num_actions = model.num_actions
        row, node = rows, np.zeros(len(rows), np.int64)  # of the nodes whose hidden states are at hand
        for level in range(1, self.depth + 1):
            # The children of all nodes of this level in one batch, or in several if they are too many.
            parent = np.repeat(np.arange(len(row)), num_actions)
            action = np.tile(np.arange(num_actions), len(row))
            child_row, child = row[parent], node[parent] * num_actions + 1 + action
            is_last = level == self.depth
            next_hidden: list[Tensor] = []
            for first in range(0, len(child), self.nodes_per_call):
                part = slice(first, first + self.nodes_per_call)
                index = torch.from_numpy(parent[part]).to(hidden.device)
                new = model.unroll(hidden[index], action[part], child_row[part])
                levels.receive(child_row[part], child[part], new)
                if not is_last:
                    goes_on = torch.from_numpy(np.flatnonzero(~new.ended)).to(new.hidden.device)
                    next_hidden.append(new.hidden[goes_on])
            inner = ~levels.ended[child_row, child]
            if is_last or not inner.any():
                return
            hidden, row, node = torch.cat(next_hidden), child_row[inner], child[inner]


class ExhaustiveSearch(PlannerActor):
    """Acts by exhaustive search before every real step; see `ExhaustiveSpec`.

    Args:
        env: the environments to act in, with ``stage_length=1``.
        seed: of the generator that draws among equally good actions.
        greedy: take the first of equally good actions instead of drawing one.
        keep_states: keep the predicted states in ``result.tree``.
        settings: the fields of `ExhaustiveSpec`.
    """

    def __init__(
        self, env: ThinkerEnv, *, seed: int = 0, greedy: bool = False, keep_states: bool = False, **settings: Any
    ) -> None:
        spec = make_spec(ExhaustiveSpec, settings)
        super().__init__(env, spec, seed=seed, greedy=greedy, keep_states=keep_states)


class _Levels:
    """B trees with a place for every sequence of actions: the child of node i by action a is node i A + 1 + a."""

    def __init__(self, model: CheckedModel, count: int, depth: int) -> None:
        sizes = [model.num_actions**level for level in range(depth + 1)]
        self.first = np.concatenate(([0], np.cumsum(sizes)))  # [depth + 2]  of each level
        nodes = int(self.first[-1])
        self.num_actions, self.depth = model.num_actions, depth
        self.exists = np.zeros((count, nodes), bool)
        self.ended = np.zeros((count, nodes), bool)
        self.reward = np.zeros((count, nodes), np.float32)
        self.value = np.zeros((count, nodes), np.float32)
        self.policy = np.zeros((count, nodes, self.num_actions), np.float32)
        self.state = model.states(nodes)
        self.exists[:, 0], self.value[:, 0], self.policy[:, 0] = True, model.root.value, model.root.policy

    def receive(self, row: np.ndarray, node: np.ndarray, new: Expanded) -> None:
        """Store the predictions for the nodes ``node`` [n] of the trees ``row`` [n]."""
        self.exists[row, node] = True
        self.value[row, node], self.policy[row, node] = new.value, new.policy
        self.reward[row, node], self.ended[row, node] = new.reward, new.ended
        if self.state is not None:
            self.state[row, node] = new.state

    def _children(self, numbers: np.ndarray, level: int) -> np.ndarray:
        """Of all nodes of ``level``: [B, A^level, A] out of ``numbers`` [B, N]."""
        return numbers[:, self.first[level + 1] : self.first[level + 2]].reshape(len(numbers), -1, self.num_actions)

    def back_up(self, discount: float) -> tuple[np.ndarray, np.ndarray]:
        """The highest rollout return of every node [B, N], without its own reward, and of the root's actions [B, A]."""
        best = self.value.astype(np.float64)
        for level in range(self.depth - 1, -1, -1):
            q = self._children(self.reward, level) + discount * self._children(best, level)
            here = slice(self.first[level], self.first[level + 1])
            inner = self.exists[:, here] & ~self.ended[:, here]
            best[:, here] = np.where(inner, q.max(2), best[:, here])
        return best, q[:, 0]

    def tree(self, best_return: np.ndarray) -> SearchTree:
        nodes = self.exists.shape[1]
        visits = self.exists.astype(np.int32)
        for level in range(self.depth - 1, -1, -1):
            visits[:, self.first[level] : self.first[level + 1]] += self._children(visits, level).sum(2, np.int32)
        below = np.arange(nodes) - 1
        parent = np.where(self.exists, below // self.num_actions, -1).astype(np.int32)
        action = np.where(self.exists, below % self.num_actions, -1).astype(np.int32)
        parent[:, 0] = action[:, 0] = -1
        depth = np.repeat(np.arange(self.depth + 1, dtype=np.int32), np.diff(self.first))
        return SearchTree(
            parent=parent,
            action=action,
            depth=np.where(self.exists, depth, 0).astype(np.int32),
            visits=visits,
            reward=self.reward,
            value=self.value,
            mean_return=best_return.astype(np.float32),
            policy=self.policy,
            ended=self.ended,
            state=self.state,
        )
