"""Solve rates of several seeds by stage length, as a Markdown table for docs/results.md.

    python -m benchmarks.thinking_time quick-0 quick-1 quick-2 --stage-lengths 1 2 5 8 10 20 40 --episodes 300

    python -m benchmarks.thinking_time boxoban --stage-lengths 10 --test-levels boxoban-levels/hard

Every run is evaluated on the same held-out levels, with each stage length and by its base policy. The last column is
the mean with its 95 % interval over seeds (Student's t).
"""

from __future__ import annotations

import argparse
import dataclasses
import math
from pathlib import Path

from benchmarks.tables import interval
from thinker.cli.options import RUNS
from thinker.envs.spec import Split
from thinker.runs.evaluate import evaluate_run
from thinker.runs.folder import RunFolder
from thinker.runs.load import load_run
from thinker.runs.run import Run
from thinker.world_model.spec import NoModelSpec


def solved(run: Run, stage_length: int | None, split: Split, episodes: int) -> float:
    """The solve rate with a stage length; None: of the base policy."""
    who = "base-policy" if stage_length is None else "agent"
    success = evaluate_run(run, who, split=split, stage_length=stage_length, episodes=episodes).success  # type: ignore[arg-type]
    if success is None:
        raise SystemExit("these environments do not report success")
    return float(success.mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--root", type=Path, default=RUNS)
    parser.add_argument("--stage-lengths", type=int, nargs="+", default=(1, 2, 5, 8, 10, 20, 40))
    parser.add_argument("--episodes", type=int, default=300)
    parser.add_argument("--split", choices=("validation", "test"), default="test")
    parser.add_argument("--test-levels", help="a Boxoban file or folder to evaluate on instead of the test levels")
    options = parser.parse_args()
    runs = [load_run(RunFolder(options.root, name)) for name in options.runs]
    if options.test_levels is not None:
        for run in runs:
            environment = dataclasses.replace(run.settings.environment, test_levels=options.test_levels)  # type: ignore
            run.settings = dataclasses.replace(run.settings, environment=environment)
    raw = isinstance(runs[0].settings.model, NoModelSpec)
    print(f"| K | {' | '.join(options.runs)} | mean |", "|---" * (len(runs) + 2) + "|", sep="\n", flush=True)
    for k in (1,) if raw else (None, *options.stage_lengths):
        rates = [solved(run, k, options.split, options.episodes) for run in runs]
        mean, half = interval(rates)
        spread = "" if math.isnan(half) else f" ± {half:.3f}"
        name = "base policy" if k is None else str(k)
        print(f"| {name} | {' | '.join(f'{rate:.3f}' for rate in rates)} | {mean:.3f}{spread} |", flush=True)


if __name__ == "__main__":
    main()
