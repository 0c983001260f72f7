"""Connects to a Ray cluster, or starts one on this machine, and starts the parts of a run on it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import ray
from ray.actor import ActorHandle
from ray.exceptions import RayError, RayTaskError

from thinker.errors import UserError
from thinker.runs.engines.ray.spec import RaySpec
from thinker.runs.machine import cores

START_SECONDS = 600.0
"""How long the parts may take to start: a cluster in the cloud may have to start machines first."""


def connect(spec: RaySpec, parts: int) -> bool:
    """Connect to the cluster of ``spec`` for its workers and ``parts`` others; whether this started the connection."""
    os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")  # they are handled, once for each unroll
    if ray.is_initialized():
        return False
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if spec.address is None:
        # CPUs are what Ray counts, not what there is: on a small machine the parts share its cores.
        needed = spec.workers * spec.worker_cpus + parts * spec.learner_cpus
        ray.init(
            "local",
            num_cpus=max(cores(), needed),
            include_dashboard=False,
            log_to_driver=False,
            logging_level="ERROR",
        )
        return True
    try:
        ray.init(spec.address, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise UserError(
            f"cannot connect to a Ray cluster at {spec.address}: {error}. Start one with `ray start --head`, or leave "
            f"--address out to use only this machine"
        ) from error
    return True


def learner_gpus(spec: RaySpec, parts: int) -> float:
    """GPUs for each of ``parts`` learning parts."""
    if spec.learner_device not in ("auto", "cuda"):
        return 0.0
    available = ray.cluster_resources().get("GPU", 0.0) - spec.workers * spec.worker_gpus
    if available <= 0 and spec.learner_device == "cuda":
        raise UserError(
            f"learner_device is cuda, but of the {ray.cluster_resources().get('GPU', 0.0):g} GPUs of the cluster "
            f"{spec.workers} workers take {spec.workers * spec.worker_gpus:g}; choose cpu or a smaller worker_gpus"
        )
    return max(0.0, min(1.0, available / max(parts, 1)))


def start_part(kind: type, *arguments: Any, cpus: int, gpus: float) -> ActorHandle:
    """Start a part in a process of its own; if it ends, it stays so."""
    options = {"num_cpus": cpus, "num_gpus": gpus, "max_restarts": 0, "max_task_retries": 0}
    return ray.remote(kind).options(**options).remote(*arguments)


def wait_until_started(parts: Sequence[ActorHandle]) -> None:
    """Wait until all parts have been built, or have failed to be."""
    waiting = [part.ready.remote() for part in parts]
    _, missing = ray.wait(waiting, num_returns=len(waiting), timeout=START_SECONDS)
    if missing:
        raise UserError(
            f"{len(missing)} of {len(parts)} processes have not started within {START_SECONDS:.0f} seconds; the "
            f"cluster has {ray.cluster_resources()}. Use fewer --workers or --worker-cpus, or add machines"
        )


def result_of(reference: Any, who: str) -> Any:
    """The result of a part; its own errors are raised as they are, its death as an error that says what to do."""
    try:
        return ray.get(reference)
    except RayTaskError as error:
        if isinstance(error.cause, RayError):  # what it was given is lost
            raise _death(who, error.cause) from error
        if isinstance(error.cause, Exception):
            raise error.cause from error
        raise
    except RayError as error:
        raise _death(who, error) from error


def _death(who: str, error: RayError) -> UserError:
    return UserError(
        f"{who} has died, or a machine with its data has: {error}\nWas it stopped, or is there too little memory? "
        f"Run the same command again to continue from the last checkpoint"
    )
