"""The page of an experiment: picture, table, claims, commands; made from its result file alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from thinker.experiments.claims import Verdict
from thinker.experiments.experiment import Experiment, Scale
from thinker.experiments.pictures import interval_of, write_picture
from thinker.experiments.results import Results
from thinker.experiments.statistics import probability_of_improvement


def report_name(experiment: str, scale: Scale) -> str:
    """The name of the files of a report, without their endings; laptop scale is the normal one."""
    return experiment if scale == "laptop" else f"{experiment}-{scale}"


def write_report(experiment: Experiment, results: Results, folder: Path) -> Path:
    """Write NAME.json, NAME.png and NAME.md to ``folder``; returns the page."""
    folder.mkdir(parents=True, exist_ok=True)
    page = folder / f"{report_name(results.experiment, results.scale)}.md"
    results.save(page.with_suffix(".json"))
    write_picture(experiment.draw, results, page.with_suffix(".png"))
    page.write_text("\n".join(_page(experiment, results)) + "\n", encoding="utf-8")
    return page


def verdicts(experiment: Experiment, results: Results) -> list[Verdict]:
    """The verdict on every claim."""
    return [claim.judge(results) for claim in experiment.claims]


def _page(experiment: Experiment, results: Results) -> Iterator[str]:
    name = report_name(results.experiment, results.scale)
    yield f"# {experiment.title}"
    yield ""
    yield f"The paper's {experiment.paper}, at {results.scale} scale. {experiment.question}"
    if results.scale == "tiny":
        yield ""
        yield "**Tiny scale only tests the code: nothing is learned in so few frames, and its numbers mean nothing.**"
    yield ""
    yield f"![{experiment.title}]({name}.png)"
    yield ""
    yield f"{experiment.caption} Bands and bars are 95 % intervals."
    yield ""
    yield "## Claims"
    yield ""
    yield "| the paper says | here | because |"
    yield "|---|---|---|"
    for claim, verdict in zip(experiment.claims, verdicts(experiment, results)):
        yield f"| {claim.sentence} | **{verdict.judgement}** | {verdict.evidence} |"
    yield ""
    yield "## Numbers"
    yield ""
    yield from (experiment.table or _table)(results)
    if experiment.notes:
        yield ""
        yield "## Notes"
        yield ""
        yield experiment.notes
    yield ""
    yield "## How it was measured"
    yield ""
    yield from _method(results)


def _table(results: Results) -> Iterator[str]:
    yield "| runs | played by | seeds | frames | solved | better | return | core-minutes | core-ms/frame |"
    yield "|---|---|---|---|---|---|---|---|---|"
    reference: np.ndarray | None = None
    for variant, label in results.labels.items():
        runs = results.of(variant)
        cost = results.core_seconds(variant)
        keys = list(dict.fromkeys(key for run in runs for key in run.measurements if "return" in run.measurements[key]))
        for key in keys:
            solved, returns = (results.measured(variant, key, quantity) for quantity in ("solved", "return"))
            better = ""
            if reference is None:
                reference = solved
            elif len(solved) > 1 and len(reference) > 1:
                better = spread(probability_of_improvement(solved, reference), 2)
            cells = [
                label,
                key,
                str(len(runs)),
                f"{runs[0].frames:,}",
                spread(interval_of(solved), 3) if len(solved) else "",
                better,
                f"{returns.mean():.2f}" if len(returns) else "",
                f"{np.mean([run.core_minutes for run in runs]):.1f}",
                f"{1000 * cost.mean():.2f}" if len(cost) else "",
            ]
            yield f"| {' | '.join(cells)} |"
    yield ""
    yield (
        "Solved: test episodes, the mean over seeds with its 95 % interval (stratified bootstrap, rliable). Better: "
        "the probability that a run solves more than a run of the first row. Core-minutes and core-milliseconds are "
        "CPU time of training on all cores; the latter without random play."
    )


def spread(interval: Sequence[float], digits: int) -> str:
    """An estimate with its interval."""
    estimate, low, high = interval
    return f"{estimate:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def _method(results: Results) -> Iterator[str]:
    yield "```bash"
    yield results.command
    yield f"thinker reproduce {results.experiment} --scale {results.scale} --report"
    yield "```"
    yield ""
    episodes = sorted({m["episodes"] for run in results.runs for m in run.measurements.values() if "episodes" in m})
    yield (
        f"{results.seeds} seeds, {' or '.join(map(str, episodes)) or 'no'} test episodes for each number, actions "
        f"sampled. Learning curves are running averages over the last 200 training episodes. "
        f"Written {results.written}."
    )
    if results.missing:
        yield ""
        yield f"Runs that are not finished: {', '.join(results.missing)}."
    yield ""
    for text, count in Counter(_origin(run.provenance) for run in results.runs).most_common():
        yield f"* {_count(count, 'run')}: {text}"
    yield ""
    yield "Each run alone (of the first seed):"
    yield ""
    yield "```bash"
    for variant in results.labels:
        for run in results.of(variant)[:1]:
            yield run.command
    yield "```"


def _count(number: int, name: str) -> str:
    return f"{number} {name}{'' if number == 1 else 's'}"


def _origin(provenance: dict) -> str:
    machine, versions = provenance.get("machine", {}), provenance.get("versions", {})
    commit = provenance.get("commit") or "unknown"
    parts = [
        f"commit {commit[:10]}{' with changes' if commit.endswith('+') else ''}",
        f"{machine.get('processor', 'unknown processor')}, {_count(machine.get('cores', 0), 'core')} for each run",
        ", ".join(f"{name} {version}" for name, version in versions.items()),
    ]
    return "; ".join(part for part in parts if part)
