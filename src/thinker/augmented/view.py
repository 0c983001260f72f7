"""A read-only view of the search trees, for recorders, planners and inspection of plans."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from thinker.augmented.tree import ROOT, Tree


class TreeView:
    """The search trees of E environments: at most N nodes each, A actions. Node `ROOT` (0) is the root.

    The arrays are live and read-only: they show the current trees, and the next step changes them. Only the first
    ``size[e]`` nodes of environment e are valid; a node's parent comes before it.
    """

    def __init__(self, tree: Tree, state_of: Callable[[int, int], np.ndarray | None]) -> None:
        self._return_sum, self._nodes, self._stage = tree.return_sum, tree.nodes, tree.stage
        self._state_of = state_of
        self.size = _read_only(tree.size)  # [E]  nodes in the tree
        self.parent = _read_only(tree.parent)  # [E, N]  NO_NODE for the root and for dropped nodes
        self.children = _read_only(tree.child)  # [E, N, A]  NO_NODE where never visited
        self.action = _read_only(tree.action)  # [E, N]  the action into the node, NO_ACTION at an episode's start
        self.reward = _read_only(tree.reward)  # [E, N]  0 for the root
        self.value = _read_only(tree.value)  # [E, N]  0 where terminated
        self.policy = _read_only(tree.policy)  # [E, N, A]  the base policy
        self.terminated = _read_only(tree.terminated)  # [E, N]  predicted to end the episode
        self.visits = _read_only(tree.visits)  # [E, N]  arrivals by an imaginary step
        self.max_return = _read_only(tree.return_max)  # [E, N]  g_max
        self.current = _read_only(tree.current)  # [E]  the node just reached, before a reset
        self.depth = _read_only(tree.depth)  # [E]  its depth
        self.path_reward = _read_only(tree.path_reward)  # [E]  discounted rewards from the root to it
        self.was_reset = _read_only(tree.was_reset)  # [E]  the next imaginary step starts at the root

    @property
    def mean_return(self) -> np.ndarray:
        """g_mean of every node, [E, N]."""
        return self._return_sum / self._nodes

    @property
    def reached(self) -> np.ndarray:
        """Which nodes were reached in this stage, [E, N]; the others were carried over from earlier stages."""
        return self._stage == self._stage[:, ROOT : ROOT + 1]

    @property
    def position(self) -> np.ndarray:
        """The node from which the next imaginary step starts, [E]."""
        return np.where(self.was_reset, ROOT, self.current)

    def state(self, environment: int, node: int) -> np.ndarray | None:
        """The real state of the root, or the predicted state of a node reached in this stage.

        None for carried nodes, if the model predicts no states, and if the environment does not keep them (see
        ``keep_states`` of `ThinkerEnv`).
        """
        return self._state_of(environment, node)


def _read_only(array: np.ndarray) -> np.ndarray:
    view = array.view()
    view.flags.writeable = False
    return view
