"""What exhaustive and random search share: checked calls of the model, and the choice of the best rollout's action."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from thinker.augmented.checks import checked_output, not_finite
from thinker.errors import UserError
from thinker.interfaces import NodeOutput, WorldModel

END = 0.5
"""A node whose termination is predicted with a higher probability ends the episode."""


@dataclass(frozen=True)
class Expanded:
    """The model's predictions for n new nodes."""

    hidden: Tensor  # [n, *hidden_shape]
    value: np.ndarray  # [n] float32      0 where the episode ends
    policy: np.ndarray  # [n, A] float32
    reward: np.ndarray  # [n] float32
    ended: np.ndarray  # [n] bool
    state: np.ndarray | None  # [n, *observation_shape]; None unless states are kept


class CheckedModel:
    """Unrolls ``model`` below ``root``, its output for the B roots, and checks what it returns."""

    def __init__(self, model: WorldModel, root: NodeOutput, *, keep_states: bool = False) -> None:
        if keep_states and root.state is None:
            raise UserError("keep_states is set, but this model does not predict states; leave it out")
        self._model = model
        self._hidden_shape = tuple(root.hidden.shape[1:])
        self._state_shape = None if root.state is None else tuple(root.state.shape[1:])
        self._kept_dtype = root.state.dtype if keep_states and root.state is not None else None
        self.num_actions = model.num_actions
        self.root = self._checked(root, "root", np.arange(len(root.hidden)))

    def unroll(self, hidden: Tensor, action: np.ndarray, row: np.ndarray) -> Expanded:
        """Imagine ``action`` [n] in the nodes ``hidden`` [n, ...] of the searches ``row`` [n]."""
        with torch.no_grad():
            output = self._model.unroll(hidden, torch.from_numpy(action).to(hidden.device))
        return self._checked(output, "unroll", row)

    def states(self, capacity: int) -> np.ndarray | None:
        """Room for the states of B trees of ``capacity`` nodes, [B, N, *observation_shape], with those of the roots.

        None unless states are kept.
        """
        root = self.root.state
        if root is None:
            return None
        states = np.zeros((len(root), capacity, *root.shape[1:]), root.dtype)
        states[:, 0] = root
        return states

    def _checked(self, output: NodeOutput, call: str, row: np.ndarray) -> Expanded:
        state_shape, state = self._state_shape, output.state
        if state_shape is None:
            state_shape = () if state is None else tuple(state.shape[1:])
        numbers = checked_output(output, len(row), self.num_actions, self._hidden_shape, state_shape, call)
        for number in numbers:
            finite = np.isfinite(number.reshape(len(row), -1)).all(1)
            if not finite.all():
                raise not_finite(call, row[finite.argmin()])
        value, policy, reward, termination = numbers
        ended = termination > END
        kept = None
        if self._kept_dtype is not None:
            if state is None:
                raise UserError(
                    f"the model's {call}() predicted no states, but its root() did; it must do both or none"
                )
            kept = state.detach().to(self._kept_dtype).cpu().numpy()
        return Expanded(output.hidden, np.where(ended, np.float32(0), value), policy, reward, ended, kept)


def best_action(
    q: np.ndarray, tried: np.ndarray, random: np.random.Generator, greedy: bool
) -> tuple[np.ndarray, np.ndarray]:
    """The action [B] with the highest ``q`` [B, A] of those ``tried`` [B, A], and the probabilities [B, A] of all.

    Equally good actions are equally likely; if ``greedy``, the first of them is taken.
    """
    known = np.where(tried, q, -np.inf)
    best = known == known.max(1, keepdims=True)
    policy = (best / best.sum(1, keepdims=True)).astype(np.float32)
    order = best.astype(np.float64) if greedy else np.where(best, random.random(best.shape), -1.0)
    return order.argmax(1), policy
