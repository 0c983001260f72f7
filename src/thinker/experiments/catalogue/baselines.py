"""Figure 5 and the table of solving rates: Thinker beside the other methods on Sokoban."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from thinker.experiments.catalogue.scales import PAPER_DRC, PAPER_MUZERO, other, raw, thinker
from thinker.experiments.claims import Claim, all_of, greater, solved, where_present
from thinker.experiments.experiment import Experiment, Scale, Variant
from thinker.experiments.pictures import curves_and_bars

OTHERS = {
    "drc": "DRC(3,3)",
    "resnet": "IMPALA with ResNet",
    "i2a": "I2A",
    "atreec": "ATreeC",
    "vin": "VIN",
    "muzero": "MuZero",
}
"""The paper's other methods, each with a preset sokoban-NAME."""
PAPER: Mapping[str, Mapping[str, Any]] = {"drc": PAPER_DRC, "resnet": PAPER_DRC, "muzero": PAPER_MUZERO}
"""Those that can read pixels, and how they differ from their presets at paper scale."""
LONG = 4
"""Times the frames of the other methods, so that the raw MDP gets as many core-minutes as Thinker."""


def variants(scale: Scale) -> tuple[Variant, ...]:
    """All methods on the levels of `sokoban-quick`; at paper scale those that can read pixels, on Boxoban."""
    if scale != "paper":
        return methods(scale, {})
    others = (other(scale, name, OTHERS[name], f"sokoban-{name}", paper=changes) for name, changes in PAPER.items())
    return (thinker(scale, "thinker", "Thinker"), raw(scale), *others)


def methods(scale: Literal["tiny", "laptop"], changes: Mapping[str, Any]) -> tuple[Variant, ...]:
    """All methods with ``changes`` of their presets, and the raw MDP with more frames."""
    chosen = [thinker(scale, "thinker", "Thinker", changes), raw(scale, changes=changes)]
    chosen += [other(scale, name, label, f"sokoban-{name}", changes) for name, label in OTHERS.items()]
    if scale == "laptop":
        longer = {"real_steps": LONG * chosen[0].settings(0).real_steps, "annealing_steps": None}
        chosen.append(raw(scale, "raw-long", f"raw MDP, {LONG} times the frames", {**changes, **longer}))
    return tuple(chosen)


CLAIMS = (
    Claim(
        "Thinker solves more levels than every other method after the same number of frames",
        all_of(*(where_present(name, greater(solved("thinker"), solved(name))) for name in ("raw", *OTHERS))),
    ),
    Claim(
        "DRC is the best of the other methods",
        all_of(
            *(where_present(name, greater(solved("drc"), solved(name))) for name in ("raw", *OTHERS) if name != "drc")
        ),
    ),
    Claim(
        f"(not in the paper) Thinker beats the raw MDP with {LONG} times the frames (about the same time)",
        greater(solved("thinker"), solved("raw-long")),
    ),
)
CAPTION = "Solve rate in training by frames and by core-minutes, and on test levels after training."
NOTES = (
    "With small boards, Thinker has the board model and the agent that treats actions alike (`sokoban-quick`), and the "
    "learning rate of every agent was chosen from 3e-4, 1e-3 and 3e-3 on validation levels with one box (60,000 "
    "frames, one seed, docs/notebook.md). DRC and ResNet need more frames: docs/agents.md has runs of a million. Other "
    "settings are those of the presets. Dreamer-v3 is missing: it is not part of this library (docs/agents.md)."
)


EXPERIMENT = Experiment(
    module=__name__,
    name="baselines",
    title="Thinker and other methods on Sokoban",
    paper="figure 5 and table of solving rates",
    question="How many levels do the methods solve after the same number of frames?",
    variants=variants,
    draw=curves_and_bars,
    caption=CAPTION,
    claims=CLAIMS,
    notes=(
        "Laptop scale: 7×7 boards with one box, 100,000 frames, against 10×10 boards with four boxes and 5e7 frames in "
        f"the paper. {NOTES} At paper scale, DRC and ResNet have the settings of DRC's authors and MuZero the training "
        "of Thinker's model; I2A, ATreeC and VIN are missing there, as the paper, too, has their numbers from the "
        "literature."
    ),
)
