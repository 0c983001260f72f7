"""Learning curves of several seeds as a Markdown table, for docs/results.md.

    python -m benchmarks.tables quick-0 quick-1 quick-2 --every 20000

For each number of real steps: the solve rate on validation levels of every run, their mean with its 95 % interval over
seeds (Student's t), and the mean training time in core-minutes, which other processes on the machine do not change.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path

T_95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}
"""The 97.5 % quantile of Student's t by the number of seeds."""


def curve(folder: Path, metric: str) -> list[tuple[int, float, float]]:
    """The (real steps, value of ``metric``, core-minutes) of a run's evaluations."""
    found = []
    for line in (folder / "metrics.jsonl").read_text().splitlines():
        entry = json.loads(line)
        if metric in entry:
            found.append((int(entry["step"]), float(entry[metric]), float(entry.get("time/core_minutes", math.nan))))
    return found


def at(points: list[tuple[int, float, float]], step: int) -> tuple[float, float] | None:
    """The first evaluation at or after ``step``: its value and core-minutes."""
    later = [point for point in points if point[0] >= step]
    return later[0][1:] if later else None


def interval(values: list[float]) -> tuple[float, float]:
    """The mean and half the width of its 95 % interval."""
    count = len(values)
    mean = sum(values) / count
    if count < 2:
        return mean, math.nan
    deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / (count - 1))
    return mean, T_95[count] * deviation / math.sqrt(count)


def table(runs: list[str], root: Path, metric: str, every: int) -> str:
    curves = [curve(root / run, metric) for run in runs]
    last = min(points[-1][0] for points in curves)
    lines = [f"| real steps | {' | '.join(runs)} | mean | core-minutes |", "|---" * (len(runs) + 3) + "|"]
    for step in range(every, last + 1, every):
        found = [at(points, step) for points in curves]
        values = [point[0] for point in found if point is not None]
        minutes = [point[1] for point in found if point is not None]
        mean, half = interval(values)
        spread = "" if math.isnan(half) else f" ± {half:.2f}"
        cells = " | ".join(f"{value:.2f}" for value in values)
        lines.append(f"| {step:,} | {cells} | {mean:.2f}{spread} | {sum(minutes) / len(minutes):.1f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--root", type=Path, default=Path("runs"))
    parser.add_argument("--metric", default="eval/solved")
    parser.add_argument("--every", type=int, default=50_000, help="real steps between two rows")
    options = parser.parse_args()
    print(table(options.runs, options.root, options.metric, options.every))


if __name__ == "__main__":
    main()
