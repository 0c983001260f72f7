"""Thinker: reinforcement-learning agents that learn to plan in a learned world model."""
