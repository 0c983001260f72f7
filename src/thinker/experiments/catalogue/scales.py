"""The settings that the experiments share at each scale, and the two agents that most of them start from."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from thinker.agents import RawAgentSpec, paper_settings
from thinker.agents.settings import LearnerSettings
from thinker.experiments.experiment import Scale, Variant, has_setting
from thinker.experiments.measurements import Measurement, TestEpisodes
from thinker.runs.presets import boxoban_paper, preset
from thinker.world_model.trainer import TrainerSettings

EPISODES: Mapping[Scale, int] = {"tiny": 12, "laptop": 500, "paper": 1000}
"""Test episodes for each number."""

FRAMES = 100_000
"""Real steps of a run at laptop scale, unless an experiment says otherwise: `sokoban-quick` then solves 97 %."""

LAPTOP: Mapping[str, Any] = {
    "real_steps": FRAMES,
    "annealing_steps": 3 * FRAMES,  # learning is still fast at the end
    "threads": 1,  # two runs at a time on two cores
}

TINY: Mapping[str, Any] = {
    "real_steps": 480,
    "annealing_steps": None,
    "num_envs": 8,
    "exploration_length": 8,
    "log_every": 60,
    "environment.size": 5,
    "environment.max_steps": 11,
    "environment.held_out_max_steps": None,
    "evaluation.episodes": 12,
    "evaluation.num_envs": 5,
    "agent.unroll_stages": 4,
    "agent.batch_size": 4,
    "agent.simulations": 5,
    "model.training.warm_up_transitions": 100,
    "model.training.batch_size": 8,
    "model.replay_capacity": 2_000,
}
"""A few seconds on small boards."""

PAPER_DRC: Mapping[str, Any] = {
    "agent.objective": "v-trace",
    "agent.unroll_stages": 20,
    "agent.batch_size": 16,
    "agent.epochs": 1,
    "agent.trace_decay": 0.97,
    "agent.normalise_advantages": False,
    "agent.loss_reduction": "sum",
    "agent.baseline_scale": 0.5,
    "agent.real_entropy_cost": 1e-2,
    "agent.real_logits_cost": 1e-3,
    "agent.learning_rate": 4e-4,
    "agent.adam_beta_2": 0.99,
    "agent.adam_epsilon": 1e-4,
    "agent.gradient_norm_clip": 160.0,
}
"""DRC's learner at paper scale, from its authors and from public reruns of it; their ResNet has the same."""
PAPER_MUZERO: Mapping[str, Any] = {
    "agent.simulations": 100,
    "model.size": "paper",
    "model.augmentation": "none",
    "model.replay_capacity": 200_000,
    "model.training": TrainerSettings(warm_up_transitions=200_000),
}
"""MuZero at paper scale: the network's size, the replay and the training of Thinker's model."""


def variant(
    scale: Scale,
    name: str,
    label: str,
    preset_name: str,
    changes: Mapping[str, Any],
    measurements: Sequence[Measurement] | None = None,
    tiny: Mapping[str, Any] | None = None,
) -> Variant:
    """A variant of a laptop's preset at tiny or laptop scale; by default its agent plays test episodes.

    ``tiny``: changes at tiny scale instead of those of `TINY`.
    """
    known = {**LAPTOP, **changes}
    if scale == "tiny":
        settings = preset(preset_name)
        small = {one: value for one, value in {**TINY, **(tiny or {})}.items() if has_setting(settings, one)}
        if settings.exploration_steps:
            small["exploration_steps"] = 60
        known = {**known, **small}
    if measurements is None:
        measurements = (TestEpisodes(EPISODES[scale]),)
    return Variant(name, label, preset_name, known, tuple(measurements))


def thinker(
    scale: Scale,
    name: str,
    label: str,
    changes: Mapping[str, Any] | None = None,
    *,
    laptop: Mapping[str, Any] | None = None,
    preset_name: Literal["sokoban-quick", "sokoban", "sokoban-dual"] = "sokoban-quick",
    measurements: Sequence[Measurement] | None = None,
) -> Variant:
    """The paper's agent with ``changes`` at every scale, and those of ``laptop`` at the small scales only.

    At paper scale it is `boxoban-paper`, whatever the preset of the small scales.
    """
    changes = changes or {}
    if scale == "paper":
        chosen = tuple(measurements or (TestEpisodes(EPISODES[scale]),))
        return Variant(name, label, "boxoban-paper", changes, chosen)
    return variant(scale, name, label, preset_name, {**(laptop or {}), **changes}, measurements)


def paper_run() -> dict[str, Any]:
    """The parts of `boxoban-paper` that hold for every method at paper scale, as changes of another preset."""
    settings = boxoban_paper()
    names = ("real_steps", "annealing_steps", "num_envs", "exploration_steps", "environment", "evaluation")
    changes = {name: getattr(settings, name) for name in (*names, "log_every", "checkpoint_minutes")}
    return {**changes, "search.discount": settings.search.discount}


def other(
    scale: Scale,
    name: str,
    label: str,
    preset_name: str,
    changes: Mapping[str, Any] | None = None,
    *,
    paper: Mapping[str, Any] | None = None,
) -> Variant:
    """Another method: its preset with ``changes``; at paper scale on the paper's levels, with those of ``paper``."""
    if scale != "paper":
        return variant(scale, name, label, preset_name, changes or {})
    everything = {**paper_run(), **(paper or {}), **(changes or {})}
    return Variant(name, label, preset_name, everything, (TestEpisodes(EPISODES[scale]),))


def raw(scale: Scale, name: str = "raw", label: str = "raw MDP", changes: Mapping[str, Any] | None = None) -> Variant:
    """The same actor-critic on the raw MDP. At paper scale: 20 steps an unroll, half the learning rate."""
    learner = {one.name: getattr(paper_settings(), one.name) for one in dataclasses.fields(LearnerSettings)}
    agent = RawAgentSpec(**{**learner, "network_size": "paper", "unroll_stages": 20, "learning_rate": 3e-4})
    return other(scale, name, label, "sokoban-raw", changes, paper={"agent": agent})
