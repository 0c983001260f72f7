"""`train`: trains a run from its first step, or from its last checkpoint, to its end."""

from __future__ import annotations

import signal
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from thinker.errors import UserError
from thinker.runs import checkpoint
from thinker.runs.engines.engine import Engine, EngineSpec
from thinker.runs.engines.local import LocalSpec
from thinker.runs.evaluate import evaluate_run
from thinker.runs.folder import RunFolder
from thinker.runs.metrics import Logger, MetricsWriter
from thinker.runs.progress import Progress
from thinker.runs.run import Run
from thinker.runs.settings import RunSettings

RECENT_EPISODES = 200
"""Number of episodes in the running averages of solve rate and return, as in the paper's figures."""


class InterruptedRunError(UserError):
    """The run was stopped by a signal and has been saved."""


def train(
    settings: RunSettings,
    root: Path,
    name: str,
    *,
    preset: str = "",
    fresh: bool = False,
    loggers: Sequence[Callable[[Path], Logger]] = (),
    engine: EngineSpec | None = None,
) -> dict[str, Any]:
    """Train until the end and return the summary. An interrupted run is resumed; a finished run is only reported.

    Args:
        settings: of the run; an existing run of this name must have the same settings.
        root: the folder of all runs.
        name: of the run and its folder.
        preset: the name of the preset that the settings are based on, stored with the run.
        fresh: start over; an old run of this name is renamed, not deleted.
        loggers: functions from the run's folder to a `Logger`, which receives every line of metrics.jsonl as well.
        engine: where the run is computed; default: in this process. A resumed run may have another one.
    """
    spec = LocalSpec() if engine is None else engine
    run = None
    place = RunFolder(root, name)
    if fresh or not place.config_path.exists():  # find errors before the folder is created
        settings.environment.check()
        check_held_out(settings)
        run = spec.build_run(settings)
    config = {"preset": preset, "settings": settings.to_dict(), "engine": spec.describe()}
    with place.open(config, fresh=fresh) as folder:
        summary = folder.read_summary()
        if summary is not None:
            if not any(map(checkpoint.looks_whole, checkpoint.list_checkpoints(folder.checkpoints))):
                warnings.warn(
                    f"the run {name!r} is finished, but it has no usable checkpoint to evaluate or watch; train it "
                    f"again with --fresh",
                    stacklevel=2,
                )
            return summary
        saved = checkpoint.load_latest(folder.checkpoints)
        with closing(spec.start(run or spec.build_run(settings))) as started:
            if saved is not None:
                started.load_state_dict(saved[1])
            summary = _train(started, saved and saved[1], folder, loggers)
        folder.write_summary(summary)
        return summary


def _train(
    engine: Engine,
    saved: dict[str, Any] | None,
    folder: RunFolder,
    loggers: Sequence[Callable[[Path], Logger]],
) -> dict[str, Any]:
    """Train from the state ``saved``, which has been loaded, or from the start."""
    run, settings = engine.run, engine.run.settings
    recent = RecentEpisodes(settings.num_envs, saved["recent"] if saved else None)
    resume_step = run.real_steps if saved else None
    title = f"{folder.name} · {settings.environment.name} · K = {settings.search.stage_length}{engine.title}"
    with (
        MetricsWriter(folder.path, resume_step, [make(folder.path) for make in loggers]) as writer,
        Progress(settings.real_steps, title) as progress,
        _stop_on_signal() as stop,
    ):
        progress.update(run.real_steps, {"phase": _phase(run)})
        return _loop(engine, recent, folder, writer, progress, stop)


def check_held_out(settings: RunSettings) -> None:
    """Raise an error if there are fewer validation episodes than the evaluations need."""
    evaluation = settings.evaluation
    num_envs = min(evaluation.num_envs, evaluation.episodes)
    settings.environment.held_out("validation", num_envs, evaluation.episodes).close()


