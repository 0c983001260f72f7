"""Appendix F: `thinker analyse` on agents that were trained with and without planning rewards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from thinker.experiments.behaviour import analyse, write_report
from thinker.experiments.catalogue.scales import EPISODES
from thinker.experiments.catalogue.thinking_time import trained
from thinker.experiments.claims import Claim, Quantity, above, all_of
from thinker.experiments.experiment import Experiment, Scale, Variant
from thinker.experiments.measurements import Measurement, TestEpisodes
from thinker.experiments.pictures import points, style
from thinker.experiments.results import Results
from thinker.runs.run import Run

KEY = "behaviour"
WITH, WITHOUT = "trained", "no-planning-reward"
LEADS = {
    "reset-td-error": "TD error where the agent does not reset, minus where it resets",
    "reset-depth": "one half minus the share of resets at new nodes",
    "expansion-length": "expansion length minus the 1 of MCTS",
    "max-td-error": "highest TD error of a stage, agent minus UCB",
    "max-td-error-log": "share of stages above UCB's 99 % quantile, agent minus UCB",
    "real-actions": "real actions that have the highest maximum return, minus the better of visits and mean return",
    "mcts": "solve rate, agent minus MCTS with about K simulations",
}
"""What the analysis looks at: the names of its figures, and what must be above 0 for the paper to be right."""
TITLES = {
    "reset-td-error": "TD error:\nno reset - reset",
    "reset-depth": "½ - resets\nat new nodes",
    "expansion-length": "expansion\nlength - 1",
    "max-td-error": "highest TD error:\nagent - UCB",
    "max-td-error-log": "tail of TD errors:\nagent - UCB",
    "real-actions": "real actions: lead\nof max. return",
    "mcts": "solve rate:\nagent - MCTS(K)",
}


@dataclass(frozen=True)
class BehaviourAnalysis(Measurement):
    """`thinker analyse` on test episodes; its page and figures are written beside the numbers."""

    stages: int
    episodes: int
    budgets: tuple[int, ...]

    @property
    def name(self) -> str:
        return f"{KEY}-{self.stages}-stages-{self.episodes}-episodes-{'-'.join(map(str, self.budgets))}"

    @property
    def key(self) -> str:
        return KEY

    def measure(self, run: Run, folder: Path) -> dict[str, Any]:
        """What each verdict looks at, and the verdict on this run alone."""
        analysis = analyse(
            run,
            name=folder.parent.parent.name,
            stages=self.stages,
            episodes=self.episodes,
            budgets=self.budgets,
            split="test",
            seed=run.settings.evaluation.seed,
            start_task=_told,
        )
        write_report(analysis, folder)
        return {
            "stages": self.stages,
            "episodes": self.episodes,
            **{finding.name: finding.lead for finding in analysis.findings},
            "verdicts": {finding.name: finding.verdict for finding in analysis.findings},
        }


def _told(what: str, amount: int, unit: str) -> Callable[[int], object]:
    print(f"{what}: {amount} {unit}", flush=True)
    return lambda done: None


ANALYSES: dict[Scale, BehaviourAnalysis] = {
    "tiny": BehaviourAnalysis(60, 12, (2, 4)),
    "laptop": BehaviourAnalysis(8_000, 300, (5, 10, 20, 40, 80, 160)),
    "paper": BehaviourAnalysis(20_000, 1_000, (5, 10, 20, 40, 80, 160, 320, 640, 1280, 2560)),
}


def variants(scale: Scale) -> tuple[Variant, ...]:
    measured = (TestEpisodes(EPISODES[scale]), TestEpisodes(EPISODES[scale], "base-policy"), ANALYSES[scale])
    return (
        trained(scale, WITH, "with planning rewards", measured),
        trained(scale, WITHOUT, "without planning rewards", measured, {"agent.planning_reward_scale": 0.0}),
    )


def lead(variant: str, figure: str) -> Quantity:
    """What a verdict of the analysis looks at."""
    return Quantity(variant, LEADS[figure], lambda results, name: results.measured(name, KEY, figure))


def _claim(sentence: str, *figures: str) -> Claim:
    return Claim(sentence, all_of(*(above(lead(variant, one)) for one in figures for variant in (WITH, WITHOUT))))


def draw(results: Results, figure: Figure) -> None:
    for axis, (name, title) in zip(figure.subplots(1, len(TITLES)), TITLES.items()):
        points(axis, [(label, results.measured(variant, KEY, name)) for variant, label in results.labels.items()])
        axis.axhline(0, color="0.4", linewidth=0.8)
        axis.set_title(title, fontsize=8)
        axis.tick_params(axis="y", labelsize=7)
        style(axis)


EXPERIMENT = Experiment(
    module=__name__,
    name="behaviour",
    title="What agents learn about planning",
    paper="appendix F",
    question="When do agents reset, what do they imagine, and how do they choose real actions?",
    variants=variants,
    draw=draw,
    caption="What must be above 0 for the paper to be right, with and without planning rewards; a point for each seed.",
    claims=(
        _claim("With and without planning rewards, agents reset after worse rollouts", "reset-td-error"),
        _claim("They do not reset at every new node, as MCTS does", "reset-depth"),
        _claim("Their expansion lengths are longer than the one step of MCTS", "expansion-length"),
        _claim("They find larger TD errors than UCB with as many imaginary steps", "max-td-error"),
        _claim("The tail of large TD errors is heavier than UCB's", "max-td-error-log"),
        _claim("The maximum return is the best indication of the real action", "real-actions"),
        _claim("They solve more levels than MCTS with about K simulations of the same model", "mcts"),
    ),
    notes=(
        "The analysis is that of `thinker analyse`; its page for each run, with all figures, is in the run's folder: "
        "`measurements/behaviour-…/report.html`. Laptop scale: 7×7 boards with two boxes, 200,000 frames, K = 8, L = "
        "5; the runs with planning rewards are those of `thinking-time`. The paper's agents with L = 10 are missing."
    ),
)
