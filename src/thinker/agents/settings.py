"""The settings of the actor-critic learner that all learned agents share (appendix D, hyperparameters)."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal, get_args

from thinker.errors import UserError

Objective = Literal["v-trace", "ppo"]
NetworkSize = Literal["paper", "small"]
Reduction = Literal["sum", "mean"]


@dataclass(frozen=True)
class LearnerSettings:
    """The learning algorithm. The defaults suit small boards on a laptop; see `paper_settings` for the paper's.

    An unroll is the sequence of steps of one environment between two updates; a step is an augmented step.
    """

    # Data and objective
    objective: Objective = "ppo"  # loss of the policy
    unroll_stages: int = 8  # length of an unroll in stages of K steps
    batch_size: int = 16  # unrolls (environments) per gradient step
    epochs: int = 2  # passes over each unroll
    clip_ratio: float = 0.2  # "ppo": largest deviation of the probability ratio from 1

    # Returns and advantages
    trace_decay: float = 0.99  # λ per real step; per augmented step it is raised to 1 / K
    importance_clip: float = 1.0  # ρ̄ of V-trace
    trace_clip: float = 1.0  # c̄ of V-trace
    normalise_advantages: bool = True  # by a running scale, separately for each kind of reward

    # Losses and their scales
    loss_reduction: Reduction = "mean"  # over steps and environments
    balance_actions: bool = False  # real actions count K times in the losses of the policy, as much as without a search
    baseline_scale: float = 0.5  # scale of the value losses
    real_entropy_cost: float = 1e-2  # entropy bonus of real actions
    feature_cost: float = 1e-9  # L2 penalty on the final layer's input
    real_logits_cost: float = 1e-6  # L2 penalty on the real actions' logits

    # Optimiser: Adam, its learning rate annealed linearly to 0
    learning_rate: float = 1e-3  # annealed linearly to 0
    adam_beta_1: float = 0.9
    adam_beta_2: float = 0.999
    adam_epsilon: float = 1e-8
    gradient_norm_clip: float = 1.0  # maximum norm of the gradient

    def __post_init__(self) -> None:
        check_choice(self, "objective", get_args(Objective))
        check_choice(self, "loss_reduction", get_args(Reduction))
        for name in ("unroll_stages", "batch_size", "epochs"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} is {getattr(self, name)}; it must be at least 1")
        for name in ("trace_decay", "adam_beta_1", "adam_beta_2"):
            if not 0 <= getattr(self, name) <= 1:
                raise UserError(f"{name} is {getattr(self, name)}; it must be between 0 and 1")
        for name in ("learning_rate", "clip_ratio", "importance_clip", "trace_clip", "gradient_norm_clip"):
            if not getattr(self, name) > 0:
                raise UserError(f"{name} is {getattr(self, name)}; it must be greater than 0")
        for field in dataclasses.fields(self):
            if field.name.endswith(("_cost", "_scale")) and getattr(self, field.name) < 0:
                raise UserError(f"{field.name} is {getattr(self, field.name)}; it must not be negative")

    def reward_scales(self, progress: float) -> dict[str, float]:
        """The scale of each kind of reward after the fraction ``progress``, 0 .. 1, of the run."""
        return {"real": 1.0}

    def entropy_costs(self) -> dict[str, float]:
        """The entropy cost of each kind of action."""
        return {"real": self.real_entropy_cost}

    def auxiliary_scales(self) -> dict[str, float]:
        """The scale of each of the network's `auxiliary_losses`."""
        return {}


def check_choice(settings: Any, name: str, known: tuple[str, ...]) -> None:
    """Raise an error if the setting ``name`` is not one of ``known``."""
    value = getattr(settings, name)
    if value not in known:
        raise UserError(f"{name} is {value!r}; it must be one of {', '.join(map(repr, known))}")
