"""Thinker: reinforcement-learning agents that learn to plan in a learned world model."""

from thinker.augmented import ThinkerEnv

__all__ = ["ThinkerEnv"]
