"""The trees of a batch of searches as one structure of arrays, and the compiled kernels that select and back up.

The statistics follow mctx, DeepMind's batched search: a node's visits include its own expansion, its value is the mean
of the model's value and of the returns of all simulations through it, and an edge's Q is the reward on it plus the
discounted value below. A simulation that arrives at a predicted end or at the maximum depth expands nothing: it backs
up what is known of that node once more.

A kernel handles all searches in one call and allocates nothing. Kernels read the fields of tuples before their loops:
Numba counts references on every access to a field, which inside a loop costs more than the work itself.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from thinker.augmented import NO_NODE, ROOT
from thinker.interfaces import NO_ACTION

ALL_RIGHT, NOT_FINITE, NOT_A_POLICY = 0, 1, 2
"""What `write_nodes` found in the model's output."""
POLICY_TOLERANCE = 0.02
"""How far the sum of a policy may be from 1; networks in bfloat16 are not more exact than that."""
SMALLEST_RANGE = 1e-8
"""Ranges of Q smaller than this are not stretched to 0 .. 1 when values are normalised."""
SMALLEST_PROBABILITY = float(np.finfo(np.float32).tiny)
"""Instead of 0 where a probability is needed as a logit."""
LOWEST_SCORE = -1e9
"""Bound for the scores of considered actions, so that they exceed those of actions that are not considered."""


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
def _expand(
    size: np.ndarray,
    parent: np.ndarray,
    action_into: np.ndarray,
    depth: np.ndarray,
    child: np.ndarray,
    row: np.ndarray,
    edge_visits: np.ndarray,
    q: np.ndarray,
    leaves: Leaves,
    b: int,
    above: int,
    action: int,
    pending: int,
    new_row: int,
) -> None:
    """Make the child of node ``above`` for ``action`` in tree ``b``, to be evaluated; arrays as in `Tree`."""
    node = size[b]
    size[b] += 1
    child[b, above, action] = node
    parent[b, node] = above
    action_into[b, node] = action
    depth[b, node] = depth[b, above] + 1
    row[b, node] = new_row
    for a in range(child.shape[2]):
        child[b, node, a] = NO_NODE
        edge_visits[b, node, a] = 0
        q[b, node, a] = 0.0
    leaves.node[b] = node
    leaves.environment[pending] = b
    leaves.action[pending] = action
    leaves.parent_row[pending] = row[b, above]


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


# ---------------------------------------------------------------------------------------------------------- pUCT


