"""The search trees of all environments as one structure of arrays, and the compiled kernels that traverse them.

This is the tree that appendix A of the paper requires "to compute the hints": nodes with reward, value, base policy
and visit count, whose mean and maximum rollout returns (equation 1) are updated on every change. A kernel handles all
environments in one call and allocates nothing.

Returns need no sum over the subtree. Every rollout return of node i that ends below it is r(i) + γ g(child, j), so with
n(i) the number of nodes in i's subtree

    sum_j g(i, j) = n(i) r(i) + γ (v(i) + sum over children of their sums)
    max_j g(i, j) = r(i) + γ max(v(i), maxima of the children)

and one walk from a changed node up to the root makes all of them exact again, without drift.

Kernels read the fields of `Tree` before their loop: Numba counts references on every access to a field of a tuple,
which inside the loop would cost ten times as much as the work itself.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from thinker.interfaces import NO_ACTION

ROOT = 0
"""Index of the root in every tree."""
NO_NODE = -1
"""No child for this action, or no parent."""
NO_STAGE = -1
"""The model has never evaluated this node."""
NOTHING_WRONG = -1
"""Returned by a kernel that checks its input and found no invalid row."""


class Tree(NamedTuple):
    """E trees of at most N nodes with A actions. Node 0 is the root; a parent's index is less than its children's."""

    # Structure
    size: np.ndarray  # [E] int32        nodes in the tree
    parent: np.ndarray  # [E, N] int32     NO_NODE for the root, and for nodes dropped below a predicted termination
    child: np.ndarray  # [E, N, A] int32  NO_NODE where never visited
    action: np.ndarray  # [E, N] int32     the action into the node, NO_ACTION at an episode's start
    # The model's predictions
    reward: np.ndarray  # [E, N] float64   0 for the root
    value: np.ndarray  # [E, N] float64   0 where terminated
    policy: np.ndarray  # [E, N, A] float32
    terminated: np.ndarray  # [E, N] bool      the model predicts that the episode ends on reaching the node
    stage: np.ndarray  # [E, N] int64     the stage of the prediction; nodes of older stages are evaluated again
    row: np.ndarray  # [E, N] int64     row of the hidden state
    state_row: np.ndarray  # [E, N] int64     row of the predicted state
    # Statistics
    visits: np.ndarray  # [E, N] int32     arrivals by an imaginary step
    nodes: np.ndarray  # [E, N] int32     nodes in the subtree, itself included
    return_sum: np.ndarray  # [E, N] float64   sum of the rollout returns over the subtree
    return_max: np.ndarray  # [E, N] float64   their maximum
    # The agent's position
    current: np.ndarray  # [E] int32        the node just reached, before a reset
    depth: np.ndarray  # [E] int32        its depth
    path_reward: np.ndarray  # [E] float64      discounted rewards from the root to it
    was_reset: np.ndarray  # [E] bool         the current node is about to be, or has just been, set to the root
    rows_used: np.ndarray  # [E] int32        rows of hidden states used in this stage


class Pending(NamedTuple):
    """The nodes that the model must evaluate in one imaginary step; only the first `count` rows are used."""

    environment: np.ndarray  # [E] int32
    node: np.ndarray  # [E] int32
    action: np.ndarray  # [E] int64
    parent_row: np.ndarray  # [E] int64   the hidden state to unroll from
    row: np.ndarray  # [E] int64   where the new hidden state is stored


def capacity(stage_length: int, max_depth: int | None) -> int:
    """The maximum number of nodes in a tree, carried ones included.

    A stage adds at most K - 1 nodes, none deeper than D = min(L, K - 1), and each carry moves a node one level closer
    to the root, so only the nodes of the last D stages can still exist.
    """
    deepest = stage_length - 1 if max_depth is None else min(max_depth, stage_length - 1)
    return 1 + (stage_length - 1) * deepest


def make_tree(num_envs: int, num_actions: int, num_nodes: int) -> Tree:
    """Trees that consist of a root only."""
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
        stage=np.full(per_node, NO_STAGE, np.int64),
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
    """Allocate one pending node per environment."""
    return Pending(
        environment=np.zeros(num_envs, np.int32),
        node=np.zeros(num_envs, np.int32),
        action=np.zeros(num_envs, np.int64),
        parent_row=np.zeros(num_envs, np.int64),
        row=np.zeros(num_envs, np.int64),
    )


@njit(cache=True)
def _back_up(
    parent: np.ndarray,
    child: np.ndarray,
    reward: np.ndarray,
    value: np.ndarray,
    nodes: np.ndarray,
    return_sum: np.ndarray,
    return_max: np.ndarray,
    e: int,
    node: int,
    discount: float,
) -> None:
    """Recompute the statistics of ``node`` in tree ``e`` and of its ancestors; arrays as in `Tree`."""
    while node != NO_NODE:
        count = 1
        total = value[e, node]
        best = value[e, node]
        for a in range(child.shape[2]):
            below = child[e, node, a]
            if below != NO_NODE:
                count += nodes[e, below]
                total += return_sum[e, below]
                best = max(best, return_max[e, below])
        nodes[e, node] = count
        return_sum[e, node] = count * reward[e, node] + discount * total
        return_max[e, node] = reward[e, node] + discount * best
        node = parent[e, node]


@njit(cache=True)
def move(tree: Tree, pending: Pending, actions: np.ndarray, stage: int, discount: float, rows_per_env: int) -> int:
    """Take one imaginary step in every tree: to the child for ``actions[:, 0]``, created if it does not exist.

    Nodes below a predicted termination are filled in here, without the model. Those that the model must evaluate (new,
    or carried and not yet reached in this stage) are written to ``pending``; their number is returned.
    """
    size, parent, child, action_into = tree.size, tree.parent, tree.child, tree.action
    reward, value, policy, terminated = tree.reward, tree.value, tree.policy, tree.terminated
    node_stage, row, state_row, visits = tree.stage, tree.row, tree.state_row, tree.visits
    nodes, return_sum, return_max = tree.nodes, tree.return_sum, tree.return_max
    current, depth, path_reward = tree.current, tree.depth, tree.path_reward
    was_reset, rows_used = tree.was_reset, tree.rows_used
    pending_environment, pending_node, pending_action = pending.environment, pending.node, pending.action
    pending_parent_row, pending_row = pending.parent_row, pending.row
    zero_row = actions.shape[0] * rows_per_env  # the row after all others holds the zero state of a terminated episode
    count = 0
    for e in range(actions.shape[0]):
        if was_reset[e]:
            current[e] = ROOT
            depth[e] = 0
            path_reward[e] = 0.0
            was_reset[e] = False
        above = current[e]
        action = actions[e, 0]
        node = child[e, above, action]
        if node == NO_NODE:
            node = size[e]
            size[e] += 1
            child[e, above, action] = node
            parent[e, node] = above
            action_into[e, node] = action
            visits[e, node] = 0
            node_stage[e, node] = NO_STAGE
            child[e, node, :] = NO_NODE
        visits[e, node] += 1
        current[e] = node
        depth[e] += 1
        if node_stage[e, node] == stage:
            continue
        node_stage[e, node] = stage
        if terminated[e, above]:
            reward[e, node] = 0.0
            value[e, node] = 0.0
            policy[e, node, :] = policy[e, above, :]
            terminated[e, node] = True
            row[e, node] = row[e, above]
            state_row[e, node] = zero_row
            _back_up(parent, child, reward, value, nodes, return_sum, return_max, e, node, discount)
        else:
            new_row = e * rows_per_env + rows_used[e]
            rows_used[e] += 1
            row[e, node] = new_row
            state_row[e, node] = new_row
            pending_environment[count] = e
            pending_node[count] = node
            pending_action[count] = action
            pending_parent_row[count] = row[e, above]
            pending_row[count] = new_row
            count += 1
    return count


@njit(cache=True)
def receive(
    tree: Tree,
    pending: Pending,
    count: int,
    new_reward: np.ndarray,  # [count]
    new_value: np.ndarray,  # [count]
    new_policy: np.ndarray,  # [count, A]
    new_termination: np.ndarray,  # [count]
    discount: float,
) -> int:
    """Write the model's predictions for the pending nodes and update the statistics of their ancestors.

    Nodes carried below a node that is now predicted to end the episode are dropped.

    Returns NOTHING_WRONG, or the first row with a non-finite value.
    """
    reward, value, policy, terminated = tree.reward, tree.value, tree.policy, tree.terminated
    parent, child, nodes = tree.parent, tree.child, tree.nodes
    return_sum, return_max = tree.return_sum, tree.return_max
    environments, pending_nodes = pending.environment, pending.node
    for i in range(count):
        finite = np.isfinite(new_reward[i]) and np.isfinite(new_value[i]) and np.isfinite(new_termination[i])
        for a in range(new_policy.shape[1]):
            finite = finite and np.isfinite(new_policy[i, a])
        if not finite:
            return i
        e, node = environments[i], pending_nodes[i]
        reward[e, node] = new_reward[i]
        terminated[e, node] = new_termination[i] > 0.5
        value[e, node] = 0.0 if terminated[e, node] else new_value[i]
        policy[e, node, :] = new_policy[i, :]
        if terminated[e, node]:
            for a in range(child.shape[2]):
                below = child[e, node, a]
                if below != NO_NODE:
                    parent[e, below] = NO_NODE  # so that `carry` does not link it again
                    child[e, node, a] = NO_NODE
        _back_up(parent, child, reward, value, nodes, return_sum, return_max, e, node, discount)
    return NOTHING_WRONG


@njit(cache=True)
def arrive(tree: Tree, actions: np.ndarray, max_depth: int, powers: np.ndarray) -> None:
    """Add the reward of the node just reached to that of the rollout, and mark resets, chosen or forced."""
    current, depth, reward = tree.current, tree.depth, tree.reward
    path_reward, was_reset = tree.path_reward, tree.was_reset
    for e in range(actions.shape[0]):
        path_reward[e] += powers[depth[e]] * reward[e, current[e]]
        was_reset[e] = actions[e, 1] == 1 or depth[e] >= max_depth


@njit(cache=True)
def carry(tree: Tree, actions: np.ndarray, keep_subtree: bool, new_index: np.ndarray) -> None:
    """After a real step: make the root's child for ``actions[:, 0]`` the root, with its subtree, and drop the rest.

    If that child was never visited, or ``keep_subtree`` is False, the tree becomes a single root. Compaction is in
    place: nodes keep their order, so a node only ever moves towards the front, after its parent. ``new_index`` [N] is
    scratch space.
    """
    sizes, parent, child, action_into = tree.size, tree.parent, tree.child, tree.action
    reward, value, policy, terminated = tree.reward, tree.value, tree.policy, tree.terminated
    stage, visits, nodes = tree.stage, tree.visits, tree.nodes
    return_sum, return_max = tree.return_sum, tree.return_max
    for e in range(actions.shape[0]):
        old_root = child[e, ROOT, actions[e, 0]]
        if not keep_subtree or old_root == NO_NODE:
            sizes[e] = 1
            action_into[e, ROOT] = actions[e, 0]
            visits[e, ROOT] = 0
            child[e, ROOT, :] = NO_NODE
            continue
        size = 0
        for old in range(old_root, sizes[e]):
            new_index[old] = NO_NODE
            new_parent = NO_NODE
            if old != old_root:
                # A parent before the new root (or none) is outside of its subtree and has no entry in new_index.
                if parent[e, old] < old_root or new_index[parent[e, old]] == NO_NODE:
                    continue
                new_parent = new_index[parent[e, old]]
                child[e, new_parent, action_into[e, old]] = size
            new_index[old] = size
            parent[e, size] = new_parent
            child[e, size, :] = NO_NODE
            action_into[e, size] = action_into[e, old]
            reward[e, size] = reward[e, old]
            value[e, size] = value[e, old]
            policy[e, size, :] = policy[e, old, :]
            terminated[e, size] = terminated[e, old]
            stage[e, size] = stage[e, old]
            visits[e, size] = visits[e, old]
            nodes[e, size] = nodes[e, old]
            return_sum[e, size] = return_sum[e, old]
            return_max[e, size] = return_max[e, old]
            size += 1
        sizes[e] = size


@njit(cache=True)
def clear(tree: Tree, which: np.ndarray) -> None:
    """Reset the trees of the environments ``which`` [n] to a single root without a last action: a new episode."""
    size, action_into, visits, child = tree.size, tree.action, tree.visits, tree.child
    for i in range(which.shape[0]):
        e = which[i]
        size[e] = 1
        action_into[e, ROOT] = NO_ACTION
        visits[e, ROOT] = 0
        child[e, ROOT, :] = NO_NODE


@njit(cache=True)
def plant(
    tree: Tree,
    which: np.ndarray,  # [n] environments
    new_value: np.ndarray,  # [n]
    new_policy: np.ndarray,  # [n, A]
    stage: int,
    discount: float,
    rows_per_env: int,
) -> int:
    """Start a stage: write the model's prediction for the real state to the root and make it the current node.

    Returns NOTHING_WRONG, or the first row with a non-finite value.
    """
    parent, child, nodes = tree.parent, tree.child, tree.nodes
    reward, value, policy, terminated = tree.reward, tree.value, tree.policy, tree.terminated
    return_sum, return_max = tree.return_sum, tree.return_max
    for i in range(which.shape[0]):
        finite = np.isfinite(new_value[i])
        for a in range(new_policy.shape[1]):
            finite = finite and np.isfinite(new_policy[i, a])
        if not finite:
            return i
        e = which[i]
        reward[e, ROOT] = 0.0
        value[e, ROOT] = new_value[i]
        policy[e, ROOT, :] = new_policy[i, :]
        terminated[e, ROOT] = False
        tree.stage[e, ROOT] = stage
        tree.row[e, ROOT] = e * rows_per_env
        tree.state_row[e, ROOT] = e * rows_per_env
        tree.rows_used[e] = 1
        tree.current[e] = ROOT
        tree.depth[e] = 0
        tree.path_reward[e] = 0.0
        tree.was_reset[e] = True
        _back_up(parent, child, reward, value, nodes, return_sum, return_max, e, ROOT, discount)
    return NOTHING_WRONG


@njit(cache=True)
def first_wrong_action(actions: np.ndarray, num_actions: int) -> int:
    """The first environment whose pair of actions [E, 2] is out of range, or NOTHING_WRONG."""
    for e in range(actions.shape[0]):
        if not (0 <= actions[e, 0] < num_actions and 0 <= actions[e, 1] <= 1):
            return e
    return NOTHING_WRONG
