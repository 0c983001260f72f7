"""Appendix E, maximum search depth: L = 5 and L = 10, in the search and in the model's training."""

from __future__ import annotations

from thinker.experiments.catalogue.scales import thinker
from thinker.experiments.claims import Claim, early, greater, similar, solved
from thinker.experiments.experiment import Experiment, Scale, Variant
from thinker.experiments.pictures import curves_and_bars

DEPTHS = (5, 10)


def variants(scale: Scale) -> tuple[Variant, ...]:
    return tuple(
        thinker(
            scale,
            f"l{depth}",
            f"L = {depth}",
            {"search.max_depth": depth, "model.training.unroll_length": depth},
            laptop={"search.stage_length": 12},  # K must be greater than L
            preset_name="sokoban-dual",
        )
        for depth in DEPTHS
    )


EXPERIMENT = Experiment(
    module=__name__,
    name="depth",
    title="Maximum search depth",
    paper="appendix E, maximum search depth",
    question="Does a deeper search help?",
    variants=variants,
    draw=curves_and_bars,
    caption="Solve rate in training by frames and by core-minutes, and on test levels after training.",
    claims=(
        Claim("With L = 10, the agent learns more slowly at first", greater(early("l5"), early("l10"))),
        Claim("The final performance is about the same", similar(solved("l5"), solved("l10"))),
    ),
    notes="Laptop scale: 7×7 boards with one box, 100,000 frames, K = 12, the recurrent dual network (`sokoban-dual`).",
)
