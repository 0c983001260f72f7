"""Planners: actors that search by a fixed rule."""

from thinker.planners.base_policy import BasePolicy

__all__ = ["BasePolicy"]
