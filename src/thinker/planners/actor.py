"""Planners as actors: a search from the real states of all environments before every real step."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import torch
from torch import Tensor

from thinker.augmented import ThinkerEnv
from thinker.errors import UserError
from thinker.interfaces import Decision
from thinker.planners.planner import PlannerSpec, SearchResult, random_generator


class PlannerActor:
    """Searches with the model of ``env`` before every real step, for all environments in one batch.

    Planners have trees of their own, so there are no imaginary steps: ``env`` must have ``stage_length=1``. The policy
    of its decisions is the improved policy, their root value that of the search.

    Args:
        env: the environments to act in, with ``stage_length=1``.
        spec: the planner and its settings.
        seed: of the generator that draws noise, ties and actions.
        greedy: take the best actions instead of sampling.
        keep_states: keep the predicted states in ``result.tree``.
    """

    def __init__(
        self,
        env: ThinkerEnv,
        spec: PlannerSpec,
        *,
        seed: int = 0,
        greedy: bool = False,
        keep_states: bool = False,
    ) -> None:
        if env.stage_length != 1:
            raise UserError(
                f"planners take no imaginary steps, but stage_length is {env.stage_length}; make the environment with "
                f"stage_length=1 and set the planner's number of simulations instead"
            )
        self.spec = spec
        self._env = env
        self._greedy = greedy
        self._keep_states = keep_states
        self._random = random_generator(seed)
        self._progress: float | None = None
        self._result: SearchResult | None = None

    @property
    def result(self) -> SearchResult | None:
        """The search behind the last decision; None before the first."""
        return self._result

    def begin_unroll(self, progress: float) -> None:
        """Explore from now on: this is training, of which the fraction ``progress`` (0 .. 1) is complete."""
        self._progress = progress

    def begin(self, observation: dict[str, Tensor], info: dict[str, Any]) -> None:
        """See `Actor`: planners have no memory."""

    def act(self) -> Decision:
        """See `Actor`."""
        env = self._env
        self._result = result = self.spec.search(
            env.model,
            env.root_output,
            discount=env.discount,
            random=self._random,
            greedy=self._greedy,
            exploring=self._progress is not None,
            progress=self._progress or 0.0,
            keep_states=self._keep_states,
        )
        action = torch.from_numpy(result.action)[:, None]
        return Decision(
            torch.cat((action, torch.zeros_like(action)), 1),
            policy=torch.from_numpy(result.policy),
            root_value=torch.from_numpy(result.value),
        )

    def observe(
        self,
        decision: Decision,
        observation: dict[str, Tensor],
        reward: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
        info: dict[str, Any],
    ) -> None:
        """See `Actor`: the next search starts from the environment's new roots."""

    def refresh(self, observation: dict[str, Tensor]) -> None:
        """See `Actor`: the roots are read from the environment when they are needed."""

    def state_dict(self) -> dict[str, Any]:
        """See `Actor`."""
        return {"generator": json.dumps(self._random.bit_generator.state)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """See `Actor`."""
        self._random.bit_generator.state = json.loads(state["generator"])
