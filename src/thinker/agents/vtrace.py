"""V-trace (Espeholt et al., 2018) and its on-policy case, generalised advantage estimation."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Returns(NamedTuple):
    """The training signals of critic and actor."""

    target: Tensor  # [T, ...]  value targets, for the critic
    advantage: Tensor  # [T, ...]  of the actions taken, for the actor


def v_trace(
    log_ratio: Tensor,  # [T, ...]  log of the target policy's over the behaviour policy's probability
    reward: Tensor,  # [T, ...]  received for the action taken at t
    value: Tensor,  # [T, ...]
    next_value: Tensor,  # [T, ...]  of the state that the action led to: the final state if the episode was truncated
    discount: Tensor,  # [T, ...]  of that state: 0 after termination
    continues: Tensor,  # [T, ...] bool  whether t + 1 belongs to the same episode
    *,
    importance_clip: float = 1.0,  # ρ̄
    trace_clip: float = 1.0,  # c̄
    trace_decay: float = 1.0,  # λ
) -> Returns:
    """V-trace targets and policy-gradient advantages, without gradients.

    v_t = V_t + δ_t + γ_t c_t (v_{t+1} - V_{t+1}) with δ_t = ρ_t (r_t + γ_t V_{t+1} - V_t), ρ_t = min(ρ̄, ratio_t) and
    c_t = λ min(c̄, ratio_t). Shapes need only be broadcastable to that of ``value``.
    """
    with torch.no_grad():
        ratio = log_ratio.exp()
        importance = ratio.clamp(max=importance_clip)
        error = importance * (reward + discount * next_value - value)
        carry = discount * continues
        trace = (carry * ratio.clamp(max=trace_clip) * trace_decay).expand_as(error)
        correction = torch.empty_like(error)  # v - V
        following = torch.zeros_like(error[0])
        for t in range(len(error) - 1, -1, -1):
            following = torch.addcmul(error[t], trace[t], following, out=correction[t])
        later = torch.zeros_like(correction)
        later[:-1] = correction[1:]
        # With λ < 1 the actor's target decays like the critic's, so that this is exactly GAE when on-policy.
        advantage = error + importance * trace_decay * carry * later
        return Returns(value + correction, advantage)


def generalised_advantages(
    reward: Tensor, value: Tensor, next_value: Tensor, discount: Tensor, continues: Tensor, *, trace_decay: float
) -> Returns:
    """GAE(λ) and λ-returns for on-policy data. Arguments as for `v_trace`."""
    on_policy = torch.zeros_like(value)
    return v_trace(on_policy, reward, value, next_value, discount, continues, trace_decay=trace_decay)
