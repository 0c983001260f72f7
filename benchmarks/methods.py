"""Compares methods with several seeds each: a Markdown table and a picture for docs/results.md.

    python -m benchmarks.methods thinker=quick muzero=muzero-board-24 --seeds 0 1 2 --steps 40000 80000 --minutes 1 2

Every method is a label and the name of its runs without "-SEED". The table has the mean solve rate on validation levels
after so many real steps and after so many core-minutes of training, interpolated between evaluations, with 95 %
intervals over seeds (Student's t). With ``--episodes`` the last agents also play that many test levels.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import numpy as np

from benchmarks.tables import curve, interval
from thinker.cli.options import RUNS
from thinker.runs.evaluate import evaluate_run
from thinker.runs.folder import RunFolder
from thinker.runs.load import load_run
from thinker.runs.plot import plot_runs

MISSING = "–"


def cell(values: list[float]) -> str:
    """The mean of seeds with its interval; a dash if a seed has not come so far."""
    if any(math.isnan(value) for value in values):
        return MISSING
    mean, half = interval(values)
    return f"{mean:.2f}" if math.isnan(half) else f"{mean:.2f} ± {half:.2f}"


def at(points: list[tuple[int, float, float]], place: float, column: int) -> float:
    """The solve rate where ``column`` (0: real steps, 2: core-minutes) is ``place``; NaN outside of the curve."""
    places, rates = [point[column] for point in points], [point[1] for point in points]
    return float(np.interp(place, places, rates, left=math.nan, right=math.nan))


def test_rate(root: Path, name: str, episodes: int) -> float:
    """The solve rate of a run's last agent on test levels."""
    success = evaluate_run(load_run(RunFolder(root, name)), split="test", episodes=episodes).success
    assert success is not None, "these environments do not report success"
    return float(success.mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", nargs="+", metavar="LABEL=RUNS")
    parser.add_argument("--seeds", type=int, nargs="+", default=(0, 1, 2))
    parser.add_argument("--steps", type=int, nargs="*", default=(40_000, 80_000, 120_000))
    parser.add_argument("--minutes", type=float, nargs="*", default=(1.0, 2.0))
    parser.add_argument("--episodes", type=int, default=0, help="test levels that the last agents play")
    parser.add_argument("--root", type=Path, default=RUNS)
    parser.add_argument("--figure", type=Path, help="also draw the curves, by real steps, into this PNG")
    options = parser.parse_args()
    methods = dict(method.rsplit("=", 1) for method in options.methods)
    heads = [f"{step // 1000}k steps" for step in options.steps]
    heads += [f"{minutes:g} core-min" for minutes in options.minutes]
    heads += ["core-min per 100k steps", *(["test"] if options.episodes else [])]
    print(f"| method | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|", sep="\n", flush=True)
    for label, prefix in methods.items():
        names = [f"{prefix}-{seed}" for seed in options.seeds]
        curves = [curve(options.root / name, "eval/solved") for name in names]
        cells = [cell([at(points, step, 0) for points in curves]) for step in options.steps]
        cells += [cell([at(points, minutes, 2) for points in curves]) for minutes in options.minutes]
        cells += [f"{np.mean([points[-1][2] / points[-1][0] for points in curves]) * 1e5:.1f}"]
        if options.episodes:
            cells += [cell([test_rate(options.root, name, options.episodes) for name in names])]
        print(f"| {label} | {' | '.join(cells)} |", flush=True)
    if options.figure:
        groups = {
            label: [options.root / f"{prefix}-{seed}" for seed in options.seeds] for label, prefix in methods.items()
        }
        plot_runs(groups, options.figure, metrics=("eval/solved",))


if __name__ == "__main__":
    main()
