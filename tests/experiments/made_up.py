"""Results that never happened, and jobs that only pretend to train."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from thinker.experiments.experiment import Experiment, Variant
from thinker.experiments.measurements import TestEpisodes
from thinker.experiments.pictures import curves_and_bars
from thinker.experiments.results import Results, RunResult


def made_up(
    solved: Mapping[str, Sequence[float]], curves: Mapping[str, Sequence[float]] | None = None, **measured: float
) -> Results:
    """Results of variants with these solve rates, one for each seed; curves rise linearly over 1,000 frames."""
    runs = []
    for variant, rates in solved.items():
        for seed, rate in enumerate(rates):
            top = (curves or {}).get(variant, solved[variant])[seed]
            runs.append(
                RunResult(
                    variant=variant,
                    seed=seed,
                    folder=f"laptop/made-up/{variant}-{seed}",
                    command=f"thinker train {variant} --seed {seed}",
                    frames=1000,
                    core_minutes=2.0,
                    minutes=1.0,
                    validation={"solved": rate},
                    measurements={"agent": {"solved": rate, "return": 10 * rate, "episodes": 50}},
                    curve={
                        "step": [0, 500, 1000],
                        "solved": [0.0, top / 2, top],
                        "core_minutes": [0.0, 1.0 + seed, 2.0 + 2 * seed],
                    },
                    provenance={"commit": "0123456789abcdef", "versions": {"torch": "2.0"}, "machine": {"cores": 2}},
                )
            )
    return Results(
        experiment="made-up",
        scale="laptop",
        command="thinker reproduce made-up",
        written="2026-01-01T00:00:00+00:00",
        seeds=max(map(len, solved.values())),
        labels={variant: variant.upper() for variant in solved},
        runs=tuple(runs),
        missing=("c-0",),
    )


def small_experiment(*names: str, seeds: int = 2, module: str = __name__, **options) -> Experiment:
    """An experiment of variants that differ in their number of environments."""
    variants = tuple(
        Variant(name, name.upper(), "sokoban-raw", {"real_steps": 100, "num_envs": 2 + number}, (TestEpisodes(5),))
        for number, name in enumerate(names)
    )
    given = {
        "module": module,
        "name": "small",
        "title": "Small",
        "paper": "figure 0",
        "question": "Does it run?",
        "variants": lambda scale: variants,
        "draw": curves_and_bars,
        "caption": "Nothing.",
        "claims": (),
        "seeds": {"tiny": seeds, "laptop": seeds, "paper": seeds},
    }
    return Experiment(**{**given, **options})


def finish(folder: Path, settings: Mapping[str, object], solved: float = 0.5, measurement: str | None = None) -> None:
    """Write what a finished and measured run leaves behind."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"preset": "", "settings": settings}))
    summary = {"real_steps": 100, "training_minutes": 0.5, "time/core_minutes": 0.4, "eval/solved": solved}
    lines = [
        {"step": step, "minutes": 0.1, "episode/solved": step / 200, "episode/return": 1.0, "time/core_minutes": step}
        for step in (25, 50, 100)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "measurements").mkdir(exist_ok=True)
    name = measurement or TestEpisodes(5).name
    (folder / "measurements" / f"{name}.json").write_text(json.dumps({"solved": solved, "return": 1.0, "episodes": 5}))
    (folder / "summary.json").write_text(json.dumps(summary))