@njit(cache=True, nogil=True)
def _uniform(stream: np.ndarray, b: int) -> float:
    """The next number in [0, 1) of the random stream ``b`` (SplitMix64)."""
    stream[b] += np.uint64(0x9E3779B97F4A7C15)
    x = stream[b]
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    x = x ^ (x >> np.uint64(31))
    return float(x >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@njit(cache=True, nogil=True)
def _break_tie(scores: np.ndarray, action: int, noise: float, stream: np.ndarray, b: int) -> int:
    """The best action after adding up to ``noise`` to all ``scores``, of which that of ``action`` is the highest."""
    rivals = 0
    for a in range(scores.shape[0]):
        if scores[a] >= scores[action] - noise:
            rivals += 1
    if rivals == 1:
        return action
    least = scores[action] - noise
    chosen = action
    best = -np.inf
    for a in range(scores.shape[0]):
        if scores[a] >= least:
            score = scores[a] + noise * _uniform(stream, b)
            if score > best:
                best = score
                chosen = a
    return chosen


def prior_weights(simulations: int, exploration: float, base: float) -> np.ndarray:
    """√N (exploration + ln((N + base + 1) / base)) for all numbers N of visits that occur, [simulations + 2]."""
    visits = np.arange(simulations + 2, dtype=np.float64)
    weights: np.ndarray = np.sqrt(visits) * (exploration + np.log((visits + base + 1) / base))
    return weights


@njit(cache=True, nogil=True)
def select_by_puct(
    tree: Tree,
    leaves: Leaves,
    root_policy: np.ndarray,  # [B, A] float64  priors at the roots, with noise
    first_row: int,
    max_depth: int,
    weight_of: np.ndarray,  # float64  of the priors by N(s), see `prior_weights`
    tie_noise: float,
    stream: np.ndarray,  # [B] uint64  random streams, advanced
    scores: np.ndarray,  # [A] float64  scratch
) -> int:
    """Walk down all trees by pUCT, to a new node, a predicted end or ``max_depth``.

    The score of an action is Q, normalised by the range of the node's value and visited Qs (0 where not visited), plus
    prior weight(N(s)) / (1 + N(s, a)), plus up to ``tie_noise``, which is drawn only where it can make a difference.

    New nodes get the rows from ``first_row`` on; their number is returned.
    """
    size, parent, action_into, depth = tree.size, tree.parent, tree.action, tree.depth
    child, row, policy, ended = tree.child, tree.row, tree.policy, tree.ended
    visits, mean_return, edge_visits, q = tree.visits, tree.mean_return, tree.edge_visits, tree.q
    leaf = leaves.node
    num_actions = child.shape[2]
    count = 0
    for b in range(size.shape[0]):
        node = ROOT
        while True:
            low = high = mean_return[b, node]
            for a in range(num_actions):
                if edge_visits[b, node, a] > 0:
                    low = min(low, q[b, node, a])
                    high = max(high, q[b, node, a])
            scale = 1.0 / max(high - low, SMALLEST_RANGE)
            weight = weight_of[visits[b, node]]
            action = 0
            best = -np.inf
            for a in range(num_actions):
                prior = root_policy[b, a] if node == ROOT else policy[b, node, a]
                score = weight * prior / (1.0 + edge_visits[b, node, a])
                if edge_visits[b, node, a] > 0:
                    score += (q[b, node, a] - low) * scale
                scores[a] = score
                if score > best:
                    best = score
                    action = a
            if tie_noise > 0.0:
                action = _break_tie(scores, action, tie_noise, stream, b)
            below = child[b, node, action]
            if below == NO_NODE:
                _expand(
                    size, parent, action_into, depth, child, row, edge_visits, q,
                    leaves, b, node, action, count, first_row + count,
                )  # fmt: skip
                count += 1
                break
            node = below
            if ended[b, node] or depth[b, node] >= max_depth:
                leaf[b] = node
                break
    return count


# -------------------------------------------------------------------------------------------------------- Gumbel


@njit(cache=True, nogil=True)
def _complete_q(
    policy: np.ndarray,
    value: np.ndarray,
    edge_visits: np.ndarray,
    q: np.ndarray,
    b: int,
    node: int,
    value_scale: float,
    visit_offset: float,
    out: np.ndarray,  # [A]
) -> int:
    """σ of the completed Qs of ``node`` in tree ``b``, written to ``out``; returns the sum of its edges' visits.

    Actions that were not visited get the mixed value: the model's value of the node, averaged with the visited Qs
    weighted by their priors. Then all are stretched to 0 .. 1 and multiplied by ``value_scale`` and ``visit_offset``
    plus the largest number of visits.
    """
    num_actions = policy.shape[2]
    total = 0
    largest = 0
    visited_prior = 0.0
    visited_q = 0.0
    for a in range(num_actions):
        here = edge_visits[b, node, a]
        if here > 0:
            prior = max(float(policy[b, node, a]), SMALLEST_PROBABILITY)
            visited_prior += prior
            visited_q += prior * q[b, node, a]
        total += here
        largest = max(largest, here)
    mixed = value[b, node]
    if total > 0:
        mixed = (mixed + total * visited_q / visited_prior) / (total + 1.0)
    low = high = q[b, node, 0] if edge_visits[b, node, 0] > 0 else mixed
    for a in range(num_actions):
        out[a] = q[b, node, a] if edge_visits[b, node, a] > 0 else mixed
        low = min(low, out[a])
        high = max(high, out[a])
    scale = (visit_offset + largest) * value_scale / max(high - low, SMALLEST_RANGE)
    for a in range(num_actions):
        out[a] = (out[a] - low) * scale
    return total


@njit(cache=True, nogil=True)
def _improve(policy: np.ndarray, b: int, node: int, scores: np.ndarray) -> None:
    """Replace σ(q) [A] in ``scores`` by softmax(logits + σ(q)), the improved policy of ``node`` in tree ``b``."""
    highest = scores[0]
    for a in range(scores.shape[0]):
        highest = max(highest, scores[a])
    total = 0.0
    for a in range(scores.shape[0]):
        scores[a] = max(float(policy[b, node, a]), SMALLEST_PROBABILITY) * math.exp(scores[a] - highest)
        total += scores[a]
    for a in range(scores.shape[0]):
        scores[a] /= total


@njit(cache=True, nogil=True)
def _best_considered(
    perturbed: np.ndarray, edge_visits: np.ndarray, b: int, considered_visits: int, scores: np.ndarray
) -> int:
    """The best of the root's actions with ``considered_visits`` visits, by Gumbel noise plus logit plus σ(q)."""
    action = 0
    best = -np.inf
    for a in range(scores.shape[0]):
        if edge_visits[b, ROOT, a] == considered_visits:
            score = max(perturbed[b, a] + scores[a], LOWEST_SCORE)
            if score > best:
                best = score
                action = a
    return action


@njit(cache=True, nogil=True)
def select_by_gumbel(
    tree: Tree,
    leaves: Leaves,
    perturbed: np.ndarray,  # [B, A] float64  Gumbel noise plus logits of the roots
    considered_visits: int,
    first_row: int,
    max_depth: int,
    value_scale: float,
    visit_offset: float,
    scratch: np.ndarray,  # [A] float64
) -> int:
    """Walk down all trees as Gumbel MuZero does, to a new node, a predicted end or ``max_depth``.

    At the roots: the best of the actions that sequential halving considers, those with ``considered_visits`` visits.
    Below: the action whose share of visits is furthest below its probability in the improved policy.

    New nodes get the rows from ``first_row`` on; their number is returned.
    """
    size, parent, action_into, depth = tree.size, tree.parent, tree.action, tree.depth
    child, row, policy, value, ended = tree.child, tree.row, tree.policy, tree.value, tree.ended
    edge_visits, q = tree.edge_visits, tree.q
    leaf = leaves.node
    count = 0
    for b in range(size.shape[0]):
        node = ROOT
        while True:
            total = _complete_q(policy, value, edge_visits, q, b, node, value_scale, visit_offset, scratch)
            if node == ROOT:
                action = _best_considered(perturbed, edge_visits, b, considered_visits, scratch)
            else:
                _improve(policy, b, node, scratch)
                action = 0
                best = -np.inf
                for a in range(scratch.shape[0]):
                    score = scratch[a] - edge_visits[b, node, a] / (1.0 + total)
                    if score > best:
                        best = score
                        action = a
            below = child[b, node, action]
            if below == NO_NODE:
                _expand(
                    size, parent, action_into, depth, child, row, edge_visits, q,
                    leaves, b, node, action, count, first_row + count,
                )  # fmt: skip
                count += 1
                break
            node = below
            if ended[b, node] or depth[b, node] >= max_depth:
                leaf[b] = node
                break
    return count


@njit(cache=True, nogil=True)
def gumbel_decision(
    tree: Tree,
    perturbed: np.ndarray,  # [B, A] float64
    value_scale: float,
    visit_offset: float,
    action: np.ndarray,  # [B] int64  out: the best of the most visited actions
    improved: np.ndarray,  # [B, A] float64  out: the improved policy
) -> None:
    """What Gumbel MuZero does at the roots after the last simulation."""
    policy, value, edge_visits, q = tree.policy, tree.value, tree.edge_visits, tree.q
    for b in range(action.shape[0]):
        scores = improved[b]
        _complete_q(policy, value, edge_visits, q, b, ROOT, value_scale, visit_offset, scores)
        largest = 0
        for a in range(scores.shape[0]):
            largest = max(largest, edge_visits[b, ROOT, a])
        action[b] = _best_considered(perturbed, edge_visits, b, largest, scores)
        _improve(policy, b, ROOT, scores)
