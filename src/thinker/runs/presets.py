"""Named runs: each preset is a function that returns the settings of one run."""

from __future__ import annotations

import dataclasses
import difflib
import json
import shlex
from collections.abc import Callable, Mapping
from typing import Any

from thinker.agents import (
    ATreeCSpec,
    DRCSpec,
    I2ASpec,
    RawAgentSpec,
    ResNetSpec,
    ThinkerAgentSpec,
    VINSpec,
    paper_settings,
)
from thinker.envs.gymnasium import GymnasiumSpec
from thinker.envs.sokoban.spec import SokobanSpec
from thinker.errors import UserError
from thinker.planners import GumbelMCTSSpec, MCTSSpec
from thinker.runs.arcade import ARCADE_PRESETS
from thinker.runs.settings import EvaluationSettings, RunSettings, SearchSettings
from thinker.world_model.spec import (
    BoardModelSpec,
    DualModelSpec,
    LearnedValuesSimulatorSpec,
    NoModelSpec,
    SingleModelSpec,
)
from thinker.world_model.trainer import TrainerSettings, board_settings

DEFAULT_PRESET = "sokoban-quick"
SIMULATOR_PRESET = "sokoban-simulator"
"""The preset of experiments with the true dynamics as the model."""

SEQUENCE_TRAINING = dataclasses.replace(
    board_settings(), replay_ratio=4.0, warm_up_transitions=2_000, return_length=30, priority_exponent=0.0
)
"""Training of recurrent world models for small boards on a laptop, in a run of a few 100,000 steps."""
BOARD_TRAINING = dataclasses.replace(
    SEQUENCE_TRAINING,
    unroll_length=1,  # boards need no sequences, and states of different episodes teach more
    batch_size=160,
    state_reward_learning_rate=1e-2,
    state_loss_scale=100.0,
    value_loss_scale=0.1,
    state_reward_interval=4,  # random play has taught it nearly everything
)
"""The same for `BoardModelSpec`."""
RAW_LEARNER: Mapping[str, Any] = {
    "unroll_stages": 20,
    "batch_size": 16,
    "trace_decay": 0.95,
    "real_entropy_cost": 2e-2,
}
"""What the learners of all agents in the raw MDP of small boards have in common."""
DEEP_LEARNER: Mapping[str, Any] = {**RAW_LEARNER, "epochs": 1, "adam_beta_2": 0.99, "adam_epsilon": 5e-4}
"""The same for DRC and ResNet. As with their authors, Adam's epsilon has the size of typical gradients: weights whose
gradients are mostly noise then move little, without which ResNet's features explode."""
MUZERO_TRAINING = dataclasses.replace(
    SEQUENCE_TRAINING,
    # Without predicted states, rare rewards alone teach the dynamics: more updates, and more of them on surprises.
    replay_ratio=16.0,
    batch_size=64,
    priority_exponent=0.6,
    learning_rate=2e-3,
    return_length=10,  # beyond it, the search's values
    value_loss_scale=0.25,  # of cross-entropies
)
"""The same for MuZero's model, with categorical values and rewards."""
VECTOR_TRAINING = dataclasses.replace(
    board_settings(),
    state_reward_learning_rate=1e-3,
    value_policy_learning_rate=2e-3,
    priority_exponent=0.6,
    state_loss_scale=128.0,
    value_loss_scale=0.25,
    replay_ratio=4.0,
    warm_up_transitions=2_000,
)
"""Training of a world model for short vectors on a laptop."""


