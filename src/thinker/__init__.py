"""Thinker: reinforcement-learning agents that learn to plan in a learned world model."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import thinker.envs  # noqa: F401 - registers the environments with Gymnasium

if TYPE_CHECKING:
    from thinker.augmented import SingleThinkerEnv, ThinkerEnv
    from thinker.errors import UserError
    from thinker.interfaces import Actor, Decision, NodeOutput, RealTransition, TransitionSink, WorldModel
    from thinker.runs.make import make

__version__ = "0.1.0"

_ROOM_OF = {
    "Actor": "thinker.interfaces",
    "Decision": "thinker.interfaces",
    "NodeOutput": "thinker.interfaces",
    "RealTransition": "thinker.interfaces",
    "SingleThinkerEnv": "thinker.augmented",
    "ThinkerEnv": "thinker.augmented",
    "TransitionSink": "thinker.interfaces",
    "UserError": "thinker.errors",
    "WorldModel": "thinker.interfaces",
    "make": "thinker.runs.make",
}
"""Where each public name lives; it is imported when it is first used, so that ``import thinker`` stays fast."""

__all__ = [  # noqa: PLE0604
    "Actor",
    "Decision",
    "NodeOutput",
    "RealTransition",
    "SingleThinkerEnv",
    "ThinkerEnv",
    "TransitionSink",
    "UserError",
    "WorldModel",
    "__version__",
    "make",
]


def __getattr__(name: str) -> Any:
    if name not in _ROOM_OF:
        raise AttributeError(f"module 'thinker' has no attribute {name!r}")
    return getattr(importlib.import_module(_ROOM_OF[name]), name)
