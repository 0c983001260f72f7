"""How long the experiments take: CPU times that were measured for every variant, times its frames."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from thinker.errors import UserError
from thinker.experiments.experiment import Experiment, Scale, Variant

FILE = Path(__file__).parent / "catalogue" / "costs.json"
"""Written by `python -m benchmarks.experiment_costs`."""


LATER = 1.8
"""A frame takes up to so many times as long as at the beginning of a run, where it is measured: full runs of
`sokoban-quick`, `sokoban`, `sokoban-raw` and `sokoban-muzero` took 1.6, 1.8, 1.4 and 1.4 times."""


@dataclass(frozen=True)
class Cost:
    """Of one run at laptop scale, in CPU time of all its processes."""

    milliseconds_per_frame: float  # of training, right after random play
    measuring_seconds: float  # for all measurements, as long as if no episode ended before its limit of steps

    def core_minutes(self, frames: int) -> float:
        """For a run of this many frames."""
        return (LATER * self.milliseconds_per_frame * frames / 1000 + self.measuring_seconds) / 60


def key(experiment: Experiment, variant: Variant) -> str:
    """The name of a variant's costs."""
    return f"{experiment.name}/{variant.name}"


def load_costs(path: Path = FILE) -> dict[str, Cost]:
    """The costs of all variants, by `key`."""
    values: Mapping[str, Mapping[str, float]] = json.loads(path.read_text(encoding="utf-8"))["variants"]
    return {name: Cost(**cost) for name, cost in values.items()}


def estimated_core_minutes(experiment: Experiment, scale: Scale, seeds: int | None = None) -> float:
    """Of a whole experiment whose runs are all made anew."""
    costs, total = load_costs(), 0.0
    for job in experiment.jobs(scale, seeds):
        name = key(experiment, job.variant)
        if name not in costs:
            raise UserError(f"the costs of {name} have not been measured; run python -m benchmarks.experiment_costs")
        total += costs[name].core_minutes(job.settings.real_steps)
    return total