def sokoban_quick() -> RunSettings:
    """7x7 boards with one box, the learned model, from scratch: about three minutes on two cores."""
    return RunSettings(
        real_steps=120_000,
        annealing_steps=300_000,  # learning is still fast at the end
        num_envs=128,
        exploration_steps=12_000,
        # Half as long as in evaluations: a new level teaches more than the rest of an episode whose box is stuck.
        environment=SokobanSpec(size=7, boxes=1, max_steps=30, held_out_max_steps=60),
        # Solutions are short. With a larger discount, values hardly tell progress from waiting.
        search=SearchSettings(stage_length=8, max_depth=5, discount=0.93, observe=("tree", "hidden", "root_hidden")),
        # A small replay soon drops the transitions of the agent's first, bad policies.
        model=BoardModelSpec(training=BOARD_TRAINING, replay_capacity=20_000, augmentation="symmetries"),
        agent=ThinkerAgentSpec(
            tree_encoder="per-action",
            tree_mask_probability=0.1,
            unroll_stages=8,
            batch_size=16,
            real_entropy_cost=2e-2,
        ),
    )


def sokoban() -> RunSettings:
    """7x7 boards with two boxes: about half an hour on two cores."""
    return dataclasses.replace(
        sokoban_quick(),
        real_steps=1_000_000,
        annealing_steps=None,
        environment=SokobanSpec(size=7, boxes=2, max_steps=30, held_out_max_steps=60),
    )


def sokoban_raw() -> RunSettings:
    """The baseline of `sokoban-quick`: the same actor-critic on the raw MDP, without a model."""
    return dataclasses.replace(
        sokoban_quick(),
        exploration_steps=0,
        real_steps=700_000,
        annealing_steps=None,
        search=SearchSettings(stage_length=1, discount=0.93),
        model=NoModelSpec(),
        agent=RawAgentSpec(network_size="board", learning_rate=3e-3, epochs=3, **RAW_LEARNER),
    )


def sokoban_drc() -> RunSettings:
    """DRC(3, 3) on the levels of `sokoban-quick`, without a model."""
    agent = DRCSpec(learning_rate=3e-3, **DEEP_LEARNER)
    return dataclasses.replace(sokoban_raw(), agent=agent)


def sokoban_resnet() -> RunSettings:
    """The residual network of DRC's authors on the levels of `sokoban-quick`, without a model."""
    agent = ResNetSpec(learning_rate=1e-3, **DEEP_LEARNER)
    return dataclasses.replace(sokoban_raw(), agent=agent)


def sokoban_vin() -> RunSettings:
    """A value iteration network on the levels of `sokoban-quick`, without a model."""
    return dataclasses.replace(sokoban_raw(), agent=VINSpec(learning_rate=3e-3, epochs=3, **RAW_LEARNER))


def sokoban_i2a() -> RunSettings:
    """I2A on the levels of `sokoban-quick`: the actor-critic of `sokoban-raw` with rollouts imagined in a model."""
    training = dataclasses.replace(BOARD_TRAINING, replay_ratio=0.5, state_reward_interval=1)
    return dataclasses.replace(
        sokoban_raw(),
        exploration_steps=12_000,  # of random play, which teaches the model nearly everything
        model=BoardModelSpec(training=training, replay_capacity=20_000, augmentation="symmetries"),
        agent=I2ASpec(network_size="board", rollout_width=64, learning_rate=3e-3, epochs=3, **RAW_LEARNER),
    )


def sokoban_atreec() -> RunSettings:
    """ATreeC on the levels of `sokoban-quick`: the actor-critic of `sokoban-raw` with a tree inside its network."""
    agent = ATreeCSpec(network_size="board", learning_rate=1e-3, epochs=3, **RAW_LEARNER)
    return dataclasses.replace(sokoban_raw(), agent=agent)


def sokoban_simulator() -> RunSettings:
    """`sokoban-quick` with the perfect simulator as its model and a learned base policy and value."""
    training = dataclasses.replace(BOARD_TRAINING, state_reward_interval=1)  # there is no such half
    model = LearnedValuesSimulatorSpec(
        network="board", training=training, replay_capacity=20_000, augmentation="symmetries"
    )
    return dataclasses.replace(sokoban_quick(), model=model, exploration_steps=0)


def sokoban_dual() -> RunSettings:
    """`sokoban-quick` with the paper's recurrent dual network, which does not assume that boards are whole states."""
    model = DualModelSpec(training=SEQUENCE_TRAINING, replay_capacity=20_000, augmentation="symmetries")
    return dataclasses.replace(sokoban_quick(), model=model)


