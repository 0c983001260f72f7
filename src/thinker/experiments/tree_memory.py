"""How much memory the search trees take, of agents and of planners."""

from __future__ import annotations

import tracemalloc
from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

from thinker.planners import PlannerSpec
from thinker.runs.run import Run

_NUM_ENVS = 16  # planners are measured with


def agent_tree_kib(run: Run) -> float:
    """KiB of one environment's tree in training: nodes, statistics and hidden states. Allocated once, never grows."""
    env = run.worker.env
    return _bytes(env.state_dict()) / env.num_envs / 1024


def planner_tree_kib(run: Run, planner: PlannerSpec) -> float:
    """KiB of one environment at the peak of a search by ``planner``: all arrays of NumPy, and the batches of the model.

    Everything is released after the search.
    """
    envs = run.settings.environment.build(_NUM_ENVS)
    try:
        env = run.wrap(envs, stage_length=1)
        actor = run.actor(env, planner)
        actor.begin(*env.reset(seed=0))
        actor.act()  # compiles
        tracemalloc.start()
        try:
            actor.act()
            return tracemalloc.get_traced_memory()[1] / _NUM_ENVS / 1024
        finally:
            tracemalloc.stop()
    finally:
        envs.close()


def _bytes(state: Any) -> int:
    """Of all arrays and tensors in nested dicts."""
    if isinstance(state, Mapping):
        return sum(map(_bytes, state.values()))
    return state.nbytes if isinstance(state, np.ndarray | Tensor) else 0
