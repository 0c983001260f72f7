"""The settings of the Ray engine."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from thinker.errors import UserError
from thinker.runs.build import build_run
from thinker.runs.machine import Device
from thinker.runs.run import Run
from thinker.runs.settings import RunSettings

if TYPE_CHECKING:
    from thinker.runs.engines.ray.engine import RayEngine

PPO_STALENESS, DEFAULT_STALENESS = 0, 1


@dataclass(frozen=True)
class RaySpec:
    """Where the parts of a run are computed by Ray: workers that act, the agent's learner, the model's trainer."""

    workers: int = 1
    """Ray: processes that act; each has its share of the num_envs environments."""
    worker_cpus: int = 1
    """Ray: CPUs of each worker, and its threads."""
    worker_gpus: float = 0.0
    """Ray: GPUs of each worker, for example 0.25; 0: it acts on its CPUs."""
    learner_cpus: int = 1
    """Ray: CPUs of the agent's learner, and as many of the model's trainer."""
    learner_device: Device = "auto"
    """Ray: where the agent and the model learn; auto: on GPUs if the cluster has any."""
    address: str | None = None
    """Ray: address of a cluster, or auto for the one that this machine belongs to; None: only this machine."""
    max_staleness: int | None = None
    """Ray: updates of the agent by which acting may lag behind; None: 1, and 0 for PPO, which allows no other."""
    worker_retries: int = 3
    """Ray: times in a row that a worker may fail before the run ends."""

    def __post_init__(self) -> None:
        for name in ("workers", "worker_cpus", "learner_cpus"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} is {getattr(self, name)}; it must be at least 1")
        for name in ("worker_gpus", "worker_retries"):
            if getattr(self, name) < 0:
                raise UserError(f"{name} is {getattr(self, name)}; it must not be negative")
        if self.max_staleness is not None and self.max_staleness < 0:
            raise UserError(f"max_staleness is {self.max_staleness}; it must not be negative")

    def describe(self) -> dict[str, Any]:
        return {"name": "ray", **dataclasses.asdict(self)}

    def staleness(self, settings: RunSettings) -> int:
        """The number of updates by which the weights of an unroll may be behind when it is learned from."""
        if getattr(settings.agent, "objective", None) != "ppo":
            return DEFAULT_STALENESS if self.max_staleness is None else self.max_staleness
        if self.max_staleness not in (None, PPO_STALENESS):
            raise UserError(
                f"max_staleness is {self.max_staleness}, but PPO learns only from unrolls of its current weights; use "
                f"0, or --agent.objective v-trace, which corrects for older ones"
            )
        return PPO_STALENESS

    def envs_per_worker(self, settings: RunSettings) -> int:
        if settings.num_envs % self.workers:
            below = max(n for n in range(1, self.workers + 1) if settings.num_envs % n == 0)
            raise UserError(
                f"num_envs {settings.num_envs} cannot be shared equally by {self.workers} workers; use --workers "
                f"{below} or --num-envs {-(-settings.num_envs // self.workers) * self.workers}"
            )
        return settings.num_envs // self.workers

    def build_run(self, settings: RunSettings) -> Run:
        """A run with one environment, for evaluations: the work is done in other processes."""
        self.check_installed()
        self.staleness(settings)
        self.envs_per_worker(settings)
        run = build_run(settings, num_envs=1)
        if run.learner is not None and "agent" not in run.networks():
            raise UserError(
                f"{type(run.agent).__name__} has no attribute network; --engine ray needs one, to send its weights"
            )
        return run

    def start(self, run: Run) -> RayEngine:
        from thinker.runs.engines.ray.engine import RayEngine

        return RayEngine(run, self)

    @staticmethod
    def check_installed() -> None:
        """Raise an error if Ray is missing."""
        try:
            import ray  # noqa: F401
        except ImportError as error:
            raise UserError("--engine ray needs Ray; install it with: pip install 'thinker[ray]'") from error