def sokoban_single() -> RunSettings:
    """`sokoban-dual` with one network for everything instead of the dual network, an ablation of the paper."""
    model = SingleModelSpec(training=SEQUENCE_TRAINING, replay_capacity=20_000, augmentation="symmetries")
    return dataclasses.replace(sokoban_quick(), model=model)


def sokoban_muzero() -> RunSettings:
    """MuZero on the levels of `sokoban-quick`: Monte Carlo tree search in a single network that predicts no states."""
    return dataclasses.replace(
        sokoban_quick(),
        search=SearchSettings(stage_length=1, discount=0.93),
        model=SingleModelSpec(
            state_loss="none",
            value_head="categorical",
            support_size=51,  # h(x) of returns up to 12 is below 3; bins at distances of 0.2
            support_limit=5.0,
            training=MUZERO_TRAINING,
            replay_capacity=20_000,
            augmentation="symmetries",
        ),
        agent=MCTSSpec(simulations=24),
    )


def sokoban_muzero_board() -> RunSettings:
    """`sokoban-muzero` with the model of `sokoban-quick`, which predicts boards: the same model for both searches."""
    return dataclasses.replace(sokoban_muzero(), model=sokoban_quick().model)


def sokoban_muzero_simulator() -> RunSettings:
    """`sokoban-muzero` with the perfect simulator as its model and a learned base policy and value."""
    return dataclasses.replace(sokoban_muzero(), model=sokoban_simulator().model, exploration_steps=0)


def sokoban_gumbel() -> RunSettings:
    """`sokoban-muzero` with Gumbel MuZero's search, which needs fewer simulations."""
    return dataclasses.replace(sokoban_muzero(), agent=GumbelMCTSSpec(simulations=8))


def sokoban_gumbel_board() -> RunSettings:
    """`sokoban-gumbel` with the model of `sokoban-quick`, which predicts boards: the same model for both searches."""
    return dataclasses.replace(sokoban_gumbel(), model=sokoban_quick().model)


def boxoban() -> RunSettings:
    """Boxoban levels, 10x10 with four boxes, as tiles. Needs the level files: --environment.levels FOLDER."""
    return dataclasses.replace(
        sokoban(),
        real_steps=2_500_000,
        annealing_steps=None,
        exploration_steps=20_000,
        environment=SokobanSpec(
            size=10,
            boxes=(1, 4),
            reverse_moves=(1, 10),
            levels="boxoban/unfiltered/train",
            generated_share=0.5,  # easier levels, which give the first rewards
            augmentation="symmetries",
            max_steps=80,
            held_out_max_steps=120,
        ),
        search=dataclasses.replace(sokoban().search, stage_length=10, discount=0.95),
        model=BoardModelSpec(training=BOARD_TRAINING, replay_capacity=40_000, augmentation="symmetries"),
        evaluation=EvaluationSettings(episodes=1000),
    )


def boxoban_drc() -> RunSettings:
    """DRC(3, 3) on the levels of `boxoban`, without a model."""
    return dataclasses.replace(
        boxoban(),
        exploration_steps=0,
        search=SearchSettings(stage_length=1, discount=0.95),
        model=NoModelSpec(),
        agent=DRCSpec(learning_rate=3e-3, **DEEP_LEARNER),
    )


def boxoban_resnet() -> RunSettings:
    """The residual network of DRC's authors on the levels of `boxoban`, without a model."""
    agent = ResNetSpec(learning_rate=1e-3, **DEEP_LEARNER)
    return dataclasses.replace(boxoban_drc(), agent=agent)


def boxoban_paper() -> RunSettings:
    """The paper's experiment: 80x80 pixels, K = 20, its networks and hyperparameters, 5e7 steps."""
    return RunSettings(
        real_steps=50_000_000,
        num_envs=64,
        environment=SokobanSpec(size=10, boxes=4, levels="boxoban/unfiltered/train", observation="rgb", max_steps=120),
        search=SearchSettings(stage_length=20, max_depth=5, discount=0.97),
        model=DualModelSpec(size="paper", training=TrainerSettings(warm_up_transitions=200_000)),
        agent=paper_settings(),
        evaluation=EvaluationSettings(episodes=1000),
        log_every=50_000,
        checkpoint_minutes=30.0,
    )


