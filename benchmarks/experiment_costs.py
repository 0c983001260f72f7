"""Measures how long the runs of `thinker reproduce` take at laptop scale: CPU time for each frame, and of measuring.

Every variant is trained for a few thousand frames on one core, then measured with a part of its episodes. Variants that
are measured already are left out, so the command can be stopped and repeated.

python -m benchmarks.experiment_costs [NAME ...] [--again]
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import tempfile
from pathlib import Path
from typing import Any

from thinker.experiments.catalogue import EXPERIMENTS
from thinker.experiments.costs import FILE, Cost, key
from thinker.experiments.experiment import Variant
from thinker.experiments.measurements import Measurement
from thinker.experiments.provenance import provenance
from thinker.runs.build import build_run
from thinker.runs.engines.local import LocalEngine
from thinker.runs.folder import write_json
from thinker.runs.run import Run

RANDOM_PLAY, FRAMES = 2_048, 1_024
"""Frames of random play, without training, and the least number of frames that are timed."""
NO_COST = ("real_steps", "annealing_steps", "environment.boxes", "search.mask", "agent.tree_mask_probability",
           "agent.tree_dropout", "agent.planning_reward_scale", "model.training.policy_target")  # fmt: skip
"""Settings that hardly change the time for a frame: variants that differ only in these share one measurement."""
SIZES, PART = ("episodes", "stages", "real_steps"), 0.05
"""Of measurements, and how much of each is measured."""


def trained(variant: Variant) -> tuple[Run, float]:
    """A run that is trained for a few thousand frames, and its CPU time for each of those that are timed."""
    settings = variant.settings(0)
    short: dict[str, Any] = {"threads": 1}
    if settings.exploration_steps:
        length = RANDOM_PLAY // settings.num_envs
        short |= {"exploration_steps": RANDOM_PLAY, "exploration_length": length, "exploration_ratio": 0.0}
    run = build_run(dataclasses.replace(settings, **short))
    engine = LocalEngine(run)
    while run.real_steps < short.get("exploration_steps", 0):
        engine.advance()
    engine.advance()  # compiles; the model learns from it in the next one
    start, began = run.real_steps, run.core_seconds
    while run.real_steps < start + FRAMES:
        engine.advance()
    return run, (run.core_seconds - began) / (run.real_steps - start)


def measuring_seconds(run: Run, measurement: Measurement) -> float:
    """CPU time of a measurement, from that of one that is smaller in all its sizes."""
    sizes = {name: getattr(measurement, name) for name in SIZES if hasattr(measurement, name)}
    small: Any = dataclasses.replace(  # type: ignore[type-var]
        measurement, **{name: max(1, round(PART * size)) for name, size in sizes.items()}
    )
    with tempfile.TemporaryDirectory() as folder:
        small.store(Path(folder), run)
        numbers = small.stored(Path(folder))
    taken = 60 * numbers["core_minutes"]
    if "playing_core_minutes" not in numbers:
        return float(taken / PART)
    grows = 60 * (numbers["training_core_minutes"] + numbers["playing_core_minutes"])  # the rest does not
    return float(taken - grows + grows / PART)


def comparable(variant: Variant) -> str:
    """The same for variants whose runs take the same time."""
    settings = variant.settings(0).to_dict()
    for name in NO_COST:
        *parts, last = name.split(".")
        inner: Any = settings
        for part in parts:
            inner = inner.get(part, {})
        inner.pop(last, None)
    return json.dumps([settings, [str(one) for one in variant.measurements]], default=str)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="experiments; default: all")
    parser.add_argument("--again", action="store_true", help="measure what is measured already")
    options = parser.parse_args()
    saved: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {"variants": {}}
    known: dict[str, dict[str, float]] = {}
    for experiment in [EXPERIMENTS[name] for name in options.names or EXPERIMENTS]:
        for variant in experiment.variants_by_game("laptop"):
            name, same = key(experiment, variant), comparable(variant)
            if name in saved["variants"] and not options.again:
                known.setdefault(same, saved["variants"][name])
                continue
            if same not in known:
                run, seconds = trained(variant)
                measuring = sum(measuring_seconds(run, one) for one in variant.measurements)
                known[same] = {
                    "milliseconds_per_frame": round(1000 * seconds, 3),
                    "measuring_seconds": round(measuring, 1),
                }
            saved["variants"][name] = known[same]
            minutes = Cost(**known[same]).core_minutes(variant.settings(0))
            print(f"{name}: {known[same]}, {minutes:.1f} core-minutes", flush=True)
            origin = provenance()
            saved |= {
                "command": "python -m benchmarks.experiment_costs",
                "written": datetime.date.today().isoformat(),
                "processor": origin["machine"]["processor"],
            }
            write_json(FILE, saved)


if __name__ == "__main__":
    main()
