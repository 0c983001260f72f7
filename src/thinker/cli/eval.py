"""`thinker eval`: evaluates a trained agent with more or less time to think."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from thinker.cli.options import RUNS, DeviceOption


@dataclass(frozen=True)
class Eval:
    """Evaluate a trained agent on held-out episodes, the same ones for every line of the table."""

    run_name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Name of the run."""
    stage_length: tuple[int, ...] = ()
    """Stage lengths K; default: as in training."""
    who: tuple[Literal["agent", "base-policy"], ...] = ()
    """The actors: the agent, which plans, or the model's base policy without search; default: both."""
    episodes: int = 1000
    """Number of held-out episodes."""
    split: Literal["validation", "test"] = "test"
    """The set of held-out episodes: choose settings on validation, report test."""
    greedy: bool = False
    """Take the most likely actions instead of sampling."""
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
        from thinker.world_model.spec import NoModelSpec

        for k in self.stage_length:
            if k < 1:
                raise UserError(f"--stage-length {k}: it must be at least 1 (1: no imaginary steps)")
        if self.episodes < 1:
            raise UserError(f"--episodes {self.episodes}: it must be at least 1")
        run = load_run(RunFolder(self.root, self.run_name), device=self.device)
        budgets: list[tuple[Literal["agent", "base-policy"], int]] = []
        both: tuple[Literal["agent", "base-policy"], ...] = ("agent", "base-policy")
        for who in self.who or both[: 1 if isinstance(run.settings.model, NoModelSpec) else 2]:
            if who == "agent":
                budgets += [("agent", k) for k in self.stage_length or (run.search.stage_length,)]
            else:
                budgets.append(("base-policy", 1))
        results = [
            (who, evaluate_run(run, who, split=self.split, stage_length=k, episodes=self.episodes, greedy=self.greedy))
            for who, k in budgets
        ]
        reports_success = any(result.success is not None for _, result in results)
        headings = ["who", "K", *(("solved", "95 % interval") if reports_success else ()), "return", "real steps"]
        table = Table(*headings, title=f"{self.run_name}: {self.episodes:,} {self.split} episodes")
        for who, result in results:
            cells = [who, str(result.stage_length)]
            interval = result.success_interval()
            if result.success is not None and interval is not None:
                cells += [f"{result.success.mean():.3f}", f"{interval[0]:.3f} to {interval[1]:.3f}"]
            table.add_row(*cells, f"{result.returns.mean():.2f}", f"{result.lengths.mean():.1f}")
        Console().print(table)
