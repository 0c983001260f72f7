"""The search trees of all environments as one structure of arrays, and the native kernels that move in them.

This is the tree that appendix A of the paper asks for "to compute the hints": nodes with reward, value, base policy
and visit count, whose mean and maximum rollout returns (equation 1) follow every change. A kernel treats all
environments in one call and allocates nothing.

Returns need no sum over the subtree. Every rollout return of node i that ends below it is r(i) + γ g(child, j), so with
n(i) the number of nodes in i's subtree

    sum_j g(i, j) = n(i) r(i) + γ (v(i) + sum over children of their sums)
    max_j g(i, j) = r(i) + γ max(v(i), maxima of the children)

and one walk from a changed node up to the root makes all of them exact again, without drift.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

ROOT = 0
"""Index of the root in every tree."""
NO_NODE = -1
"""No child for this action, or no parent."""
NO_ACTION = -1
"""No action led here: the root of an episode's first stage."""
NOTHING_WRONG = -1
"""A kernel that checks its input found no row to complain of."""


class Tree(NamedTuple):
    """E trees of at most N nodes with A actions. Node 0 is the root; a parent's index is below its children's."""

    # Structure
    size: np.ndarray  # [E] int32        nodes in the tree
    parent: np.ndarray  # [E, N] int32     NO_NODE for the root
    child: np.ndarray  # [E, N, A] int32  NO_NODE where never visited
    action: np.ndarray  # [E, N] int32     the action into the node, NO_ACTION at an episode's start
    # What the model said
    reward: np.ndarray  # [E, N] float64   0 for the root
    value: np.ndarray  # [E, N] float64   0 where terminated
    policy: np.ndarray  # [E, N, A] float32
    terminated: np.ndarray  # [E, N] bool      the model predicts that the episode ends on reaching the node
    stage: np.ndarray  # [E, N] int64     the stage in which the model said it; an older one means: ask again
    row: np.ndarray  # [E, N] int64     where the hidden state lies
    state_row: np.ndarray  # [E, N] int64     where the predicted state lies
    # Statistics
    visits: np.ndarray  # [E, N] int32     arrivals by an imaginary step
    nodes: np.ndarray  # [E, N] int32     nodes in the subtree, itself included
    return_sum: np.ndarray  # [E, N] float64   sum of the rollout returns over the subtree
    return_max: np.ndarray  # [E, N] float64   their maximum
    # Where the agent is
    current: np.ndarray  # [E] int32        the node just reached, before a reset
    depth: np.ndarray  # [E] int32        its depth
    path_reward: np.ndarray  # [E] float64      discounted rewards from the root to it
    was_reset: np.ndarray  # [E] bool         the current node is about to be, or has just been, set to the root
    rows_used: np.ndarray  # [E] int32        rows of hidden states used in this stage


class Pending(NamedTuple):
    """The nodes that one imaginary step must send through the model; only the first `count` rows are meant."""

    environment: np.ndarray  # [E] int32
    node: np.ndarray  # [E] int32
    action: np.ndarray  # [E] int64
    parent_row: np.ndarray  # [E] int64   the hidden state to unroll from
    row: np.ndarray  # [E] int64   where the new hidden state goes


def capacity(stage_length: int, max_depth: int | None) -> int:
    """The most nodes that a stage and the trees carried into it can hold.

    A stage makes at most K - 1 nodes, none deeper than D = min(L, K - 1), and each carry brings a node one nearer to
    the root, so only the nodes of the last D stages can still be there.
    """
    deepest = stage_length - 1 if max_depth is None else min(max_depth, stage_length - 1)
    return 1 + (stage_length - 1) * deepest


def make_tree(num_envs: int, num_actions: int, num_nodes: int) -> Tree:
    """Trees with a bare root each."""
    per_node = (num_envs, num_nodes)
    return Tree(
        size=np.ones(num_envs, np.int32),
        parent=np.full(per_node, NO_NODE, np.int32),
        child=np.full((*per_node, num_actions), NO_NODE, np.int32),
        action=np.full(per_node, NO_ACTION, np.int32),
        reward=np.zeros(per_node, np.float64),
        value=np.zeros(per_node, np.float64),
        policy=np.zeros((*per_node, num_actions), np.float32),
        terminated=np.zeros(per_node, np.bool_),
        stage=np.full(per_node, -1, np.int64),
        row=np.zeros(per_node, np.int64),
        state_row=np.zeros(per_node, np.int64),
        visits=np.zeros(per_node, np.int32),
        nodes=np.ones(per_node, np.int32),
        return_sum=np.zeros(per_node, np.float64),
        return_max=np.zeros(per_node, np.float64),
        current=np.zeros(num_envs, np.int32),
        depth=np.zeros(num_envs, np.int32),
        path_reward=np.zeros(num_envs, np.float64),
        was_reset=np.zeros(num_envs, np.bool_),
        rows_used=np.zeros(num_envs, np.int32),
    )


