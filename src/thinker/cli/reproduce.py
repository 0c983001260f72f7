"""`thinker reproduce`: the paper's figures and tables."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from thinker.cli.engine import EngineOptions
from thinker.cli.options import RUNS

if TYPE_CHECKING:
    from thinker.experiments.experiment import Experiment
    from thinker.experiments.results import Results

ScaleOption = Literal["tiny", "laptop", "paper"]


@dataclass(frozen=True, kw_only=True)
class Reproduce(EngineOptions):
    """Run one of the paper's experiments: train and measure its agents, and judge the paper's claims.
    Repeat the command to continue after an interruption; what is finished is never repeated."""

    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="[NAME]")] = ""
    """Name of the experiment; see --list."""
    list: bool = False
    """Show all experiments, and which have been run."""
    report: bool = False
    """Only write the page, the picture and the result file, from the runs that are finished."""
    reuse: bool = False
    """Take finished runs from the result file in --out if their settings are the same; train only the others."""
    scale: ScaleOption = "laptop"
    """tiny: tests the code in minutes; laptop: shows the effect on two cores in an hour or two; paper: its settings."""
    seeds: int | None = None
    """Seeds of every variant; default: 3, tiny 2, paper 5."""
    games: tuple[str, ...] = ()
    """Games, for experiments with several; default: all, for atari at laptop scale pong breakout freeway."""
    jobs: int = 0
    """Runs at a time, each with its share of the cores; 0: one for each core, at paper scale one."""
    root: Path = RUNS / "reproduce"
    """The folder of all experiments."""
    out: Path = Path("docs") / "results"
    """The folder of pages and result files, where --report writes."""

    def run(self) -> None:
        """Run, report or list."""
        from thinker.errors import UserError
        from thinker.experiments import statistics
        from thinker.experiments.catalogue import experiment_named

        if self.list:
            self._list()
            return
        if not self.name:
            raise UserError("which experiment? `thinker reproduce --list` shows them")
        experiment = experiment_named(self.name).on(self.games or None)
        statistics.check_installed()
        if self.report:
            self._report(experiment)
        else:
            self._run(experiment)

    def _run(self, experiment: Experiment) -> None:
        from thinker.errors import UserError
        from thinker.experiments.results import RESULT, gather
        from thinker.experiments.runner import run_experiment
        from thinker.runs.machine import cores

        jobs = self.jobs or (1 if self.scale == "paper" else cores())
        engine = self.engine_spec()
        known = self._known(experiment)
        failed = run_experiment(
            experiment, self.scale, self.root, seeds=self.seeds, jobs=jobs, engine=engine, known=known
        )
        results = gather(experiment, self.scale, self.root, self.seeds, [known] if known else [])
        results.save(experiment.folder(self.root, self.scale) / RESULT)
        self._print_claims(experiment)
        if failed:
            reasons = "\n".join(f"  {one.job.name}: {one.error()} (log: {one.log})" for one in failed)
            raise UserError(f"{len(failed)} runs failed; run the same command to try them again:\n{reasons}")

    def _report(self, experiment: Experiment) -> None:
        from thinker.errors import UserError
        from thinker.experiments.report import write_report
        from thinker.experiments.results import RESULT, gather, load_results

        folder = experiment.folder(self.root, self.scale)
        path = self._result_file(experiment)
        if folder.exists():
            seeds = self.seeds
            known = [one for one in [self._known(experiment)] if one]
            if (folder / RESULT).exists():
                before = load_results(folder / RESULT)
                known.append(before)  # what it reused
                seeds = before.seeds if seeds is None else seeds
                experiment = experiment if self.games else experiment.on(before.games or None)
            results = gather(experiment, self.scale, self.root, seeds, known)
        else:
            if not path.exists():
                raise UserError(
                    f"there are no runs in {folder} and there is no result file {path}; run `thinker reproduce "
                    f"{experiment.name} --scale {self.scale}` first"
                )
            results = load_results(path)
        if not results.runs:
            raise UserError(f"no run of {experiment.name} at {self.scale} scale is finished yet")
        if folder.exists():
            results.save(folder / RESULT)
        print(f"wrote {write_report(experiment, results, self.out)}")

    def _result_file(self, experiment: Experiment) -> Path:
        from thinker.experiments.report import report_name

        return self.out / f"{report_name(experiment.name, self.scale)}.json"

    def _known(self, experiment: Experiment) -> Results | None:
        """The results of earlier runs, with --reuse."""
        from thinker.errors import UserError
        from thinker.experiments.results import load_results

        if not self.reuse:
            return None
        path = self._result_file(experiment)
        if not path.exists():
            raise UserError(f"--reuse: there is no result file {path}; leave the option out or change --out")
        return load_results(path)

    def _print_claims(self, experiment: Experiment) -> None:
        from rich.console import Console
        from rich.table import Table

        from thinker.experiments.report import verdicts
        from thinker.experiments.results import RESULT, load_results

        results = load_results(experiment.folder(self.root, self.scale) / RESULT)
        table = Table("the paper says", "here", "because", title=f"{experiment.name} · {self.scale}", show_lines=True)
        for claim, verdict in zip(experiment.claims, verdicts(experiment, results)):
            table.add_row(claim.sentence, verdict.judgement, verdict.evidence)
        Console().print(table)
        options = "" if self.scale == "laptop" else f" --scale {self.scale}"
        options += "" if self.root == RUNS / "reproduce" else f" --root {self.root}"
        print(f"Next: thinker reproduce {experiment.name}{options} --report   # writes the page to {self.out}")

    def _list(self) -> None:
        from rich.console import Console
        from rich.table import Table

        from thinker.experiments.catalogue import EXPERIMENTS
        from thinker.experiments.overview import describe

        headings = ("name", "paper", "runs", "needs", "takes", "has been run")
        table = Table(*headings, title=f"experiments at {self.scale} scale")
        table.columns[0].no_wrap = True  # names are there to be copied
        for experiment in EXPERIMENTS.values():
            table.add_row(*describe(experiment, self.scale, self.root, self.seeds, self.out))
        Console().print(table)
