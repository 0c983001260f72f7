"""The Ray engine: many workers act, one process trains the agent and one the model, at the same time.

The loop is that of `engines/local.py`, and its rounds are the same: in each the agent learns from one unroll of all
environments, and the model is trained until its replay ratio is reached. With PPO the workers wait for the agent, and
with one worker the results are those of the local engine, bit for bit. With V-trace they act on meanwhile.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import ray
from ray.actor import ActorHandle

from thinker.augmented import EndedEpisodes
from thinker.runs.engines.local import with_model_prefix
from thinker.runs.engines.ray.cluster import connect, learner_gpus, result_of, start_part, wait_until_started
from thinker.runs.engines.ray.message import pack, unpack, unpack_copy
from thinker.runs.engines.ray.parts import LearnerPart, TrainerPart, Weights
from thinker.runs.engines.ray.pool import Call, Pending, WorkerPool
from thinker.runs.engines.ray.spec import RaySpec
from thinker.runs.run import Run

LEARNER, TRAINER = "the process of the agent's learner", "the process of the model's trainer"


class RayEngine:
    """Advances ``run`` in processes of a Ray cluster. ``run`` itself has the counters and acts in evaluations."""

    def __init__(self, run: Run, spec: RaySpec) -> None:
        self.run, self.spec = run, spec
        self.staleness = spec.staleness(run.settings)
        self._learner: ActorHandle | None = None
        self._trainer: ActorHandle | None = None
        self._weights = Weights(0, 0)
        parts = (run.learner is not None) + (run.trainer is not None)
        self._connected = connect(spec, parts)
        try:
            gpus = learner_gpus(spec, parts)
            device = "cpu" if spec.learner_device == "auto" and not gpus else spec.learner_device
            options: dict[str, Any] = {"cpus": spec.learner_cpus, "gpus": gpus}
            if run.learner is not None:
                self._learner = start_part(LearnerPart, run.settings, device, spec.learner_cpus, **options)
            if run.trainer is not None:
                self._trainer = start_part(TrainerPart, run.settings, device, spec.learner_cpus, **options)
            self.pool = WorkerPool(run.settings, spec)
            for part, who in ((self._learner, LEARNER), (self._trainer, TRAINER)):
                if part is not None:
                    wait_until_started([part])
                    result_of(part.ready.remote(), who)
            self.pool.wait_until_ready()
            self._fetch_weights()
        except BaseException:
            self.close()
            raise

    def _fetch_weights(self) -> None:
        self._agent_weights = None if self._learner is None else self._learner.weights.remote()
        self._model_weights = None if self._trainer is None else self._trainer.weights.remote()

    @property
    def title(self) -> str:
        """See `Engine`."""
        workers, envs = len(self.pool), self.spec.envs_per_worker(self.run.settings)
        staleness = f"weights at most {self.staleness} updates old" if self.staleness else "always the newest weights"
        return f" · ray: {workers} worker{'s' * (workers > 1)} with {envs} environments each, {staleness}"

    # -------------------------------------------------------------------------------------------- training

    def advance(self) -> tuple[EndedEpisodes, dict[str, float]]:
        """Train the agent on one unroll of all environments; meanwhile train the model."""
        start = time.process_time()
        if self._trainer is not None and self.run.real_steps < self.run.settings.exploration_steps:
            episodes, metrics = self._explore(self._trainer)
        else:
            episodes, metrics = self._train()
        self.run.core_seconds += time.process_time() - start
        return episodes, metrics

    def _train(self) -> tuple[EndedEpisodes, dict[str, float]]:
        run, workers = self.run, len(self.pool)
        start = time.perf_counter()
        progress = min(run.real_steps / run.settings.total_steps, 1.0)
        training = None if self._trainer is None else self._trainer.train.options(num_returns=2).remote()
        batch = self._gather((self.staleness + 1) * workers, self._collect())
        metrics = self._metrics(batch)
        acted = time.perf_counter()
        if self._learner is not None:
            trajectories = [unroll.references[1] for unroll in batch]
            learned = self._learner.learn.options(num_returns=2).remote(progress, *trajectories)
            own, core_seconds = self._wait_for(learned[0], LEARNER)
            metrics |= own
            run.core_seconds += core_seconds
            self._agent_weights, self._weights = learned[1], self._weights.after(agent=1)
        run.real_steps += sum(unroll.report.episodes.real_steps for unroll in batch if unroll.report is not None)
        updated = time.perf_counter()
        if training is not None:
            metrics |= self._trained(training, self._wait_for(training[0], TRAINER))
            self._store(batch)
        run.seconds["act"] += acted - start
        run.seconds["agent"] += updated - acted
        run.seconds["wait"] += time.perf_counter() - updated
        return self._episodes(batch), metrics

    def _explore(self, trainer: ActorHandle) -> tuple[EndedEpisodes, dict[str, float]]:
        """Random play, followed by training of the model on it."""
        run, settings = self.run, self.run.settings
        start = time.perf_counter()
        step = run.real_steps

        def call(worker: ActorHandle) -> Any:
            method = worker.explore.options(num_returns=3)
            return method.remote(
                self._weights, self._agent_weights, self._model_weights, step, settings.exploration_length
            )

        batch = self._gather(len(self.pool), call)
        episodes = self._episodes(batch)
        run.real_steps += episodes.real_steps
        metrics = self._metrics(batch)
        self._store(batch)
        acted = time.perf_counter()
        count = round(settings.exploration_ratio * episodes.real_steps)
        training = trainer.train_more.options(num_returns=2).remote(count)
        metrics |= self._trained(training, result_of(training[0], TRAINER))
        run.seconds["act"] += acted - start
        run.seconds["wait"] += time.perf_counter() - acted
        return episodes, metrics

    def _collect(self) -> Call:
        run, weights = self.run, self._weights
        agent, model = self._agent_weights, self._model_weights
        progress = min(run.real_steps / run.settings.real_steps, 1.0)

        def call(worker: ActorHandle) -> Any:
            return worker.collect.options(num_returns=3).remote(weights, agent, model, progress)

        return call

    def _gather(self, limit: int, call: Call) -> list[Pending]:
        """The oldest unrolls, one for each worker's share of the environments, once they are ready."""
        while True:
            self.pool.start(limit, self._weights, call)
            batch = self.pool.take(len(self.pool))
            if batch is not None:
                return batch
            ready, _ = ray.wait(self.pool.running, num_returns=1)
            self.pool.receive(ready[0])

    def _wait_for(self, reference: Any, who: str) -> Any:
        """The result ``reference`` of a part; meanwhile workers may start as many unrolls as the staleness allows."""
        limit, call = self.staleness * len(self.pool), self._collect()
        while True:
            self.pool.start(limit, self._weights, call)
            ready, _ = ray.wait([reference, *self.pool.running], num_returns=1)
            if ready[0] == reference:
                return result_of(reference, who)
            self.pool.receive(ready[0])

    def _trained(self, training: Any, result: tuple[dict[str, float], float, float]) -> dict[str, float]:
        """Publish the weights of the model's training, whose result is there; returns the metrics."""
        metrics, core_seconds, seconds = result
        self._model_weights, self._weights = training[1], self._weights.after(model=1)
        self.run.core_seconds += core_seconds
        self.run.seconds["model"] += seconds
        return with_model_prefix(metrics)

    def _store(self, batch: list[Pending]) -> None:
        assert self._trainer is not None
        ordered = [unroll.worker for unroll in batch]
        transitions = [unroll.references[2] for unroll in batch]
        result_of(self._trainer.store.remote(ordered, len(self.pool), *transitions), TRAINER)

    def _episodes(self, batch: list[Pending]) -> EndedEpisodes:
        parts = [unroll.report.episodes for unroll in batch if unroll.report is not None]
        success = [part.success for part in parts if part.success is not None]
        return EndedEpisodes(
            real_steps=sum(part.real_steps for part in parts),
            returns=np.concatenate([part.returns for part in parts]),
            lengths=np.concatenate([part.lengths for part in parts]),
            success=np.concatenate(success) if success else None,
        )

    def _metrics(self, batch: list[Pending]) -> dict[str, float]:
        """How old the weights of the unrolls are, what was sent, and what was lost so far."""
        reports = [unroll.report for unroll in batch if unroll.report is not None]
        self.run.core_seconds += sum(report.core_seconds for report in reports)
        agent = [self._weights.agent_version - unroll.weights.agent_version for unroll in batch]
        model = [self._weights.model_version - unroll.weights.model_version for unroll in batch]
        return {
            "ray/workers": len(self.pool),
            "ray/agent_staleness": float(np.mean(agent)),
            "ray/agent_staleness_max": max(agent),
            "ray/model_staleness": float(np.mean(model)),
            "ray/model_staleness_max": max(model),
            "ray/unroll_seconds": float(np.mean([report.seconds for report in reports])),
            "ray/unroll_core_seconds": float(np.mean([report.core_seconds for report in reports])),
            "ray/unroll_megabytes": float(np.mean([report.nbytes for report in reports])) / 1e6,
            "ray/lost_unrolls": self.pool.lost_unrolls,
            "ray/replaced_workers": self.pool.replaced_workers,
        }

    # ----------------------------------------------------------------------------------------------- state

    def update_run(self) -> None:
        """See `Engine`."""
        networks = self.run.networks()
        for name, reference, who in (
            ("agent", self._agent_weights, LEARNER),
            ("model", self._model_weights, TRAINER),
        ):
            if reference is not None:
                networks[name].load_state_dict(unpack(result_of(reference, who)))
        self.run.publish()

    def state_dict(self) -> dict[str, Any]:
        """See `Engine`. Unrolls that are pending are not saved: a resumed run starts others instead."""
        learner = None if self._learner is None else self._learner.state_dict.remote()
        trainer = None if self._trainer is None else self._trainer.state_dict.remote()
        workers = {str(index): unpack_copy(state) for index, state in enumerate(self.pool.states())}
        return {
            **self.run.counters(),
            "worker": None,
            "workers": {
                "states": workers,
                "incarnations": list(self.pool.incarnations),
                "pending": len(self.pool.pending),
                "lost_unrolls": self.pool.lost_unrolls,
                "replaced_workers": self.pool.replaced_workers,
                "agent_version": self._weights.agent_version,
                "model_version": self._weights.model_version,
            },
            "learner": None if learner is None else unpack_copy(result_of(learner, LEARNER)),
            "trainer": None if trainer is None else unpack_copy(result_of(trainer, TRAINER)),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See `Engine`. If the state is of another number of workers or of the local engine, new episodes start."""
        self.run.load_counters(state)
        saved = state.get("workers") or {"states": {}, "incarnations": [0], "pending": 0}
        same = len(saved["states"]) == len(self.pool)
        abandon = bool(saved["pending"]) or not same
        if self._learner is not None:
            result_of(self._learner.load_state_dict.remote(pack(state["learner"])), LEARNER)
        if self._trainer is not None:
            call = self._trainer.load_state_dict.remote(pack(state["trainer"]), abandon_episodes=abandon)
            result_of(call, TRAINER)
        if same:
            states = [pack(saved["states"][str(index)]) for index in range(len(self.pool))]
            self.pool.load_states(states, saved["incarnations"], abandon_episodes=abandon)
        else:
            self.pool.renew(1 + max(saved["incarnations"]))
        self.pool.lost_unrolls = saved.get("lost_unrolls", 0) + saved["pending"]
        self.pool.replaced_workers = saved.get("replaced_workers", 0)
        versions = saved if saved["states"] else state["worker"]
        self._weights = Weights(versions["agent_version"], versions["model_version"])
        self._fetch_weights()

    def close(self) -> None:
        """See `Engine`."""
        if self._connected:
            ray.shutdown()
            self._connected = False
            return
        pool: WorkerPool | None = getattr(self, "pool", None)  # not yet, if starting failed
        for part in (self._learner, self._trainer, *(pool.actors if pool is not None else ())):
            if part is not None:
                ray.kill(part)