def _loop(
    engine: Engine,
    recent: RecentEpisodes,
    folder: RunFolder,
    writer: MetricsWriter,
    progress: Progress,
    stop: threading.Event,
) -> dict[str, Any]:
    run, settings = engine.run, engine.run.settings
    last_log = run.real_steps // settings.log_every
    last_evaluation = run.real_steps // settings.evaluation.every if settings.evaluation.every else 0
    last_checkpoint = time.monotonic()

    def save() -> None:
        checkpoint.save(folder.checkpoints, run.real_steps, {**engine.state_dict(), "recent": recent.state_dict()})

    while not run.finished:
        try:
            episodes, metrics = engine.advance()
        except FloatingPointError as error:
            raise UserError(f"{error}.\n{_failure_note(folder, run)}") from error
        recent.add(episodes.returns, episodes.success)
        shown = {**recent.metrics(), **_speed(run)}
        progress.update(run.real_steps, {"phase": _phase(run), **recent.summary()})
        if run.real_steps // settings.log_every > last_log or run.finished:
            last_log = run.real_steps // settings.log_every
            writer.write(run.real_steps, {**metrics, **shown})
        every = settings.evaluation.every
        if every and run.real_steps // every > last_evaluation and not run.finished:
            last_evaluation = run.real_steps // every
            engine.update_run()
            with progress.pause("evaluation"):
                evaluated = evaluate_run(run)
            writer.write(run.real_steps, {**evaluated.metrics(), **_speed(run)})
        if stop.is_set() or time.monotonic() - last_checkpoint > 60 * settings.checkpoint_minutes:
            save()
            last_checkpoint = time.monotonic()
        if stop.is_set():
            raise InterruptedRunError(
                f"stopped at {run.real_steps} real steps and saved; run the same command again to continue"
            )
    save()
    training_minutes = run.wall_seconds / 60
    engine.update_run()
    with progress.pause("evaluation"):
        final = evaluate_run(run)
    writer.write(run.real_steps, {**final.metrics(), **_speed(run)})
    interval = final.success_interval()
    return {
        **final.metrics(),
        **({} if interval is None else {"eval/solved_interval": list(interval)}),
        **recent.metrics(),
        **_speed(run),
        "real_steps": run.real_steps,
        "training_minutes": training_minutes,
    }


def _failure_note(folder: RunFolder, run: Run) -> str:
    saved = checkpoint.list_checkpoints(folder.checkpoints)
    kept = f"Its last good checkpoint is kept: {saved[-1]}" if saved else "It had no checkpoint yet"
    return (
        f"The run stopped after {run.real_steps} of {run.settings.real_steps} real steps. {kept}. Runs are "
        f"deterministic, so the same command would fail at the same point: train with other settings under another "
        f"name (--run NAME)"
    )


def _speed(run: Run) -> dict[str, float]:
    whole = run.wall_seconds
    shares = {f"speed/{phase}_share": seconds / whole for phase, seconds in run.seconds.items()}
    return {
        "speed/real_steps_per_second": run.real_steps / whole,
        "time/training_minutes": whole / 60,
        "time/core_minutes": run.core_seconds / 60,
        **shares,
    }


def _phase(run: Run) -> str:
    exploring = run.trainer is not None and run.real_steps < run.settings.exploration_steps
    return "random play, to train the model first" if exploring else "training"


class RecentEpisodes:
    """Running averages over the last episodes, reported once as many have ended as there are environments.

    The first episodes to end are the short ones, which would bias the averages.
    """

    def __init__(self, num_envs: int, state: dict[str, np.ndarray] | None) -> None:
        self._fewest = min(num_envs, RECENT_EPISODES)
        self._returns: deque[float] = deque(maxlen=RECENT_EPISODES)
        self._solved: deque[bool] = deque(maxlen=RECENT_EPISODES)
        if state is not None:
            self.add(state["returns"], state["solved"])

    def add(self, returns: np.ndarray, solved: np.ndarray | None) -> None:
        self._returns.extend(returns.tolist())
        self._solved.extend([] if solved is None else solved.tolist())

    def metrics(self) -> dict[str, float]:
        metrics: dict[str, float] = {}
        if len(self._returns) < self._fewest:
            return metrics
        metrics["episode/return"] = float(np.mean(self._returns))
        if self._solved:
            metrics["episode/solved"] = float(np.mean(self._solved))
        return metrics

    def summary(self) -> dict[str, float | str]:
        """The metrics formatted for the progress display."""
        metrics = self.metrics()
        solved = {"solved": f"{metrics['episode/solved']:.0%}"} if "episode/solved" in metrics else {}
        return {**solved, **({"return": metrics["episode/return"]} if metrics else {})}

    def state_dict(self) -> dict[str, np.ndarray]:
        return {"returns": np.array(self._returns, np.float64), "solved": np.array(self._solved, bool)}


@contextmanager
def _stop_on_signal() -> Iterator[threading.Event]:
    """An event set by Ctrl-C and SIGTERM, so that the run can finish its unroll and save; a second Ctrl-C stops it
    immediately."""
    stop = threading.Event()

    def handle(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
