"""The presets of MinAtar and Atari."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from thinker.agents import LearnedAgentSpec, RawAgentSpec, ThinkerAgentSpec, paper_settings
from thinker.augmented import Observe
from thinker.envs.atari.spec import AtariSpec
from thinker.envs.minatar import MinAtarSpec
from thinker.runs.settings import EvaluationSettings, RunSettings, SearchSettings
from thinker.world_model.spec import BoardModelSpec, DualModelSpec, NoModelSpec
from thinker.world_model.trainer import TrainerSettings, board_settings

TREE_AND_REAL_STATE: tuple[Observe, ...] = ("tree", "real_state")
"""What the planning agents of the laptop presets observe. They learn their own features of the real state: hidden
states of the model, which change as long as it is trained, did not help beside them."""
MINATAR_TRAINING = dataclasses.replace(
    board_settings(),
    unroll_length=1,
    return_length=20,
    batch_size=160,
    replay_ratio=4.0,
    warm_up_transitions=2_000,
    state_reward_learning_rate=1e-2,
    state_loss_scale=100.0,
    value_loss_scale=0.1,
)
"""Training of the board model on MinAtar. Later play shows what random play does not, so that both halves are always
trained."""
MINATAR_LEARNER: Mapping[str, Any] = {
    "learning_rate": 3e-3,
    "unroll_stages": 20,
    "batch_size": 16,
    "epochs": 3,
    "trace_decay": 0.95,
    "adam_epsilon": 1e-4,
}
"""What the learners of both agents have in common on MinAtar. Where rewards are rare, gradients are tiny at first: with
a smaller epsilon, Adam would move the weights as far as by large ones, and the features would fade."""
PICTURE_TRAINING = TrainerSettings(
    learning_rate=1e-3,
    batch_size=32,
    replay_ratio=1.0,
    warm_up_transitions=2_000,
    state_loss_scale=1e4,  # a ball is a few faint pixels: its error is small in the mean over all of them
    gradient_clip=50.0,
)
"""Training of a small world model of pictures on a laptop."""


def minatar() -> RunSettings:
    """A game of MinAtar with a learned model: --environment.game asterix|breakout|freeway|seaquest|space_invaders."""
    return RunSettings(
        real_steps=500_000,
        num_envs=128,
        exploration_steps=5_000,
        exploration_length=50,
        exploration_ratio=5.0,
        environment=MinAtarSpec(),
        search=SearchSettings(stage_length=6, max_depth=5, discount=0.97, observe=TREE_AND_REAL_STATE),
        model=BoardModelSpec(training=MINATAR_TRAINING, replay_capacity=50_000),
        agent=ThinkerAgentSpec(
            tree_encoder="per-action",
            network_size="board",
            tree_mask_probability=0.1,
            balance_actions=True,
            **MINATAR_LEARNER,
        ),
        evaluation=EvaluationSettings(episodes=128),
    )


def minatar_raw() -> RunSettings:
    """The baseline of `minatar`: the same actor-critic on the raw MDP, without a model."""
    return dataclasses.replace(
        minatar(),
        exploration_steps=0,
        search=SearchSettings(stage_length=1, discount=0.97),
        model=NoModelSpec(),
        agent=RawAgentSpec(network_size="board", **MINATAR_LEARNER),
    )


def atari() -> RunSettings:
    """The paper's experiment on a game, --environment.game NAME: K = 20, its networks, 2e8 frames of the emulator."""
    return RunSettings(
        real_steps=50_000_000,  # of 4 frames
        num_envs=64,
        environment=AtariSpec(),
        search=SearchSettings(stage_length=20, max_depth=5, discount=0.99),
        model=DualModelSpec(size="paper-stacked", training=TrainerSettings(warm_up_transitions=200_000)),
        agent=paper_settings(),
        evaluation=EvaluationSettings(episodes=100, num_envs=20),
        log_every=50_000,
        checkpoint_minutes=30.0,
    )


def atari_raw() -> RunSettings:
    """The paper's baseline of `atari`: the same actor-critic on the raw MDP, with half the learning rate."""
    paper = paper_settings()
    shared = {field.name: getattr(paper, field.name) for field in dataclasses.fields(LearnedAgentSpec)}
    return dataclasses.replace(
        atari(),
        search=SearchSettings(stage_length=1, discount=0.99),
        model=NoModelSpec(),
        agent=RawAgentSpec(**{**shared, "learning_rate": 3e-4}, network_size="paper"),
    )


def atari_small() -> RunSettings:
    """A game on a laptop: 48x48 gray pixels and small networks, --environment.game NAME."""
    return RunSettings(
        real_steps=1_000_000,
        num_envs=32,
        exploration_steps=8_000,
        exploration_length=250,
        exploration_ratio=3.0,
        environment=AtariSpec(size=48, colours="gray"),
        search=SearchSettings(stage_length=5, max_depth=4, discount=0.99, observe=TREE_AND_REAL_STATE),
        model=DualModelSpec(
            size="image-small-stacked", state_loss="l2", training=PICTURE_TRAINING, replay_capacity=50_000
        ),
        agent=ThinkerAgentSpec(
            tree_encoder="per-action",
            tree_mask_probability=0.1,
            learning_rate=5e-4,
            unroll_stages=20,
            batch_size=8,
            trace_decay=0.95,
        ),
        evaluation=EvaluationSettings(episodes=20, num_envs=20),
        checkpoint_minutes=5.0,
    )


def atari_small_raw() -> RunSettings:
    """The baseline of `atari-small`: the same actor-critic on the raw MDP, without a model."""
    return dataclasses.replace(
        atari_small(),
        exploration_steps=0,
        search=SearchSettings(stage_length=1, discount=0.99),
        model=NoModelSpec(),
        agent=RawAgentSpec(learning_rate=5e-4, unroll_stages=40, batch_size=8, trace_decay=0.95),
    )


ARCADE_PRESETS: dict[str, Callable[[], RunSettings]] = {
    "minatar": minatar,
    "minatar-raw": minatar_raw,
    "atari": atari,
    "atari-raw": atari_raw,
    "atari-small": atari_small,
    "atari-small-raw": atari_small_raw,
}
