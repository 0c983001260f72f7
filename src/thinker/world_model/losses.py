"""The losses of equations 2 and 3.

Differences from the printed equations:

* Cross-entropies have their minus sign here, and that of the termination also has its other half, -(1 - d) log(1 - p).
* State losses are means over all features (or over all numbers of the state), not squared norms, which are sums: with
  the paper's scale of 10, a sum over the thousands of features would leave no weight to rewards and terminations.
* Values and rewards may be predicted as distributions instead of numbers, with cross-entropies: see `heads`.
* Steps beyond an episode's end are masked, except for the termination's after a termination, and so are the values and
  policies of random play: see `targets`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from thinker.world_model.batch import SequenceBatch
from thinker.world_model.network import Predictions

STATE_REWARD_LOSSES = ("reward", "termination", "state")
VALUE_POLICY_LOSSES = ("value", "policy")
ALL_LOSSES = (*STATE_REWARD_LOSSES, *VALUE_POLICY_LOSSES)


@dataclass(frozen=True)
class LossOutput:
    """Each loss by name, unscaled, and the objectives of the two halves of the dual network."""

    losses: dict[str, Tensor]  # scalars: summed over steps, averaged over sequences, importance-weighted
    state_reward: Tensor  # scalar: scaled sum of reward, termination and state; 0 if none is predicted
    value_policy: Tensor  # scalar: scaled sum of value and policy
    value_error: Tensor  # [N]      |v - target| of each sequence's first state, detached: its new priority

    @property
    def total(self) -> Tensor:
        """The scalar to call ``backward`` on; in the dual network no weight receives gradients from both halves."""
        return self.state_reward + self.value_policy


def model_losses(predictions: Predictions, batch: SequenceBatch, scales: Mapping[str, float]) -> LossOutput:
    """All losses of a network's predictions for ``batch``. ``scales`` must name exactly these losses."""
    head, value_mask, policy_mask = predictions.head, batch.value_mask, batch.policy_mask
    if predictions.known is not None:
        value_mask, policy_mask = value_mask * predictions.known, policy_mask * predictions.known
    policy_error = -(batch.policy_target * predictions.policy_logits.log_softmax(-1)).sum(-1)  # [N, L+1]
    value_loss = head.loss(predictions.value_output, batch.value_target)  # [N, L+1]
    steps = {"value": value_loss * value_mask, "policy": policy_error * policy_mask}
    if predictions.reward_output is not None:
        steps["reward"] = head.loss(predictions.reward_output, batch.reward) * batch.reward_mask
    if predictions.termination_logit is not None:
        cross_entropy = F.binary_cross_entropy_with_logits(
            predictions.termination_logit, batch.termination, reduction="none"
        )
        steps["termination"] = cross_entropy * batch.termination_mask
    if predictions.state_error is not None:
        steps["state"] = predictions.state_error * batch.state_mask
    if set(steps) != set(scales):
        raise ValueError(
            f"the losses {sorted(steps)} of these predictions and the scales {sorted(scales)} must have the same names"
        )
    losses = {name: (batch.weight * steps[name].sum(1)).mean() for name in ALL_LOSSES if name in steps}
    zero = torch.zeros((), device=batch.weight.device)
    state_reward = sum((scales[name] * losses[name] for name in STATE_REWARD_LOSSES if name in losses), start=zero)
    value_policy = sum((scales[name] * losses[name] for name in VALUE_POLICY_LOSSES), start=zero)
    value = head.decode(predictions.value_output[:, 0].detach())
    return LossOutput(losses, state_reward, value_policy, (value - batch.value_target[:, 0]).abs())
