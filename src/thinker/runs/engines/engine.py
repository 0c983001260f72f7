"""What `train` expects of an engine, which advances the parts of a run, and of the spec that creates it."""

from __future__ import annotations

from typing import Any, Protocol

from thinker.augmented import EndedEpisodes
from thinker.runs.run import Run
from thinker.runs.settings import RunSettings


class Engine(Protocol):
    """Advances a run. Its `run` has the counters; its networks may be those of the last `update_run`."""

    @property
    def run(self) -> Run: ...

    @property
    def title(self) -> str:
        """What to add to the run's title, beginning with a separator; empty if there is nothing to say."""
        ...

    def advance(self) -> tuple[EndedEpisodes, dict[str, float]]:
        """Act for an unroll and train on it; returns the episodes that ended, and metrics."""
        ...

    def update_run(self) -> None:
        """Load the current weights into the networks of `run`, to evaluate it."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Everything that the rest of the run depends on; `Run.load_weights` can read it."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from the state of a run with the same settings."""
        ...

    def close(self) -> None:
        """Stop all processes of the engine."""
        ...


class EngineSpec(Protocol):
    """The settings of an engine: where a run is computed. They are no part of the run's settings."""

    def describe(self) -> dict[str, Any]:
        """Plain values for config.json; "name" is the engine's name."""
        ...

    def build_run(self, settings: RunSettings) -> Run:
        """The run as `start` needs it; raises an error if these settings cannot be run by this engine."""
        ...

    def start(self, run: Run) -> Engine:
        """Start whatever processes are needed."""
        ...
