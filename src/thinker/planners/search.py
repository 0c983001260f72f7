"""Searches without an environment: `search` for users who have a model and observations."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from thinker.augmented.checks import checked_output
from thinker.errors import UnsupportedError, UserError
from thinker.interfaces import NO_ACTION, WorldModel
from thinker.planners.planner import PlannerSpec, SearchResult, random_generator


def search(
    model: WorldModel,
    observation: np.ndarray | Tensor,
    spec: PlannerSpec,
    *,
    discount: float,
    last_action: np.ndarray | Tensor | None = None,
    seed: int | np.random.Generator = 0,
    greedy: bool = False,
    keep_states: bool = False,
) -> SearchResult:
    """Search in ``model`` from ``observation`` for all B rows at once.

    Args:
        model: the world model to search in.
        observation: the real states [B, *observation_shape].
        spec: the planner and its settings: `MCTSSpec`, `GumbelMCTSSpec`, `ExhaustiveSpec`, `RandomSearchSpec`.
        discount: γ of the real MDP.
        last_action: the actions [B] that led to the observations; default: episodes have just started.
        seed: of all random choices, or a generator, which is advanced.
        greedy: choose the best actions instead of sampling.
        keep_states: keep the predicted states in the result's tree.
    """
    if not isinstance(spec, PlannerSpec):
        raise UnsupportedError(f"spec is {spec!r}; it must be a planner's settings, such as MCTSSpec(simulations=50)")
    if not 0 <= discount <= 1:
        raise UserError(f"discount is {discount!r}; it must lie between 0 and 1")
    device = getattr(model, "device", "cpu")
    states = torch.as_tensor(observation).to(device)
    if states.dim() < 2 or not len(states):
        raise UserError(
            f"observation is of shape {tuple(states.shape)}; it must be a batch of at least one observation "
            f"[B, *observation_shape]. For a single one use observation[None]"
        )
    actions = torch.full((len(states),), NO_ACTION) if last_action is None else torch.as_tensor(last_action)
    if actions.shape != (len(states),) or actions.is_floating_point() or actions.dtype == torch.bool:
        raise UserError(
            f"last_action must be integers of shape ({len(states)},), one per observation; got shape "
            f"{tuple(actions.shape)} and {actions.dtype}"
        )
    if not ((actions >= NO_ACTION) & (actions < model.num_actions)).all():
        raise UserError(
            f"last_action is {actions.tolist()}; actions must be 0 to {model.num_actions - 1}, or {NO_ACTION} where an "
            f"episode has just started"
        )
    with torch.no_grad():
        root = model.root(states, actions.to(torch.int64).to(device))
    checked_output(root, len(states), model.num_actions, None, tuple(states.shape[1:]), "root")
    random = seed if isinstance(seed, np.random.Generator) else random_generator(seed)
    return spec.search(model, root, discount=discount, random=random, greedy=greedy, keep_states=keep_states)
