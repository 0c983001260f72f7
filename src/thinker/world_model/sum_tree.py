"""The sum tree for prioritised sampling of sequences (the paper's appendix B)."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np


@numba.njit(cache=True)
def _update(total: np.ndarray, maximum: np.ndarray, leaf: np.ndarray, priority: np.ndarray, num_leaves: int) -> int:
    """Write the leaves, recompute every node above them, and return the change in the number of positive leaves."""
    for n in range(leaf.shape[0]):  # all are checked before any is written
        if not 0 <= leaf[n] < num_leaves:
            raise IndexError("leaf outside the sum tree")
        if not 0.0 <= priority[n] < np.inf:
            raise ValueError("priorities must be finite and not negative")
    first_leaf = total.shape[0] // 2
    growth = 0
    for n in range(leaf.shape[0]):
        node = first_leaf + leaf[n]
        growth += int(priority[n] > 0.0) - int(total[node] > 0.0)
        total[node] = priority[n]
        maximum[node] = priority[n]
        node //= 2
        while node >= 1:
            # Recomputed from the children, not adjusted by a difference, so that the total cannot drift.
            total[node] = total[2 * node] + total[2 * node + 1]
            maximum[node] = max(maximum[2 * node], maximum[2 * node + 1])
            node //= 2
    return growth


@numba.njit(cache=True)
def _find(total: np.ndarray, fraction: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The leaf at each ``fraction`` [N], in [0, 1), of the total, and its probability."""
    first_leaf = total.shape[0] // 2
    leaf = np.empty(fraction.shape[0], np.int64)
    probability = np.empty(fraction.shape[0], np.float64)
    for n in range(fraction.shape[0]):
        mass = fraction[n] * total[1]
        node = 1
        while node < first_leaf:
            left, right = total[2 * node], total[2 * node + 1]
            # Rounding must never lead to a subtree without mass.
            if mass < left or right == 0.0:
                node = 2 * node
            else:
                mass -= left
                node = 2 * node + 1
        leaf[n] = node - first_leaf
        probability[n] = total[node] / total[1]
    return leaf, probability


class SumTree:
    """Sum and maximum over non-negative leaves: O(log n) update and proportional sampling, in batches.

    Both are binary heaps of 2M float64, where M is the number of leaves rounded up to a power of two; node 1 is the
    root, leaf i is node M + i. Every node is always exactly the sum of its two children.
    """

    def __init__(self, num_leaves: int) -> None:
        if num_leaves < 1:
            raise ValueError(f"num_leaves={num_leaves}: a sum tree needs at least 1 leaf")
        self.num_leaves = num_leaves
        size = 1 << (num_leaves - 1).bit_length()
        self._total = np.zeros(2 * size, np.float64)  # [2M]
        self._maximum = np.zeros(2 * size, np.float64)  # [2M]
        self._positive = 0

    def __len__(self) -> int:
        """The number of positive leaves: those that can be sampled."""
        return self._positive

    @property
    def total(self) -> float:
        return float(self._total[1])

    @property
    def maximum(self) -> float:
        """The largest leaf, 0 in an empty tree."""
        return float(self._maximum[1])

    @property
    def nbytes(self) -> int:
        return self._total.nbytes + self._maximum.nbytes

    @property
    def leaves(self) -> np.ndarray:
        """All leaves [num_leaves]; not a copy. Change them only with `update`."""
        size = len(self._total) // 2
        return self._total[size : size + self.num_leaves]

    def update(self, leaf: np.ndarray, priority: np.ndarray) -> None:
        """Set the leaves ``leaf`` [N] int64 to ``priority`` [N] float64; if a leaf repeats, the last value counts."""
        self._positive += _update(self._total, self._maximum, leaf, priority, self.num_leaves)

    def sample(self, batch_size: int, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Sample leaves in proportion to their priority: indices [N] int64 and their probabilities [N] float64.

        Sampling is stratified: the total is split into N equal parts and one leaf is drawn from each, so that leaf i is
        expected N P(i) times, as with independent draws, but with less variance.
        """
        if self._positive == 0:
            raise ValueError("cannot sample from a sum tree without a positive leaf: update some leaves first")
        fraction = (np.arange(batch_size) + generator.random(batch_size)) / batch_size
        leaf, probability = _find(self._total, fraction)
        return leaf, probability

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to continue exactly; the array is not a copy."""
        return {"leaves": self.leaves}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        leaves = np.asarray(state["leaves"], np.float64)
        if leaves.shape != (self.num_leaves,):
            raise ValueError(f"a sum tree of {self.num_leaves} leaves cannot load leaves of shape {leaves.shape}")
        self.update(np.arange(self.num_leaves), leaves)
