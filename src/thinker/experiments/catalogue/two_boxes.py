"""The comparison of figure 5 on harder levels: two boxes."""

from __future__ import annotations

from thinker.experiments.catalogue.baselines import CAPTION, CLAIMS, NOTES, methods
from thinker.experiments.experiment import Experiment, Scale, Variant
from thinker.experiments.pictures import curves_and_bars


def variants(scale: Scale) -> tuple[Variant, ...]:
    boxes = {"environment.boxes": 2}
    if scale == "paper":  # the paper has no such levels: those of laptop scale, for longer
        return methods("laptop", {**boxes, "real_steps": 1_000_000, "annealing_steps": None})
    return methods(scale, boxes)


EXPERIMENT = Experiment(
    module=__name__,
    name="two-boxes",
    title="Thinker and other methods on Sokoban with two boxes",
    paper="figure 5, on other levels",
    question="How many levels with two boxes do the methods solve after the same number of frames?",
    variants=variants,
    draw=curves_and_bars,
    caption=CAPTION,
    claims=CLAIMS,
    notes=(
        "7×7 boards with two boxes, 100,000 frames (paper scale: a million), against 10×10 boards with four boxes and "
        f"5e7 frames in the paper. {NOTES}"
    ),
)
