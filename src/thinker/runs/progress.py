"""Progress of a run on the screen: a live panel in a terminal, otherwise a plain line every few seconds."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

Value = float | str

RECENT_SECONDS = 60.0
"""The time left is estimated from the speed over about this period."""

_REFRESHES_PER_SECOND = 2


class Progress:
    """Shows the step out of ``total`` real steps, the time left, memory, and named fields.

    Fields are shown in the order in which they were added. Those with a slash are grouped by the part before it: a row
    "loss" for ``loss/model`` and ``loss/agent``. Numbers are rounded; strings are shown unchanged. Fields that are not
    in an update keep their values.

    Use it as a context manager, and first `update` it with the step at which the run starts or resumes.

    Args:
        total: real steps of the whole run.
        title: the run's name.
        every: seconds between plain lines, if the output is not a terminal.
        console: where to write; standard output by default.
    """

    def __init__(self, total: int, title: str, *, every: float = 10.0, console: Console | None = None) -> None:
        self.total = total
        self.title = title
        self.every = every
        self.console = console or Console()
        self._step = 0
        self._fields: dict[str, Value] = {}
        self._recent: deque[tuple[float, int]] = deque()  # (time, step)
        self._start = time.monotonic()
        self._last_line: float | None = None
        self._unprinted = False
        self._live: Live | None = None
        self._redirected: list[tuple[logging.StreamHandler, object]] = []

    def __enter__(self) -> Progress:
        if self.console.is_terminal:
            # The live panel captures standard output and error, so that other output appears above it.
            self._live = Live(
                get_renderable=self._panel, console=self.console, refresh_per_second=_REFRESHES_PER_SECOND
            )
            streams = sys.stdout, sys.stderr
            self._live.start(refresh=True)
            self._redirect_logging(streams)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._live is not None:
            for handler, stream in self._redirected:
                handler.setStream(stream)
            self._redirected.clear()
            self._live.stop()  # leaves the last panel on the screen and shows the cursor again
            self._live = None
        elif self._unprinted:
            self._print_line()

    def update(self, step: int, fields: Mapping[str, Value] | None = None) -> None:
        """Set the current step and fields; cheap enough to call often."""
        now = time.monotonic()
        self._step = step
        self._unprinted = True
        self._fields = {**self._fields, **(fields or {})}  # a new dict, since the panel's thread may be reading it
        if not self._recent or self._recent[-1][1] != step:
            self._recent.append((now, step))
        while len(self._recent) > 2 and self._recent[1][0] <= now - RECENT_SECONDS:
            self._recent.popleft()
        if self._live is None and (self._last_line is None or now - self._last_line >= self.every):
            self._print_line()

    @contextmanager
    def pause(self, phase: str) -> Iterator[None]:
        """Show ``phase`` meanwhile, and leave this time out of the speed."""
        fields = self._fields
        self._fields = {**fields, "phase": phase}
        if self._live is None:
            self._print_line()
        start = time.monotonic()
        try:
            yield
        finally:
            passed = time.monotonic() - start
            self._recent = deque((then + passed, step) for then, step in self._recent)
            self._fields = fields

    @property
    def steps_per_second(self) -> float:
        """Speed over about the last minute; 0 until two steps are known."""
        if len(self._recent) < 2:
            return 0.0
        (first_time, first_step), (last_time, last_step) = self._recent[0], self._recent[-1]
        return (last_step - first_step) / max(last_time - first_time, 1e-9)

    @property
    def seconds_left(self) -> float | None:
        """Estimated seconds until the end; None if unknown."""
        if self._step >= self.total:
            return 0.0
        speed = self.steps_per_second
        return (self.total - self._step) / speed if speed > 0 else None

    def _panel(self) -> RenderableType:
        top = Table.grid(padding=(0, 2), expand=True)
        top.add_column(ratio=1)
        top.add_column(justify="right", no_wrap=True)
        done = min(self._step / self.total, 1.0) if self.total else 1.0
        steps = Text.assemble((f"{self._step:,}", "bold"), f" of {self.total:,} real steps  ", (f"{done:4.0%}", "bold"))
        top.add_row(ProgressBar(total=max(self.total, 1), completed=min(self._step, self.total)), steps)

        body = Table.grid(padding=(0, 3))
        body.add_column(style="cyan", no_wrap=True)
        body.add_column()
        body.add_row("time", f"{_duration(time.monotonic() - self._start)} so far, {self._left_text()}")
        for name, row in self._rows().items():
            body.add_row(name, row)
        return Panel(Group(top, Text(), body), title=Text(self.title, "bold"), title_align="left", border_style="dim")

    def _rows(self) -> dict[str, Text]:
        """One row of the panel for each field, or for all fields with the same prefix before a slash."""
        rows: dict[str, list[Text]] = {}
        for name, value in self._fields.items():
            group, _, label = name.rpartition("/")
            text = Text.assemble((f"{label} ", "dim"), _format(value)) if group else Text(_format(value))
            rows.setdefault(group or label, []).append(text)
        rows["memory"] = [Text(_memory_text())]
        return {name: Text("   ").join(texts) for name, texts in rows.items()}

    def _print_line(self) -> None:
        self._last_line = time.monotonic()
        self._unprinted = False
        done = min(self._step / self.total, 1.0) if self.total else 1.0
        parts = [f"{self._step:,} of {self.total:,} real steps ({done:.0%})", self._left_text()]
        parts += [f"{name} {_format(value)}" for name, value in self._fields.items()]
        parts.append(f"memory {_memory_text()}")
        print(f"{self.title}: " + " | ".join(parts), file=self.console.file, flush=True)

    def _left_text(self) -> str:
        left = self.seconds_left
        return "time left unknown" if left is None else f"{_duration(left)} left ({self.steps_per_second:,.0f} steps/s)"

    def _redirect_logging(self, streams: tuple[object, object]) -> None:
        """Redirect log handlers that still write to the original streams, which would disrupt the panel."""
        for handler in logging.getLogger().handlers:
            if isinstance(handler, logging.StreamHandler) and handler.stream in streams:
                self._redirected.append((handler, handler.stream))
                handler.setStream(sys.stdout if handler.stream is streams[0] else sys.stderr)


def _format(value: Value) -> str:
    if isinstance(value, str):
        return value
    if value != value or abs(value) in (0.0, float("inf")):
        return f"{value:.0f}"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) >= 1e-3 else f"{value:.1e}"


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def _memory_text() -> str:
    """The current memory use of this process, or its peak if only that is known."""
    if sys.platform == "linux":
        with open("/proc/self/statm", encoding="ascii") as file:
            pages = int(file.read().split()[1])
        return f"{pages * os.sysconf('SC_PAGE_SIZE') / 2**20:,.0f} MiB"
    if sys.platform == "win32":
        return "unknown"
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return f"{peak / (2**20 if sys.platform == 'darwin' else 2**10):,.0f} MiB at most"
