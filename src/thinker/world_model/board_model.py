"""A `WorldModel` around a `BoardNetwork` that computes every board and every step only once per set of weights.

Different paths often lead to the same board, and so do the searches of consecutive real steps: most nodes are found in
a table instead of being sent through the network. The table is emptied when new weights are published.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from thinker.interfaces import NodeOutput
from thinker.nn.blocks import one_hot_action
from thinker.world_model.acting import ActingCopy
from thinker.world_model.board import FEATURES, BoardNetwork
from thinker.world_model.board_table import add_steps, find_or_add, make_table, pack, read_steps, unknown_steps, unpack

CAPACITY = 1 << 15
"""Boards in the table; when it is full, it is emptied."""


class BoardModel:
    """Acts with the weights of an acting copy. A node's hidden state is its board, as packed bits.

    ``predict_states``: also return the boards as observations.
    """

    hidden_shape = (FEATURES,)

    def __init__(self, acting: ActingCopy[BoardNetwork], *, predict_states: bool = True, capacity: int = CAPACITY):
        self._acting = acting
        self._network = acting.network
        self._predict_states = predict_states
        self.device = acting.network.device
        self.num_actions = acting.network.num_actions
        self._capacity = capacity
        self._version = acting.version
        self._num_bits = int(np.prod(acting.network.codec.state_shape))
        self._num_words = -(-self._num_bits // 64)
        self._clear(capacity)

    def _clear(self, capacity: int) -> None:
        self._table = make_table(capacity, self._num_words, self.num_actions)
        self._features = torch.zeros(capacity, FEATURES)
        self._count = 0

    @torch.no_grad()
    def root(self, observation: Tensor, last_action: Tensor) -> NodeOutput:
        """See `WorldModel`. Raises an error if an observation does not lie in the declared observation space."""
        codec = self._network.codec
        codec.check(observation)
        words = pack(codec.encode(observation).permute(0, 2, 3, 1).flatten(1).bool().cpu().numpy())
        self._make_room(len(words))
        numbers = self._numbers(words)
        nothing = np.zeros(len(words), np.float32)
        return self._output(words, numbers, nothing, nothing)

    @torch.no_grad()
    def unroll(self, hidden: Tensor, action: Tensor) -> NodeOutput:
        """See `WorldModel`."""
        words, actions = hidden.cpu().numpy(), action.cpu().numpy()
        self._make_room(2 * len(words))
        numbers = self._numbers(words)
        chosen = np.empty(len(words), np.int64)
        chosen = chosen[: unknown_steps(self._table, numbers, actions, chosen)]
        if len(chosen):
            self._predict(numbers[chosen], actions[chosen])
        following = np.empty(len(words), np.int32)
        reward, termination = np.empty(len(words), np.float32), np.empty(len(words), np.float32)
        read_steps(self._table, numbers, actions, following, reward, termination)
        return self._output(self._table.words[following], following, reward, termination)

    def visible_hidden(self, hidden: Tensor) -> Tensor:
        """The features [B, FEATURES] of boards."""
        self._make_room(len(hidden))
        return self._features[torch.from_numpy(self._numbers(hidden.cpu().numpy()))]

    def _make_room(self, boards: int) -> None:
        """Empty the table if the weights have changed or if it has no room for as many ``boards``."""
        if self._version != self._acting.version or self._count + boards > self._capacity:
            self._version = self._acting.version
            self._capacity = max(self._capacity, boards)
            if self._capacity > len(self._table.words):
                self._clear(self._capacity)
            self._table.slots.fill(-1)
            self._table.following[: self._count].fill(-1)
            self._count = 0

    def _numbers(self, words: np.ndarray) -> np.ndarray:
        """The numbers [B] of boards in the table; those that are new are evaluated."""
        numbers = np.empty(len(words), np.int64)
        before, self._count = self._count, find_or_add(self._table, self._count, words, numbers)
        if self._count > before:
            new = slice(before, self._count)
            evaluation = self._network.value_policy(self._states(self._table.words[new]))
            self._features[new] = evaluation.features
            self._table.value[new] = self._network.head.decode(evaluation.value_output).cpu().numpy()
            self._table.policy[new] = evaluation.policy_logits.softmax(1).cpu().numpy()
        return numbers

    def _predict(self, numbers: np.ndarray, actions: np.ndarray) -> None:
        """Predict unknown steps [n] and add them to the table."""
        one_hot = one_hot_action(torch.from_numpy(actions).to(self.device), self.num_actions)
        predicted = self._network.state_reward(self._states(self._table.words[numbers]), one_hot)
        boards = (predicted.state > 0.5).permute(0, 2, 3, 1).flatten(1)
        following = self._numbers(pack(boards.cpu().numpy()))
        reward = self._network.head.decode(predicted.reward_output)
        termination = predicted.termination_logit.sigmoid()
        add_steps(self._table, numbers, actions, following, reward.cpu().numpy(), termination.cpu().numpy())

    def _states(self, words: np.ndarray) -> Tensor:
        """Packed boards [B, W] as states [B, *state_shape], channels last in memory."""
        channels, height, width = self._network.codec.state_shape
        bits = torch.from_numpy(unpack(words, self._num_bits)).to(self.device)
        dtype = self._network.value_policy.combine.weight.dtype
        return bits.view(len(words), height, width, channels).to(dtype).permute(0, 3, 1, 2)

    def _output(
        self, words: np.ndarray, numbers: np.ndarray, reward: np.ndarray, termination: np.ndarray
    ) -> NodeOutput:
        state = self._network.codec.decode(self._states(words)) if self._predict_states else None
        return NodeOutput(
            hidden=torch.from_numpy(words),
            value=torch.from_numpy(self._table.value[numbers]),
            policy=torch.from_numpy(self._table.policy[numbers]),
            reward=torch.from_numpy(reward),
            termination=torch.from_numpy(termination),
            state=state,
        )
