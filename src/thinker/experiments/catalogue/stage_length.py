"""Figure 7 and its discussion in appendix D: K in training, the raw MDP, and why K = 1 is worse."""

from __future__ import annotations

from thinker.experiments.catalogue.scales import raw, thinker
from thinker.experiments.claims import Claim, all_of, greater, similar, solved
from thinker.experiments.experiment import Experiment, Scale, Variant
from thinker.experiments.pictures import curves_and_bars

STAGE_LENGTHS = (1, 2, 5, 10, 20)
DROPOUT = 0.2
REAL_STATE = ("tree", "real_state")


def variants(scale: Scale) -> tuple[Variant, ...]:
    return (
        *(thinker(scale, f"k{k}", f"K = {k}", {"search.stage_length": k}) for k in STAGE_LENGTHS),
        raw(scale, label="raw MDP, same encoder", changes={} if scale == "paper" else {"agent.network_size": "small"}),
        *(() if scale == "paper" else (raw(scale, "raw-board", "raw MDP, encoder of its preset"),)),
        thinker(
            scale,
            "k1-dropout",
            f"K = 1, tree masked with p = {DROPOUT}",
            {"search.stage_length": 1, "agent.tree_dropout": DROPOUT},
        ),
        thinker(
            scale,
            "k1-real-state",
            "K = 1, real state instead of the hidden one",
            {"search.stage_length": 1, "search.observe": REAL_STATE},
        ),
    )


EXPERIMENT = Experiment(
    module=__name__,
    name="stage-length",
    title="Stage length in training",
    paper="figure 7 and appendix D",
    question="How many imaginary steps are enough, and why is K = 1 worse than the raw MDP?",
    variants=variants,
    draw=curves_and_bars,
    caption="Solve rate in training by frames and by core-minutes, and on test levels with K as in training.",
    claims=(
        Claim("K = 10 is enough: K = 20 is hardly better (here: within 0.05)", similar(solved("k10"), solved("k20"))),
        Claim("K = 1 is worse than the raw MDP", greater(solved("raw"), solved("k1"))),
        Claim("K = 2 is better than the raw MDP", greater(solved("k2"), solved("raw"))),
        Claim(
            "With K = 1, the real state instead of the hidden one makes no difference",
            similar(solved("k1-real-state"), solved("k1")),
        ),
        Claim(
            "With K = 1, masking the tree at random restores the level of the raw MDP",
            all_of(greater(solved("k1-dropout"), solved("k1")), similar(solved("k1-dropout"), solved("raw"))),
        ),
    ),
    notes=(
        "Laptop scale: 7×7 boards with one box, 100,000 frames. The agent sees the hidden states of the current node "
        "and of the root; the variant with the real state sees neither. The raw agents differ in their encoders: the "
        "small one is that of the agents with K, the other one reads features at the player's square. Masking: in "
        "training, each step sees zeros instead of the tree with p = 0.2; at test time nothing is masked."
    ),
)
