"""The loop of a tree search: select in all trees, unroll the new nodes in one batch, back up."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from thinker.augmented import ROOT
from thinker.augmented.checks import checked_output, not_finite
from thinker.augmented.rows import Rows
from thinker.errors import UserError
from thinker.interfaces import NodeOutput, WorldModel
from thinker.planners import tree as trees
from thinker.planners.planner import SearchResult, SearchTree

_MOST_SPARE_BYTES = 2**28
_spare = threading.local()
"""``rows``: the storage of the thread's last search for the next one, as memory that is new costs time to touch."""


class TreeSearch:
    """B searches with the same number of simulations, each a tree that grows by at most one node per simulation.

    Args:
        model: the world model to search in.
        root: its predictions for the roots.
        simulations: of each search.
        discount: γ of the real MDP.
        keep_states: keep the predicted states of the nodes.
    """

    def __init__(
        self, model: WorldModel, root: NodeOutput, *, simulations: int, discount: float, keep_states: bool = False
    ) -> None:
        self.batch, self.num_actions, self.simulations = len(root.value), model.num_actions, simulations
        self.tree = trees.make_tree(self.batch, self.num_actions, simulations + 1)
        self.leaves = trees.make_leaves(self.batch)
        self.rows_used = 0
        self._model, self._discount = model, discount
        self._device = getattr(model, "device", root.hidden.device)
        num_rows = self.batch * (simulations + 1)
        self._hidden = _rows(root.hidden, num_rows)
        self._state: Rows | None = None
        if keep_states:
            if root.state is None:
                raise UserError("keep_states is set, but this model does not predict states; leave it out")
            self._state = Rows(root.state, num_rows)
        numbers = self._store(root, trees.plant(self.tree, self.leaves), "root")
        self._check(trees.write_nodes(self.tree, self.leaves, self.batch, *numbers), "root")

    def run(self, select: Callable[[int], int]) -> None:
        """Run all simulations. ``select`` gets the number of the simulation, walks down all trees to ``leaves``, makes
        new nodes for rows from ``rows_used`` on, and returns how many the model must evaluate."""
        leaves = self.leaves
        none = np.empty(0, np.float32)
        no_numbers = none, none, np.empty((0, self.num_actions), np.float32), none
        with torch.no_grad():
            for simulation in range(self.simulations):
                count = select(simulation)
                numbers = no_numbers
                if count:
                    hidden = self._hidden.read(leaves.parent_row[:count])
                    action = torch.from_numpy(leaves.action[:count]).to(self._device)
                    numbers = self._store(self._model.unroll(hidden, action), count, "unroll")
                self._check(trees.finish_simulation(self.tree, leaves, count, *numbers, self._discount), "unroll")
        if self._hidden.num_bytes <= _MOST_SPARE_BYTES:
            _spare.rows = self._hidden

    def result(self, action: np.ndarray, policy: np.ndarray) -> SearchResult:
        """The result of the search with the chosen ``action`` [B] and the improved ``policy`` [B, A]."""
        tree = self.tree
        return SearchResult(
            action=action,
            policy=policy.astype(np.float32),
            value=tree.mean_return[:, ROOT].astype(np.float32),
            visits=tree.edge_visits[:, ROOT].copy(),
            q=tree.q[:, ROOT].astype(np.float32),
            simulations=self.simulations,
            tree=SearchTree(
                parent=tree.parent,
                action=tree.action,
                depth=tree.depth,
                visits=tree.visits,
                reward=tree.reward.astype(np.float32),
                value=tree.value.astype(np.float32),
                mean_return=tree.mean_return.astype(np.float32),
                policy=tree.policy,
                ended=tree.ended,
                state=self._states(),
            ),
        )

    def _store(
        self, output: NodeOutput, count: int, call: str
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Check the shapes of the model's predictions for the first ``count`` leaves and store hidden states.

        Returns reward, value, policy and termination as float32.
        """
        state_shape = () if output.state is None else tuple(output.state.shape[1:])
        if self._state is not None:
            if output.state is None:
                raise UserError(
                    f"the model's {call}() predicted no states, but its root() did; it must do both or none"
                )
            state_shape = tuple(self._state.shape)
        value, policy, reward, termination = checked_output(
            output, count, self.num_actions, self._hidden.shape, state_shape, call
        )
        self._hidden.write_from(self.rows_used, output.hidden)
        if self._state is not None and output.state is not None:
            self._state.write_from(self.rows_used, output.state)
        self.rows_used += count
        return reward, value, policy, termination

    def _check(self, found: tuple[int, int], call: str) -> None:
        """Raise an error if a kernel ``found`` something wrong with the model's predictions."""
        problem, where = found
        if problem == trees.NOT_FINITE:
            raise not_finite(call, where)
        if problem == trees.NOT_A_POLICY:
            node = self.tree.policy[where, self.leaves.node[where]]
            raise UserError(
                f"the model's {call}() returned the policy {node.tolist()} for environment {where}; it must contain "
                f"probabilities that sum to 1, not logits"
            )

    def _states(self) -> np.ndarray | None:
        """The predicted states [B, N, ...]; zeros for nodes that do not exist."""
        if self._state is None:
            return None
        states = self._state.read(self.tree.row.ravel()).cpu().numpy()
        states = states.reshape(*self.tree.row.shape, *states.shape[1:])
        states[self.tree.visits == 0] = 0
        return states


def _rows(like: Tensor, num_rows: int) -> Rows:
    """Storage for ``num_rows`` rows like those of ``like`` [B, ...]; what is in them is not defined."""
    spare: Rows | None = getattr(_spare, "rows", None)
    _spare.rows = None  # nobody else may use it during the search
    return spare if spare is not None and spare.fits(like, num_rows) else Rows(like, num_rows)
