"""Shared by the tests of the viewer that need a training run: small settings, and a run that was never trained."""

from __future__ import annotations

import dataclasses
from typing import Any

from thinker.runs.presets import preset
from thinker.runs.settings import RunSettings

PRESET = "sokoban-quick"


def small_settings(**changes: Any) -> RunSettings:
    """`sokoban-quick` with small boards, short episodes and K = 4."""
    quick = preset(PRESET)
    small: dict[str, Any] = {
        "num_envs": 2,
        "threads": 1,
        "environment": dataclasses.replace(quick.environment, size=6, max_steps=4, held_out_max_steps=4),
        "model": dataclasses.replace(quick.model, replay_capacity=2_000),
        "search": dataclasses.replace(quick.search, stage_length=4),
    }
    return dataclasses.replace(quick, **{**small, **changes})
