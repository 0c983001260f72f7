"""Runs an experiment: its jobs as processes, several at a time, each with its share of the cores.

Everything that a job has finished is on disk, so the same command continues after any interruption.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Literal

from thinker.errors import UserError
from thinker.experiments.display import Display
from thinker.experiments.experiment import Experiment, Job, Scale, locate
from thinker.experiments.job import LOCKED, command
from thinker.experiments.results import Results
from thinker.runs.engines.engine import EngineSpec
from thinker.runs.engines.local import LocalSpec
from thinker.runs.folder import list_runs
from thinker.runs.machine import cores
from thinker.runs.metrics import STEP, read_metrics

State = Literal["waiting", "running", "elsewhere", "finished", "failed"]

_POLL = 1.0  # seconds
_LOG_LINES = 6  # of a failed run that are shown


@dataclass
class JobStatus:
    """The state of a job while the experiment runs."""

    job: Job
    folder: Path
    log: Path
    state: State = "waiting"
    step: int = 0  # real steps so far
    measured: int = 0  # measurements so far
    solved: float | None = None  # running average over training episodes
    started: float = 0.0  # by the monotonic clock
    first_step: int = 0  # where it resumed
    seconds: float = 0.0  # it took, once finished here
    process: subprocess.Popen[bytes] | None = None

    @property
    def total(self) -> int:
        return self.job.settings.real_steps

    def look(self) -> None:
        """Read from disk how far the run is."""
        lines = read_metrics(self.folder)
        if lines:
            self.step = int(lines[-1][STEP])
            self.solved = next((line["episode/solved"] for line in reversed(lines) if "episode/solved" in line), None)
        self.measured = sum(one.is_stored(self.folder) for one in self.job.variant.measurements)

    def error(self) -> str:
        """The last lines of a failed job's log."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines() if self.log.exists() else []
        reasons = [line for line in lines if line.startswith("error: ")]
        return "\n".join(reasons[-1:] or lines[-_LOG_LINES:])


def run_experiment(
    experiment: Experiment,
    scale: Scale,
    root: Path,
    *,
    seeds: int | None = None,
    jobs: int = 1,
    engine: EngineSpec | None = None,
    known: Results | None = None,
) -> list[JobStatus]:
    """Train and measure all runs that are not among the ``known`` ones; ``jobs`` at a time, each by its own ``engine``.

    Returns the failed ones; raises an error if it is stopped.
    """
    if jobs < 1:
        raise UserError(f"--jobs {jobs}: it must be at least 1")
    folder = experiment.folder(root, scale)
    logs = folder / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    statuses = []
    for job in experiment.jobs(scale, seeds):
        place = locate(experiment, scale, root, job)
        status = JobStatus(job, place, logs / f"{job.name}.log")
        status.look()
        if job.is_done(place):
            status.state = "finished"
        elif known is not None and known.run_of(job) is not None:
            status.state, status.step = "finished", status.total
        else:
            job.settings.environment.check()
        statuses.append(status)
    runner = _Runner(experiment, scale, statuses, jobs, engine or LocalSpec())
    with Display(f"{experiment.name} · {scale}", statuses, jobs) as display, _on_signals(runner):
        runner.run(display)
    if runner.stopping:
        raise UserError("stopped; all runs are saved. Run the same command again to continue")
    return [status for status in statuses if status.state == "failed"]


class _Runner:
    def __init__(
        self, experiment: Experiment, scale: Scale, statuses: list[JobStatus], jobs: int, engine: EngineSpec
    ) -> None:
        self.experiment, self.scale, self.statuses, self.jobs = experiment, scale, statuses, jobs
        self.engine = engine
        self.stopping = False
        self._threads = max(1, cores() // jobs)

    def run(self, display: Display) -> None:
        try:
            while any(status.state in ("waiting", "running", "elsewhere") for status in self.statuses):
                self._collect()
                if not self.stopping:
                    self._start()
                elif not any(status.state == "running" for status in self.statuses):
                    break
                for status in self.statuses:
                    if status.state in ("running", "elsewhere"):
                        status.look()
                display.update()
                time.sleep(_POLL)
            display.update()
        finally:
            for status in self.statuses:
                if status.process is not None and status.process.poll() is None:
                    status.process.terminate()
                    status.process.wait()

    def stop(self) -> None:
        """Let all jobs save and end."""
        if self.stopping:
            raise KeyboardInterrupt
        self.stopping = True
        for status in self.statuses:
            if status.process is not None and status.process.poll() is None:
                status.process.send_signal(signal.SIGTERM)

    def _collect(self) -> None:
        """Take note of the jobs that have ended."""
        for status in self.statuses:
            code = None if status.process is None else status.process.poll()
            if status.state == "elsewhere":
                if status.job.is_done(status.folder):
                    status.look()
                    status.state = "finished"
                elif not _is_locked(status.folder):
                    status.state = "waiting"
            elif status.state == "running" and code is not None:
                status.look()
                status.process = None
                status.seconds = time.monotonic() - status.started
                if code == 0 and status.job.is_done(status.folder):
                    status.state = "finished"
                elif code == LOCKED:
                    status.state = "elsewhere"
                else:
                    status.state = "waiting" if self.stopping else "failed"

    def _start(self) -> None:
        """Start as many waiting jobs as there is room for."""
        threads = str(self._threads)
        for status in self.statuses:
            if sum(one.state == "running" for one in self.statuses) >= self.jobs:
                return
            if status.state != "waiting":
                continue
            with open(status.log, "ab") as log:
                status.process = subprocess.Popen(
                    command(self.experiment, self.scale, status.job, status.folder, self.engine),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, "OMP_NUM_THREADS": threads, "NUMBA_NUM_THREADS": threads},
                    start_new_session=True,  # Ctrl-C reaches only this process, which lets the jobs save
                )
            status.state, status.started, status.first_step = "running", time.monotonic(), status.step


def _is_locked(folder: Path) -> bool:
    return any(info.name == folder.name and info.status == "running" for info in list_runs(folder.parent))


@contextmanager
def _on_signals(runner: _Runner) -> Iterator[None]:
    """Ctrl-C and SIGTERM stop all jobs; a second one stops immediately."""

    def handle(number: int, frame: FrameType | None) -> None:
        runner.stop()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
