"""Shared by the tests of training runs: tiny settings, and states of runs in a form that can be compared."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch

from thinker.agents import LearnedAgentSpec
from thinker.envs.sokoban.spec import SokobanSpec
from thinker.runs.build import build_run
from thinker.runs.engines.local import LocalEngine
from thinker.runs.presets import preset
from thinker.runs.settings import RunSettings
from thinker.world_model.spec import LearnedSpec

TINY = """
    --real-steps 480 --annealing-steps None --num-envs 8 --threads 1 --log-every 60 --checkpoint-minutes 0
    --agent.unroll-stages 4 --agent.batch-size 4 --evaluation.episodes 12 --evaluation.num-envs 5
""".split()  # noqa: SIM905 - it is a command line
TINY_BOARD = "--environment.size 5 --environment.max-steps 11 --environment.held-out-max-steps None".split()  # noqa: SIM905
TINY_MODEL = """
    --search.stage-length 3 --exploration-steps 60 --exploration-length 8 --model.training.warm-up-transitions 100
    --model.training.batch-size 8 --model.replay-capacity 2000
""".split()  # noqa: SIM905
TINY_QUICK = ["sokoban-quick", *TINY, *TINY_BOARD, *TINY_MODEL]
"""The arguments of `thinker train` for `tiny("sokoban-quick")`."""
TINY_RAW = ["sokoban-raw", *TINY, *TINY_BOARD]


def tiny(name: str, **changes: Any) -> RunSettings:
    """The preset ``name``, a second long."""
    settings = preset(name)
    agent = {"batch_size": 4} if isinstance(settings.agent, LearnedAgentSpec) else {"simulations": 5}
    small: dict[str, Any] = {
        "real_steps": 480,
        "annealing_steps": None,
        "num_envs": 8,
        "threads": 1,
        "log_every": 60,
        "checkpoint_minutes": 0.0,
        "agent": dataclasses.replace(settings.agent, unroll_stages=4, **agent),  # type: ignore[type-var]
        "evaluation": dataclasses.replace(settings.evaluation, episodes=12, num_envs=5),
    }
    if isinstance(settings.environment, SokobanSpec):
        small["environment"] = dataclasses.replace(
            settings.environment, size=5, boxes=1, max_steps=11, levels="generated", held_out_max_steps=None
        )
    if isinstance(settings.model, LearnedSpec):
        training = dataclasses.replace(settings.model.training, warm_up_transitions=100, batch_size=8)
        small["model"] = dataclasses.replace(settings.model, training=training, replay_capacity=2_000)
        if settings.agent.acts_in() == "augmented":
            small["search"] = dataclasses.replace(settings.search, stage_length=3)
        small["exploration_steps"], small["exploration_length"] = 60, 8
    return dataclasses.replace(settings, **{**small, **changes})


def engine(settings: RunSettings) -> LocalEngine:
    """A new run on the CPU, and what moves it."""
    return LocalEngine(build_run(settings, device="cpu"))


def advance(engine: LocalEngine, times: int) -> LocalEngine:
    """``engine``, so many unrolls later."""
    for _ in range(times):
        engine.advance()
    return engine


def bits(state: Any) -> dict[str, bytes]:
    """All numbers of a nested state by their places, except for the clocks."""
    return {place: value for place, value in _flat(state, "") if "seconds" not in place}


def _flat(state: Any, place: str) -> list[tuple[str, bytes]]:
    if isinstance(state, dict):
        return [item for key in sorted(state) for item in _flat(state[key], f"{place}/{key}")]
    if isinstance(state, torch.Tensor):
        state = np.ascontiguousarray(state.detach().numpy())
    if isinstance(state, np.ndarray):
        return [(place, state.tobytes())]
    return [(place, repr(state).encode())]


def differences(left: Any, right: Any) -> list[str]:
    """The places at which two states differ."""
    a, b = bits(left), bits(right)
    return sorted(place for place in a.keys() | b.keys() if a.get(place) != b.get(place))
