"""MCTS and Gumbel MCTS in plain, slow, obvious Python: one object per node, one search at a time, nothing updated.

A node remembers the returns of all simulations that went through it; every statistic is computed from them when it is
needed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import torch


@dataclass
class Node:
    """A node of one search."""

    hidden: torch.Tensor
    value: float
    policy: list[float]
    reward: float
    ended: bool
    depth: int
    returns: list[float] = field(default_factory=list)  # of the simulations through it, its own expansion included
    children: dict[int, Node] = field(default_factory=dict)

    @property
    def visits(self) -> int:
        return len(self.returns)

    @property
    def mean(self) -> float:
        return sum(self.returns) / len(self.returns)

    def q(self, action: int, discount: float) -> float:
        child = self.children[action]
        return child.reward + discount * child.mean

    def visits_of(self, action: int) -> int:
        return self.children[action].visits if action in self.children else 0


class Reference:
    """One search of one root; ``choose`` is the rule that selects an action at a node."""

    def __init__(self, model, observation, *, discount, max_depth):
        self.model, self.discount, self.max_depth = model, discount, max_depth
        output = model.root(torch.as_tensor(observation)[None], torch.tensor([-1]))
        self.root = self._node(output, 0)
        self.root.returns.append(self.root.value)
        self.nodes = [self.root]  # in the order of their expansion

    def _node(self, output, depth: int) -> Node:
        ended = float(output.termination[0]) > 0.5
        value = 0.0 if ended else float(output.value[0])
        return Node(output.hidden, value, output.policy[0].tolist(), float(output.reward[0]), ended, depth)

    def simulate(self, choose) -> None:
        path, node, is_new = [self.root], self.root, False
        while not is_new and not node.ended and (self.max_depth is None or node.depth < self.max_depth):
            action = choose(node)
            if action not in node.children:
                output = self.model.unroll(node.hidden, torch.tensor([action]))
                node.children[action] = self._node(output, node.depth + 1)
                self.nodes.append(node.children[action])
                is_new = True
            node = node.children[action]
            path.append(node)
        simulated = node.value
        for node in reversed(path):
            node.returns.append(simulated)
            simulated = node.reward + self.discount * simulated

    def by_puct(self, node: Node, prior: list[float], exploration: float, base: float) -> int:
        visited = {a: node.q(a, self.discount) for a in node.children}
        low, high = min(node.mean, *visited.values(), node.mean), max(node.mean, *visited.values(), node.mean)
        scores = []
        for a, probability in enumerate(prior):
            normalised = (visited[a] - low) / max(high - low, 1e-8) if a in visited else 0.0
            bonus = exploration + math.log((node.visits + base + 1) / base)
            scores.append(normalised + bonus * probability * math.sqrt(node.visits) / (1 + node.visits_of(a)))
        return int(np.argmax(scores))

    def sigma(self, node: Node, scale: float, offset: float) -> np.ndarray:
        """σ of the completed Qs."""
        visits = [node.visits_of(a) for a in range(len(node.policy))]
        mixed = node.value
        if node.children:
            weights = sum(node.policy[a] for a in node.children)
            average = sum(node.policy[a] * node.q(a, self.discount) for a in node.children) / weights
            mixed = (node.value + sum(visits) * average) / (1 + sum(visits))
        q = np.array([node.q(a, self.discount) if a in node.children else mixed for a in range(len(visits))])
        return (offset + max(visits)) * scale * (q - q.min()) / max(q.max() - q.min(), 1e-8)

    def improved(self, node: Node, scale: float, offset: float) -> np.ndarray:
        logits = np.log(node.policy) + self.sigma(node, scale, offset)
        weights = np.exp(logits - logits.max())
        return weights / weights.sum()

    def inside_gumbel(self, node: Node, scale: float, offset: float) -> int:
        visits = np.array([node.visits_of(a) for a in range(len(node.policy))])
        return int(np.argmax(self.improved(node, scale, offset) - visits / (1 + visits.sum())))

    def gumbel_root(self, candidates: list[int], noise: np.ndarray, scale: float, offset: float) -> int:
        scores = noise + np.log(self.root.policy) + self.sigma(self.root, scale, offset)
        return max(candidates, key=lambda a: scores[a])


def mcts(model, observation, spec, *, discount: float, prior: list[float] | None = None) -> Reference:
    """The tree after all simulations; ``prior`` replaces the base policy at the root."""
    search = Reference(model, observation, discount=discount, max_depth=spec.max_depth)

    def choose(node: Node) -> int:
        policy = prior if node is search.root and prior is not None else node.policy
        return search.by_puct(node, policy, spec.exploration, spec.exploration_base)

    for _ in range(spec.simulations):
        search.simulate(choose)
    return search


def gumbel(model, observation, spec, *, discount: float, noise: np.ndarray) -> tuple[Reference, int]:
    """The tree after all simulations and the chosen action, by sequential halving with explicit sets of actions."""
    search = Reference(model, observation, discount=discount, max_depth=spec.max_depth)
    setting = spec.value_scale, spec.visit_offset

    def simulate(first: int) -> None:
        def choose(node: Node) -> int:
            return first if node is search.root else search.inside_gumbel(node, *setting)

        search.simulate(choose)

    def left() -> int:
        return spec.simulations - (search.root.visits - 1)

    num_actions = len(search.root.policy)
    considered = min(spec.considered_actions, num_actions)
    phases = max(1, math.ceil(math.log2(considered)))
    while left():
        rounds = 1 if considered == 1 else max(1, spec.simulations // (phases * considered))
        for _ in range(rounds):
            # Of the actions with the most visits, the best so far: all that were considered in the last phase.
            most = max(search.root.visits_of(a) for a in range(num_actions))
            candidates = [a for a in range(num_actions) if search.root.visits_of(a) == most]
            for _ in range(min(considered, left())):
                action = search.gumbel_root(candidates, noise, *setting)
                candidates.remove(action)
                simulate(action)
        considered = min(considered, max(2, considered // 2))
    most = max(search.root.visits_of(a) for a in range(num_actions))
    final = [a for a in range(num_actions) if search.root.visits_of(a) == most]
    return search, search.gumbel_root(final, noise, *setting)


def assert_same_tree(result, row: int, reference: Reference) -> None:
    """Row ``row`` of a `SearchResult` holds the nodes of ``reference``, in the same order, with the same numbers."""
    tree, nodes = result.tree, reference.nodes
    index = {id(node): number for number, node in enumerate(nodes)}
    parents = {index[id(child)]: (index[id(node)], a) for node in nodes for a, child in node.children.items()}
    expected = [parents.get(number, (-1, -1)) for number in range(len(nodes))]
    missing = tree.parent.shape[1] - len(nodes)
    assert list(zip(tree.parent[row], tree.action[row])) == expected + [(-1, -1)] * missing
    assert tree.visits[row].tolist() == [node.visits for node in nodes] + [0] * missing
    assert tree.depth[row, : len(nodes)].tolist() == [node.depth for node in nodes]
    assert tree.ended[row, : len(nodes)].tolist() == [node.ended for node in nodes]
    for name, numbers in (
        ("mean_return", [node.mean for node in nodes]),
        ("value", [node.value for node in nodes]),
        ("reward", [node.reward for node in nodes]),
        ("policy", [node.policy for node in nodes]),
    ):
        np.testing.assert_allclose(getattr(tree, name)[row, : len(nodes)], numbers, atol=1e-5, err_msg=name)
    actions = range(len(reference.root.policy))
    assert result.visits[row].tolist() == [reference.root.visits_of(a) for a in actions]
    q = [reference.root.q(a, reference.discount) if a in reference.root.children else 0.0 for a in actions]
    np.testing.assert_allclose(result.q[row], q, atol=1e-5)
    np.testing.assert_allclose(result.value[row], reference.root.mean, atol=1e-5)
