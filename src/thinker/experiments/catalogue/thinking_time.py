"""Figure 6: an agent trained with one K, with more and less time to think at test time, and its base policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from thinker.experiments.catalogue.scales import EPISODES, thinker
from thinker.experiments.claims import Claim, Quantity, greater
from thinker.experiments.experiment import Experiment, Scale, Variant
from thinker.experiments.measurements import Measurement, TestEpisodes
from thinker.experiments.pictures import by_stage_length, learning_curves
from thinker.experiments.results import Results

TRAINED = "trained"
STAGE_LENGTHS: dict[Scale, tuple[int, ...]] = {
    "tiny": (1, 3, 5),
    "laptop": (1, 2, 4, 8, 16, 32),
    "paper": (1, 2, 5, 10, 20, 40),
}
TRAINING: dict[Scale, int] = {"tiny": 3, "laptop": 8, "paper": 20}
"""K in training."""


def trained(
    scale: Scale, name: str, label: str, measurements: Sequence[Measurement], changes: Mapping[str, Any] | None = None
) -> Variant:
    """An agent on two boxes; it has more to plan than on one."""
    return thinker(
        scale,
        name,
        label,
        {"search.stage_length": TRAINING[scale], **(changes or {})},
        laptop={"real_steps": 200_000, "annealing_steps": None},
        preset_name="sokoban",
        measurements=measurements,
    )


def variants(scale: Scale) -> tuple[Variant, ...]:
    episodes = EPISODES[scale]
    measured = [TestEpisodes(episodes, "agent", k) for k in STAGE_LENGTHS[scale]]
    label = f"trained with K = {TRAINING[scale]}"
    return (trained(scale, TRAINED, label, [*measured, TestEpisodes(episodes, "base-policy")]),)


def with_k(k: int | None) -> Quantity:
    """The solve rate with K at test time; None: K as in training."""

    def values(results: Results, variant: str) -> np.ndarray:
        chosen = TRAINING[results.scale] if k is None else k
        return results.measured(variant, f"agent-k{chosen}", "solved")

    return Quantity(TRAINED, "K as in training" if k is None else f"K = {k} at test time", values)


BASE_POLICY = Quantity(
    TRAINED, "base policy", lambda results, variant: results.measured(variant, "base-policy", "solved")
)


def draw(results: Results, figure: Figure) -> None:
    left, right = figure.subplots(1, 2)
    by_stage_length(left, results, TRAINED, {k: f"agent-k{k}" for k in STAGE_LENGTHS[results.scale]}, "base-policy")
    learning_curves(right, results, "step")


EXPERIMENT = Experiment(
    module=__name__,
    name="thinking-time",
    title="Time to think at test time",
    paper="figure 6",
    question="How much does planning add to the base policy, and how does it depend on K at test time?",
    variants=variants,
    draw=draw,
    caption="Left: solve rate on test levels by K at test time. Right: solve rate in training.",
    claims=(
        Claim("After training, the agent solves more levels than its base policy", greater(with_k(None), BASE_POLICY)),
        Claim("With K as in training, it solves more than without imaginary steps", greater(with_k(None), with_k(1))),
    ),
    notes="Laptop scale: 7×7 boards with two boxes (`sokoban`), 200,000 frames, trained with K = 8 instead of 20.",
)
