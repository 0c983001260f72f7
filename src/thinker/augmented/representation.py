"""The tree representation u_tree (the paper's section 4.2 and appendix A): its layout by name, and its kernel."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_args

import numpy as np
from numba import njit

from thinker.augmented.checks import check_names
from thinker.augmented.tree import NO_ACTION, NO_NODE, ROOT, Tree

NO_COLUMN = -1
"""An extra feature that is not part of the layout."""

Array = TypeVar("Array", bound=Any)

Extra = Literal["action_sequence", "termination"]
"""Opt-in features, after the paper's: the actions from the root to the current node, one-hot, and whether the model
predicts that the episode ends on reaching the current node."""

Hidden = Literal["hints", "base_policy_and_value"]
"""Groups of features that can be hidden from the agent, for the paper's ablations (appendix E)."""

_NODE_PARTS = ("reward", "value", "policy", "action", "child_mean_return", "child_max_return", "child_visits")
_HINTS = ("child_mean_return", "child_max_return", "child_visits")
_FROM_VALUE = ("value", "policy", "child_mean_return", "child_max_return")
_HIDDEN_PARTS: Mapping[str, tuple[str, ...]] = {
    # The paper's list: all nine statistics that an agent with memory could compute by itself.
    "hints": (
        *(f"{node}_{part}" for node in ("root", "current") for part in _HINTS),
        "rollout_return",
        "rollout_reward",
        "max_return",
    ),
    # Policy and value, and everything that is computed from a value.
    "base_policy_and_value": (
        *(f"{node}_{part}" for node in ("root", "current") for part in _FROM_VALUE),
        "rollout_return",
        "max_return",
    ),
}


@dataclass(frozen=True)
class Layout:
    """Where each named part of the tree representation lies."""

    num_actions: int
    stage_length: int
    max_depth: int  # the deepest that a node can lie: min(L, K - 1)
    slices: Mapping[str, slice]
    size: int

    def decode(self, tree: Array) -> dict[str, Array]:
        """Split a representation [..., size] (array or tensor) into its named parts, as views.

        Parts of size 1 lose their last dimension.
        """
        if tree.shape[-1] != self.size:
            raise ValueError(
                f"a tree representation with {self.num_actions} actions and stage length {self.stage_length} has "
                f"{self.size} numbers, but the last dimension of this one is {tree.shape[-1]}"
            )
        return {
            name: tree[..., part.start] if name in _SCALARS else tree[..., part] for name, part in self.slices.items()
        }

    def columns_of(self, hide: Iterable[Hidden]) -> np.ndarray:
        """The columns that ``hide`` takes from the agent's sight."""
        names = check_names("hide", hide, get_args(Hidden))
        parts = sorted({part for name in names for part in _HIDDEN_PARTS[name]})
        columns = [np.arange(self.slices[part].start, self.slices[part].stop) for part in parts]
        return np.concatenate(columns) if columns else np.zeros(0, np.int64)


_SCALARS = {"root_reward", "root_value", "current_reward", "current_value", "rollout_return", "rollout_reward"}
_SCALARS |= {"max_return", "trailing_discount", "reset", "termination"}


def layout(num_actions: int, stage_length: int, *, max_depth: int | None = None, extra: Iterable[Extra] = ()) -> Layout:
    """The layout of the tree representation: 10 A + K + 9 numbers, and then the ``extra`` features in a fixed order."""
    extras = check_names("extra", extra, get_args(Extra))
    deepest = stage_length - 1 if max_depth is None else min(max_depth, stage_length - 1)
    per_action = {"policy", "action", *_HINTS}
    sizes = {
        f"{node}_{part}": num_actions if part in per_action else 1
        for node in ("root", "current")
        for part in _NODE_PARTS
    }
    sizes |= {"rollout_return": 1, "rollout_reward": 1, "max_return": 1, "trailing_discount": 1}
    sizes |= {"step": stage_length, "reset": 1}
    if "action_sequence" in extras:
        sizes["action_sequence"] = deepest * num_actions
    if "termination" in extras:
        sizes["termination"] = 1
    slices, start = {}, 0
    for name, size in sizes.items():
        slices[name] = slice(start, start + size)
        start += size
    return Layout(num_actions, stage_length, deepest, slices, start)


