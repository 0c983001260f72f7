"""Handcrafted searches from the agent's own roots, with the agent's model and its number of imaginary steps.

Their maximum TD errors show how well the agent chooses its imaginary actions (appendix F).
"""

from __future__ import annotations

import numpy as np

from thinker.augmented import NO_NODE, ROOT, ThinkerEnv
from thinker.planners import MCTSSpec, RandomSearchSpec, selection
from thinker.planners.mcts import UNLIMITED
from thinker.planners.planner import random_generator
from thinker.planners.tree_search import TreeSearch


class RandomRival:
    """Uniformly random imaginary actions, back to the root at the depth limit and at predicted ends.

    Args:
        seed: of the actions.
    """

    def __init__(self, seed: int) -> None:
        self._random = random_generator(seed)

    def __call__(self, env: ThinkerEnv) -> np.ndarray:
        """The maximum TD errors [E] of searches from the roots of ``env``."""
        spec = RandomSearchSpec(simulations=env.stage_length - 1, max_depth=env.max_depth)
        tree = spec.search(env.model, env.root_output, discount=env.discount, random=self._random).tree
        errors = td_errors(tree.parent, tree.depth, tree.reward, tree.value, env.discount)
        maximum: np.ndarray = np.where(tree.parent == NO_NODE, -np.inf, errors).max(1)
        return maximum


class UCBRival:
    """Imaginary actions by the upper confidence bound (pUCT) of `MCTSSpec`, back to the root after every new node.

    A simulation takes as many imaginary steps as the node at its end is deep, since the agent too walks through known
    nodes step by step. Simulations count until the steps are used up.

    Args:
        seed: of the random numbers that break ties.
    """

    def __init__(self, seed: int) -> None:
        self._random = random_generator(seed)

    def __call__(self, env: ThinkerEnv) -> np.ndarray:
        """The maximum TD errors [E] of searches from the roots of ``env``."""
        steps, spec = env.stage_length - 1, MCTSSpec()
        search = TreeSearch(env.model, env.root_output, simulations=steps, discount=env.discount)
        prior = search.tree.policy[:, ROOT].astype(np.float64)
        stream = self._random.integers(0, 2**64, search.batch, dtype=np.uint64)
        weights = selection.prior_weights(steps, spec.exploration, spec.exploration_base)
        scratch = np.empty(search.num_actions)
        max_depth = env.max_depth or UNLIMITED
        ends = []  # of each simulation, [E]

        def select(simulation: int) -> int:
            count = selection.select_by_puct(
                search.tree, search.leaves, prior, search.rows_used, max_depth, weights, spec.tie_noise, stream, scratch
            )
            ends.append(search.leaves.node.astype(np.int64))
            return count

        search.run(select)
        tree, end = search.tree, np.stack(ends, 1)  # [E, simulations]
        errors = td_errors(tree.parent, tree.depth, tree.reward, tree.value, env.discount)
        every = np.arange(search.batch)[:, None]
        in_time = tree.depth[every, end].cumsum(1) <= steps
        maximum: np.ndarray = np.where(in_time, errors[every, end], -np.inf).max(1)
        return maximum


def td_errors(
    parent: np.ndarray, depth: np.ndarray, reward: np.ndarray, value: np.ndarray, discount: float
) -> np.ndarray:
    """The TD errors [B, N] of all nodes of B trees, arrays [B, N]: of the rollout from the root to each.

    A parent's index is less than its children's. Nodes without a parent have the TD error of a root, and are to be
    ignored where they are not one.
    """
    path = np.zeros(parent.shape)  # r_1 + γ r_2 + ... + γ^(n-1) r_n
    for node in range(1, parent.shape[1]):
        rows = np.flatnonzero(parent[:, node] != NO_NODE)
        above = path[rows, parent[rows, node]]
        path[rows, node] = above + discount ** (depth[rows, node] - 1.0) * reward[rows, node]
    errors: np.ndarray = path + discount ** depth.astype(np.float64) * value - value[:, :1]
    return errors