def cartpole() -> RunSettings:
    """CartPole-v1 with a learned model of its four numbers."""
    return RunSettings(
        real_steps=60_000,
        num_envs=32,
        environment=GymnasiumSpec(id="CartPole-v1"),
        search=SearchSettings(stage_length=4, max_depth=3, discount=0.99),
        model=DualModelSpec(training=VECTOR_TRAINING),
        agent=ThinkerAgentSpec(unroll_stages=16, batch_size=8),
        evaluation=EvaluationSettings(episodes=64),
    )


def gymnasium() -> RunSettings:
    """Any Gymnasium environment: --environment.id ID, or MODULE:ID; its observations determine the networks."""
    return dataclasses.replace(cartpole(), real_steps=100_000, environment=GymnasiumSpec())


def gymnasium_raw() -> RunSettings:
    """The baseline of `gymnasium`: the same actor-critic on the raw MDP, without a model."""
    return dataclasses.replace(
        gymnasium(),
        search=SearchSettings(stage_length=1, discount=0.99),
        model=NoModelSpec(),
        agent=RawAgentSpec(unroll_stages=20, batch_size=8, trace_decay=0.95),
    )


PRESETS: dict[str, Callable[[], RunSettings]] = {
    "sokoban-quick": sokoban_quick,
    "sokoban": sokoban,
    "sokoban-raw": sokoban_raw,
    "sokoban-drc": sokoban_drc,
    "sokoban-resnet": sokoban_resnet,
    "sokoban-vin": sokoban_vin,
    "sokoban-i2a": sokoban_i2a,
    "sokoban-atreec": sokoban_atreec,
    "sokoban-simulator": sokoban_simulator,
    "sokoban-dual": sokoban_dual,
    "sokoban-single": sokoban_single,
    "sokoban-muzero": sokoban_muzero,
    "sokoban-muzero-board": sokoban_muzero_board,
    "sokoban-muzero-simulator": sokoban_muzero_simulator,
    "sokoban-gumbel": sokoban_gumbel,
    "sokoban-gumbel-board": sokoban_gumbel_board,
    "boxoban": boxoban,
    "boxoban-drc": boxoban_drc,
    "boxoban-resnet": boxoban_resnet,
    "boxoban-paper": boxoban_paper,
    **ARCADE_PRESETS,
    "cartpole": cartpole,
    "gymnasium": gymnasium,
    "gymnasium-raw": gymnasium_raw,
}


def preset(name: str) -> RunSettings:
    """The settings of the preset ``name``."""
    if name not in PRESETS:
        near = difflib.get_close_matches(name, PRESETS, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise UserError(f"unknown preset {name!r}; {hint}presets are {', '.join(PRESETS)}")
    return PRESETS[name]()


def training_command(preset_name: str, settings: RunSettings) -> str:
    """The `thinker train` command of a run: its preset, and every setting that differs from it."""
    words = ["thinker train", preset_name]

    def compare(mine: dict[str, Any], default: dict[str, Any], prefix: str) -> None:
        for name, value in mine.items():
            option = f"{prefix}{name.replace('_', '-')}"
            if value == default.get(name):
                continue
            if isinstance(value, dict) and option != "environment.options":
                compare(value, default[name], f"{prefix}{name}.")
            elif isinstance(value, bool):
                words.append(f"--{prefix}{'' if value else 'no-'}{name.replace('_', '-')}")
            elif isinstance(value, dict):
                words.append(f"--{option} {shlex.quote(json.dumps(value))}")
            else:
                items = value if isinstance(value, (list, tuple)) else [value]
                words.append(" ".join([f"--{option}", *(shlex.quote(str(item)) for item in items)]))

    compare(settings.to_dict(), preset(preset_name).to_dict(), "")
    return " ".join(words)