def decode(tree: Array, layout: Layout) -> dict[str, Array]:
    """Split a tree representation [..., size] into its named parts; see `Layout.decode`."""
    return layout.decode(tree)


@njit(cache=True)
def _write_node(tree: Tree, e: int, node: int, visit_scale: float, out: np.ndarray, start: int) -> int:
    """Write u_i of one node from column ``start`` of out [E, F]; returns the column after it."""
    num_actions = tree.child.shape[2]
    out[e, start] = tree.reward[e, node]
    out[e, start + 1] = tree.value[e, node]
    policy, action = start + 2, start + 2 + num_actions
    mean, best, visits = action + num_actions, action + 2 * num_actions, action + 3 * num_actions
    for a in range(num_actions):
        out[e, policy + a] = tree.policy[e, node, a]
        out[e, action + a] = 0.0
        child = tree.child[e, node, a]
        if child == NO_NODE:
            out[e, mean + a] = 0.0
            out[e, best + a] = 0.0
            out[e, visits + a] = 0.0
        else:
            out[e, mean + a] = tree.return_sum[e, child] / tree.nodes[e, child]
            out[e, best + a] = tree.return_max[e, child]
            out[e, visits + a] = tree.visits[e, child] * visit_scale
    if tree.action[e, node] != NO_ACTION:
        out[e, action + tree.action[e, node]] = 1.0
    return visits + num_actions


@njit(cache=True)
def represent(
    tree: Tree,
    step: int,  # k, 1 .. K
    stage_length: int,
    powers: np.ndarray,  # [K + 1] powers of the discount
    sequence_start: int,  # column of the action sequence, NO_COLUMN if it is not asked for
    sequence_stop: int,
    termination_column: int,  # NO_COLUMN if it is not asked for
    out: np.ndarray,  # [E, F] float32
    root_value: np.ndarray,  # [E] float64: mean return of the root without the root's reward
    max_return: np.ndarray,  # [E] float64: maximum return of the root
) -> None:
    """Write the tree representation of every environment: the root and the current node before a reset."""
    num_actions = tree.child.shape[2]
    for e in range(out.shape[0]):
        node = tree.current[e]
        column = _write_node(tree, e, ROOT, 1.0 / stage_length, out, 0)
        column = _write_node(tree, e, node, 1.0 / stage_length, out, column)
        trailing = powers[tree.depth[e] + 1]
        out[e, column] = tree.path_reward[e] + trailing * tree.value[e, node]
        out[e, column + 1] = tree.path_reward[e]
        out[e, column + 2] = tree.return_max[e, ROOT]
        out[e, column + 3] = trailing
        column += 4
        for k in range(stage_length):
            out[e, column + k] = 1.0 if k + 1 == step else 0.0
        out[e, column + stage_length] = 1.0 if tree.was_reset[e] else 0.0
        if sequence_start != NO_COLUMN:
            out[e, sequence_start:sequence_stop] = 0.0
            ancestor = node
            for place in range(tree.depth[e] - 1, -1, -1):
                out[e, sequence_start + place * num_actions + tree.action[e, ancestor]] = 1.0
                ancestor = tree.parent[e, ancestor]
        if termination_column != NO_COLUMN:
            out[e, termination_column] = 1.0 if tree.terminated[e, node] else 0.0

        total = tree.value[e, ROOT]
        for a in range(num_actions):
            if tree.child[e, ROOT, a] != NO_NODE:
                total += tree.return_sum[e, tree.child[e, ROOT, a]]
        root_value[e] = total / tree.nodes[e, ROOT]
        max_return[e] = tree.return_max[e, ROOT]
