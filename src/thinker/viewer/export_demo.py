"""``python -m thinker.viewer.export_demo RUN``: make a run's agent the one that `thinker demo` shows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from thinker.runs.folder import RunFolder
from thinker.runs.load import load_run
from thinker.viewer.demo_agent import FOLDER, export_demo


@dataclass(frozen=True)
class ExportDemo:
    """Write the weights, settings and metrics of a run's agent into the package."""

    run_name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """The run."""
    root: Path = Path("runs")
    """The folder of all runs."""
    folder: Path = FOLDER
    """Where the files go."""

    def run(self) -> None:
        place = RunFolder(self.root, self.run_name)
        run = load_run(place)
        metrics = {"trained_real_steps": run.real_steps, **(place.read_summary() or {})}
        preset = str(place.read_config()["preset"])
        size = export_demo(run, self.folder, preset=preset, metrics=metrics)
        print(f"wrote {self.folder}: {size / 2**20:.2f} MiB of weights")


if __name__ == "__main__":
    tyro.cli(ExportDemo).run()
