"""The trees of a batch of searches as one structure of arrays, and the compiled kernels that build and back up.

The statistics follow mctx, DeepMind's batched search: a node's visits include its own expansion, its value is the mean
of the model's value and of the returns of all simulations through it, and an edge's Q is the reward on it plus the
discounted value below. A simulation that arrives at a predicted end or at the maximum depth expands nothing: it backs
up what is known of that node once more.

A kernel handles all searches in one call and allocates nothing. Kernels read the fields of tuples before their loops:
Numba counts references on every access to a field, which inside a loop costs more than the work itself.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from thinker.augmented import NO_NODE, ROOT
from thinker.interfaces import NO_ACTION

ALL_RIGHT, NOT_FINITE, NOT_A_POLICY = 0, 1, 2
"""What `write_nodes` found in the model's output."""
POLICY_TOLERANCE = 0.02
"""How far the sum of a policy may be from 1; networks in bfloat16 are not more exact than that."""


class Tree(NamedTuple):
    """B trees of at most N nodes with A actions. Node 0 is the root; a parent's index is less than its children's."""

    # Structure
    size: np.ndarray  # [B] int32        nodes in the tree
    parent: np.ndarray  # [B, N] int32     NO_NODE for the root, and for nodes that do not exist
    action: np.ndarray  # [B, N] int32     the action into the node; NO_ACTION likewise
    depth: np.ndarray  # [B, N] int32
    child: np.ndarray  # [B, N, A] int32  NO_NODE where never visited
    row: np.ndarray  # [B, N] int64     of the node's hidden state
    # The model's predictions
    reward: np.ndarray  # [B, N] float64
    value: np.ndarray  # [B, N] float64   0 where ended
    policy: np.ndarray  # [B, N, A] float32
    ended: np.ndarray  # [B, N] bool
    # Statistics of the search
    visits: np.ndarray  # [B, N] int32
    mean_return: np.ndarray  # [B, N] float64
    edge_visits: np.ndarray  # [B, N, A] int32
    q: np.ndarray  # [B, N, A] float64  0 where never visited


class Leaves(NamedTuple):
    """Where the current simulation of every search ends; those that the model must evaluate come first in `pending`."""

    node: np.ndarray  # [B] int32    the node at which the simulation ends
    environment: np.ndarray  # [B] int32    pending: the search that it belongs to
    action: np.ndarray  # [B] int64    pending: the action to unroll
    parent_row: np.ndarray  # [B] int64    pending: the row of the hidden state to unroll from


def make_tree(batch: int, num_actions: int, num_nodes: int) -> Tree:
    """Trees without nodes."""
    per_node, per_edge = (batch, num_nodes), (batch, num_nodes, num_actions)
    return Tree(
        size=np.zeros(batch, np.int32),
        parent=np.full(per_node, NO_NODE, np.int32),
        action=np.full(per_node, NO_ACTION, np.int32),
        depth=np.zeros(per_node, np.int32),
        child=np.empty(per_edge, np.int32),
        row=np.zeros(per_node, np.int64),
        reward=np.zeros(per_node, np.float64),
        value=np.zeros(per_node, np.float64),
        policy=np.zeros(per_edge, np.float32),
        ended=np.zeros(per_node, np.bool_),
        visits=np.zeros(per_node, np.int32),
        mean_return=np.zeros(per_node, np.float64),
        edge_visits=np.empty(per_edge, np.int32),
        q=np.empty(per_edge, np.float64),
    )


def make_leaves(batch: int) -> Leaves:
    """Allocate one leaf per search."""
    return Leaves(
        node=np.zeros(batch, np.int32),
        environment=np.zeros(batch, np.int32),
        action=np.zeros(batch, np.int64),
        parent_row=np.zeros(batch, np.int64),
    )


# ------------------------------------------------------------------------------------------------------ building


@njit(cache=True, nogil=True)
def plant(tree: Tree, leaves: Leaves) -> int:
    """Make the roots, to be evaluated; returns their number. Search b stores its root's hidden state in row b."""
    for b in range(tree.size.shape[0]):
        tree.size[b] = 1
        tree.child[b, ROOT, :] = NO_NODE
        tree.edge_visits[b, ROOT, :] = 0
        tree.q[b, ROOT, :] = 0.0
        tree.row[b, ROOT] = b
        tree.visits[b, ROOT] = 1
        leaves.node[b] = ROOT
        leaves.environment[b] = b
    return tree.size.shape[0]


@njit(cache=True, nogil=True)
def write_nodes(
    tree: Tree,
    leaves: Leaves,
    count: int,
    new_reward: np.ndarray,  # [count]
    new_value: np.ndarray,  # [count]
    new_policy: np.ndarray,  # [count, A]
    new_termination: np.ndarray,  # [count]
) -> tuple[int, int]:
    """Write the model's predictions for the pending nodes.

    Returns ALL_RIGHT and 0, or what is wrong and the first search in which it is.
    """
    reward, value, policy, ended, mean_return = tree.reward, tree.value, tree.policy, tree.ended, tree.mean_return
    environment, leaf = leaves.environment, leaves.node
    for i in range(count):
        b = environment[i]
        node = leaf[b]
        total = 0.0
        lowest = 0.0
        for a in range(policy.shape[2]):
            probability = new_policy[i, a]
            policy[b, node, a] = probability
            total += probability
            lowest = min(lowest, probability)
        if not (
            np.isfinite(new_reward[i])
            and np.isfinite(new_value[i])
            and np.isfinite(new_termination[i])
            and np.isfinite(total)
        ):
            return NOT_FINITE, b
        if lowest < 0 or abs(total - 1) > POLICY_TOLERANCE:
            return NOT_A_POLICY, b
        reward[b, node] = new_reward[i]
        ended[b, node] = new_termination[i] > 0.5
        value[b, node] = 0.0 if ended[b, node] else new_value[i]
        mean_return[b, node] = value[b, node]
    return ALL_RIGHT, 0


@njit(cache=True, nogil=True)
def back_up(tree: Tree, leaves: Leaves, discount: float) -> None:
    """Count the simulations that end at ``leaves`` on the whole paths to the roots, with their returns."""
    parent, action_into, reward, value = tree.parent, tree.action, tree.reward, tree.value
    visits, mean_return, edge_visits, q = tree.visits, tree.mean_return, tree.edge_visits, tree.q
    leaf = leaves.node
    for b in range(leaf.shape[0]):
        node = leaf[b]
        visits[b, node] += 1
        simulated = value[b, node]
        while node != ROOT:
            above, action = parent[b, node], action_into[b, node]
            simulated = reward[b, node] + discount * simulated
            count = visits[b, above]
            mean_return[b, above] = (mean_return[b, above] * count + simulated) / (count + 1.0)
            visits[b, above] = count + 1
            edge_visits[b, above, action] += 1
            q[b, above, action] = reward[b, node] + discount * mean_return[b, node]
            node = above


@njit(cache=True, nogil=True)
def finish_simulation(
    tree: Tree,
    leaves: Leaves,
    count: int,
    new_reward: np.ndarray,
    new_value: np.ndarray,
    new_policy: np.ndarray,
    new_termination: np.ndarray,
    discount: float,
) -> tuple[int, int]:
    """`write_nodes`, then `back_up` if nothing is wrong: one call from Python, as calls cost more than small trees."""
    problem, where = write_nodes(tree, leaves, count, new_reward, new_value, new_policy, new_termination)
    if problem == ALL_RIGHT:
        back_up(tree, leaves, discount)
    return problem, where
