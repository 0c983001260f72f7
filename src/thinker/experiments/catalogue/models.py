"""Figure 8: dual and single networks as world models, with different losses of the predicted states."""

from __future__ import annotations

from thinker.experiments.catalogue.scales import other, thinker
from thinker.experiments.claims import Claim, all_of, greater, similar, solved
from thinker.experiments.experiment import Experiment, Scale, Variant
from thinker.experiments.pictures import curves_and_bars
from thinker.runs.presets import boxoban_paper
from thinker.world_model.trainer import TrainerSettings

DUAL = {"feature": "dual network, feature loss", "l2": "dual network, L2 loss", "none": "dual network, no state loss"}
SINGLE = {"l2": "single network, L2 loss", "none": "single network, no state loss (MuZero's model)"}


def variants(scale: Scale) -> tuple[Variant, ...]:
    chosen = [
        thinker(
            scale,
            f"dual-{loss}",
            label,
            {"model.state_loss": loss},
            preset_name="sokoban-dual",
        )
        for loss, label in DUAL.items()
    ]
    dual = boxoban_paper()
    paper = {
        "search": dual.search,
        "agent": dual.agent,
        "model.size": "paper",
        "model.augmentation": "none",
        "model.training": TrainerSettings(warm_up_transitions=200_000),
        "model.replay_capacity": 200_000,
    }
    for loss, label in SINGLE.items():
        chosen.append(other(scale, f"single-{loss}", label, "sokoban-single", {"model.state_loss": loss}, paper=paper))
    return tuple(chosen)


EXPERIMENT = Experiment(
    module=__name__,
    name="models",
    title="World models",
    paper="figure 8",
    question="Are the dual network and the loss of the predicted states necessary?",
    variants=variants,
    draw=curves_and_bars,
    caption="Solve rate in training by frames and by core-minutes, and on test levels after training.",
    claims=(
        Claim(
            "The dual network is critical: a single network is worse", greater(solved("dual-l2"), solved("single-l2"))
        ),
        Claim(
            "The state loss is critical: models without it are worse",
            all_of(
                greater(solved("dual-feature"), solved("dual-none")),
                greater(solved("dual-feature"), solved("single-none")),
            ),
        ),
        Claim(
            "The feature loss is only marginally better than the L2 loss on Sokoban",
            similar(solved("dual-feature"), solved("dual-l2")),
        ),
    ),
    notes="Laptop scale: 7×7 boards with one box, 100,000 frames, K = 8 (`sokoban-dual`, `sokoban-single`).",
)
