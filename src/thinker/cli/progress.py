"""How far a command is that plays for a while, one task after another."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType


class Progress:
    """What is done so far, on standard error: a bar for each task in a terminal, else a line of text every minute.

    In a terminal the bars disappear when everything is done.

    Args:
        tasks: the number of tasks.
    """

    _EVERY = 60.0  # seconds

    def __init__(self, tasks: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bars

        self._console = Console(stderr=True)
        self._tasks = tasks
        self._number, self._printed = 0, time.monotonic()
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[unit]}"),
        )
        self._bars = Bars(
            *columns,
            TimeRemainingColumn(),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )

    def __enter__(self) -> Progress:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bars.stop()

    def task(self, name: str, total: int, unit: str) -> Callable[[int], None]:
        """Begin the next task; returns the function to call with the number of ``unit``, out of ``total``, done."""
        self._number += 1
        described = f"{self._number} of {self._tasks}: {name}"
        task = self._bars.add_task(described, total=total, unit=unit)

        def done(count: int) -> None:
            self._bars.update(task, completed=count)
            if self._bars.disable and time.monotonic() - self._printed > self._EVERY:
                self._printed = time.monotonic()
                self._console.print(f"{described}: {count} of {total} {unit}", highlight=False)

        return done
