"""The workers of a run: starts their unrolls, bounds how old their weights can be, and replaces those that fail."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import ray
from ray.actor import ActorHandle
from ray.exceptions import RayError, RayTaskError

from thinker.errors import UserError
from thinker.runs.engines.ray.cluster import start_part, wait_until_started
from thinker.runs.engines.ray.message import Message
from thinker.runs.engines.ray.parts import Report, Weights, WorkerPart
from thinker.runs.engines.ray.spec import RaySpec
from thinker.runs.settings import LARGEST_SEED, RunSettings

_COLOURS = re.compile(r"\x1b\[\d+m")  # that Ray adds to tracebacks

Call = Callable[[ActorHandle], Any]
"""Starts an unroll of a worker; returns references to a report, a trajectory and transitions."""


@dataclass
class Pending:
    """An unroll that has been started and not yet been learned from."""

    worker: int
    weights: Weights  # that it was started with
    references: tuple[Any, Any, Any]  # report, trajectory, transitions
    report: Report | None = None  # None while the worker acts


class WorkerPool:
    """Workers, and their unrolls in the order in which they were started.

    Unrolls are learned from in this order, N at a time, N the number of workers. If at most S N others are pending
    when an unroll is started while a batch is learned from, or (S + 1) N while none is, then at most S updates come
    between its start and its own: the weights that it was collected with are at most S updates old.
    """

    def __init__(self, settings: RunSettings, spec: RaySpec) -> None:
        self._settings, self._spec = settings, spec
        self.incarnations = [0] * spec.workers
        self.failures = [0] * spec.workers  # in a row
        self.lost_unrolls = 0
        self.replaced_workers = 0
        self.pending: list[Pending] = []
        self.actors = [self._new(index) for index in range(spec.workers)]

    def __len__(self) -> int:
        return len(self.actors)

    def wait_until_ready(self) -> None:
        """Wait until all workers have been built."""
        wait_until_started(self.actors)
        self._ask_all(lambda _, actor: actor.ready.remote())

    def states(self) -> list[Message]:
        """The states of all workers, after the unrolls that they have started."""
        return self._ask_all(lambda _, actor: actor.state_dict.remote())

    def load_states(self, states: list[Message], incarnations: list[int], *, abandon_episodes: bool) -> None:
        """Continue from ``states``; with ``abandon_episodes`` some of what was collected before was not trained on."""
        self.incarnations = list(incarnations)
        self.pending.clear()
        self._ask_all(
            lambda index, actor: actor.load_state_dict.remote(states[index], abandon_episodes=abandon_episodes)
        )

    def _ask_all(self, ask: Callable[[int, ActorHandle], Any]) -> list[Any]:
        """The answers of all workers; one that fails is replaced, and its replacement asked instead."""
        asked = [ask(index, actor) for index, actor in enumerate(self.actors)]
        return [self._answer(index, reference, ask) for index, reference in enumerate(asked)]

    def _answer(self, index: int, reference: Any, ask: Callable[[int, ActorHandle], Any]) -> Any:
        while True:
            try:
                return ray.get(reference)
            except RayError as error:
                actor = self.actors[index]
                for unroll in [one for one in self.pending if one.worker == index and one.report is None]:
                    self.receive(unroll.references[0])  # which may replace the worker
                if self.actors[index] is actor:
                    self._replace(index, _reason(error))
                reference = ask(index, self.actors[index])

    def renew(self, incarnation: int) -> None:
        """Start all workers again, with new episodes that differ from those of other incarnations."""
        self.incarnations = [incarnation] * len(self)
        self.pending.clear()
        for index in range(len(self)):
            ray.kill(self.actors[index])
            self.actors[index] = self._new(index)
        self.wait_until_ready()

    @property
    def running(self) -> list[Any]:
        """The reports that are awaited."""
        return [unroll.references[0] for unroll in self.pending if unroll.report is None]

    def start(self, limit: int, weights: Weights, call: Call) -> None:
        """Let idle workers start unrolls, until ``limit`` are pending."""
        busy = {unroll.worker for unroll in self.pending if unroll.report is None}
        for index in range(len(self)):
            if index not in busy and len(self.pending) < limit:
                self.pending.append(Pending(index, weights, tuple(call(self.actors[index]))))

    def receive(self, reference: Any) -> None:
        """Take note that the report ``reference`` is ready, or that its worker failed."""
        unroll = next(one for one in self.pending if one.references[0] == reference)
        try:
            unroll.report = ray.get(reference)
            self.failures[unroll.worker] = 0
        except RayError as error:
            self._failed(unroll, _reason(error))

    def take(self, count: int) -> list[Pending] | None:
        """The oldest ``count`` unrolls, removed from the pending ones; None if one of them is not ready yet."""
        oldest = self.pending[:count]
        if len(oldest) < count or any(unroll.report is None for unroll in oldest):
            return None
        del self.pending[:count]
        return oldest

    def _failed(self, unroll: Pending, reason: str) -> None:
        self.pending.remove(unroll)
        self.lost_unrolls += 1
        self._replace(unroll.worker, reason, " and its unroll is lost")

    def _replace(self, index: int, reason: str, consequence: str = "") -> None:
        self.failures[index] += 1
        if self.failures[index] > self._spec.worker_retries:
            raise UserError(
                f"worker {index} failed {self.failures[index]} times in a row; the last time it {reason}\n"
                f"Correct this, then run the same command again to continue from the last checkpoint"
            )
        print(f"worker {index} is replaced{consequence}: it {reason}", file=sys.stderr, flush=True)
        self.replaced_workers += 1
        self.incarnations[index] += 1
        ray.kill(self.actors[index])
        self.actors[index] = self._new(index)

    def _new(self, index: int) -> ActorHandle:
        spec, settings = self._spec, self._settings
        return start_part(
            WorkerPart,
            settings,
            spec.envs_per_worker(settings),
            worker_seed(settings.seed, index, self.incarnations[index]),
            "cuda" if spec.worker_gpus else "cpu",
            spec.worker_cpus,
            cpus=spec.worker_cpus,
            gpus=spec.worker_gpus,
        )


def _reason(error: RayError) -> str:
    """What happened to a worker whose call failed with ``error``."""
    if isinstance(error, RayTaskError):
        return f"raised an error:\n{_COLOURS.sub('', str(error))}"
    return f"died: {_COLOURS.sub('', str(error))}"


def worker_seed(seed: int, index: int, incarnation: int) -> int:
    """The seed of a worker's environments and actions; that of the first one is the run's."""
    if index == incarnation == 0:
        return seed
    return int(np.random.SeedSequence((seed, index, incarnation)).generate_state(1)[0]) % (LARGEST_SEED // 2)
