"""Algorithm 1 and the tree representation in plain, slow, obvious Python; a fake model whose hidden state is a hash.

Written from the contract, with one Python object per node and no shared state between environments: every statistic is
recomputed from equation 1 by walking all pairs of nodes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces

from thinker.world_model import NodeOutput

MODULUS = 2**31 - 1


def mix(*numbers: int) -> int:
    """A deterministic hash of integers."""
    value = 17
    for number in numbers:
        value = (value * 1_000_003 + int(number) * 7_919 + 101) % MODULUS
        value ^= value >> 13
    return value % MODULUS


def fraction(*numbers: int) -> float:
    return (mix(*numbers) % 10_007) / 10_007


@dataclass(frozen=True)
class FakeModel:
    """All that a model says of a node is a hash of the path to it. ``version`` changes it all, as learning does."""

    num_actions: int
    termination_rate: float = 0.2
    version: int = 0
    calls: list[tuple[str, int]] = field(default_factory=list)

    def describe(self, hidden: int, is_root: bool) -> dict:
        weights = np.array([fraction(hidden, 3, a) + 0.1 for a in range(self.num_actions)])
        return {
            "value": 4 * fraction(hidden, 1) - 2,
            "policy": weights / weights.sum(),
            "reward": 0.0 if is_root else 2 * fraction(hidden, 2) - 1,
            "termination": 0.0 if is_root else float(fraction(hidden, 4) < self.termination_rate),
            "state": [fraction(hidden, 5), fraction(hidden, 6)],
        }

    def root_hidden(self, observation: np.ndarray, last_action: int) -> int:
        return mix(self.version, int(observation[0]), int(observation[1]), last_action + 1)

    def unroll_hidden(self, hidden: int, action: int) -> int:
        return mix(self.version, hidden, action + 11)

    def _output(self, hidden: list[int], observation: torch.Tensor | None) -> NodeOutput:
        nodes = [self.describe(h, observation is not None) for h in hidden]

        def tensor(name: str) -> torch.Tensor:
            return torch.tensor(np.array([node[name] for node in nodes]), dtype=torch.float32)

        return NodeOutput(
            hidden=torch.tensor(hidden, dtype=torch.int64)[:, None],
            value=tensor("value"),
            policy=tensor("policy"),
            reward=tensor("reward"),
            termination=tensor("termination"),
            state=tensor("state") if observation is None else observation.float(),
        )

    def root(self, observation: torch.Tensor, last_action: torch.Tensor) -> NodeOutput:
        self.calls.append(("root", len(observation)))
        rows = zip(observation.numpy(), last_action.tolist())
        return self._output([self.root_hidden(row, action) for row, action in rows], observation)

    def unroll(self, hidden: torch.Tensor, action: torch.Tensor) -> NodeOutput:
        self.calls.append(("unroll", len(hidden)))
        pairs = zip(hidden[:, 0].tolist(), action.tolist())
        return self._output([self.unroll_hidden(h, a) for h, a in pairs], None)


class RandomEpisodes(gym.Env):
    """Observations (environment, time), hashed rewards, hashed ends: termination, truncation or both."""

    def __init__(self, number: int, num_actions: int, end_rate: float) -> None:
        self.number, self.end_rate = number, end_rate
        self.action_space = spaces.Discrete(num_actions)
        self.observation_space = spaces.Box(-1, np.inf, (2,), np.float32)
        self.time = 0

    def _observation(self) -> np.ndarray:
        return np.array([self.number, self.time], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time += 1
        return self._observation(), {"started_at": self.time}

    def step(self, action):
        self.time += 1
        reward = 2 * fraction(self.number, self.time, action) - 1
        terminated = fraction(self.number, self.time, 71) < self.end_rate
        truncated = fraction(self.number, self.time, 72) < self.end_rate
        return self._observation(), reward, terminated, truncated, {"time": self.time}


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
        self._plant(Node(None, -1), -1)
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
            self._plant(Node(None, -1), -1)
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
