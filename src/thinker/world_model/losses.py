"""The losses of equations 2 and 3, each with its scale from the hyperparameter table.

Where the printed equations differ: cross-entropies have their minus sign here, and the termination's also its other
half, -(1 - d) log(1 - p). State losses are squared norms, sums over all features, as printed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from thinker.world_model.network import Predictions
from thinker.world_model.transition import SequenceBatch

STATE_REWARD_LOSSES = ("reward", "termination", "state")
VALUE_POLICY_LOSSES = ("value", "policy")
PAPER_SCALES: dict[str, float] = {"reward": 1.0, "termination": 1.0, "state": 10.0, "value": 0.25, "policy": 0.5}


class TrainableNetwork(Protocol):
    """What `model_losses` needs of a network."""

    loss_names: tuple[str, ...]

    def predict(self, batch: SequenceBatch) -> Predictions: ...


@dataclass(frozen=True)
class LossOutput:
    """Each loss by name, unscaled, and what the two halves of the dual network minimise."""

    losses: dict[str, Tensor]  # scalars: sums over the steps, means over the sequences, importance-weighted
    state_reward: Tensor  # scalar: scaled sum of reward, termination and state; 0 where none is predicted
    value_policy: Tensor  # scalar: scaled sum of value and policy
    value_error: Tensor  # [N]      |v - target| of each sequence's first state, without gradient: its new priority

    @property
    def total(self) -> Tensor:
        """The scalar to call ``backward`` on: in the dual network no weight gets gradients from both halves."""
        return self.state_reward + self.value_policy


def default_scales(network: TrainableNetwork) -> dict[str, float]:
    """The paper's scales of the losses that this network has."""
    return {name: PAPER_SCALES[name] for name in network.loss_names}


def model_losses(network: TrainableNetwork, batch: SequenceBatch, scales: Mapping[str, float]) -> LossOutput:
    """All losses of ``network`` on ``batch``. ``scales`` must name exactly the losses that the network has."""
    predictions = network.predict(batch)
    value_mask, policy_mask = batch.value_mask, batch.policy_mask
    if predictions.known is not None:
        value_mask, policy_mask = value_mask * predictions.known, policy_mask * predictions.known
    value_error = predictions.value - batch.value_target  # [N, L+1]
    policy_error = -(batch.policy_target * predictions.policy_logits.log_softmax(-1)).sum(-1)  # [N, L+1]
    steps = {"value": value_error.square() * value_mask, "policy": policy_error * policy_mask}
    if predictions.reward is not None:
        steps["reward"] = (predictions.reward - batch.reward).square() * batch.transition_mask
    if predictions.termination_logit is not None:
        cross_entropy = F.binary_cross_entropy_with_logits(
            predictions.termination_logit, batch.termination, reduction="none"
        )
        steps["termination"] = cross_entropy * batch.transition_mask
    if predictions.state_error is not None:
        steps["state"] = predictions.state_error * batch.state_mask
    if set(steps) != set(scales):
        raise ValueError(
            f"the losses {sorted(steps)} of {type(network).__name__} and the scales {sorted(scales)} must have the "
            "same names; default_scales(network) gives the paper's"
        )
    losses = {name: (batch.weight * steps[name].sum(1)).mean() for name in PAPER_SCALES if name in steps}
    zero = torch.zeros((), device=batch.weight.device)
    state_reward = sum((scales[name] * losses[name] for name in STATE_REWARD_LOSSES if name in losses), start=zero)
    value_policy = sum((scales[name] * losses[name] for name in VALUE_POLICY_LOSSES), start=zero)
    return LossOutput(losses, state_reward, value_policy, value_error[:, 0].detach().abs())
