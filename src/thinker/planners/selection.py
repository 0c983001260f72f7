"""The kernels that walk down the trees of a batch of searches: by pUCT, and as Gumbel MuZero does.

Each handles all searches in one call and makes the new nodes, see `thinker.planners.tree`.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from thinker.augmented import NO_NODE, ROOT
from thinker.planners.tree import Leaves, Tree

SMALLEST_RANGE = 1e-8
"""Ranges of Q smaller than this are not stretched to 0 .. 1 when values are normalised."""
SMALLEST_PROBABILITY = float(np.finfo(np.float32).tiny)
"""Instead of 0 where a probability is needed as a logit."""
LOWEST_SCORE = -1e9
"""Bound for the scores of considered actions, so that they exceed those of actions that are not considered."""


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
