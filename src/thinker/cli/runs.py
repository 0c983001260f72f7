"""`thinker runs`: lists all training runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from thinker.cli.options import RUNS


@dataclass(frozen=True)
class Runs:
    """List all training runs."""

    root: Path = RUNS
    """The folder of all runs."""

    def run(self) -> None:
        """Print the table."""
        from rich.console import Console
        from rich.table import Table

        from thinker.runs.folder import list_runs

        table = Table("run", "preset", "status", "real steps", "solved", "return")
        for info in list_runs(self.root):
            summary = info.summary or {}
            table.add_row(
                info.name,
                str(info.config.get("preset", "")),
                f"{info.status}: {info.problem}" if info.problem else info.status,
                f"{info.step:,}",
                f"{summary['eval/solved']:.3f}" if "eval/solved" in summary else "",
                f"{summary['eval/return']:.2f}" if "eval/return" in summary else "",
            )
        Console().print(table)
