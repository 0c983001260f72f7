"""Random finite MDPs as world models: every row of a batch has an MDP of its own, so that rows cannot be mixed up."""

from __future__ import annotations

import numpy as np
import torch

from thinker.interfaces import NodeOutput


class TableModel:
    """``batch`` random MDPs of ``states`` states. The hidden state is (MDP, state); an observation is the same pair.

    Rewards, values and logits are normal; a share ``end_rate`` of the transitions ends the episode.
    """

    def __init__(self, seed: int, *, batch: int, num_actions: int, states: int = 40, end_rate: float = 0.2) -> None:
        random = np.random.default_rng(seed)
        self.batch, self.num_actions = batch, num_actions
        shape = (batch, states, num_actions)
        self.next_state = random.integers(0, states, shape)
        self.reward = random.normal(size=shape).astype(np.float32)
        self.ends = random.random(shape) < end_rate
        self.value = random.normal(size=(batch, states)).astype(np.float32)
        logits = random.normal(size=shape)
        self.policy = (np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)).astype(np.float32)
        self.rows_unrolled: list[int] = []

    def observation(self) -> np.ndarray:
        """The roots: state 0 of every MDP, [B, 2]."""
        return np.stack((np.arange(self.batch), np.zeros(self.batch, np.int64)), 1)

    def root(self, observation: torch.Tensor, last_action: torch.Tensor) -> NodeOutput:
        zeros = np.zeros(len(observation), np.float32)
        return self._output(observation.numpy(), zeros, zeros)

    def unroll(self, hidden: torch.Tensor, action: torch.Tensor) -> NodeOutput:
        self.rows_unrolled.append(len(hidden))
        table, state = hidden.numpy().T
        edge = table, state, action.numpy()
        reached = np.stack((table, self.next_state[edge]), 1)
        return self._output(reached, self.reward[edge], self.ends[edge].astype(np.float32))

    def _output(self, hidden: np.ndarray, reward: np.ndarray, termination: np.ndarray) -> NodeOutput:
        table, state = hidden.T
        numbers = self.value[table, state], self.policy[table, state], reward, termination
        value, policy, reward, termination = (torch.from_numpy(np.asarray(x, np.float32)) for x in numbers)
        hidden = torch.from_numpy(hidden)
        return NodeOutput(hidden, value, policy, reward, termination, hidden)
