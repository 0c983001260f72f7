"""`thinker eval`: evaluates a trained agent with more or less time to think, beside planners on the same model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import tyro

from thinker.cli.options import RUNS, DeviceOption
from thinker.cli.planners import PlannerName, check_budgets, planner_specs
from thinker.cli.progress import Progress

if TYPE_CHECKING:
    from thinker.planners import PlannerSpec
    from thinker.runs.evaluate import Evaluation
    from thinker.runs.run import Run

Who = Literal["agent", "base-policy", "random-play"]


class Line(NamedTuple):
    """One line of the table, before it is evaluated."""

    name: str  # who acts
    who: Who | PlannerSpec
    stage_length: int


@dataclass(frozen=True)
class Eval:
    """Evaluate a trained agent on held-out episodes, the same ones for every line of the table."""

    run_name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Name of the run."""
    stage_length: tuple[int, ...] = ()
    """Stage lengths K; default: as in training."""
    who: tuple[Who, ...] = ()
    """The actors: the agent, which plans, the model's base policy without search, or random play; default: the first
    two."""
    planner: tuple[PlannerName, ...] = ()
    """Also evaluate these planners, which search the run's model by a fixed rule."""
    simulations: tuple[int, ...] = ()
    """Simulations per real step of the planners mcts, gumbel and random; default: 50."""
    depth: tuple[int, ...] = ()
    """Depths n of the exhaustive search, which takes A + ... + A^n simulations for A actions; default: 3."""
    episodes: int = 1000
    """Number of held-out episodes."""
    split: Literal["validation", "test"] = "test"
    """The set of held-out episodes: choose settings on validation, report test."""
    greedy: bool = False
    """Take the most likely actions instead of sampling."""
    seed: int | None = None
    """Seed of the actors; default: that of the run's evaluations."""
    device: DeviceOption | None = None
    """Where networks compute; default: as in training."""
    root: Path = RUNS
    """The folder of all runs."""

    def run(self) -> None:
        """Print the table."""
        from rich.console import Console
        from rich.table import Table

        from thinker.errors import UserError
        from thinker.runs.evaluate import evaluate_run
        from thinker.runs.folder import RunFolder
        from thinker.runs.load import load_run

        for k in self.stage_length:
            if k < 1:
                raise UserError(f"--stage-length {k}: it must be at least 1 (1: no imaginary steps)")
        if self.episodes < 1:
            raise UserError(f"--episodes {self.episodes}: it must be at least 1")
        check_budgets(self.planner, self.simulations, self.depth)
        run = load_run(RunFolder(self.root, self.run_name), device=self.device)
        results: list[tuple[Line, Evaluation]] = []
        lines = self._lines(run)
        with Progress(len(lines)) as progress:
            for line in lines:
                result = evaluate_run(
                    run,
                    line.who,
                    split=self.split,
                    stage_length=line.stage_length,
                    episodes=self.episodes,
                    greedy=self.greedy,
                    seed=self.seed,
                    on_episodes=progress.task(_described(line), self.episodes, "episodes"),
                )
                results.append((line, result))

        reports_success = any(result.success is not None for _, result in results)
        budget = "K" if all(result.simulations is None for _, result in results) else "K or simulations"
        headings = ["who", budget, *(("solved", "95 % interval") if reports_success else ()), "return", "real steps"]
        headings += [name.replace("_", " ") for name in results[0][1].scores]
        table = Table(*headings, title=f"{self.run_name}: {self.episodes:,} {self.split} episodes")
        for line, result in results:
            cells = [line.name, _budget(line, result)]
            interval = result.success_interval()
            if result.success is not None and interval is not None:
                cells += [f"{result.success.mean():.3f}", f"{interval[0]:.3f} to {interval[1]:.3f}"]
            scores = (f"{score:.3f}" for score in result.scores.values())
            table.add_row(*cells, f"{result.returns.mean():.2f}", f"{result.lengths.mean():.1f}", *scores)
        Console().print(table)

    def _lines(self, run: Run) -> list[Line]:
        from thinker.world_model.spec import NoModelSpec

        planners = planner_specs(run, self.planner, self.simulations, self.depth)
        both: tuple[Who, ...] = ("agent", "base-policy")
        lines: list[Line] = []
        for who in self.who or both[: 1 if isinstance(run.settings.model, NoModelSpec) else 2]:
            if who == "agent":
                lines += [Line(who, who, k) for k in self.stage_length or (run.search.stage_length,)]
            else:
                lines.append(Line(who, who, 1))
        return lines + [Line(name, spec, 1) for name, spec in planners]


def _budget(line: Line, result: Evaluation) -> str:
    """K of the agent, the simulations of a planner."""
    if result.simulations is None:
        return str(result.stage_length)
    depth = getattr(line.who, "depth", None)
    return str(result.simulations) if depth is None else f"{result.simulations} (depth {depth})"


def _described(line: Line) -> str:
    if line.who == "agent":
        return f"agent, K = {line.stage_length}"
    for budget in ("simulations", "depth"):
        if hasattr(line.who, budget):
            return f"{line.name}, {budget} {getattr(line.who, budget)}"
    return line.name
