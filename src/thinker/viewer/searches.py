"""A planner's search as it is recorded: its rollouts and its tree, or a part of them if there are many."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from thinker.augmented import NO_NODE, ROOT
from thinker.planners import PlannerSpec, SearchResult
from thinker.viewer.frames import FrameStore
from thinker.viewer.recording import ImaginedStep, RecordedTree, Reset, rounded

MOST_STEPS = 200
"""Imaginary steps of all rollouts that are recorded of one search."""
MOST_NODES = 200
"""Nodes that are recorded of one tree, apart from the path to the best one."""


@dataclass(frozen=True)
class RecordedSearch:
    """A part of a planner's search, in the form of a stage."""

    steps: list[ImaginedStep]
    tree: RecordedTree
    states: dict[int, np.ndarray]  # predicted, by node of the recorded tree
    rollouts: int  # of the whole search


def read_search(
    spec: PlannerSpec, result: SearchResult, row: int, *, discount: float, frame: int, frames: FrameStore
) -> RecordedSearch:
    """What is recorded of search ``row``, which started at the real state ``frame``.

    Of a long search these rollouts are recorded: the one with the highest g of every action at the root, and of the
    others a sample that is evenly spread over the search, with `MOST_STEPS` steps in all. The tree consists of their
    nodes, the path to the node with the highest g, and the most visited other nodes, up to `MOST_NODES`. All numbers
    are those of the whole search.
    """
    search = _Search(spec, result, row, discount)
    paths = search.shown_rollouts()
    nodes = search.shown_nodes(paths)
    number = {node: new for new, node in enumerate(nodes)}
    states = search.states(nodes)
    frame_of = {node: frames.add(state) for node, state in states.items()}
    steps = list(search.steps(paths, number, frame_of))
    return RecordedSearch(steps, search.tree(nodes, number, frame, frame_of), states, len(search.ends))


