"""The default engine: one process, synchronous and deterministic.

The worker acts for an unroll and the agent learns from it; meanwhile the model is trained on the transitions collected
before: in a second thread, which hands the work over to a second process as soon as that has started. Weights and
transitions are exchanged only between unrolls, so there are no race conditions: the result of a run depends neither on
timing nor on where the model is trained.
"""

from __future__ import annotations

import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from thinker.augmented import EndedEpisodes
from thinker.runs.build import build_run
from thinker.runs.engines.trainer_process import RemoteTrainer, TrainerProcess
from thinker.runs.run import Run
from thinker.runs.settings import RunSettings
from thinker.world_model.trainer import ModelTrainer

Trainer = ModelTrainer | RemoteTrainer


@dataclass(frozen=True)
class LocalSpec:
    """The local engine has no settings of its own: its threads are the run's."""

    def describe(self) -> dict[str, Any]:
        return {"name": "local"}

    def build_run(self, settings: RunSettings) -> Run:
        return build_run(settings)

    def start(self, run: Run) -> LocalEngine:
        return LocalEngine(run)


class LocalEngine:
    """Advances the parts of ``run``."""

    title = ""

    def __init__(self, run: Run) -> None:
        self.run = run
        # Trains the model while the worker acts; with one thread the model is trained afterwards.
        concurrently = run.settings.trains_model_concurrently
        self._background = ThreadPoolExecutor(1, "model-training") if concurrently else None
        self._process: TrainerProcess | None = None  # waits for the trainer
        if concurrently and isinstance(run.trainer, ModelTrainer) and RemoteTrainer.can_move(run.trainer):
            self._process = TrainerProcess()

    def wait_for_process(self, timeout: float = 60.0) -> None:
        """Wait until the second process can take over, if there is one; for measurements."""
        if self._process is not None:
            self._process.is_ready(timeout)

    def advance(self) -> tuple[EndedEpisodes, dict[str, float]]:
        """Act for an unroll and train the agent on it; meanwhile train the model until its replay ratio is reached."""
        if self._process is not None and self._process.is_ready():
            self._move_trainer(self._process)
        start, trainer = self._core_seconds(), self.run.trainer
        if trainer is not None and self.run.real_steps < self.run.settings.exploration_steps:
            result = self._explore(trainer)
        else:
            result = self._train(trainer)
        self.run.core_seconds += self._core_seconds() - start
        return result

    def update_run(self) -> None:
        """See `Engine`; the run's own networks are trained."""

    def state_dict(self) -> dict[str, Any]:
        """See `Engine`."""
        return self.run.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See `Engine`; the run continues exactly."""
        self.run.load_state_dict(state)

    def close(self) -> None:
        """See `Engine`; the process of the trainer ends with this object."""

    def _move_trainer(self, process: TrainerProcess) -> None:
        """Let ``process`` train the model, or the second thread as before if the model cannot be moved there."""
        self._process = None
        if isinstance(self.run.trainer, ModelTrainer):
            try:
                self.run.trainer = RemoteTrainer(process, self.run.trainer)
            except Exception as error:  # nothing has changed
                warnings.warn(
                    f"the model is trained in a thread instead of a process of its own, which is slower: {error}. Are "
                    f"all its classes defined in modules that can be imported, not in a script or notebook?",
                    stacklevel=2,
                )

    def _core_seconds(self) -> float:
        trainer = self.run.trainer
        return time.process_time() + (trainer.core_seconds if isinstance(trainer, RemoteTrainer) else 0.0)

    def _train(self, trainer: Trainer | None) -> tuple[EndedEpisodes, dict[str, float]]:
        run = self.run
        progress = min(run.real_steps / run.settings.total_steps, 1.0)
        training = None
        if trainer is not None and self._background is not None:
            training = self._background.submit(self._train_model, trainer)
        start = time.perf_counter()
        experience = run.worker.collect(min(run.real_steps / run.settings.real_steps, 1.0))
        run.real_steps += experience.episodes.real_steps
        acted = time.perf_counter()
        metrics = {}
        if run.learner is not None:
            metrics = run.learner.learn(experience.trajectory, progress)
        learned = time.perf_counter()
        if training is not None:
            metrics |= training.result()
        elif trainer is not None:
            metrics |= self._train_model(trainer)
        if trainer is not None:
            experience.transitions.deliver(trainer.store, trainer.abandon_episodes)
            trainer.publish()
        run.worker.use(
            agent_version=experience.agent_version + (run.learner is not None),
            model_version=experience.model_version + (trainer is not None),
        )
        run.seconds["act"] += acted - start
        run.seconds["agent"] += learned - acted
        run.seconds["wait"] += time.perf_counter() - learned
        return experience.episodes, metrics

    def _explore(self, trainer: Trainer) -> tuple[EndedEpisodes, dict[str, float]]:
        """Random play, followed by training of the model on it."""
        run, settings = self.run, self.run.settings
        start = time.perf_counter()
        experience = run.worker.explore(run.real_steps, settings.exploration_length)
        count = experience.episodes.real_steps
        run.real_steps += count
        experience.transitions.deliver(trainer.store, trainer.abandon_episodes)
        acted = time.perf_counter()
        metrics = trainer.train_more(round(settings.exploration_ratio * count))
        trainer.publish()
        run.worker.model_version += 1
        run.worker.restart()
        trained = time.perf_counter()
        run.seconds["act"] += acted - start
        run.seconds["wait"] += trained - acted
        run.seconds["model"] += trained - acted
        return experience.episodes, with_model_prefix(metrics)

    def _train_model(self, trainer: Trainer) -> dict[str, float]:
        start = time.perf_counter()
        metrics = trainer.train(publish=False)
        self.run.seconds["model"] += time.perf_counter() - start
        return with_model_prefix(metrics)


def with_model_prefix(metrics: dict[str, float]) -> dict[str, float]:
    """Rename the model's losses, so that they differ from those of the agent."""
    return {name.replace("loss/", "loss/model_"): value for name, value in metrics.items()}
