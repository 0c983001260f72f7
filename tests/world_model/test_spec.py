"""The specs: what each of them builds, what the command line shows of them, and wrong choices."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

import gymnasium as gym
import numpy as np
import pytest
import torch
import tyro
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv

from tests.world_model.networks_support import KINDS, random_observations
from thinker.envs.sokoban.vector_env import SokobanVectorEnv
from thinker.errors import UnsupportedError, UserError
from thinker.interfaces import NO_ACTION, WorldModel
from thinker.nn.sizes import ImageSize, TilesSize, VectorSize
from thinker.world_model import (
    BoardModelSpec,
    BuiltModel,
    DualModelSpec,
    LearnedValuesSimulatorSpec,
    ModelSpec,
    NoModelSpec,
    SimulatorSpec,
    SingleModelSpec,
    TrainerSettings,
)
from thinker.world_model.board_model import BoardModel
from thinker.world_model.build import build_board, build_dual, build_single, build_value_policy
from thinker.world_model.simulator import EnvSimulator
from thinker.world_model.spec import ModelContext

SMALL = VectorSize(channels=8)
CPU = torch.device("cpu")
SPECS = {
    "dual-feature": DualModelSpec(size=SMALL),
    "dual-l2": DualModelSpec("l2", size=SMALL),
    "dual-none": DualModelSpec("none", size=SMALL),
    "single-l2": SingleModelSpec(size=SMALL),
    "single-none": SingleModelSpec("none", size=SMALL),
    "simulator": SimulatorSpec(),
    "learned-values": LearnedValuesSimulatorSpec(size=SMALL),
    "none": NoModelSpec(),
}


def cart_poles(num_envs: int = 3) -> SyncVectorEnv:
    envs = SyncVectorEnv([lambda: gym.make("CartPole-v1")] * num_envs)
    envs.reset(seed=0)
    return envs


def built(spec: ModelSpec, **changes) -> BuiltModel:
    env = gym.make("CartPole-v1")
    arguments = {"num_envs": 3, "discount": 0.9, "total_transitions": None, "seed": 4, "device": CPU, **changes}
    return spec.build(ModelContext(env.observation_space, env.action_space, **arguments))


@pytest.mark.parametrize("name", SPECS)
def test_every_spec_builds_a_model_of_its_environments(name: str) -> None:
    spec, envs = SPECS[name], cart_poles()
    model = built(spec).for_envs(envs, predict_states=True)
    assert isinstance(model, WorldModel)
    assert model.num_actions == 2
    assert model.device == CPU
    observation = torch.from_numpy(envs.reset(seed=0)[0])
    root = model.root(observation, torch.full((3,), NO_ACTION))
    assert root.policy.tolist() == [[0.5, 0.5]] * 3
    assert root.value.tolist() == [0, 0, 0]
    if isinstance(spec, NoModelSpec):
        with pytest.raises(RuntimeError, match="nothing to unroll"):
            model.unroll(root.hidden, torch.zeros(3, dtype=torch.int64))
    else:
        node = model.unroll(root.hidden, torch.tensor([0, 1, 0]))
        assert (node.state is not None) == spec.predicts_states


@pytest.mark.parametrize("name", SPECS)
def test_only_what_is_learned_has_a_trainer(name: str) -> None:
    trainer = built(SPECS[name]).trainer
    assert (trainer is None) == (name in ("simulator", "none"))


@pytest.mark.parametrize(
    ("name", "build"),
    [
        ("dual-feature", lambda space, **options: build_dual(space, 2, **options)),
        ("dual-l2", lambda space, **options: build_dual(space, 2, state_loss="l2", **options)),
        ("dual-none", lambda space, **options: build_dual(space, 2, state_loss="none", **options)),
        ("single-l2", lambda space, **options: build_single(space, 2, **options)),
        ("single-none", lambda space, **options: build_single(space, 2, state_loss="none", **options)),
        ("learned-values", lambda space, **options: build_value_policy(space, 2, **options)),
    ],
)
def test_the_network_is_that_of_the_spec_and_of_the_seed(name: str, build) -> None:
    trainer = built(SPECS[name]).trainer
    expected = build(gym.make("CartPole-v1").observation_space, size=SMALL, seed=4)
    assert type(trainer.network) is type(expected)
    found = trainer.network.state_dict()
    assert found.keys() == expected.state_dict().keys()
    assert all(torch.equal(found[key], value) for key, value in expected.state_dict().items())


def test_the_settings_arrive_at_replay_and_trainer() -> None:
    training = TrainerSettings(unroll_length=3, return_length=8, priority_exponent=0.1)
    trainer = built(DualModelSpec(size=SMALL, replay_capacity=301, training=training), total_transitions=9_000).trainer
    replay = trainer.replay
    assert (replay.capacity, replay.num_envs, replay.discount) == (300, 3, 0.9)
    assert (replay.unroll_length, replay.return_length, replay.priority_exponent) == (3, 8, 0.1)
    assert trainer.settings == training
    assert trainer.total_transitions == 9_000


@pytest.mark.parametrize(
    ("shape", "frame_stack"),
    [((12, 32, 32), 4), ((32, 32, 12), 1)],  # where channels come last, frames do not follow each other in memory
)
def test_stacked_frames_are_kept_once_where_they_follow_each_other(shape: tuple[int, ...], frame_stack: int) -> None:
    spec = DualModelSpec(size=ImageSize(channels=2, unroll_blocks=1, stacked_frames=4), replay_capacity=60)
    arguments = {"num_envs": 1, "discount": 0.9, "total_transitions": None, "seed": 0, "device": CPU}
    model = spec.build(ModelContext(spaces.Box(0, 255, shape, np.uint8), spaces.Discrete(3), **arguments))
    assert model.trainer.replay.frame_stack == frame_stack


@pytest.mark.parametrize("name", ["dual-feature", "dual-l2", "single-l2"])
def test_all_models_of_one_build_share_its_weights_and_differ_in_the_states_they_give(name: str) -> None:
    model = built(SPECS[name])
    one, other = model.for_envs(cart_poles()), model.for_envs(cart_poles(5), predict_states=True)
    with torch.no_grad():
        for parameter in model.trainer.network.parameters():
            parameter.add_(0.1)
    model.trainer.publish()
    observation = torch.zeros(4, 4)
    action = torch.tensor([0, 1, 1, 0])
    nodes = [each.unroll(each.root(observation, action).hidden, action) for each in (one, other)]
    assert nodes[0].state is None
    assert nodes[1].state is not None
    assert nodes[0].value.all()
    assert torch.equal(nodes[0].value, nodes[1].value)


# ------------------------------------------------------------------------------------------------------ boards

SMALL_BOARD = TilesSize(channels=8, state_reward_channels=8)
BOARD_SPECS = {
    "cross-entropy": BoardModelSpec(size=SMALL_BOARD),
    "feature": BoardModelSpec(state_loss="feature", size=SMALL_BOARD),
    "symmetries": BoardModelSpec(augmentation="symmetries", size=SMALL_BOARD),
    "default": BoardModelSpec(),
}


def sokobans(num_envs: int = 3, **options) -> SokobanVectorEnv:
    envs = SokobanVectorEnv(num_envs, size=6, boxes=1, max_steps=9, **options)
    envs.reset(seed=0)
    return envs


def built_for_boards(spec: ModelSpec, envs: SokobanVectorEnv) -> BuiltModel:
    spaces_ = envs.single_observation_space, envs.single_action_space
    arguments = {"num_envs": 3, "discount": 0.9, "total_transitions": None, "seed": 4, "device": CPU}
    return spec.build(ModelContext(*spaces_, board=envs.metadata.get("board"), **arguments))


@pytest.mark.parametrize("name", BOARD_SPECS)
def test_the_spec_for_boards_builds_its_network_and_a_model_with_a_table(name: str) -> None:
    spec, envs = BOARD_SPECS[name], sokobans()
    model = built_for_boards(spec, envs)
    expected = build_board(
        envs.single_observation_space,
        5,
        state_loss=spec.state_loss,
        size=spec.size,
        board=envs.metadata["board"],
        seed=4,
    )
    found = model.trainer.network.state_dict()
    assert found.keys() == expected.state_dict().keys()
    assert all(torch.equal(found[key], value) for key, value in expected.state_dict().items())
    assert spec.predicts_states
    observation = torch.from_numpy(envs.reset(seed=0)[0])
    for predict_states in (False, True):
        acting = model.for_envs(envs, predict_states=predict_states)
        assert isinstance(acting, BoardModel)
        assert isinstance(acting, WorldModel)
        root = acting.root(observation, torch.full((3,), NO_ACTION))
        assert root.policy.tolist() == [[pytest.approx(0.2)] * 5] * 3
        assert root.value.tolist() == [0, 0, 0]
        node = acting.unroll(root.hidden, torch.tensor([0, 1, 4]))
        assert (node.state is not None) == predict_states


def test_all_board_models_of_one_build_use_what_its_trainer_publishes() -> None:
    envs = sokobans()
    model = built_for_boards(BOARD_SPECS["cross-entropy"], envs)
    one, other = model.for_envs(envs), model.for_envs(envs, predict_states=True)
    observation, action = torch.from_numpy(envs.reset(seed=0)[0]), torch.tensor([0, 1, 4])

    def values(each: WorldModel) -> torch.Tensor:
        return each.unroll(each.root(observation, action).hidden, action).value

    assert not values(one).any()
    with torch.no_grad():
        for parameter in model.trainer.network.parameters():
            parameter.add_(0.1)
    model.trainer.publish()
    assert values(one).all()
    assert torch.equal(values(one), values(other))


def test_only_boards_have_a_model_for_boards() -> None:
    message = r"networks for boards need .* boards of 0s and 1s, which Box\(.* are not; use a preset with another model"
    with pytest.raises(UnsupportedError, match=message):
        built(BoardModelSpec())
    for size in ("board", None):
        with pytest.raises(UnsupportedError, match=message):
            built_for_boards(BoardModelSpec(size=size), sokobans(observation="rgb"))
    with pytest.raises(UnsupportedError, match=message):
        built(LearnedValuesSimulatorSpec(network="board"))
    with pytest.raises(UserError, match="network='round': must be one of dual, board"):
        LearnedValuesSimulatorSpec(network="round")


@pytest.mark.parametrize("spec", [BoardModelSpec, DualModelSpec, SingleModelSpec, LearnedValuesSimulatorSpec])
def test_symmetries_of_boards_that_declare_none_are_refused(spec) -> None:
    envs = sokobans()
    envs.metadata = {name: value for name, value in envs.metadata.items() if name != "board"}
    with pytest.raises(UserError, match="do not declare the symmetries of a square board"):
        built_for_boards(spec(augmentation="symmetries"), envs)


# ------------------------------------------------------------------------------------------------------- all kinds


def test_a_simulator_with_learned_values_uses_what_its_trainer_publishes() -> None:
    model = built(SPECS["learned-values"])
    one, other = model.for_envs(cart_poles()), model.for_envs(cart_poles())
    assert isinstance(one, EnvSimulator)
    with torch.no_grad():
        for parameter in model.trainer.network.parameters():
            parameter.add_(0.1)
    model.trainer.publish()
    observation = torch.zeros(3, 4)
    roots = [each.root(observation, torch.full((3,), NO_ACTION)) for each in (one, other)]
    assert roots[0].value.all()
    assert torch.equal(roots[0].value, roots[1].value)


@pytest.mark.parametrize("name", ["dual-feature", "single-l2", "learned-values", "none"])
def test_actions_that_are_not_discrete_are_refused(name: str) -> None:
    arguments = {"num_envs": 1, "discount": 0.9, "total_transitions": None, "seed": 0, "device": CPU}
    with pytest.raises(UnsupportedError, match="needs a Discrete action space, not Box"):
        SPECS[name].build(ModelContext(spaces.Box(-1, 1, (3,)), spaces.Box(-1, 1, (2,)), **arguments))


def test_unknown_sizes_are_refused_before_anything_is_built() -> None:
    with pytest.raises(UserError, match="unknown size 'huge'; choose one of paper, paper-stacked, image-small, "):
        DualModelSpec(size="huge")


@dataclass(frozen=True)
class Choice:
    model: (
        DualModelSpec | SingleModelSpec | BoardModelSpec | SimulatorSpec | LearnedValuesSimulatorSpec | NoModelSpec
    ) = field(default_factory=DualModelSpec)


def test_the_command_line_chooses_the_spec_and_its_options() -> None:
    def chosen(*words: str, default: Choice | None = None) -> ModelSpec:
        return tyro.cli(Choice, args=words, default=default or Choice()).model

    assert chosen() == DualModelSpec()
    assert chosen("model:no-model-spec") == NoModelSpec()
    assert chosen("model:dual-model-spec", "--model.size", "paper") == DualModelSpec(size="paper")
    assert chosen("model:single-model-spec", "--model.state-loss", "none") == SingleModelSpec("none")
    found = chosen("model:board-model-spec", "--model.state-loss", "feature", "--model.augmentation", "symmetries")
    assert found == BoardModelSpec(state_loss="feature", augmentation="symmetries")
    found = chosen("model:learned-values-simulator-spec", "--model.training.batch-size", "7")
    assert found == LearnedValuesSimulatorSpec(training=TrainerSettings(batch_size=7))
    own = Choice(DualModelSpec(size=TilesSize(channels=9)))
    assert chosen(default=own) == own.model
    assert chosen("model:dual-model-spec", "--model.size", "None", default=own) == DualModelSpec()


def test_the_command_line_explains_sizes_and_refuses_unknown_ones(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        tyro.cli(DualModelSpec, args=["--size", "huge"], default=DualModelSpec())
    assert "unknown size 'huge'" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        tyro.cli(DualModelSpec, args=["--help"], default=DualModelSpec())
    shown = capsys.readouterr().out
    assert "--size None|paper|paper-stacked|image-small|" in shown
    assert "chosen from the observation space" in " ".join(shown.replace("│", " ").split())


def test_specs_can_be_changed_and_compared() -> None:
    spec = DualModelSpec(size="tiles")
    assert dataclasses.replace(spec, size=None) == DualModelSpec()
    assert hash(spec) == hash(DualModelSpec(size="tiles"))


def test_models_of_every_kind_of_observation_are_built() -> None:
    for space, size in KINDS.values():
        arguments = {"num_envs": 2, "discount": 0.9, "total_transitions": None, "seed": 0, "device": CPU}
        model = DualModelSpec(size=size, replay_capacity=100).build(
            ModelContext(space, spaces.Discrete(3), **arguments)
        )
        observation = random_observations(space, (2,), np.random.default_rng(0))
        model.for_envs(None).root(observation, torch.tensor([0, NO_ACTION]))