def make_pending(num_envs: int) -> Pending:
    """Room for one pending node per environment."""
    return Pending(
        environment=np.zeros(num_envs, np.int32),
        node=np.zeros(num_envs, np.int32),
        action=np.zeros(num_envs, np.int64),
        parent_row=np.zeros(num_envs, np.int64),
        row=np.zeros(num_envs, np.int64),
    )


@njit(cache=True)
def _back_up(tree: Tree, e: int, node: int, discount: float) -> None:
    """Make the statistics of ``node`` and of all above it exact again."""
    while node != NO_NODE:
        nodes = 1
        total = tree.value[e, node]
        best = tree.value[e, node]
        for a in range(tree.child.shape[2]):
            child = tree.child[e, node, a]
            if child != NO_NODE:
                nodes += tree.nodes[e, child]
                total += tree.return_sum[e, child]
                best = max(best, tree.return_max[e, child])
        tree.nodes[e, node] = nodes
        tree.return_sum[e, node] = nodes * tree.reward[e, node] + discount * total
        tree.return_max[e, node] = tree.reward[e, node] + discount * best
        node = tree.parent[e, node]


@njit(cache=True)
def _clear_node(tree: Tree, e: int, node: int, parent: int, action: int) -> None:
    tree.parent[e, node] = parent
    tree.action[e, node] = action
    tree.visits[e, node] = 0
    tree.stage[e, node] = -1
    for a in range(tree.child.shape[2]):
        tree.child[e, node, a] = NO_NODE


@njit(cache=True)
def move(tree: Tree, pending: Pending, actions: np.ndarray, stage: int, discount: float, rows_per_env: int) -> int:
    """Take one imaginary step in every tree: to the child by ``actions[:, 0]``, made if it is not there.

    Nodes below a predicted termination are made here, without the model. Those that the model must be asked for (new,
    or carried and not yet reached in this stage) go to ``pending``; their number is returned.
    """
    count = 0
    zero_row = actions.shape[0] * rows_per_env  # the row after all others holds the zero state of a terminated episode
    for e in range(actions.shape[0]):
        if tree.was_reset[e]:
            tree.current[e] = ROOT
            tree.depth[e] = 0
            tree.path_reward[e] = 0.0
            tree.was_reset[e] = False
        parent = tree.current[e]
        action = actions[e, 0]
        node = tree.child[e, parent, action]
        if node == NO_NODE:
            node = tree.size[e]
            tree.size[e] += 1
            tree.child[e, parent, action] = node
            _clear_node(tree, e, node, parent, action)
        tree.visits[e, node] += 1
        tree.current[e] = node
        tree.depth[e] += 1
        if tree.stage[e, node] == stage:
            continue
        tree.stage[e, node] = stage
        if tree.terminated[e, parent]:
            tree.reward[e, node] = 0.0
            tree.value[e, node] = 0.0
            tree.policy[e, node] = tree.policy[e, parent]
            tree.terminated[e, node] = True
            tree.row[e, node] = tree.row[e, parent]
            tree.state_row[e, node] = zero_row
            _back_up(tree, e, node, discount)
        else:
            row = e * rows_per_env + tree.rows_used[e]
            tree.rows_used[e] += 1
            tree.row[e, node] = row
            tree.state_row[e, node] = row
            pending.environment[count] = e
            pending.node[count] = node
            pending.action[count] = action
            pending.parent_row[count] = tree.row[e, parent]
            pending.row[count] = row
            count += 1
    return count


@njit(cache=True)
def receive(
    tree: Tree,
    pending: Pending,
    count: int,
    reward: np.ndarray,  # [count]
    value: np.ndarray,  # [count]
    policy: np.ndarray,  # [count, A]
    termination: np.ndarray,  # [count]
    discount: float,
) -> int:
    """Write what the model said of the pending nodes; every statistic above them follows.

    Returns NOTHING_WRONG, or the first row with a number that is not finite.
    """
    for i in range(count):
        finite = np.isfinite(reward[i]) and np.isfinite(value[i]) and np.isfinite(termination[i])
        for a in range(policy.shape[1]):
            finite = finite and np.isfinite(policy[i, a])
        if not finite:
            return i
        e, node = pending.environment[i], pending.node[i]
        tree.reward[e, node] = reward[i]
        tree.terminated[e, node] = termination[i] > 0.5
        tree.value[e, node] = 0.0 if termination[i] > 0.5 else value[i]
        tree.policy[e, node] = policy[i]
        _back_up(tree, e, node, discount)
    return NOTHING_WRONG


