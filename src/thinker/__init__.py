"""Thinker: reinforcement-learning agents that learn to plan in a learned world model."""

import thinker.envs  # noqa: F401 - registers the environments with Gymnasium
from thinker.augmented import SingleThinkerEnv, ThinkerEnv
from thinker.make import make
from thinker.world_model import NodeOutput, WorldModel

__all__ = ["NodeOutput", "SingleThinkerEnv", "ThinkerEnv", "WorldModel", "make"]
