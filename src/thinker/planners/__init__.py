"""Who searches by a fixed rule; every planner is an `Actor`."""

from thinker.planners.base_policy import BasePolicy

__all__ = ["BasePolicy"]
