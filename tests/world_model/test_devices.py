"""On a (pretended) GPU everything computes there, from the same first weights, and learns what the CPU learns."""

from __future__ import annotations

import copy

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv

from tests.fake_device import fake_cuda
from tests.world_model.networks_support import KINDS, NUM_ACTIONS, random_observations
from thinker.interfaces import NO_ACTION, RealTransition
from thinker.nn.sizes import TilesSize, VectorSize
from thinker.world_model import (
    BoardModelSpec,
    DualModelSpec,
    LearnedValuesSimulatorSpec,
    NoModelSpec,
    SingleModelSpec,
    TrainerSettings,
)
from thinker.world_model.spec import ModelContext
from thinker.world_model.trainer import ModelTrainer

NUM_ENVS = 2
TRAINING = TrainerSettings(batch_size=2, unroll_length=2, warm_up_transitions=12, replay_ratio=1, learning_rate=1e-3)
SPECS = {
    "dual-feature": DualModelSpec,
    "dual-l2": lambda **options: DualModelSpec("l2", **options),
    "single-l2": SingleModelSpec,
    "single-none": lambda **options: SingleModelSpec("none", **options),
    "learned-values": LearnedValuesSimulatorSpec,
    "board": BoardModelSpec,
}
BOARDS = [kind for kind, (_, size) in KINDS.items() if isinstance(size, TilesSize)]
CASES = [(name, kind) for name in SPECS for kind in (BOARDS if name == "board" else KINDS)]


def build(name: str, kind: str, device: str):
    space, size = KINDS[kind]
    spec = SPECS[name](size=size, precision="float32", replay_capacity=100, training=TRAINING)
    arguments = {"num_envs": NUM_ENVS, "discount": 0.9, "total_transitions": 100, "seed": 3}
    return spec.build(ModelContext(space, spaces.Discrete(NUM_ACTIONS), device=torch.device(device), **arguments))


def collect(trainer: ModelTrainer, kind: str, steps: int, seed: int = 0) -> None:
    """Random transitions in episodes of one step."""
    space, random = KINDS[kind][0], np.random.default_rng(seed)
    ones, zeros = np.ones(NUM_ENVS, bool), np.zeros(NUM_ENVS, np.float32)
    for _ in range(steps):
        observation, after = (random_observations(space, (NUM_ENVS,), random).numpy() for _ in range(2))
        if kind.endswith("stacked"):
            after[:, :-1] = observation[:, 1:]
        trainer.add(
            RealTransition(
                observation=observation,
                action=random.integers(0, NUM_ACTIONS, NUM_ENVS),
                policy=None,
                root_value=zeros,
                reward=random.normal(size=NUM_ENVS).astype(np.float32),
                terminated=ones,
                truncated=~ones,
                next_observation=after,
                final_value=zeros,
                valid=ones,
            )
        )


def weights(trainer: ModelTrainer) -> dict[str, torch.Tensor]:
    return {name: value.cpu().clone() for name, value in trainer.network.state_dict().items()}


def assert_same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_models_are_built_and_trained_on_their_device_as_on_the_cpu(name: str, kind: str) -> None:
    expected = build(name, kind, "cpu").trainer
    first = weights(expected)
    collect(expected, kind, 10)
    assert expected.trained_transitions > 0
    with fake_cuda():
        trainer = build(name, kind, "cuda").trainer
        assert all(tensor.is_cuda for tensor in (*trainer.network.parameters(), *trainer.network.buffers()))
        assert_same(weights(trainer), first)
        collect(trainer, kind, 10)
        assert_same(weights(trainer), weights(expected))
        assert trainer.metrics == expected.metrics


@pytest.mark.parametrize("name", ["dual-feature", "single-l2", "single-none"])
@pytest.mark.parametrize("kind", KINDS)
def test_acting_models_act_on_their_device_as_on_the_cpu(name: str, kind: str) -> None:
    def walk(device: str) -> list[torch.Tensor]:
        built = build(name, kind, device)
        collect(built.trainer, kind, 10)
        model = built.for_envs(None, predict_states=True)
        assert model.device.type == device
        observation = random_observations(KINDS[kind][0], (3,), np.random.default_rng(1)).to(device)
        action = torch.tensor([0, 1, 2], device=device)
        root = model.root(observation, torch.tensor([NO_ACTION, 0, 1], device=device))
        node = model.unroll(root.hidden, action)
        said = [value for output in (root, node) for value in vars(output).values() if value is not None]
        said.append(model.visible_hidden(node.hidden))
        assert all(tensor.device.type == device for tensor in said)
        return [tensor.cpu() for tensor in said]

    expected = walk("cpu")
    with fake_cuda():
        found = walk("cuda")
        assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


