"""``python -m thinker.viewer.export_demo RUN``: make the agent of a training run the one that `thinker demo` shows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro

from thinker.runs.commands import ROOT, load_run
from thinker.runs.folder import RunFolder
from thinker.viewer.demo_agent import FOLDER, export_demo


@dataclass(frozen=True)
class ExportDemo:
    """Write the weights, settings and metrics of a run's agent into the package."""

    run_name: tyro.conf.Positional[str]
    """The run."""
    root: Path = ROOT
    """The folder of all runs."""
    folder: Path = FOLDER
    """Where the files go."""

    def run(self) -> None:
        place = RunFolder(self.root, self.run_name)
        run = load_run(place)
        metrics = {"trained_real_steps": run.real_steps, **(place.read_summary() or {})}
        size = export_demo(run, self.folder, metrics)
        print(f"wrote {self.folder}: {size / 2**20:.2f} MiB of weights")


if __name__ == "__main__":
    tyro.cli(ExportDemo).run()
