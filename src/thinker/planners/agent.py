"""Planners as the agents of training runs: MuZero, if the model is learned from their searches.

A planner has no learner of its own. Every real step tells the model's trainer the improved policy, which becomes the
base policy's target, and the search's value of the root, from which value targets are bootstrapped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from thinker.augmented import ThinkerEnv
from thinker.planners.actor import PlannerActor
from thinker.planners.planner import PlannerSpec


@dataclass(frozen=True)
class PlannerAgent:
    """An agent built from a `PlannerSpec`."""

    spec: PlannerSpec

    @property
    def unroll_stages(self) -> int:
        """Real steps between two updates of the model."""
        return self.spec.unroll_stages

    @property
    def learner(self) -> None:
        """Planners do not learn; their model does."""
        return None

    def actor(self, env: ThinkerEnv, *, seed: int, greedy: bool = False, trajectory: Any = None) -> PlannerActor:
        """An actor for ``env``, which must have stages of one step. It explores in training: see `TrainingActor`."""
        return PlannerActor(env, self.spec, seed=seed, greedy=greedy)

    def trajectory(self, env: ThinkerEnv) -> None:
        """Nothing is learned from trajectories."""
        return None
