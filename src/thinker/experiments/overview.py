"""One line of `thinker reproduce --list` for each experiment."""

from __future__ import annotations

from pathlib import Path

from thinker.errors import UserError
from thinker.experiments.costs import estimated_core_minutes
from thinker.experiments.experiment import Experiment, Scale, locate
from thinker.experiments.report import report_name
from thinker.experiments.results import RESULT, Results, load_results


def describe(
    experiment: Experiment, scale: Scale, root: Path, seeds: int | None = None, pages: Path | None = None
) -> tuple[str, ...]:
    """Name, figure or table, runs, what is needed, how long it takes, and whether it has been run.

    ``pages``: the folder of reports, which may have results of other machines.
    """
    jobs = experiment.jobs(scale, seeds)
    done = sum(job.is_done(locate(experiment, scale, root, job)) for job in jobs)
    result = experiment.folder(root, scale) / RESULT
    if not result.exists() and pages is not None:
        result = pages / f"{report_name(experiment.name, scale)}.json"
    results = load_results(result) if result.exists() else None
    return (
        experiment.name,
        experiment.paper,
        str(len(jobs)),
        _needs(experiment, scale),
        _takes(experiment, scale, seeds, results),
        _state(done, len(jobs), results),
    )


def _needs(experiment: Experiment, scale: Scale) -> str:
    """What is missing to run it here; of several games, the first is tried."""
    missing = set()
    variants = experiment.variants_by_game(scale)
    for environment in dict.fromkeys(one.settings(0).environment for one in variants if one.game == variants[0].game):
        try:
            environment.check()
        except UserError as error:
            missing.add(str(error).partition(";")[0])
    return "; ".join(sorted(missing)) or "–"


def _takes(experiment: Experiment, scale: Scale, seeds: int | None, results: Results | None) -> str:
    if results is not None and results.runs and not results.missing:
        spent = sum(run.core_minutes + run.measuring_core_minutes for run in results.runs)
        return f"took {spent:.0f} core-min"
    if scale == "laptop":
        minutes = estimated_core_minutes(experiment, scale, seeds)
        return "not measured" if minutes is None else f"{minutes:.0f} core-min"
    return "minutes" if scale == "tiny" else "weeks"


def _state(done: int, count: int, results: Results | None) -> str:
    if results is not None and not results.missing:
        games = f", {len(results.games)} games" if results.games else ""
        return f"yes, {results.written[:10]}, {results.seeds} seeds{games}"
    if not done:
        return "no" if results is None else f"{len(results.runs)} of {count} runs, {results.written[:10]}"
    return "yes, but not gathered" if done == count else f"{done} of {count} runs"