class _Search:
    """One search with its nodes numbered anew, without places that are empty; parents come before their children."""

    def __init__(self, spec: PlannerSpec, result: SearchResult, row: int, discount: float) -> None:
        tree = result.tree
        self._places = places = np.flatnonzero(tree.visits[row] > 0)
        number = np.full(tree.visits.shape[1], NO_NODE)
        number[places] = np.arange(len(places))
        self._kept_states = None if tree.state is None else tree.state[row]
        self.parent = np.concatenate(([NO_NODE], number[tree.parent[row, places[1:]]]))
        self.action, self.depth = tree.action[row, places], tree.depth[row, places]
        self.visits, self.policy = tree.visits[row, places], tree.policy[row, places]
        self.reward = tree.reward[row, places].astype(np.float64)
        self.value = tree.value[row, places].astype(np.float64)
        self.ended = tree.ended[row, places]
        self.ends = number[spec.rollout_ends(tree, row)]
        self._limit = getattr(spec, "max_depth", None)
        self._returns(discount)

    def _returns(self, discount: float) -> None:
        """g of every node, and its mean and maximum over the subtree of every node."""
        levels = [np.flatnonzero(self.depth == depth) for depth in range(1, int(self.depth.max()) + 1)]
        before, weight = np.zeros(len(self.parent)), discount**self.depth
        self.first = np.full(len(self.parent), ROOT)  # the child of the root through which the path leads
        for level in levels:
            above = self.parent[level]
            before[level] = before[above] + weight[above] * self.reward[above]
            self.first[level] = np.where(above == ROOT, level, self.first[above])
        self.rollout_return = before + weight * (self.reward + discount * self.value)
        total, count = self.rollout_return.copy(), np.ones(len(self.parent))
        self.max_return = self.rollout_return.copy()
        for level in reversed(levels):
            above = self.parent[level]
            np.add.at(total, above, total[level])
            np.add.at(count, above, count[level])
            np.maximum.at(self.max_return, above, self.max_return[level])
        self.mean_return = total / count

    def path(self, node: int) -> list[int]:
        """The nodes on the way from the root to ``node``, without the root."""
        nodes: list[int] = []
        while node != ROOT:
            nodes.append(node)
            node = int(self.parent[node])
        return nodes[::-1]

    def shown_rollouts(self) -> list[list[int]]:
        """The paths of the rollouts that are recorded, in the order of the search."""
        first = self.first[self.ends]
        best = {int(child): -1 for child in first}
        for index, end in enumerate(self.ends):
            old = best[int(first[index])]
            if old < 0 or self.rollout_return[end] > self.rollout_return[self.ends[old]]:
                best[int(first[index])] = index
        lengths = self.depth[self.ends]
        for stride in range(1, len(self.ends) + 1):
            chosen = sorted({*best.values(), *range(0, len(self.ends), stride)})
            if lengths[chosen].sum() <= MOST_STEPS:
                break
        else:
            chosen = sorted(best.values())
        longest = MOST_STEPS if lengths[chosen].sum() <= MOST_STEPS else max(1, MOST_STEPS // len(chosen))
        return [self.path(int(self.ends[index]))[:longest] for index in chosen]

    def shown_nodes(self, paths: list[list[int]]) -> list[int]:
        """The nodes that are recorded, the root first."""
        nodes = {ROOT, *(node for path in paths for node in path)}
        nodes.update(self.path(int(self.rollout_return.argmax())))
        for node in np.argsort(-self.visits, kind="stable"):  # never a child before its parent
            if len(nodes) >= MOST_NODES:
                break
            nodes.add(int(node))
        return sorted(nodes)

    def states(self, nodes: list[int]) -> dict[int, np.ndarray]:
        """The predicted states, by index in ``nodes``."""
        if self._kept_states is None:
            return {}
        return {new: self._kept_states[self._places[node]].copy() for new, node in enumerate(nodes) if node != ROOT}

    def steps(self, paths: list[list[int]], number: dict[int, int], frame_of: dict[int, int]) -> Iterable[ImaginedStep]:
        """The imaginary steps of the rollouts ``paths``."""
        highest = np.maximum.accumulate(self.rollout_return)
        gain = np.diff(highest, prepend=highest[0])  # of the highest g, when a node was new
        seen: set[int] = set()
        for index, path in enumerate(paths):
            for node in path:
                yield ImaginedStep(
                    action=int(self.action[node]),
                    reset=self._reset(node, is_end=node == path[-1], is_last=index == len(paths) - 1),
                    node=number[node],
                    depth=int(self.depth[node]),
                    frame=frame_of.get(number[node]),
                    reward=rounded(self.reward[node]),
                    value=rounded(self.value[node]),
                    rollout_return=rounded(self.rollout_return[node]),
                    planning_reward=0.0 if node in seen else rounded(gain[node]),
                    base_policy=_numbers(self.policy[self.parent[node]]),
                    agent_policy=None,
                    reset_probability=None,
                )
                seen.add(node)

    def _reset(self, node: int, *, is_end: bool, is_last: bool) -> Reset:
        if is_end and self.depth[node] == self._limit:
            return "forced"
        return "chosen" if is_end and not is_last else "none"

    def tree(self, nodes: list[int], number: dict[int, int], frame: int, frame_of: dict[int, int]) -> RecordedTree:
        """The recorded part of the tree."""
        return RecordedTree(
            parent=[NO_NODE, *(number[int(self.parent[node])] for node in nodes[1:])],
            action=self.action[nodes].tolist(),
            reward=_numbers(self.reward[nodes]),
            value=_numbers(self.value[nodes]),
            visits=self.visits[nodes].tolist(),
            mean_return=_numbers(self.mean_return[nodes]),
            max_return=_numbers(self.max_return[nodes]),
            rollout_return=_numbers(self.rollout_return[nodes]),
            terminated=self.ended[nodes].tolist(),
            fresh=[True] * len(nodes),
            frame=[frame, *(frame_of.get(new) for new in range(1, len(nodes)))],
            error=[None] * len(nodes),
            policy=[_numbers(self.policy[node]) for node in nodes],
        )


def _numbers(values: np.ndarray) -> list[float]:
    return [rounded(x) for x in values.tolist()]
