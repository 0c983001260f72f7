"""Algorithm 1 and the tree representation in plain, slow, obvious Python.

Written from the contract, with one Python object per node and no shared state between environments: every statistic is
recomputed from equation 1 by walking all pairs of nodes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from thinker.interfaces import NO_ACTION


@dataclass
class Node:
    """A node as appendix A describes it."""

    parent: Node | None
    action: int
    reward: float = 0.0
    value: float = 0.0
    policy: np.ndarray | None = None
    hidden: int = 0
    state: list[float] | None = None
    terminated: bool = False
    visits: int = 0
    fresh: bool = False
    children: dict[int, Node] = field(default_factory=dict)

    def subtree(self) -> list[Node]:
        return [self] + [node for child in self.children.values() for node in child.subtree()]

    def path_to(self, node: Node) -> list[Node]:
        path = [node]
        while path[0] is not self:
            path.insert(0, path[0].parent)
        return path

    def rollout_return(self, end: Node, discount: float) -> float:
        """Equation 1."""
        path = self.path_to(end)
        rewards = sum(discount**n * node.reward for n, node in enumerate(path))
        return rewards + discount ** len(path) * end.value

    def returns(self, discount: float) -> list[float]:
        return [self.rollout_return(node, discount) for node in self.subtree()]


class ReferenceThinker:
    """One environment of the augmented MDP; the model is used one node at a time."""

    def __init__(self, env, model, *, stage_length, max_depth, discount, carry_tree):
        self.env, self.model = env, model
        self.K, self.L, self.discount, self.carry_tree = stage_length, max_depth, discount, carry_tree
        self.asked = 0  # nodes sent through the model in the last step

    def reset(self) -> dict:
        self.observation, _ = self.env.reset()
        self._plant(Node(None, NO_ACTION), NO_ACTION)
        return self._result(0.0, False, False, 0.0, None)

    def _plant(self, root: Node, last_action: int) -> None:
        root.parent = None
        for node in root.subtree():
            node.fresh = False
        root.hidden = self.model.root_hidden(self.observation, last_action)
        said = self.model.describe(root.hidden, True)
        root.reward, root.terminated, root.fresh = 0.0, False, True
        root.value, root.policy, root.state = said["value"], said["policy"], list(self.observation)
        self.root = self.current = root
        self.k, self.depth, self.reset_flag = 1, 0, True

    def step(self, action: int, reset: int) -> dict:
        return self._real_step(action) if self.k == self.K else self._imaginary_step(action, reset)

    def _imaginary_step(self, action: int, reset: int) -> dict:
        before = max(self.root.returns(self.discount))
        if self.reset_flag:
            self.current, self.depth = self.root, 0
        self.k, self.depth = self.k + 1, self.depth + 1
        parent = self.current
        node = parent.children.setdefault(action, Node(parent, action))
        node.visits += 1
        self.asked = 0
        if not node.fresh:
            node.fresh = True
            if parent.terminated:
                node.reward, node.value, node.policy = 0.0, 0.0, parent.policy
                node.hidden, node.state, node.terminated = parent.hidden, [0.0, 0.0], True
            else:
                self.asked = 1
                node.hidden = self.model.unroll_hidden(parent.hidden, action)
                said = self.model.describe(node.hidden, False)
                node.terminated = said["termination"] > 0.5
                node.reward, node.policy, node.state = said["reward"], said["policy"], said["state"]
                node.value = 0.0 if node.terminated else said["value"]
                if node.terminated:
                    node.children = {}  # nothing carried lies beyond an end
        self.current = node
        self.reset_flag = reset == 1 or (self.L is not None and self.depth >= self.L)
        after = max(self.root.returns(self.discount))
        return self._result(0.0, False, False, after - before, None)

    def _real_step(self, action: int) -> dict:
        self.asked = 0
        self.observation, reward, terminated, truncated, _ = self.env.step(action)
        child = self.root.children.get(action) if self.carry_tree else None
        self._plant(child or Node(None, action), action)
        final = None
        if terminated or truncated:
            final = self._result(0.0, False, False, 0.0, None)
            self.observation, _ = self.env.reset()
            self._plant(Node(None, NO_ACTION), NO_ACTION)
        return self._result(reward, terminated, truncated, 0.0, final)

    def _result(self, reward, terminated, truncated, planning_reward, final) -> dict:
        returns = self.root.returns(self.discount)
        return {
            "tree": self._representation(),
            "hidden": [self.current.hidden],
            "root_hidden": [self.root.hidden],
            "real_state": self.observation,
            "predicted_state": self.current.state,
            "reward": reward,
            "terminated": terminated,
            "truncated": truncated,
            "planning_reward": planning_reward,
            "root_value": self._root_value(),
            "depth": self.depth,
            "step_kind": int(self.k != 1),
            "next_is_real": self.k == self.K,
            "max_return": max(returns),
            "final": final,
            "asked": self.asked,
        }

    def _root_value(self) -> float:
        """g_mean of the root with one discount less, written out so that it holds for a discount of 0 as well."""
        values = []
        for node in self.root.subtree():
            path = self.root.path_to(node)[1:]
            rewards = sum(self.discount**n * step.reward for n, step in enumerate(path))
            values.append(rewards + self.discount ** len(path) * node.value)
        return float(np.mean(values))

    def _node_representation(self, node: Node) -> list[float]:
        A = self.model.num_actions
        mean, best, visits = [0.0] * A, [0.0] * A, [0.0] * A
        for action, child in node.children.items():
            returns = child.returns(self.discount)
            mean[action], best[action], visits[action] = np.mean(returns), max(returns), child.visits / self.K
        one_hot = [float(a == node.action) for a in range(A)]
        return [node.reward, node.value, *node.policy, *one_hot, *mean, *best, *visits]

    def _representation(self) -> list[float]:
        rollout = self.root.rollout_return(self.current, self.discount)
        trailing = self.discount ** (self.depth + 1)
        return [
            *self._node_representation(self.root),
            *self._node_representation(self.current),
            rollout,
            rollout - trailing * self.current.value,
            max(self.root.returns(self.discount)),
            trailing,
            *[float(k == self.k) for k in range(1, self.K + 1)],
            float(self.reset_flag),
        ]
