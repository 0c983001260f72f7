"""The types of environments, models and agents that a run can use, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from thinker.agents import ATreeCSpec, DRCSpec, I2ASpec, RawAgentSpec, ResNetSpec, ThinkerAgentSpec, VINSpec
from thinker.envs.atari.spec import AtariSpec
from thinker.envs.gymnasium import GymnasiumSpec
from thinker.envs.minatar import MinAtarSpec
from thinker.envs.sokoban.spec import SokobanSpec
from thinker.errors import UserError
from thinker.nn.sizes import ImageSize, SmallImageSize, TilesSize, VectorSize
from thinker.planners import ExhaustiveSpec, GumbelMCTSSpec, MCTSSpec, RandomSearchSpec
from thinker.world_model.frozen import FrozenValuesSimulatorSpec
from thinker.world_model.spec import (
    BoardModelSpec,
    DualModelSpec,
    LearnedValuesSimulatorSpec,
    NoModelSpec,
    SimulatorSpec,
    SingleModelSpec,
)

ENVIRONMENTS: dict[str, type] = {
    "sokoban": SokobanSpec,
    "minatar": MinAtarSpec,
    "atari": AtariSpec,
    "gymnasium": GymnasiumSpec,
}
MODELS: dict[str, type] = {
    "dual": DualModelSpec,
    "single": SingleModelSpec,
    "board": BoardModelSpec,
    "simulator": SimulatorSpec,
    "simulator-learned-values": LearnedValuesSimulatorSpec,
    "simulator-frozen-values": FrozenValuesSimulatorSpec,
    "none": NoModelSpec,
}
AGENTS: dict[str, type] = {
    "thinker": ThinkerAgentSpec,
    "raw": RawAgentSpec,
    "drc": DRCSpec,
    "resnet": ResNetSpec,
    "vin": VINSpec,
    "i2a": I2ASpec,
    "atreec": ATreeCSpec,
    "mcts": MCTSSpec,
    "gumbel": GumbelMCTSSpec,
    "exhaustive": ExhaustiveSpec,
    "random-search": RandomSearchSpec,
}
SIZES: dict[str, type] = {
    "image": ImageSize,
    "small-image": SmallImageSize,
    "tiles": TilesSize,
    "vector": VectorSize,
}
"""Add your own type to one of these, so that its settings can be saved and loaded with a run."""


def name_of(spec: object, types: Mapping[str, type]) -> str:
    """The name under which the type of ``spec`` is registered."""
    for name, registered in types.items():
        if type(spec) is registered:
            return name
    raise UserError(
        f"{type(spec).__name__} is not registered, so a run cannot be saved with it; add it to ENVIRONMENTS, MODELS or "
        f"AGENTS of thinker.runs.registry (known here: {', '.join(types)})"
    )


def type_named(name: Any, types: Mapping[str, type]) -> type:
    """The type registered as ``name``."""
    if name not in types:
        raise UserError(
            f"there is no type {name!r}; known are {', '.join(types)}. Was this run created with a type of your own "
            f"that is not registered now, or by another version?"
        )
    return types[name]
