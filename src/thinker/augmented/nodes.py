"""The model's predictions for the nodes of the search trees: computed in one batch, checked, and stored in rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from thinker.augmented.checks import checked_output
from thinker.augmented.rows import Rows
from thinker.augmented.tree import Pending
from thinker.errors import UserError
from thinker.interfaces import NO_ACTION, NodeOutput, WorldModel

Numbers = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""Value [B], policy [B, A], reward [B] and termination [B], float32."""


class Nodes:
    """Hidden states, and optionally predicted states, of all nodes reached in a stage.

    Environment e owns the rows e K .. e K + K - 1; the first is its root. Agents see tensors on ``device``; the model
    may compute on another device.
    """

    def __init__(
        self,
        model: WorldModel,
        observation_space: spaces.Box,
        num_envs: int,
        stage_length: int,
        *,
        keep_states: bool,
        device: torch.device,
    ) -> None:
        self.model = model
        self.device = device
        self.keep_states = keep_states
        self._space = observation_space
        self._num_envs, self._stage_length = num_envs, stage_length
        self.root_rows = np.arange(num_envs) * stage_length
        self._hidden: Rows | None = None
        self._state: Rows | None = None
        self._root_output: NodeOutput | None = None

    def to_device(self, array: np.ndarray) -> Tensor:
        """``array`` as a tensor on the agents' device; on the CPU they share memory."""
        return torch.from_numpy(array).to(self.device)

    def _to_model(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(array).to(getattr(self.model, "device", self.device))

    @property
    def visible_shape(self) -> tuple[int, ...]:
        """The shape of one hidden state as seen by agents."""
        declared = getattr(self.model, "hidden_shape", None)
        if declared is not None:
            return tuple(declared)
        output = self._root(np.zeros((1, *self._space.shape), self._space.dtype), np.array([NO_ACTION]))
        self._numbers(output, 1, "root")
        return tuple(self._visible(output.hidden).shape[1:])

    def plant(self, observation: np.ndarray, last_action: np.ndarray) -> Numbers:
        """Evaluate the roots of all environments at ``observation`` [E, ...]."""
        output = self._root(observation, last_action)
        numbers = self._numbers(output, self._num_envs, "root")
        if self._hidden is None:
            self._hidden = Rows(output.hidden, self._num_envs * self._stage_length)
            if self.keep_states and output.state is not None:
                # One more row than there are nodes: the zero state below a predicted termination.
                self._state = Rows(self.state_of(output.state), self._num_envs * self._stage_length + 1)
        self._root_output = output
        self._hidden.write(self.root_rows, output.hidden)
        if self._state is not None and output.state is not None:
            self._state.write(self.root_rows, self.state_of(output.state))
        return numbers

    @property
    def root_output(self) -> NodeOutput:
        """The model's last predictions for the roots of all environments."""
        if self._root_output is None:
            raise RuntimeError("the trees have no roots yet; call reset() first")
        return self._root_output

    def evaluate(self, observation: np.ndarray, last_action: np.ndarray) -> tuple[Numbers, Tensor, Tensor | None]:
        """Evaluate final observations [n, ...], which are never unrolled: numbers, visible hidden states, states."""
        output = self._root(observation, last_action)
        return self._numbers(output, len(observation), "root"), self._visible(output.hidden), output.state

    def unroll(self, pending: Pending, count: int) -> Numbers:
        """Evaluate the first ``count`` pending nodes and store their hidden states."""
        rows = self._rows(self._hidden)
        hidden = rows.read(pending.parent_row[:count])
        with torch.no_grad():
            output = self.model.unroll(hidden, self._to_model(pending.action[:count]))
        numbers = self._numbers(output, count, "unroll")
        rows.write(pending.row[:count], output.hidden)
        if self._state is not None:
            self._state.write(pending.row[:count], self.state_of(output.state))
        return numbers

    def hidden(self, rows: np.ndarray) -> Tensor:
        """Hidden states [n, ...] at ``rows`` [n], as seen by agents."""
        return self._visible(self._rows(self._hidden).read(rows))

    def states(self, rows: np.ndarray) -> Tensor:
        """Predicted states [n, ...] at ``rows`` [n]; raises an error if the model predicts none."""
        return self._state.read(rows) if self._state is not None else self.state_of(None)

    def kept_state(self, row: int) -> np.ndarray | None:
        """One predicted state, or None if none are kept."""
        return None if self._state is None else self._state.read(np.array([row]))[0].cpu().numpy()

    def state_of(self, state: Tensor | None) -> Tensor:
        """``state`` on the agents' device; raises an error if the model predicts none."""
        if state is None:
            raise UserError(
                "observe has 'predicted_state' (or keep_states is set), but this model does not predict states; leave "
                "it out, or use another model"
            )
        return state.to(self.device)

    def state_dict(self) -> dict[str, Any]:
        return {name: rows.state_dict() if rows is not None else None for name, rows in self._named_rows().items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the rows, which must exist: plant roots first."""
        for name, rows in self._named_rows().items():
            if rows is not None and state[name] is not None:
                rows.load_state_dict(state[name])

    def _named_rows(self) -> dict[str, Rows | None]:
        return {"hidden": self._hidden, "state": self._state}

    def _rows(self, rows: Rows | None) -> Rows:
        if rows is None:
            raise RuntimeError("the trees have no roots yet; call reset() first")
        return rows

    def _root(self, observation: np.ndarray, last_action: np.ndarray) -> NodeOutput:
        with torch.no_grad():
            return self.model.root(self._to_model(observation), self._to_model(last_action))

    def _visible(self, hidden: Tensor) -> Tensor:
        choose = getattr(self.model, "visible_hidden", None)
        return (hidden if choose is None else choose(hidden)).float().to(self.device)

    def _numbers(self, output: NodeOutput, count: int, call: str) -> Numbers:
        hidden_shape = None if self._hidden is None else self._hidden.shape
        num_actions = self.model.num_actions
        return checked_output(output, count, num_actions, hidden_shape, self._space.shape, call)
