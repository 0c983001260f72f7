"""Appendix E, planning rewards and action target."""

from __future__ import annotations

from thinker.experiments.catalogue.scales import thinker
from thinker.experiments.claims import Claim, early, greater, similar, solved
from thinker.experiments.experiment import Experiment, Scale, Variant
from thinker.experiments.pictures import curves_and_bars

LITTLE = 0.1
"""Of the mean of the learning curve over its first half."""


def variants(scale: Scale) -> tuple[Variant, ...]:
    return (
        thinker(scale, "thinker", "Thinker"),
        thinker(scale, "no-planning-reward", "no planning reward", {"agent.planning_reward_scale": 0.0}),
        thinker(scale, "action-target", "sampled action as target", {"model.training.policy_target": "action"}),
    )


EXPERIMENT = Experiment(
    module=__name__,
    name="planning-reward-and-target",
    title="Planning rewards and action target",
    paper="appendix E, planning rewards and action target",
    question="Are planning rewards and the action distribution as the base policy's target necessary?",
    variants=variants,
    draw=curves_and_bars,
    caption="Solve rate in training by frames and by core-minutes, and on test levels after training.",
    claims=(
        Claim(
            "Without planning rewards, the agent ends up as good",
            similar(solved("no-planning-reward"), solved("thinker")),
        ),
        Claim(
            "Planning rewards make initial learning at most a little faster",
            similar(early("thinker"), early("no-planning-reward"), LITTLE),
        ),
        Claim(
            "With the sampled action as target, it ends up as good", similar(solved("action-target"), solved("thinker"))
        ),
        Claim(
            "With the sampled action as target, it learns more slowly at first",
            greater(early("thinker"), early("action-target")),
        ),
    ),
    notes=(
        "Laptop scale: 7×7 boards with one box, 100,000 frames, K = 8. Without planning rewards, the agent neither "
        "sees nor predicts them."
    ),
)
