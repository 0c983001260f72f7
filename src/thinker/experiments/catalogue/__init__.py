"""The experiments of the paper, one module each; all have an `EXPERIMENT`."""

from __future__ import annotations

import difflib

from thinker.errors import UserError
from thinker.experiments.catalogue import (
    atari,
    base_policy_and_imagination,
    baselines,
    behaviour,
    cost,
    depth,
    hints_and_memory,
    minatar,
    models,
    planning_reward_and_target,
    policy_improvement,
    stage_length,
    thinking_time,
    two_boxes,
)
from thinker.experiments.experiment import Experiment

EXPERIMENTS: dict[str, Experiment] = {
    module.EXPERIMENT.name: module.EXPERIMENT
    for module in (
        baselines,
        two_boxes,
        thinking_time,
        stage_length,
        models,
        minatar,
        atari,
        hints_and_memory,
        base_policy_and_imagination,
        depth,
        planning_reward_and_target,
        behaviour,
        policy_improvement,
        cost,
    )
}
"""In the order of the paper. A new experiment is a new module and one line here."""


def experiment_named(name: str) -> Experiment:
    """The experiment of this name."""
    if name not in EXPERIMENTS:
        near = difflib.get_close_matches(name, EXPERIMENTS, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise UserError(f"there is no experiment {name!r}; {hint}experiments are {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[name]
