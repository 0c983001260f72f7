"""Shared by the tests of experiments: hand-made stages."""

from __future__ import annotations

from typing import Any

import numpy as np

from thinker.experiments.behaviour.stages import Stages


def random_stages(
    seed: int = 0, *, stages: int = 40, steps: int = 6, num_actions: int = 3, max_depth: int = 4, **changes: Any
) -> Stages:
    """Stages with noise everywhere; ``changes`` replace parts of them."""
    random = np.random.default_rng(seed)
    visits = random.integers(0, 4, (stages, num_actions))
    visits[np.arange(stages), random.integers(num_actions, size=stages)] += 1
    tried = visits > 0
    parts: dict[str, Any] = {
        "max_depth": max_depth,
        "environment": np.arange(stages) % 8,
        "td_error": random.normal(size=(stages, steps)),
        "depth": random.integers(1, max_depth + 1, (stages, steps)),
        "new": random.random((stages, steps)) < 0.6,
        "reset": random.random((stages, steps)) < 0.4,
        "action": random.integers(num_actions, size=stages),
        "visits": visits,
        "mean_return": np.where(tried, random.integers(0, 3, visits.shape), np.nan),
        "max_return": np.where(tried, random.integers(0, 3, visits.shape), np.nan),
        "policy": random.dirichlet(np.ones(num_actions), stages),
        "rivals": {"UCB": random.normal(size=stages), "random search": random.normal(size=stages)},
    }
    return Stages(**{**parts, **changes})
