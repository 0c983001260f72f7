"""The options of commands that train: where the run is computed."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from thinker.cli.options import DeviceOption

if TYPE_CHECKING:
    from thinker.runs.engines.engine import EngineSpec


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """Where a run is computed; all but the first option need --engine ray."""

    engine: Literal["local", "ray"] = "local"
    """local: in this process; ray: in many, on one machine or a cluster; needs thinker[ray], see docs/scaling.md."""
    workers: int = 1
    """Ray: processes that act; they share the environments of --num-envs."""
    worker_cpus: int = 1
    """Ray: CPUs and threads of each worker."""
    worker_gpus: float = 0.0
    """Ray: GPUs of each worker, for example 0.25; 0: it acts on its CPUs."""
    learner_cpus: int = 1
    """Ray: CPUs and threads of the agent's learner, and as many of the model's trainer."""
    learner_device: DeviceOption = "auto"
    """Ray: where the agent and the model learn; auto: on GPUs if the cluster has any."""
    address: str | None = None
    """Ray: address of a cluster; auto: the one that this machine belongs to; None: only this machine."""
    max_staleness: int | None = None
    """Ray: updates by which the weights of acting may be behind; None: 1, and for PPO 0, the only one possible."""
    worker_retries: int = 3
    """Ray: times in a row that a worker may fail before the run ends."""

    def engine_spec(self) -> EngineSpec:
        """The engine that these options describe."""
        from thinker.errors import UserError
        from thinker.runs.engines.local import LocalSpec
        from thinker.runs.engines.ray.spec import RaySpec

        own = [field for field in dataclasses.fields(EngineOptions) if field.name != "engine"]
        values: dict[str, Any] = {field.name: getattr(self, field.name) for field in own}
        if self.engine == "ray":
            return RaySpec(**values)
        changed = [field.name for field in own if values[field.name] != field.default]
        if changed:
            raise UserError(f"--{changed[0].replace('_', '-')} is an option of the Ray engine; add --engine ray")
        return LocalSpec()
