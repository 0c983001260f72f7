"""One line of `thinker reproduce --list` for each experiment."""

from __future__ import annotations

from pathlib import Path

from thinker.errors import UserError
from thinker.experiments.experiment import Experiment, Scale, locate
from thinker.experiments.results import RESULT, Results, load_results


def describe(experiment: Experiment, scale: Scale, root: Path, seeds: int | None = None) -> tuple[str, ...]:
    """Name, figure or table, question, runs, what is needed, how long it takes, and whether it has been run."""
    jobs = experiment.jobs(scale, seeds)
    done = sum(job.is_done(locate(experiment, scale, root, job)) for job in jobs)
    result = experiment.folder(root, scale) / RESULT
    results = load_results(result) if result.exists() else None
    return (
        experiment.name,
        experiment.paper,
        experiment.question,
        str(len(jobs)),
        _needs(experiment, scale),
        _takes(experiment, scale, results),
        _state(done, len(jobs), results),
    )


def _needs(experiment: Experiment, scale: Scale) -> str:
    """What is missing to run it here."""
    missing = set()
    for variant in experiment.variants(scale):
        try:
            variant.settings(0).environment.check()
        except UserError as error:
            missing.add(str(error).partition(";")[0])
    return "; ".join(sorted(missing)) or "nothing more"


def _takes(experiment: Experiment, scale: Scale, results: Results | None) -> str:
    if results is not None and results.runs and not results.missing:
        spent = sum(run.core_minutes for run in results.runs)
        return f"{spent:.0f} core-minutes, measured"
    return (
        f"about {experiment.core_minutes:.0f} core-minutes"
        if scale == "laptop"
        else "minutes"
        if scale == "tiny"
        else "weeks"
    )


def _state(done: int, count: int, results: Results | None) -> str:
    if not done:
        return "no"
    if done < count:
        return f"{done} of {count} runs"
    return "yes" if results is None else f"yes, {results.written[:10]}"
