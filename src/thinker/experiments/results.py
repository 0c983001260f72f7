"""The numbers of an experiment: gathered from the folders of its runs, and written to and read from one JSON file."""

from __future__ import annotations

import dataclasses
import datetime
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from thinker.errors import UserError
from thinker.experiments.experiment import Experiment, Job, Scale, locate
from thinker.runs.folder import RunFolder, write_json
from thinker.runs.metrics import STEP, read_metrics
from thinker.runs.presets import training_command

RESULT = "result.json"
PROVENANCE = "provenance.json"

CURVES = {"solved": "episode/solved", "return": "episode/return", "core_minutes": "time/core_minutes"}
"""The columns of a learning curve besides the step: running averages over training episodes, as in the paper."""
_MOST_POINTS = 200


@dataclass(frozen=True)
class RunResult:
    """One finished run."""

    variant: str
    seed: int
    folder: str  # relative to the root of all experiments
    command: str  # trains the same run alone
    frames: int  # real steps
    core_minutes: float  # of training
    minutes: float  # of training, by the clock
    validation: dict[str, float]  # the run's own final evaluation, on which settings may be chosen
    measurements: dict[str, dict[str, Any]]  # by their keys
    curve: dict[str, list[float]]  # step, and the columns of `CURVES` that were recorded; all of one length
    provenance: dict[str, Any]
    game: str = ""  # that it was trained on, in experiments with several
    settings_hash: str = ""  # see `Job`; empty in files of earlier versions

    def is_of(self, job: Job) -> bool:
        """Whether it is the run of ``job``, with the same settings and all measurements."""
        return self.settings_hash == job.settings_hash and all(
            one.key in self.measurements for one in job.variant.measurements
        )

    @property
    def measuring_core_minutes(self) -> float:
        """Of all measurements."""
        return float(sum(one.get("core_minutes", 0.0) for one in self.measurements.values()))


@dataclass(frozen=True)
class Results:
    """Everything that the picture, the claims and the page of an experiment are made from."""

    experiment: str
    scale: Scale
    command: str
    written: str  # date and time
    seeds: int
    labels: dict[str, str]  # of the variants, in their order
    runs: tuple[RunResult, ...]
    missing: tuple[str, ...]  # names of runs that are not finished
    games: tuple[str, ...] = ()  # of experiments with several

    def run_of(self, job: Job) -> RunResult | None:
        """The finished run of ``job``."""
        return next((run for run in self.runs if run.is_of(job)), None)

    def label(self, variant: str) -> str:
        return self.labels.get(variant, variant)

    def of(self, variant: str, game: str | None = None) -> list[RunResult]:
        """The finished runs of a variant, in the order of their seeds; on one game, or on all of them."""
        return [run for run in self.runs if run.variant == variant and game in (None, run.game)]

    def measured(self, variant: str, key: str, quantity: str, game: str | None = None) -> np.ndarray:
        """A quantity of a measurement for every run that has it: [runs]."""
        found = [run.measurements.get(key, {}).get(quantity, math.nan) for run in self.of(variant, game)]
        return _finite(found)

    def early(self, variant: str, column: str, share: float) -> np.ndarray:
        """The mean of a learning curve over the first ``share`` of the frames, for every run: [runs]."""
        means = []
        for run in self.of(variant):
            if run.curve.get(column):
                grid = np.linspace(0, share * run.frames, 101)
                means.append(float(np.interp(grid, run.curve[STEP], run.curve[column]).mean()))
        return _finite(means)

    def core_seconds(self, variant: str) -> np.ndarray:
        """Core-seconds of training for each real step, from the curve's first point on, for every run: [runs]."""
        found = []
        for run in self.of(variant):
            minutes, step = run.curve.get("core_minutes", []), run.curve[STEP]
            if len(minutes) > 1 and step[-1] > step[0]:
                found.append(60 * (minutes[-1] - minutes[0]) / (step[-1] - step[0]))
        return _finite(found)

    def save(self, path: Path) -> None:
        write_json(path, {"format": 1, **dataclasses.asdict(self)})


def load_results(path: Path) -> Results:
    """Read what `Results.save` wrote."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        values.pop("format")
        values["runs"] = tuple(RunResult(**run) for run in values["runs"])
        values["missing"] = tuple(values["missing"])
        values["games"] = tuple(values.get("games", ()))
        return Results(**values)
    except (ValueError, TypeError, KeyError) as error:
        raise UserError(f"{path} is not a result file of this version: {error}") from error


def gather(
    experiment: Experiment, scale: Scale, root: Path, seeds: int | None = None, known: Sequence[Results] = ()
) -> Results:
    """Collect the numbers of all finished runs of an experiment below ``root``, and of those in ``known`` results."""
    jobs = experiment.jobs(scale, seeds)
    count = len({job.seed for job in jobs})
    games = () if experiment.games is None else experiment.games.at(scale)
    options = f" --games {' '.join(games)}" if games else ""
    runs, missing = [], []
    for job in jobs:
        folder = locate(experiment, scale, root, job)
        if job.is_done(folder):
            runs.append(_run_result(job, folder, root))
        elif found := next(filter(None, (results.run_of(job) for results in known)), None):
            # Another experiment may have made it, under another name.
            runs.append(dataclasses.replace(found, variant=job.variant.name))
        else:
            missing.append(job.name)
    return Results(
        experiment=experiment.name,
        scale=scale,
        command=f"thinker reproduce {experiment.name} --scale {scale} --seeds {count}{options}",
        written=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        seeds=count,
        labels={job.variant.name: job.variant.label for job in jobs},
        runs=tuple(runs),
        missing=tuple(missing),
        games=games,
    )


def _run_result(job: Job, folder: Path, root: Path) -> RunResult:
    summary = RunFolder(folder.parent, folder.name).read_summary() or {}
    measured = {one.key: one.stored(folder) or {} for one in job.variant.measurements}
    origin = folder / PROVENANCE
    return RunResult(
        variant=job.variant.name,
        seed=job.seed,
        folder=Path(os.path.relpath(folder, root)).as_posix(),
        command=training_command(job.variant.preset, job.settings),
        frames=int(summary["real_steps"]),
        core_minutes=float(summary.get("time/core_minutes", math.nan)),
        minutes=float(summary["training_minutes"]),
        validation={
            name.removeprefix("eval/"): value
            for name, value in summary.items()
            if name.startswith("eval/") and isinstance(value, float)
        },
        measurements=measured,
        curve=learning_curve(folder),
        provenance=json.loads(origin.read_text(encoding="utf-8")) if origin.exists() else {},
        game=job.variant.game,
        settings_hash=job.settings_hash,
    )


def learning_curve(folder: Path) -> dict[str, list[float]]:
    """The columns of a run's learning curve, thinned out to at most `_MOST_POINTS` points."""
    lines = [line for line in read_metrics(folder) if _is_point(line)]
    every = -(-len(lines) // _MOST_POINTS)
    kept = lines[:: every or 1]
    if lines and kept[-1] is not lines[-1]:
        kept.append(lines[-1])
    columns = {column: name for column, name in CURVES.items() if kept and all(name in line for line in kept)}
    return {
        STEP: [int(line[STEP]) for line in kept],
        **{column: [round(float(line[name]), 6) for line in kept] for column, name in columns.items()},
    }


def _is_point(line: Mapping[str, Any]) -> bool:
    return math.isfinite(line.get(CURVES["return"], math.nan))


def _finite(values: list[float]) -> np.ndarray:
    array = np.array(values, np.float64)
    return array[np.isfinite(array)]
