"""`thinker analyse RUN`: reports what an agent learned about planning, beside what the paper saw (appendix F)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from thinker.cli.options import RUNS, DeviceOption
from thinker.cli.progress import Progress


@dataclass(frozen=True)
class Analyse:
    """Let a trained agent play, and report what it learned about planning: a page, its figures, and all numbers."""

    run_name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Name of the run."""
    stages: int = 20_000
    """Stages of real play to look at, for each of up to three depth limits."""
    episodes: int = 1000
    """Held-out episodes for the results of agent, base policy and MCTS. The stages are of these episodes, too, which
    are played repeatedly if they have fewer stages."""
    budgets: tuple[int, ...] = (5, 10, 20, 40, 80, 160, 320)
    """Simulations of MCTS. The paper goes on to 640, 1280 and 2560."""
    out: Path | None = None
    """The folder to write to; default: RUN-analysis."""
    split: Literal["validation", "test"] = "test"
    """The set of held-out episodes."""
    seed: int | None = None
    """Seed of the agent and the searches; default: that of the run's evaluations."""
    device: DeviceOption | None = None
    """Where networks compute; default: as in training."""
    root: Path = RUNS
    """The folder of all runs."""

    def run(self) -> None:
        """Play, and write the files."""
        from thinker.errors import UserError
        from thinker.runs.folder import RunFolder
        from thinker.runs.load import load_run

        for option, value in (("--stages", self.stages), ("--episodes", self.episodes)):
            if value < 1:
                raise UserError(f"{option} {value}: it must be at least 1")
        for budget in self.budgets:
            if budget < 1:
                raise UserError(f"--budgets {budget}: MCTS needs at least 1 simulation")
        folder = _writable_folder(Path(f"{self.run_name}-analysis") if self.out is None else self.out)
        run = load_run(RunFolder(self.root, self.run_name), device=self.device)

        from thinker.experiments.behaviour import analyse, check_plans, number_of_tasks, write_report

        check_plans(run)
        with Progress(number_of_tasks(run, self.budgets)) as progress:
            analysis = analyse(
                run,
                name=self.run_name,
                stages=self.stages,
                episodes=self.episodes,
                budgets=self.budgets,
                split=self.split,
                seed=run.settings.evaluation.seed if self.seed is None else self.seed,
                start_task=progress.task,
            )
        page = write_report(analysis, folder)
        for finding in analysis.findings:
            print(f"{finding.title} ({finding.verdict})\n  {finding.here}")
        print(f"wrote {page}")


def _writable_folder(path: Path) -> Path:
    """``path``; raises an error if files cannot be written to this folder, or if it cannot be created."""
    from thinker.errors import UserError

    if path.exists() and not path.is_dir():
        raise UserError(f"--out {path}: this is a file; give the name of a folder")
    if not path.parent.is_dir():
        raise UserError(f"--out {path}: the folder {path.parent} does not exist; create it, or choose another path")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise UserError(f"--out {path}: no permission to write there; choose another path")
    return path
