"""Named runs: each preset is a function that returns the settings of one run."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable

from thinker.agents.settings import AgentSettings, paper_settings
from thinker.runs.settings import (
    EnvironmentSettings,
    EvaluationSettings,
    ModelSettings,
    RunSettings,
    SearchSettings,
)
from thinker.world_model.trainer import TrainerSettings, board_settings

BOARD_TRAINING = dataclasses.replace(
    board_settings(), replay_ratio=4.0, warm_up_transitions=2_000, return_length=30, priority_exponent=0.0
)
"""How a world model of a small board is trained on a laptop, in a run that is over after 100,000s of steps."""


def sokoban_quick() -> RunSettings:
    """7x7 boards with one box, the learned dual network, from scratch: about five minutes on two cores."""
    return RunSettings(
        real_steps=120_000,
        annealing_steps=300_000,  # so that this is the beginning of `sokoban`; annealed sooner it learned less
        num_envs=128,
        exploration_steps=12_000,
        # Half as long as in tests: an episode whose box is stuck has little more to teach, and a new level has.
        environment=EnvironmentSettings(size=7, boxes=1, max_steps=30),
        search=SearchSettings(stage_length=8, max_depth=5),
        # A small replay forgets what the agent's first, bad policies made of the levels.
        model=ModelSettings(training=BOARD_TRAINING, replay_capacity=20_000),
        agent=AgentSettings(unroll_stages=8, batch_size=16),
        evaluation=EvaluationSettings(max_steps=60),
    )


def sokoban() -> RunSettings:
    """`sokoban-quick`, continued: twenty minutes on one core, fewer on two."""
    return dataclasses.replace(sokoban_quick(), real_steps=300_000, annealing_steps=None)


def sokoban_raw() -> RunSettings:
    """The baseline of `sokoban-quick`: the same actor-critic on the raw MDP, without a model."""
    return dataclasses.replace(
        sokoban_quick(),
        exploration_steps=0,
        real_steps=700_000,
        annealing_steps=None,
        search=SearchSettings(stage_length=1),
        model=ModelSettings(kind="none"),
        agent=AgentSettings(unroll_stages=20, batch_size=16, epochs=3, trace_decay=0.95),
    )


def sokoban_simulator() -> RunSettings:
    """`sokoban-quick` with the perfect simulator as its model; base policy and value are learned."""
    quick = sokoban_quick()
    return dataclasses.replace(quick, model=dataclasses.replace(quick.model, kind="simulator-learned-values"))


def boxoban() -> RunSettings:
    """Boxoban levels, 10x10 with four boxes, as tiles. Needs the levels: --environment.levels FOLDER."""
    return dataclasses.replace(
        sokoban(),
        real_steps=5_000_000,
        environment=EnvironmentSettings(size=10, boxes=4, levels="boxoban/unfiltered/train", max_steps=120),
        search=SearchSettings(stage_length=10, max_depth=5),
        model=ModelSettings(training=BOARD_TRAINING),
        evaluation=EvaluationSettings(source="boxoban/unfiltered/test", levels=1000),
    )


def boxoban_paper() -> RunSettings:
    """The paper's experiment to the letter: 80x80 pixels, K = 20, its networks and hyperparameters, 5e7 steps."""
    return RunSettings(
        real_steps=50_000_000,
        num_envs=64,
        environment=EnvironmentSettings(
            size=10, boxes=4, levels="boxoban/unfiltered/train", observation="rgb", max_steps=120
        ),
        search=SearchSettings(stage_length=20, max_depth=5, discount=0.97),
        model=ModelSettings(size="paper-sokoban", training=TrainerSettings(warm_up_transitions=200_000)),
        agent=paper_settings(),
        evaluation=EvaluationSettings(source="boxoban/unfiltered/test", levels=1000),
        log_every=50_000,
        checkpoint_minutes=30.0,
    )


def cartpole() -> RunSettings:
    """CartPole-v1 with a learned model of its four numbers."""
    return RunSettings(
        real_steps=60_000,
        num_envs=32,
        environment=EnvironmentSettings(id="CartPole-v1"),
        search=SearchSettings(stage_length=4, max_depth=3, discount=0.99),
        model=ModelSettings(
            training=dataclasses.replace(
                board_settings(),
                state_reward_learning_rate=1e-3,
                value_policy_learning_rate=2e-3,
                value_loss_scale=0.25,
                replay_ratio=4.0,
                warm_up_transitions=2_000,
            )
        ),
        agent=AgentSettings(unroll_stages=16, batch_size=8),
        evaluation=EvaluationSettings(levels=64),
    )


PRESETS: dict[str, Callable[[], RunSettings]] = {
    "sokoban-quick": sokoban_quick,
    "sokoban": sokoban,
    "sokoban-raw": sokoban_raw,
    "sokoban-simulator": sokoban_simulator,
    "boxoban": boxoban,
    "boxoban-paper": boxoban_paper,
    "cartpole": cartpole,
}


def preset(name: str) -> RunSettings:
    """The settings of the preset ``name``."""
    if name not in PRESETS:
        near = difflib.get_close_matches(name, PRESETS, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ValueError(f"unknown preset {name!r}; {hint}presets are {', '.join(PRESETS)}")
    return dataclasses.replace(PRESETS[name](), preset=name)
