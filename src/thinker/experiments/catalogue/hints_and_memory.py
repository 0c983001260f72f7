"""Appendix E, hints and memory: the tree representation with and without hints, read by an RNN or an MLP."""

from __future__ import annotations

from thinker.experiments.catalogue.scales import thinker
from thinker.experiments.claims import Claim, all_of, early, greater, similar, solved
from thinker.experiments.experiment import Experiment, Scale, Variant
from thinker.experiments.pictures import curves_and_bars

HINTS = {"search.mask": ()}
NO_HINTS = {"search.mask": ("hints",)}
MUCH = 0.1
"""Of the solve rate."""
FRAMES = 200_000
"""The agent with memory learns slowly at first."""


def variants(scale: Scale) -> tuple[Variant, ...]:
    # The search is not hidden from any decision, which is no part of the paper.
    laptop = {"agent.tree_mask_probability": 0.0, "real_steps": FRAMES, "annealing_steps": 3 * FRAMES}
    rnn, mlp = {"agent.tree_encoder": "lstm-attention"}, {"agent.tree_encoder": "mlp"}
    return (
        thinker(scale, "rnn", "RNN, hints", {**rnn, **HINTS}, laptop=laptop),
        thinker(scale, "rnn-no-hints", "RNN, no hints", {**rnn, **NO_HINTS}, laptop=laptop),
        thinker(scale, "mlp", "MLP, hints", {**mlp, **HINTS}, laptop=laptop),
        thinker(scale, "mlp-no-hints", "MLP, no hints", {**mlp, **NO_HINTS}, laptop=laptop),
    )


EXPERIMENT = Experiment(
    module=__name__,
    name="hints-and-memory",
    title="Hints and memory",
    paper="appendix E, hints and memory",
    question="Does the agent need hints in its tree representation, or memory, or both?",
    variants=variants,
    draw=curves_and_bars,
    caption="Solve rate in training by frames and by core-minutes, and on test levels after training.",
    claims=(
        Claim("Without hints, the agent with memory learns more slowly", greater(early("rnn"), early("rnn-no-hints"))),
        Claim(
            "Without hints, the agent with memory ends up only slightly worse",
            similar(solved("rnn-no-hints"), solved("rnn"), MUCH),
        ),
        Claim("With hints, memory is not needed", similar(solved("mlp"), solved("rnn"))),
        Claim(
            "Without hints and memory, the agent fails to learn to plan",
            all_of(
                greater(solved("mlp"), solved("mlp-no-hints"), MUCH),
                greater(solved("rnn-no-hints"), solved("mlp-no-hints"), MUCH),
            ),
        ),
    ),
    notes=(
        "Laptop scale: 7×7 boards with one box, 200,000 frames, K = 8, the paper's two ways to read the tree instead "
        "of the preset's. Without hints, the nine statistics of the paper's list are zeros."
    ),
)
