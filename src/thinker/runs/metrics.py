"""The metrics of a training run over time: ``metrics.jsonl``, TensorBoard and other loggers."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, SupportsFloat

from torch.utils.tensorboard import SummaryWriter

from thinker.errors import UserError
from thinker.runs.folder import METRICS

TENSORBOARD = "tensorboard"

STEP, MINUTES = "step", "minutes"
"""The fields of every line in addition to its metrics: real steps and minutes of training so far."""


class Logger(Protocol):
    """An additional receiver of metrics."""

    def log(self, step: int, values: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


class MetricsWriter:
    """Appends to ``folder/metrics.jsonl`` and ``folder/tensorboard/``, and passes everything on to ``loggers``.

    Args:
        folder: the run's folder.
        resume_step: the step of the checkpoint that the run resumes from. Lines of later steps are dropped, so that the
            file is the same as that of an uninterrupted run (except for `MINUTES` and other times). All lines of a step
            must be written before the checkpoint of that step. None starts a new file.
    """

    def __init__(self, folder: Path, resume_step: int | None = None, loggers: Sequence[Logger] = ()) -> None:
        self._loggers = tuple(loggers)
        self.path = folder / METRICS
        self._last_step = 0
        self._minutes_before = 0.0
        self._start = time.monotonic()
        folder.mkdir(parents=True, exist_ok=True)
        first_step = 0 if resume_step is None else resume_step + 1
        if self.path.exists():
            self._drop_from(first_step)
        self._file = open(self.path, "ab")  # noqa: SIM115  # held until close()
        self._tensorboard = SummaryWriter(str(folder / TENSORBOARD), purge_step=first_step)

    def write(self, step: int, values: Mapping[str, SupportsFloat]) -> None:
        """Add one line. A value under the name `MINUTES` replaces the time measured here."""
        if step < self._last_step:
            raise ValueError(
                f"step={step} comes after step {self._last_step}; metrics are written in the order of steps"
            )
        if STEP in values:
            raise ValueError(f"{STEP!r} cannot be the name of a metric: it is the first field of every line")
        self._last_step = step
        minutes = self._minutes_before + (time.monotonic() - self._start) / 60
        numbers = {name: _number(value) for name, value in {MINUTES: round(minutes, 4), **values}.items()}
        # Strict JSON has no NaN and infinity; such a metric is written as null, which `read_metrics` returns as NaN.
        line = {name: value if math.isfinite(value) else None for name, value in numbers.items()}
        self._file.write(json.dumps({STEP: int(step), **line}, allow_nan=False).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())  # this line must be on disk before the next checkpoint
        for name, value in numbers.items():
            self._tensorboard.add_scalar(name, value, step)
        self._tensorboard.flush()
        for logger in self._loggers:
            logger.log(step, numbers)

    def close(self) -> None:
        self._file.close()
        self._tensorboard.close()
        for logger in self._loggers:
            logger.close()

    def __enter__(self) -> MetricsWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _drop_from(self, step: int) -> None:
        """Remove all lines from ``step`` on, and an incomplete last line.

        Steps never decrease from line to line, so one atomic truncation of the file is enough.
        """
        end = 0
        for line_end, line in _lines(self.path):
            if line[STEP] >= step:
                break
            end = line_end
            self._last_step, self._minutes_before = line[STEP], line[MINUTES] or 0.0
        os.truncate(self.path, end)


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """All complete lines of a run's metrics; empty if there is no file."""
    path = folder / METRICS
    if not path.exists():
        return []
    return [{name: math.nan if value is None else value for name, value in line.items()} for _, line in _lines(path)]


def _lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The complete lines of a file, each with the position of its end."""
    end = 0
    with open(path, "rb") as file:
        for number, text in enumerate(file, 1):
            if not text.endswith(b"\n"):
                return
            end += len(text)
            try:
                line = json.loads(text)
                if not isinstance(line, dict) or not {STEP, MINUTES} <= line.keys():
                    raise ValueError(f"expected a line with {STEP} and {MINUTES}")
            except ValueError as error:
                raise UserError(f"line {number} of {path} is damaged: {error}. Remove it to continue") from error
            yield end, line


def _number(value: SupportsFloat) -> int | float:
    return int(value) if isinstance(value, int) else float(value)
