"""The progress of an experiment on the screen: a live table of all runs, or plain lines if it is not a terminal."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.table import Table

if TYPE_CHECKING:
    from thinker.experiments.runner import JobStatus

_REFRESHES_PER_SECOND = 2


class Display:
    """Shows all jobs, their progress and the time left.

    Args:
        title: of the table.
        statuses: the jobs; their fields change between calls of `update`.
        jobs: how many run at a time.
        every: seconds between plain lines, if the output is not a terminal.
        console: where to write; standard output by default.
    """

    def __init__(
        self, title: str, statuses: list[JobStatus], jobs: int, *, every: float = 30.0, console: Console | None = None
    ) -> None:
        self.title, self.statuses, self.jobs, self.every = title, statuses, jobs, every
        self.console = console or Console()
        self._live: Live | None = None
        self._told: dict[str, str] = {}  # the state of each job when it was last printed
        self._last_line = -float("inf")

    def __enter__(self) -> Display:
        if self.console.is_terminal:
            self._live = Live(get_renderable=self.table, console=self.console, refresh_per_second=_REFRESHES_PER_SECOND)
            self._live.start(refresh=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def update(self) -> None:
        """Print what has changed, and every so often how far everything is; a live table refreshes itself."""
        if self._live is not None:
            return
        for status in self.statuses:
            if self._told.get(status.job.name, "waiting") != status.state:
                self._told[status.job.name] = status.state
                self._print(f"{status.job.name} {status.state}{_detail(status)}")
        if time.monotonic() - self._last_line > self.every:
            self._last_line = time.monotonic()
            running = [f"{one.job.name} {progress(one):.0%}" for one in self.statuses if one.state == "running"]
            self._print(f"{self.summary()}" + (f" | {', '.join(running)}" if running else ""))

    def summary(self) -> str:
        """One line about the whole experiment."""
        states = [status.state for status in self.statuses]
        done, failed = states.count("finished"), states.count("failed")
        left = seconds_left(self.statuses, self.jobs)
        parts = [f"{done} of {len(states)} runs finished", *([f"{failed} failed"] if failed else [])]
        if done + failed < len(states):
            parts.append("time left unknown" if left is None else f"about {_duration(left)} left")
        return ", ".join(parts)

    def table(self) -> Table:
        """The live table."""
        table = Table("run", "state", "real steps", "", "solved", "left", title=f"{self.title}: {self.summary()}")
        for status in self.statuses:
            left = job_seconds_left(status)
            table.add_row(
                status.job.name,
                "measuring" if _is_measuring(status) else status.state,
                f"{status.step:,} of {status.total:,}",
                f"{progress(status):.0%}",
                "" if status.solved is None else f"{status.solved:.2f}",
                _duration(left) if status.state == "running" and left is not None else "",
            )
        return table

    def _print(self, line: str) -> None:
        print(f"{self.title}: {line}", file=self.console.file, flush=True)


def progress(status: JobStatus) -> float:
    """The part of a job that is done; measurements count as a tenth of it."""
    trained = min(status.step / status.total, 1.0)
    measurements = len(status.job.variant.measurements)
    return 0.9 * trained + (0.1 * status.measured / measurements if measurements else 0.1 * (trained == 1.0))


def job_seconds_left(status: JobStatus) -> float | None:
    """Until the job is trained, from the speed since it was started; None if unknown."""
    taken, steps = time.monotonic() - status.started, status.step - status.first_step
    return taken / steps * (status.total - status.step) if status.state == "running" and steps > 0 else None


def seconds_left(statuses: list[JobStatus], jobs: int) -> float | None:
    """Until everything is finished, from the time per real step so far; None if unknown."""
    now = time.monotonic()
    spent = steps = 0.0
    for status in statuses:
        if status.process is not None or status.seconds:
            spent += status.seconds or now - status.started
            steps += status.step - status.first_step
    open_steps = sum(one.total - one.step for one in statuses if one.state in ("waiting", "running", "elsewhere"))
    return spent / steps * open_steps / jobs if steps > 0 and open_steps > 0 else None  # unknown while measuring


def _is_measuring(status: JobStatus) -> bool:
    return status.state == "running" and status.step >= status.total


def _detail(status: JobStatus) -> str:
    if status.state == "finished":
        return "" if status.solved is None else f", {status.solved:.0%} of training episodes solved"
    if status.state == "failed":
        return f": {status.error()} (log: {status.log})"
    return ", trained by another process" if status.state == "elsewhere" else ""


def _duration(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
