"""Thinker: reinforcement-learning agents that learn to plan in a learned world model."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import thinker.envs  # noqa: F401 - registers the environments with Gymnasium

if TYPE_CHECKING:
    from thinker.agents import (
        ATreeCSpec,
        DRCSpec,
        I2ASpec,
        NetworkActor,
        RawAgentSpec,
        ResNetSpec,
        ThinkerAgentSpec,
        VINSpec,
    )
    from thinker.augmented import EndedEpisodes, SingleThinkerEnv, ThinkerEnv, TreeView, collect
    from thinker.envs.gymnasium import GymnasiumSpec
    from thinker.envs.spec import EnvironmentSpec
    from thinker.errors import UserError
    from thinker.interfaces import NO_ACTION, Actor, Decision, NodeOutput, RealTransition, TransitionSink, WorldModel
    from thinker.nn.sizes import ImageSize, SmallImageSize, TilesSize, VectorSize
    from thinker.planners import BasePolicy
    from thinker.runs.build import build_run
    from thinker.runs.evaluate import Evaluation, evaluate, evaluate_run
    from thinker.runs.make import make
    from thinker.runs.presets import preset
    from thinker.runs.settings import AgentSpec, EvaluationSettings, RunSettings, SearchSettings
    from thinker.runs.train import train
    from thinker.viewer import record, write_page
    from thinker.world_model.frozen import FrozenValuesSimulatorSpec
    from thinker.world_model.spec import (
        BoardModelSpec,
        BuiltModel,
        DualModelSpec,
        LearnedValuesSimulatorSpec,
        ModelContext,
        ModelSpec,
        NoModelSpec,
        SimulatorSpec,
        SingleModelSpec,
    )
    from thinker.world_model.trainer import ModelTrainer, TrainerSettings

__version__ = "0.1.0"

_PUBLIC = {
    "thinker.agents": (
        "ATreeCSpec",
        "DRCSpec",
        "I2ASpec",
        "NetworkActor",
        "RawAgentSpec",
        "ResNetSpec",
        "ThinkerAgentSpec",
        "VINSpec",
    ),
    "thinker.augmented": ("EndedEpisodes", "SingleThinkerEnv", "ThinkerEnv", "TreeView", "collect"),
    "thinker.envs.gymnasium": ("GymnasiumSpec",),
    "thinker.envs.spec": ("EnvironmentSpec",),
    "thinker.errors": ("UserError",),
    "thinker.interfaces": (
        "NO_ACTION",
        "Actor",
        "Decision",
        "NodeOutput",
        "RealTransition",
        "TransitionSink",
        "WorldModel",
    ),
    "thinker.nn.sizes": ("ImageSize", "SmallImageSize", "TilesSize", "VectorSize"),
    "thinker.planners": ("BasePolicy",),
    "thinker.runs.build": ("build_run",),
    "thinker.runs.evaluate": ("Evaluation", "evaluate", "evaluate_run"),
    "thinker.runs.make": ("make",),
    "thinker.runs.presets": ("preset",),
    "thinker.runs.settings": ("AgentSpec", "EvaluationSettings", "RunSettings", "SearchSettings"),
    "thinker.runs.train": ("train",),
    "thinker.viewer": ("record", "write_page"),
    "thinker.world_model.frozen": ("FrozenValuesSimulatorSpec",),
    "thinker.world_model.spec": (
        "BoardModelSpec",
        "BuiltModel",
        "DualModelSpec",
        "LearnedValuesSimulatorSpec",
        "ModelContext",
        "ModelSpec",
        "NoModelSpec",
        "SimulatorSpec",
        "SingleModelSpec",
    ),
    "thinker.world_model.trainer": ("ModelTrainer", "TrainerSettings"),
}
"""The public names by the module that they live in. They are imported on first use: ``import thinker`` stays fast."""
_MODULE_OF = {name: module for module, names in _PUBLIC.items() for name in names}

__all__ = [
    "NO_ACTION",
    "ATreeCSpec",
    "Actor",
    "AgentSpec",
    "BasePolicy",
    "BoardModelSpec",
    "BuiltModel",
    "DRCSpec",
    "Decision",
    "DualModelSpec",
    "EndedEpisodes",
    "EnvironmentSpec",
    "Evaluation",
    "EvaluationSettings",
    "FrozenValuesSimulatorSpec",
    "GymnasiumSpec",
    "I2ASpec",
    "ImageSize",
    "LearnedValuesSimulatorSpec",
    "ModelContext",
    "ModelSpec",
    "ModelTrainer",
    "NetworkActor",
    "NoModelSpec",
    "NodeOutput",
    "RawAgentSpec",
    "RealTransition",
    "ResNetSpec",
    "RunSettings",
    "SearchSettings",
    "SimulatorSpec",
    "SingleModelSpec",
    "SingleThinkerEnv",
    "SmallImageSize",
    "ThinkerAgentSpec",
    "ThinkerEnv",
    "TilesSize",
    "TrainerSettings",
    "TransitionSink",
    "TreeView",
    "UserError",
    "VINSpec",
    "VectorSize",
    "WorldModel",
    "__version__",
    "build_run",
    "collect",
    "evaluate",
    "evaluate_run",
    "make",
    "preset",
    "record",
    "train",
    "write_page",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'thinker' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF})
