"""Appendix D, training times: core-seconds of each method for the same number of frames, as ratios."""

from __future__ import annotations

import math
from typing import Any

from matplotlib.figure import Figure

from thinker.experiments.catalogue.scales import PAPER_DRC, PAPER_MUZERO, other, raw, thinker
from thinker.experiments.claims import Claim, core_seconds, times
from thinker.experiments.experiment import Experiment, Scale, Variant
from thinker.experiments.pictures import points, style
from thinker.experiments.results import Results

SHORT: dict[str, Any] = {"real_steps": 12_000, "annealing_steps": None, "log_every": 500}
"""Long enough to measure the speed."""
SEARCH = {"search.stage_length": 20, "agent.tree_mask_probability": 0.0}


def variants(scale: Scale) -> tuple[Variant, ...]:
    if scale == "paper":
        short: dict[str, Any] = {**SHORT, "real_steps": 400_000}  # twice the warm-up of the model
        learned, muzero = short, PAPER_MUZERO
    else:
        short, learned, muzero = SHORT, {**SHORT, "exploration_steps": 2_000}, {"agent.simulations": 100}
    chosen = [
        raw(scale, changes=short),
        other(scale, "drc", "DRC(3,3)", "sokoban-drc", short, paper=PAPER_DRC),
        other(scale, "muzero", "MuZero, 100 simulations", "sokoban-muzero", {**learned, **muzero}),
    ]
    for name, encoder in (("rnn", "lstm-attention"), ("mlp", "mlp")):
        changes = {**learned, "agent.tree_encoder": encoder}
        label = f"Thinker, {name.upper()}"
        chosen.append(thinker(scale, name, label, changes, laptop=SEARCH, preset_name="sokoban-dual"))
    return tuple(chosen)


def draw(results: Results, figure: Figure) -> None:
    axis = figure.subplots()
    points(axis, [(label, 1000 * results.core_seconds(name)) for name, label in results.labels.items()])
    axis.set_ylabel("core-milliseconds for each frame")
    axis.set_ylim(bottom=0)
    style(axis)


EXPERIMENT = Experiment(
    module=__name__,
    name="cost",
    title="Training time",
    paper="appendix D, training times",
    question="How long do the methods take for the same number of frames?",
    variants=variants,
    draw=draw,
    caption="CPU time of training for each frame, without random play and evaluations.",
    claims=(
        Claim(
            "Thinker takes about 7 times as long as the raw MDP (here: between 3.5 and 14 times)",
            times(core_seconds("rnn"), core_seconds("raw"), 3.5, 14),
        ),
        Claim("Thinker takes longer than DRC", times(core_seconds("rnn"), core_seconds("drc"), 1.0, math.inf)),
        Claim(
            "With an MLP instead of the RNN, it takes less than half as long (here: at most 0.6 times)",
            times(core_seconds("mlp"), core_seconds("rnn"), 0.0, 0.6),
        ),
        Claim(
            "MuZero with 100 simulations takes longer than Thinker with K = 20",
            times(core_seconds("muzero"), core_seconds("rnn"), 1.0, math.inf),
        ),
    ),
    notes=(
        "Laptop scale: 7×7 boards on CPU cores, 12,000 frames, K = 20, the recurrent dual network. The paper's times "
        "are those of 5e7 frames of 80×80 pixels on two A100: raw MDP 1 day, DRC 2, Thinker 7, with an MLP 3, MuZero "
        "10. How well anything is solved after so few frames means nothing."
    ),
)
