"""`thinker plot`: draws learning curves of runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from thinker.cli.options import RUNS, writable_file


@dataclass(frozen=True)
class Plot:
    """Draw learning curves of runs to a PNG file. Runs that differ only in their seed are drawn as one curve."""

    runs: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN...")]
    """Names of the runs."""
    out: Path = Path("curves.png")
    """The file to write."""
    x: Literal["steps", "minutes"] = "steps"
    """The x-axis: real steps or minutes."""
    metrics: tuple[str, ...] = ()
    """Metrics to draw; default: the return, and the solve rate if the environment reports it."""
    root: Path = RUNS
    """The folder of all runs."""

    def run(self) -> None:
        """Write the file."""
        from thinker.runs.plot import plot_runs

        writable_file(self.out, "--out")
        plot_runs([self.root / name for name in self.runs], self.out, x=self.x, metrics=self.metrics or None)
        print(f"wrote {self.out}")
