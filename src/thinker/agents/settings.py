"""Every number that the agent and its learner depend on: the paper's (appendix D, hyperparameters) and ours."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal, get_args

Objective = Literal["v-trace", "ppo"]
TreeEncoderName = Literal["lstm-attention", "mlp"]
NetworkSize = Literal["paper", "small"]
Reduction = Literal["sum", "mean"]


@dataclass(frozen=True)
class AgentSettings:
    """Settings of the actor-critic. The defaults suit small boards on a laptop; see `paper_settings` for the paper's.

    "unroll" is what one environment does between two calls of the learner; "step" is an augmented step.
    """

    # The network (appendix C)
    tree_encoder: TreeEncoderName = "mlp"
    network_size: NetworkSize = "small"

    # What is learned from
    objective: Objective = "ppo"
    unroll_stages: int = 8  # length of an unroll in stages of K steps; one step more is seen, for the bootstrap
    batch_size: int = 16  # unrolls (environments) per gradient step
    epochs: int = 2  # how often each unroll is learned from; "v-trace" corrects for more than 1, too
    clip_ratio: float = 0.2  # "ppo": how far the probability ratio may leave 1

    # Returns and advantages
    trace_decay: float = 0.99  # λ per step
    importance_clip: float = 1.0  # ρ̄ of V-trace
    trace_clip: float = 1.0  # c̄ of V-trace
    normalise_advantages: bool = True  # real and planning separately, by a running scale
    planning_reward_scale: float = 1.0  # c^p at the beginning; 0 turns planning rewards off
    final_planning_reward_scale: float = 0.0  # c^p at the end, annealed linearly

    # Losses and their scales
    loss_reduction: Reduction = "mean"  # over steps and environments
    baseline_scale: float = 0.5
    real_entropy_cost: float = 1e-2
    imaginary_entropy_cost: float = 1e-2  # of imaginary and of reset actions
    feature_cost: float = 1e-9  # L2 of the final layer's input
    real_logits_cost: float = 1e-6  # L2 of the real actions' logits

    # Optimiser: Adam, its learning rate annealed linearly to 0
    learning_rate: float = 1e-3
    adam_beta_1: float = 0.9
    adam_beta_2: float = 0.999
    adam_epsilon: float = 1e-8
    gradient_norm_clip: float = 1.0

    def __post_init__(self) -> None:
        for name, known in (
            ("tree_encoder", TreeEncoderName),
            ("network_size", NetworkSize),
            ("objective", Objective),
            ("loss_reduction", Reduction),
        ):
            if getattr(self, name) not in get_args(known):
                names = ", ".join(map(repr, get_args(known)))
                raise ValueError(f"{name} is {getattr(self, name)!r}; it must be one of {names}")
        for name in ("unroll_stages", "batch_size", "epochs"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
        for name in ("trace_decay", "adam_beta_1", "adam_beta_2"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must lie between 0 and 1")
        for name in ("learning_rate", "clip_ratio", "importance_clip", "trace_clip", "gradient_norm_clip"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be greater than 0")
        for field in dataclasses.fields(self):
            if field.name.endswith(("_cost", "_scale")) and getattr(self, field.name) < 0:
                raise ValueError(f"{field.name} is {getattr(self, field.name)}; it must not be negative")


def paper_settings() -> AgentSettings:
    """The actor-critic of the paper's table: IMPALA with the LSTM-attention network."""
    return AgentSettings(
        tree_encoder="lstm-attention",
        network_size="paper",
        objective="v-trace",
        unroll_stages=20,
        batch_size=16,
        epochs=1,
        trace_decay=1.0,
        importance_clip=1.0,
        trace_clip=1.0,
        normalise_advantages=False,
        planning_reward_scale=1.0,
        final_planning_reward_scale=0.0,
        loss_reduction="sum",
        baseline_scale=0.5,
        real_entropy_cost=1e-3,
        imaginary_entropy_cost=5e-5,
        feature_cost=1e-9,
        real_logits_cost=1e-6,
        learning_rate=6e-4,
        adam_beta_1=0.9,
        adam_beta_2=0.999,
        adam_epsilon=1e-8,
        gradient_norm_clip=1200.0,
    )


def paper_raw_settings() -> AgentSettings:
    """The paper's baseline on the raw MDP: the same, with half the learning rate (appendix D)."""
    return dataclasses.replace(paper_settings(), learning_rate=3e-4)
