"""How long the experiments take: CPU times that were measured for every variant, times its frames."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from thinker.experiments.experiment import Experiment, Scale, Variant
from thinker.runs.settings import RunSettings
from thinker.world_model.spec import NoModelSpec

FILE = Path(__file__).parent / "catalogue" / "costs.json"
"""Written by `python -m benchmarks.experiment_costs`."""


LATER, LATER_WITHOUT_MODEL = 1.8, 1.4
"""How much longer a frame takes over a whole run than at its beginning, where it is measured. Full runs took 1.6
and 1.8 times as long with a model, on boards with one box and with two, and 1.4 times without."""


@dataclass(frozen=True)
class Cost:
    """Of one run at laptop scale, in CPU time of all its processes."""

    milliseconds_per_frame: float  # of training, right after random play
    measuring_seconds: float  # for all measurements, as long as if no episode ended before its limit of steps

    def core_minutes(self, settings: RunSettings) -> float:
        """Of a run with these settings, trained and measured."""
        later = LATER_WITHOUT_MODEL if isinstance(settings.model, NoModelSpec) else LATER
        return (later * self.milliseconds_per_frame * settings.real_steps / 1000 + self.measuring_seconds) / 60


def key(experiment: Experiment, variant: Variant) -> str:
    """The name of a variant's costs."""
    return f"{experiment.name}/{variant.full_name}"


def load_costs(path: Path = FILE) -> dict[str, Cost]:
    """The costs of all variants, by `key`."""
    values: Mapping[str, Mapping[str, float]] = json.loads(path.read_text(encoding="utf-8"))["variants"]
    return {name: Cost(**cost) for name, cost in values.items()}


def estimated_core_minutes(experiment: Experiment, scale: Scale, seeds: int | None = None) -> float | None:
    """Of a whole experiment whose runs are all made anew; None if the costs of a variant have not been measured."""
    costs, total = load_costs(), 0.0
    for job in experiment.jobs(scale, seeds):
        cost = costs.get(key(experiment, job.variant))
        if cost is None:
            return None
        total += cost.core_minutes(job.settings)
    return total
