"""Appendix E, base policy and imaginary actions."""

from __future__ import annotations

from thinker.experiments.catalogue.scales import thinker
from thinker.experiments.claims import Claim, greater, solved
from thinker.experiments.experiment import Experiment, Scale, Variant
from thinker.experiments.pictures import curves_and_bars

MUCH = 0.1
"""Of the solve rate."""


def variants(scale: Scale) -> tuple[Variant, ...]:
    # Planning rewards are differences of values, which this agent must not know.
    no_base_policy = {"search.mask": ("base_policy_and_value",), "agent.planning_reward_scale": 0.0}
    return (
        thinker(scale, "thinker", "Thinker"),
        thinker(scale, "no-base-policy", "no base policy and value", no_base_policy),
        thinker(scale, "random-imagination", "random imaginary actions", {"agent.imaginary_actions": "random"}),
    )


EXPERIMENT = Experiment(
    module=__name__,
    name="base-policy-and-imagination",
    title="Base policy and imaginary actions",
    paper="appendix E, base policy and imaginary actions",
    question="Does the agent need the base policy and its value, and does it matter what it imagines?",
    variants=variants,
    draw=curves_and_bars,
    caption="Solve rate in training by frames and by core-minutes, and on test levels after training.",
    claims=(
        Claim(
            "Without base policy and value, the agent fails to learn",
            greater(solved("thinker"), solved("no-base-policy"), MUCH),
        ),
        Claim(
            "With random imaginary actions, it is significantly worse",
            greater(solved("thinker"), solved("random-imagination")),
        ),
    ),
    notes=(
        "Laptop scale: 7×7 boards with one box, 100,000 frames, K = 8. Without base policy and value, everything "
        "computed from them is zero in the tree, and there are no planning rewards; the agent still sees hidden "
        "states. Random imaginary actions include the reset, which is drawn with p = 1/2; neither is trained."
    ),
)
