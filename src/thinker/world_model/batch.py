"""The sequences that a world model is trained on, with all targets (appendix B)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor


@dataclass(frozen=True)
class SequenceBatch:
    """N sequences of L = unroll_length real transitions with all targets of equations 2 and 3.

    Step l of a sequence that starts at t is t + l. Losses are multiplied by the masks and by ``weight``.
    """

    observation: Tensor  # [N, L+1, *observation_shape]  s_t .. s_{t+L}, own dtype; the final state after an end
    last_action: Tensor  # [N] int64        the action that led to s_t, NO_ACTION at an episode's start
    action: Tensor  # [N, L] int64          a_t .. a_{t+L-1}
    reward: Tensor  # [N, L] float32        r_{t+1} .. r_{t+L}; 0 after the episode's end
    termination: Tensor  # [N, L] float32   d_{t+1} .. d_{t+L}; stays 1 after a termination
    value_target: Tensor  # [N, L+1] float32     the multi-step returns of s_t .. s_{t+L}; 0 from a terminal state on
    policy_target: Tensor  # [N, L+1, A] float32  the agent's distribution, or the one-hot sampled action
    state_mask: Tensor  # [N, L] float32    1 where s_{t+l}, l >= 1, is a real state of this episode
    reward_mask: Tensor  # [N, L] float32   1 where a_{t+l} was taken in this episode
    termination_mask: Tensor  # [N, L] float32   the same, and 1 after a termination
    value_mask: Tensor  # [N, L+1] float32  1 where the agent acted, and in the terminal state that it reached
    policy_mask: Tensor  # [N, L+1] float32 1 where the agent acted; like value_mask, 0 where random play did
    weight: Tensor  # [N] float32           importance weights
    index: np.ndarray  # [N] int64          indices of the sequences, for the priority update