@pytest.mark.parametrize("kind", BOARDS)
def test_board_models_compute_on_their_device_and_answer_on_the_cpu(kind: str) -> None:
    def walk(device: str) -> list[torch.Tensor]:
        built = build("board", kind, device)
        collect(built.trainer, kind, 10)
        model = built.for_envs(None, predict_states=True)
        assert model.device.type == device
        observation = random_observations(KINDS[kind][0], (3,), np.random.default_rng(1)).to(device)
        root = model.root(observation, torch.full((3,), NO_ACTION, device=device))
        node = model.unroll(root.hidden, torch.tensor([0, 1, 2], device=device))
        moved = model.unroll(root.hidden.to(device), torch.tensor([0, 1, 2], device=device))
        said = [node.hidden, node.value, node.policy, node.reward, node.termination]
        said += [model.visible_hidden(node.hidden), moved.hidden]
        assert {tensor.device.type for tensor in said} == {"cpu"}
        assert node.state is not None
        return [*said, node.state.cpu()]

    expected = walk("cpu")
    with fake_cuda():
        assert all(torch.equal(one, other) for one, other in zip(walk("cuda"), expected, strict=True))


def test_a_trainer_on_a_device_goes_on_from_a_state_saved_on_the_cpu() -> None:
    saved = build("dual-feature", "tiles", "cpu").trainer
    collect(saved, "tiles", 10)
    state = copy.deepcopy(saved.state_dict())
    collect(saved, "tiles", 5, seed=1)
    with fake_cuda():
        trainer = build("dual-feature", "tiles", "cuda").trainer
        collect(trainer, "tiles", 7, seed=2)  # whatever was in it must not matter
        trainer.load_state_dict(state)
        collect(trainer, "tiles", 5, seed=1)
        assert_same(weights(trainer), weights(saved))


def test_learned_values_on_a_device_serve_a_simulator_on_the_cpu() -> None:
    envs = SyncVectorEnv([lambda: gym.make("CartPole-v1")] * NUM_ENVS)
    observation = torch.from_numpy(envs.reset(seed=0)[0])
    spec = LearnedValuesSimulatorSpec(size=VectorSize(channels=8))
    arguments = {"num_envs": NUM_ENVS, "discount": 0.9, "total_transitions": None, "seed": 3}
    spaces_ = envs.single_observation_space, envs.single_action_space
    with fake_cuda():
        built = spec.build(ModelContext(*spaces_, device=torch.device("cuda"), **arguments))
        assert all(parameter.is_cuda for parameter in built.trainer.network.parameters())
        model = built.for_envs(envs)
        root = model.root(observation, torch.full((NUM_ENVS,), NO_ACTION))
        node = model.unroll(root.hidden, torch.zeros(NUM_ENVS, dtype=torch.int64))
        for output in (root, node):
            assert all(tensor.device.type == "cpu" for tensor in vars(output).values())


def test_no_model_is_on_its_device() -> None:
    with fake_cuda():
        arguments = {"num_envs": 1, "discount": 0.9, "total_transitions": None, "seed": 0}
        device = torch.device("cuda")
        model = NoModelSpec().build(
            ModelContext(spaces.Box(0, 1, (3,)), spaces.Discrete(2), device=device, **arguments)
        )
        root = model.for_envs(None).root(torch.zeros(4, 3, device="cuda"), torch.zeros(4, dtype=torch.int64))
        assert all(tensor.is_cuda for tensor in vars(root).values() if tensor is not None)


def test_weights_are_drawn_on_the_cpu_whatever_the_default_device() -> None:
    expected = weights(build("dual-feature", "tiles", "cpu").trainer)
    with torch.device("meta"):
        assert_same(weights(build("dual-feature", "tiles", "cpu").trainer), expected)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device")
def test_models_train_on_a_real_gpu_nearly_as_on_the_cpu() -> None:
    for name, kind in CASES:
        expected, trainer = build(name, kind, "cpu").trainer, build(name, kind, "cuda").trainer
        assert_same(weights(trainer), weights(expected))
        for each in (expected, trainer):
            collect(each, kind, 10)
        assert trainer.trained_transitions == expected.trained_transitions > 0
        torch.testing.assert_close(weights(trainer), weights(expected), rtol=1e-2, atol=1e-2)
