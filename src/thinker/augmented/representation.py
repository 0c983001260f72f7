"""The tree representation u_tree (the paper's section 4.2 and appendix A): its layout by name, and its kernel."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_args

import numpy as np
from numba import njit

from thinker.augmented.checks import check_names
from thinker.augmented.tree import NO_NODE, ROOT, Tree
from thinker.errors import UserError
from thinker.interfaces import NO_ACTION

NO_COLUMN = -1
"""An extra feature that is not part of the layout."""

Array = TypeVar("Array", bound=Any)

Extra = Literal["action_sequence", "termination"]
"""Optional features, appended to the paper's: the one-hot actions from the root to the current node, and whether the
model predicts that the episode ends on reaching the current node."""

FeatureGroup = Literal["hints", "base_policy_and_value"]
"""Groups of features that can be masked, for the paper's ablations (appendix E)."""

_NODE_PARTS = ("reward", "value", "policy", "action", "child_mean_return", "child_max_return", "child_visits")
_HINTS = ("child_mean_return", "child_max_return", "child_visits")
_FROM_VALUE = ("value", "policy", "child_mean_return", "child_max_return")
_MASKED_PARTS: Mapping[str, tuple[str, ...]] = {
    # The paper's list: the nine statistics that an agent with memory could compute itself.
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
    """The position of each named part of the tree representation."""

    num_actions: int
    stage_length: int
    max_depth: int  # the largest depth of a node: min(L, K - 1)
    slices: Mapping[str, slice]
    size: int

    def decode(self, tree: Array) -> dict[str, Array]:
        """Split a representation [..., size] (array or tensor) into its named parts, as views.

        Parts of size 1 lose their last dimension.
        """
        if tree.shape[-1] != self.size:
            raise UserError(
                f"a tree representation with {self.num_actions} actions and stage length {self.stage_length} has "
                f"{self.size} numbers, but the last dimension of this one is {tree.shape[-1]}"
            )
        return {
            name: tree[..., part.start] if name in _SCALARS else tree[..., part] for name, part in self.slices.items()
        }

    def columns_of(self, mask: Iterable[FeatureGroup]) -> np.ndarray:
        """The columns of the groups in ``mask``."""
        names = check_names("mask", mask, get_args(FeatureGroup))
        parts = sorted({part for name in names for part in _MASKED_PARTS[name]})
        columns = [np.arange(self.slices[part].start, self.slices[part].stop) for part in parts]
        return np.concatenate(columns) if columns else np.zeros(0, np.int64)


_SCALARS = {"root_reward", "root_value", "current_reward", "current_value", "rollout_return", "rollout_reward"}
_SCALARS |= {"max_return", "trailing_discount", "reset", "termination"}


def layout(num_actions: int, stage_length: int, *, max_depth: int | None = None, extra: Iterable[Extra] = ()) -> Layout:
    """The layout of the tree representation: 10 A + K + 9 numbers, then the ``extra`` features in a fixed order."""
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


@njit(cache=True)
def represent(
    tree: Tree,
    step: int,  # k, 1 .. K
    stage_length: int,
    powers: np.ndarray,  # [K + 1] powers of the discount
    sequence_column: int,  # where the action sequence starts, NO_COLUMN if not included
    termination_column: int,  # NO_COLUMN if not included
    out: np.ndarray,  # [E, F] float32
    root_value: np.ndarray,  # [E] float64: mean return of the root without the root's reward
    max_return: np.ndarray,  # [E] float64: maximum return of the root
) -> None:
    """Write the tree representation of every environment: the root and the current node before a reset."""
    parent, child, action_into, visits, nodes = tree.parent, tree.child, tree.action, tree.visits, tree.nodes
    reward, value, policy, terminated = tree.reward, tree.value, tree.policy, tree.terminated
    return_sum, return_max = tree.return_sum, tree.return_max
    current, depth, path_reward, was_reset = tree.current, tree.depth, tree.path_reward, tree.was_reset
    num_actions = child.shape[2]
    out[:] = 0.0
    for e in range(out.shape[0]):
        column = 0
        for node in (np.int32(ROOT), current[e]):
            out[e, column] = reward[e, node]
            out[e, column + 1] = value[e, node]
            first = column + 2
            for a in range(num_actions):
                out[e, first + a] = policy[e, node, a]
                below = child[e, node, a]
                if below != NO_NODE:
                    out[e, first + 2 * num_actions + a] = return_sum[e, below] / nodes[e, below]
                    out[e, first + 3 * num_actions + a] = return_max[e, below]
                    out[e, first + 4 * num_actions + a] = visits[e, below] / stage_length
            if action_into[e, node] != NO_ACTION:
                out[e, first + num_actions + action_into[e, node]] = 1.0
            column = first + 5 * num_actions

        node = current[e]
        trailing_discount = powers[depth[e] + 1]
        out[e, column] = path_reward[e] + trailing_discount * value[e, node]
        out[e, column + 1] = path_reward[e]
        out[e, column + 2] = return_max[e, ROOT]
        out[e, column + 3] = trailing_discount
        out[e, column + 3 + step] = 1.0
        out[e, column + 4 + stage_length] = 1.0 if was_reset[e] else 0.0
        if sequence_column != NO_COLUMN:
            ancestor = node
            for place in range(depth[e] - 1, -1, -1):
                out[e, sequence_column + place * num_actions + action_into[e, ancestor]] = 1.0
                ancestor = parent[e, ancestor]
        if termination_column != NO_COLUMN:
            out[e, termination_column] = 1.0 if terminated[e, node] else 0.0

        total = value[e, ROOT]
        for a in range(num_actions):
            if child[e, ROOT, a] != NO_NODE:
                total += return_sum[e, child[e, ROOT, a]]
        root_value[e] = total / nodes[e, ROOT]
        max_return[e] = return_max[e, ROOT]