@njit(cache=True)
def arrive(tree: Tree, actions: np.ndarray, max_depth: int, powers: np.ndarray) -> None:
    """Add the reward of the node just reached to the rollout's, and note where a reset is due: chosen or forced."""
    for e in range(actions.shape[0]):
        tree.path_reward[e] += powers[tree.depth[e]] * tree.reward[e, tree.current[e]]
        tree.was_reset[e] = actions[e, 1] == 1 or tree.depth[e] >= max_depth


@njit(cache=True)
def _move_node(tree: Tree, e: int, old: int, new: int) -> None:
    tree.action[e, new] = tree.action[e, old]
    tree.reward[e, new] = tree.reward[e, old]
    tree.value[e, new] = tree.value[e, old]
    tree.policy[e, new] = tree.policy[e, old]
    tree.terminated[e, new] = tree.terminated[e, old]
    tree.stage[e, new] = tree.stage[e, old]
    tree.visits[e, new] = tree.visits[e, old]
    tree.nodes[e, new] = tree.nodes[e, old]
    tree.return_sum[e, new] = tree.return_sum[e, old]
    tree.return_max[e, new] = tree.return_max[e, old]
    for a in range(tree.child.shape[2]):
        tree.child[e, new, a] = NO_NODE


@njit(cache=True)
def carry(tree: Tree, actions: np.ndarray, keep_subtree: bool, new_index: np.ndarray) -> None:
    """After a real step: make the root's child for ``actions[:, 0]`` the root, with its subtree, and drop the rest.

    Where that child was never visited, or ``keep_subtree`` is off, the tree becomes a bare root. Compaction is in
    place: nodes keep their order, so a node only ever moves towards the front and its parent has moved before it.
    """
    for e in range(actions.shape[0]):
        action = actions[e, 0]
        old_root = tree.child[e, ROOT, action]
        if not keep_subtree or old_root == NO_NODE:
            tree.size[e] = 1
            _clear_node(tree, e, ROOT, NO_NODE, action)
            continue
        size = 0
        for old in range(old_root, tree.size[e]):
            new_index[old] = NO_NODE
            if old == old_root:
                _move_node(tree, e, old, ROOT)
                tree.parent[e, ROOT] = NO_NODE
            else:
                # A parent before the new root cannot belong to its subtree, and has no entry in new_index.
                old_parent = tree.parent[e, old]
                if old_parent < old_root or new_index[old_parent] == NO_NODE:
                    continue
                action_into = tree.action[e, old]
                _move_node(tree, e, old, size)
                tree.parent[e, size] = new_index[old_parent]
                tree.child[e, new_index[old_parent], action_into] = size
            new_index[old] = size
            size += 1
        tree.size[e] = size


@njit(cache=True)
def clear(tree: Tree, which: np.ndarray) -> None:
    """Make the trees of the environments ``which`` [n] bare roots that no action led to: an episode begins."""
    for i in range(which.shape[0]):
        e = which[i]
        tree.size[e] = 1
        _clear_node(tree, e, ROOT, NO_NODE, NO_ACTION)


@njit(cache=True)
def plant(
    tree: Tree,
    which: np.ndarray,  # [n] environments
    value: np.ndarray,  # [n]
    policy: np.ndarray,  # [n, A]
    stage: int,
    discount: float,
    rows_per_env: int,
) -> int:
    """Begin a stage: the root takes the model's word for the real state, and is the current node.

    Returns NOTHING_WRONG, or the first row with a number that is not finite.
    """
    for i in range(which.shape[0]):
        finite = np.isfinite(value[i])
        for a in range(policy.shape[1]):
            finite = finite and np.isfinite(policy[i, a])
        if not finite:
            return i
        e = which[i]
        tree.reward[e, ROOT] = 0.0
        tree.value[e, ROOT] = value[i]
        tree.policy[e, ROOT] = policy[i]
        tree.terminated[e, ROOT] = False
        tree.stage[e, ROOT] = stage
        tree.row[e, ROOT] = e * rows_per_env
        tree.state_row[e, ROOT] = e * rows_per_env
        tree.rows_used[e] = 1
        tree.current[e] = ROOT
        tree.depth[e] = 0
        tree.path_reward[e] = 0.0
        tree.was_reset[e] = True
        _back_up(tree, e, ROOT, discount)
    return NOTHING_WRONG


@njit(cache=True)
def first_wrong_action(actions: np.ndarray, num_actions: int) -> int:
    """The first environment whose pair of actions [E, 2] is out of range, or NOTHING_WRONG."""
    for e in range(actions.shape[0]):
        if not (0 <= actions[e, 0] < num_actions and 0 <= actions[e, 1] <= 1):
            return e
    return NOTHING_WRONG
