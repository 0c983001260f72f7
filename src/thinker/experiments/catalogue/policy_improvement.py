"""Appendix H: `thinker improve`, once for each seed, with a base policy of its own."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from thinker.agents import paper_settings
from thinker.experiments.catalogue.scales import LAPTOP, TINY
from thinker.experiments.claims import Claim, Quantity, above, all_of, greater, similar
from thinker.experiments.experiment import Experiment, Scale, Variant, changed, has_setting
from thinker.experiments.improvement_report import NEAR, operators, write_report
from thinker.experiments.measurements import Measurement
from thinker.experiments.pictures import interval_of, points, style
from thinker.experiments.policy_improvement import Improvement, ImprovementSettings, Played
from thinker.experiments.report import spread
from thinker.experiments.results import Results
from thinker.runs.presets import SIMULATOR_PRESET, boxoban_paper, preset
from thinker.runs.run import Run
from thinker.world_model.build import ValueNetwork
from thinker.world_model.frozen import save_values

KEY = "policy-improvement"
BASE = "base-policy"
STAGE_LENGTHS = (5, 10, 20, 40)
DEPTHS = (1, 2, 3, 4, 5)


@dataclass(frozen=True)
class PolicyImprovement(Measurement):
    """`thinker improve` with the base policy of the run; its files are written beside the numbers."""

    scale: Scale
    episodes: int
    real_steps: int
    stage_lengths: tuple[int, ...]
    depths: tuple[int, ...]
    simulations: tuple[int, ...]

    @property
    def name(self) -> str:
        return f"{KEY}-{self.episodes}-episodes-{self.real_steps}-steps"

    @property
    def key(self) -> str:
        return KEY

    def measure(self, run: Run, folder: Path) -> dict[str, Any]:
        """The improvement by each operator, as a part of the largest one, and its mean return."""
        settings = ImprovementSettings(
            out=folder,
            changes=changes(self.scale),
            stage_lengths=self.stage_lengths,
            depths=self.depths,
            simulations=self.simulations,
            seeds=(run.settings.seed,),
            real_steps=self.real_steps,
            base_steps=run.settings.real_steps,
            base_seed=run.settings.seed,
            episodes=self.episodes,
            threads=run.settings.threads,
        )
        assert run.trainer is not None
        assert isinstance(run.trainer.network, ValueNetwork)
        folder.mkdir(exist_ok=True)
        if not settings.weights.exists():
            save_values(run.trainer.network, settings.weights)
        results = Improvement(settings).run()
        write_report(results, folder)
        found = operators(results["evaluations"])
        base = found[BASE].mean
        best = max(abs(one.mean - base) for one in found.values())
        return {
            "episodes": self.episodes,
            "trained_frames": self.real_steps,
            "training_core_minutes": sum(results["training_core_minutes"].values()),
            "playing_core_minutes": sum(one.core_seconds for one in found.values()) / 60,
            **{name: (one.mean - base) / best for name, one in found.items()},
            "returns": {name: one.mean for name, one in found.items()},
        }


MEASUREMENTS: dict[Scale, PolicyImprovement] = {
    "tiny": PolicyImprovement("tiny", 12, 96, (5, 10), (1, 3), (5, 60)),
    "laptop": PolicyImprovement("laptop", 300, 100_000, STAGE_LENGTHS, DEPTHS, (5, 10, 20, 40, 60, 120, 250)),
    "paper": PolicyImprovement("paper", 2_000, 50_000_000, STAGE_LENGTHS, DEPTHS, (5, 10, 20, 40, 60, 120, 250, 1000)),
}
BASE_STEPS: dict[Scale, int] = {"tiny": 256, "laptop": 20_000, "paper": 1_000_000}


def changes(scale: Scale) -> dict[str, Any]:
    """Of the preset, in all trainings."""
    if scale == "tiny":
        settings = preset(SIMULATOR_PRESET)
        return {name: value for name, value in TINY.items() if has_setting(settings, name)}
    if scale == "laptop":
        return {"threads": LAPTOP["threads"]}
    paper = boxoban_paper()
    environment = changed(paper, {"environment.observation": "tiles"}).environment  # agents do not see it
    return {
        "environment": environment,
        "search.discount": paper.search.discount,
        "agent": paper_settings(),
        "num_envs": paper.num_envs,
        "evaluation": paper.evaluation,
    }


def variants(scale: Scale) -> tuple[Variant, ...]:
    training = {"real_steps": BASE_STEPS[scale], "annealing_steps": None, "exploration_steps": 0}
    return (Variant(BASE, "base policy", SIMULATOR_PRESET, {**changes(scale), **training}, (MEASUREMENTS[scale],)),)


def improvement(kind: Any, budget: int) -> Quantity:
    """The improvement on the base policy by an operator, as a part of the largest improvement of the same seed."""
    who = Played(kind, budget)
    return Quantity(
        BASE, f"improvement by {who.label}", lambda results, variant: results.measured(variant, KEY, who.name)
    )


def returns(results: Results) -> dict[str, np.ndarray]:
    """The mean returns [runs] of all operators, by name."""
    measured = [run.measurements.get(KEY, {}).get("returns", {}) for run in results.of(BASE)]
    names = dict.fromkeys(name for one in measured for name in one)
    return {name: np.array([one[name] for one in measured if name in one]) for name in names}


def table(results: Results) -> Iterator[str]:
    """Returns and improvements of all operators."""
    yield "| operator | base policies | return | improvement, as a part of the largest |"
    yield "|---|---|---|---|"
    for name, values in returns(results).items():
        parts = results.measured(BASE, KEY, name)
        yield f"| {name} | {len(values)} | {spread(interval_of(values), 2)} | {spread(interval_of(parts), 2)} |"
    yield ""
    yield "The number behind an agent is K, behind exhaustive search its depth, behind MCTS its simulations."


def draw(results: Results, figure: Figure) -> None:
    axis = figure.subplots()
    points(axis, list(returns(results).items()))
    axis.set_ylabel("return of test episodes")
    style(axis)


AGENTS = {k: improvement("agent", k) for k in STAGE_LENGTHS}
EXPERIMENT = Experiment(
    module=__name__,
    name="policy-improvement",
    title="Policy improvement with a fixed base policy",
    paper="appendix H",
    question="How good is a learned search as an operator that improves a given policy?",
    variants=variants,
    draw=draw,
    caption="Mean returns of the base policy and of all operators that improve it; a small point for each seed.",
    claims=(
        Claim("Agents improve on the base policy", all_of(*(above(one) for one in AGENTS.values()))),
        Claim(
            "Exhaustive search and MCTS with 60 simulations improve on it, too",
            all_of(*(above(improvement("exhaustive", n)) for n in DEPTHS), above(improvement("mcts", 60))),
        ),
        Claim(
            "Agents improve more the larger K",
            all_of(*(greater(AGENTS[k], AGENTS[j]) for j, k in itertools.pairwise(STAGE_LENGTHS))),
        ),
        Claim("K = 10 is similar to 3-step exhaustive search", similar(AGENTS[10], improvement("exhaustive", 3), NEAR)),
        Claim("K = 10 is comparable to MCTS with 60 simulations", similar(AGENTS[10], improvement("mcts", 60), NEAR)),
        Claim(
            "K = 20 is worse than 4-step exhaustive search (the paper: slightly)",
            greater(improvement("exhaustive", 4), AGENTS[20]),
        ),
        Claim("K = 40 surpasses 5-step exhaustive search", greater(AGENTS[40], improvement("exhaustive", 5))),
    ),
    table=table,
    notes=(
        "The comparison is that of `thinker improve`, once for each seed, which is that of the base policy and of the "
        "agents; its page for each seed is in `measurements/policy-improvement-…/report.md` of the run. Improvements "
        "are parts of the largest one of the same seed; similar means within a tenth. Laptop scale: 7×7 boards with "
        "one box, 100,000 frames for each agent, where the paper has Boxoban. The base policy is trained for 20,000 "
        "frames."
    ),
)
