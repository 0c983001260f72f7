"""The parts of a run that Ray starts in processes of their own: acting worker, agent's learner, model's trainer.

Each builds the whole run from its settings, with few environments, and uses only its own part of it. Weights drawn from
the same seed are the same in every process.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from thinker.augmented import EndedEpisodes
from thinker.interfaces import RealTransition
from thinker.runs import machine
from thinker.runs.build import build_run
from thinker.runs.engines.ray.message import Message, pack, unpack, unpack_copy
from thinker.runs.run import Run
from thinker.runs.settings import RunSettings
from thinker.runs.worker import Experience, TransitionBuffer
from thinker.world_model.trainer import ModelTrainer


@dataclass(frozen=True)
class Weights:
    """The versions of weights; the weights themselves are messages in the object store."""

    agent_version: int  # updates so far
    model_version: int

    def after(self, *, agent: int = 0, model: int = 0) -> Weights:
        """The versions after so many updates."""
        return Weights(self.agent_version + agent, self.model_version + model)


@dataclass(frozen=True)
class Report:
    """The small part of an unroll, for the driver."""

    episodes: EndedEpisodes
    core_seconds: float  # computed since the last report
    seconds: float  # duration of the unroll
    nbytes: int  # of the trajectory and the transitions


class _Part:
    def __init__(self, run: Run, cpus: int) -> None:
        machine.prepare(cpus)
        self.run = run
        self._reported = 0.0

    def pid(self) -> int:
        """The process of this part."""
        return os.getpid()

    def ready(self) -> None:
        """Returns once the part has been built."""

    def core_seconds(self) -> float:
        """Seconds computed since the last call."""
        before, self._reported = self._reported, time.process_time()
        return self._reported - before


class WorkerPart(_Part):
    """Acts in its share of the environments."""

    def __init__(self, settings: RunSettings, num_envs: int, seed: int, device: str, cpus: int) -> None:
        super().__init__(build_run(settings, device=device, num_envs=num_envs, worker_seed=seed), cpus)
        self._loaded: Weights | None = None
        self._played = False  # random steps; the next unroll starts new episodes

    def collect(
        self, weights: Weights, agent: Message | None, model: Message | None, progress: float
    ) -> tuple[Report, Message, Message]:
        """Act for one unroll with these weights; returns also the trajectory and the transitions."""
        start = time.perf_counter()
        self._use(weights, agent, model)
        return self._sent(self.run.worker.collect(progress), start)

    def explore(
        self, weights: Weights, agent: Message | None, model: Message | None, step: int, length: int
    ) -> tuple[Report, Message, Message]:
        """Random play, see `Worker.explore`."""
        start = time.perf_counter()
        self._use(weights, agent, model)
        experience = self.run.worker.explore(step, length)
        self._played = True
        return self._sent(experience, start)

    def state_dict(self) -> Message:
        return pack({"worker": self.run.worker.state_dict(), "played": self._played})

    def load_state_dict(self, state: Message, *, abandon_episodes: bool) -> None:
        """Continue from a state; ``abandon_episodes`` if not all of what was collected before it was trained on."""
        loaded = unpack_copy(state)
        loaded["worker"]["abandoned_episodes"] |= abandon_episodes
        self.run.worker.load_state_dict(loaded["worker"])
        self._played = loaded["played"]

    def _use(self, weights: Weights, agent: Message | None, model: Message | None) -> None:
        worker, networks = self.run.worker, self.run.networks()
        if weights != self._loaded:
            for name, message in (("agent", agent), ("model", model)):
                if message is not None:
                    networks[name].load_state_dict(unpack(message))
            self.run.publish()
            self._loaded = weights
        if self._played:
            worker.agent_version, worker.model_version = weights.agent_version, weights.model_version
            worker.restart()
            self._played = False
        else:
            worker.use(agent_version=weights.agent_version, model_version=weights.model_version)

    def _sent(self, experience: Experience, start: float) -> tuple[Report, Message, Message]:
        trajectory, transitions = pack(experience.trajectory), pack(experience.transitions)
        nbytes = trajectory.nbytes + transitions.nbytes
        report = Report(experience.episodes, self.core_seconds(), time.perf_counter() - start, nbytes)
        return report, trajectory, transitions


class LearnerPart(_Part):
    """Trains the agent."""

    def __init__(self, settings: RunSettings, device: str, cpus: int) -> None:
        super().__init__(build_run(settings, device=device, num_envs=1), cpus)
        assert self.run.learner is not None
        self._learner = self.run.learner

    def learn(self, progress: float, *trajectories: Message) -> tuple[tuple[dict[str, float], float], Message]:
        """Learn from the trajectories of all environments; returns metrics, seconds computed, and the new weights."""
        parts = [unpack(message, self.run.device) for message in trajectories]
        metrics = self._learner.learn(type(parts[0]).joined(parts), progress)
        return (metrics, self.core_seconds()), self.weights()

    def weights(self) -> Message:
        return pack(self.run.networks()["agent"].state_dict())

    def state_dict(self) -> Message:
        return pack(self._learner.state_dict())

    def load_state_dict(self, state: Message) -> None:
        self._learner.load_state_dict(unpack_copy(state))


class TrainerPart(_Part):
    """Trains the model; has the replay of all environments."""

    def __init__(self, settings: RunSettings, device: str, cpus: int) -> None:
        super().__init__(build_run(settings, device=device, num_envs=1), cpus)
        assert isinstance(self.run.trainer, ModelTrainer)
        self._trainer = self.run.trainer
        self._num_envs = settings.num_envs

    def train(self) -> tuple[tuple[dict[str, float], float, float], Message]:
        """Train on the batches that are due; returns metrics, seconds computed, duration, and the new weights."""
        start = time.perf_counter()
        metrics = self._trainer.train(publish=False)
        return (metrics, self.core_seconds(), time.perf_counter() - start), self.weights()

    def train_more(self, transitions: int) -> tuple[tuple[dict[str, float], float, float], Message]:
        """Train beyond the replay ratio, see `ModelTrainer.train_more`."""
        start = time.perf_counter()
        metrics = self._trainer.train_more(transitions)
        return (metrics, self.core_seconds(), time.perf_counter() - start), self.weights()

    def store(self, workers: Sequence[int], num_workers: int, *transitions: Message) -> None:
        """Store the transitions of unrolls of ``workers``; one worker may have several, in order."""
        own = self._num_envs // num_workers
        received: dict[int, list[RealTransition | None]] = {worker: [] for worker in workers}
        for worker, message in zip(workers, transitions):
            buffer: TransitionBuffer = unpack(message)
            buffer.deliver(received[worker].append, partial(received[worker].append, None))
        rows = {worker: np.arange(worker * own, (worker + 1) * own) for worker in received}
        store_merged(self._trainer, {worker: (rows[worker], items) for worker, items in received.items()})

    def weights(self) -> Message:
        return pack(self._trainer.network.state_dict())

    def state_dict(self) -> Message:
        return pack(self._trainer.state_dict())

    def load_state_dict(self, state: Message, *, abandon_episodes: bool) -> None:
        self._trainer.load_state_dict(unpack_copy(state))
        if abandon_episodes:
            self._trainer.abandon_episodes()


Received = tuple[np.ndarray, list[RealTransition | None]]
"""The rows of a worker in the replay, and its transitions in order; None: all its running episodes were cut off."""


def store_merged(trainer: ModelTrainer, received: dict[int, Received]) -> None:
    """Store the first transitions of all workers as one step of the environments, then the second ones, and so on."""
    left = {worker: list(reversed(items)) for worker, (_, items) in received.items()}
    while any(left.values()):
        step: list[tuple[np.ndarray, RealTransition]] = []
        for worker, (rows, _) in received.items():
            while left[worker] and left[worker][-1] is None:
                left[worker].pop()
                trainer.abandon_episodes(rows)
            if left[worker]:
                transition = left[worker].pop()
                assert transition is not None
                step.append((rows, transition))
        if step:
            trainer.store(merged(step, trainer.replay.num_envs))


def merged(step: Sequence[tuple[np.ndarray, RealTransition]], num_envs: int) -> RealTransition:
    """One transition of ``num_envs`` environments, from those of some rows each; all other rows are not valid."""
    first = step[0][1]

    def whole(name: str) -> Any:
        parts = [(rows, getattr(transition, name)) for rows, transition in step]
        if parts[0][1] is None:
            return None
        result = np.zeros((num_envs, *parts[0][1].shape[1:]), parts[0][1].dtype)
        for rows, part in parts:
            result[rows] = part
        return result

    names = [name for name in RealTransition.__dataclass_fields__ if name != "random_play"]
    return RealTransition(**{name: whole(name) for name in names}, random_play=first.random_play)
