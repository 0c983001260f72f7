"""What is measured of a finished run. Every measurement is stored in the run's folder, so none is made twice."""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from thinker.runs.evaluate import evaluate_run
from thinker.runs.folder import write_json
from thinker.runs.run import Run, Who

FOLDER = "measurements"


class Measurement(ABC):
    """Something to be measured of a trained run."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Unique among the measurements of a run, whatever their settings: it is the name of a file."""

    @property
    def key(self) -> str:
        """Under which claims and pictures find its numbers: what is measured, without how often."""
        return self.name

    @abstractmethod
    def measure(self, run: Run, folder: Path) -> dict[str, Any]:
        """The numbers, as JSON. ``folder``, which need not exist, is for files of its own."""

    def path(self, folder: Path) -> Path:
        return folder / FOLDER / f"{self.name}.json"

    def is_stored(self, folder: Path) -> bool:
        """Whether the run in ``folder`` has been measured."""
        return self.path(folder).exists()

    def stored(self, folder: Path) -> dict[str, Any] | None:
        """What was measured of the run in ``folder``, if it was."""
        path = self.path(folder)
        value: dict[str, Any] | None = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
        return value

    def store(self, folder: Path, run: Run) -> None:
        """Measure the run and write the numbers into its folder."""
        path = self.path(folder)
        path.parent.mkdir(exist_ok=True)
        began = time.process_time()
        numbers = self.measure(run, path.with_suffix(""))
        write_json(path, {"core_minutes": (time.process_time() - began) / 60, **numbers})


@dataclass(frozen=True)
class TestEpisodes(Measurement):
    """Play test episodes, which are the same for all runs. Actions are sampled."""

    __test__ = False  # this is not a class of tests

    episodes: int
    who: Who = "agent"
    stage_length: int | None = None  # K; None: as in training, and for the base policy

    @property
    def name(self) -> str:
        return f"test-{self.key}-{self.episodes}-episodes"

    @property
    def key(self) -> str:
        """agent, agent-k5, base-policy."""
        return self.who if self.stage_length is None else f"{self.who}-k{self.stage_length}"

    def measure(self, run: Run, folder: Path) -> dict[str, Any]:
        result = evaluate_run(run, self.who, split="test", stage_length=self.stage_length, episodes=self.episodes)
        means = {name.removeprefix("eval/"): value for name, value in result.metrics().items()}
        return {"episodes": self.episodes, "stage_length": result.stage_length, **means}
