"""The simulator with frozen values: the given weights, never trained, evaluated once per state and stage."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import torch

from tests.runs.support import advance, differences, engine, tiny
from thinker.errors import UserError
from thinker.interfaces import NO_ACTION
from thinker.nn.sizes import VectorSize
from thinker.runs import checkpoint
from thinker.runs.settings import settings_from_dict
from thinker.world_model import FrozenValuesSimulatorSpec, LearnedValuesSimulatorSpec
from thinker.world_model.build import build_value_policy
from thinker.world_model.frozen import FrozenModel, KnownValues, save_values
from thinker.world_model.spec import ModelContext

SMALL = VectorSize(channels=8)


def context() -> ModelContext:
    env = gym.make("CartPole-v1")
    return ModelContext(
        env.observation_space, env.action_space, 3, discount=0.9, total_transitions=None, seed=1,
        device=torch.device("cpu"),
    )  # fmt: skip


def changed_network(space: gym.Space, num_actions: int, **options):
    """A network whose policies and values are not those of a new one."""
    network = build_value_policy(space, num_actions, **options)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(len(parameter))))
    return network


@pytest.fixture
def frozen_run(tmp_path):
    """Settings of a run with frozen values, and the network that they are from."""
    learned = tiny("sokoban-simulator")
    envs = learned.environment.build(1)
    network = changed_network(
        envs.single_observation_space, 5, network=learned.model.network, board=envs.metadata["board"], seed=3
    )
    save_values(network, tmp_path / "values.safetensors")
    model = FrozenValuesSimulatorSpec.frozen(learned.model, tmp_path / "values.safetensors")
    search = dataclasses.replace(learned.search, stage_length=6, max_depth=None, observe=("tree",))
    return dataclasses.replace(learned, model=model, search=search, exploration_steps=0), network


@pytest.mark.parametrize("keep_values", ["stage", "always"])
def test_values_and_policies_are_those_of_the_source(frozen_run, keep_values):
    settings, network = frozen_run
    exact = dataclasses.replace(settings.model, precision="float32", keep_values=keep_values)
    env = engine(dataclasses.replace(settings, model=exact)).run.worker.env
    random = np.random.default_rng(0)
    output = env.root_output
    for _ in range(4):
        action = torch.from_numpy(random.integers(0, 5, env.num_envs))
        output = env.model.unroll(output.hidden, action)
        policy, value = network.evaluate(output.state, action)
        torch.testing.assert_close(output.policy, policy, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(output.value, value, atol=1e-4, rtol=1e-4)
    assert value.std() > 0


def test_training_an_agent_changes_neither_weights_nor_file(frozen_run):
    settings, network = frozen_run
    before = Path(settings.model.weights).read_bytes()
    moving = engine(settings)
    assert moving.run.trainer is None
    model = moving.run.worker.env.model
    observation = torch.from_numpy(settings.environment.build(4).reset(seed=9)[0])
    first = model.root(observation, torch.full((4,), NO_ACTION))
    agent = {name: value.clone() for name, value in moving.run.agent.network.state_dict().items()}
    advance(moving, 3)
    second = model.root(observation, torch.full((4,), NO_ACTION))
    assert torch.equal(first.value, second.value)
    assert torch.equal(first.policy, second.policy)
    assert Path(settings.model.weights).read_bytes() == before
    trained = moving.run.agent.network.state_dict()
    assert any(not torch.equal(agent[name], trained[name]) for name in agent)


def test_a_run_that_is_saved_and_loaded_ends_bit_for_bit_like_an_unbroken_one(frozen_run, tmp_path):
    settings, _ = frozen_run
    expected = advance(engine(settings), 5).run.state_dict()
    first = advance(engine(settings), 2).run
    checkpoint.save(tmp_path / "saved", first.real_steps, first.state_dict())
    second = advance(engine(settings), 1)  # whatever it has done before must not matter
    second.run.load_state_dict(checkpoint.load_latest(tmp_path / "saved")[1])
    assert differences(advance(second, 3).run.state_dict(), expected) == []


def test_the_settings_survive_a_round_trip(frozen_run):
    settings, _ = frozen_run
    assert settings_from_dict(settings.to_dict()) == settings
    assert settings.to_dict()["model"]["type"] == "simulator-frozen-values"


def test_a_spec_takes_over_what_determines_the_network(tmp_path):
    learned = LearnedValuesSimulatorSpec(size=SMALL, value_head="categorical", support_size=11, support_limit=2.0)
    spec = FrozenValuesSimulatorSpec.frozen(learned, tmp_path / "x")
    network = build_value_policy(context().observation_space, 2, size=SMALL, head=learned.head())
    save_values(network, tmp_path / "x")
    spec.build(context())
    with pytest.raises(UserError, match="do not fit"):
        dataclasses.replace(spec, support_size=13).build(context())


@pytest.mark.parametrize("weights", ["", "nowhere.safetensors"])
def test_a_missing_file_is_an_error(weights):
    with pytest.raises(UserError, match="there is no such file"):
        FrozenValuesSimulatorSpec(weights=weights, size=SMALL).build(context())


def test_a_file_that_is_no_safetensors_file_is_an_error_and_is_not_executed(tmp_path):
    path = tmp_path / "weights.pt"
    torch.save({"a": torch.zeros(1)}, path)
    with pytest.raises(UserError, match="cannot be read as a safetensors file"):
        FrozenValuesSimulatorSpec(weights=str(path), size=SMALL).build(context())


def test_weights_of_another_network_are_an_error_that_names_the_first_difference(tmp_path):
    network = build_value_policy(context().observation_space, 3, size=SMALL)
    save_values(network, tmp_path / "three-actions")
    with pytest.raises(UserError, match=r"do not fit .* has the shape \(.*\) in the file, but must have \("):
        FrozenValuesSimulatorSpec(weights=str(tmp_path / "three-actions"), size=SMALL).build(context())


def test_wrong_settings_of_the_network_are_an_error():
    with pytest.raises(UserError, match="value_head"):
        FrozenValuesSimulatorSpec(value_head="round")
    with pytest.raises(UserError, match="keep_values is 'never'; it must be 'stage' or 'always'"):
        FrozenValuesSimulatorSpec(keep_values="never")


@pytest.mark.parametrize("keep_values", ["stage", "always"])
def test_values_are_kept_for_a_stage_or_always(keep_values):
    envs, sizes = tiny("sokoban-simulator").environment.build(3), []

    def values(observation, last_action):
        sizes.append(len(observation))
        return torch.full((len(observation), 5), 0.2), torch.zeros(len(observation))

    model = FrozenModel(envs, values, 5, keep_values)
    observation = torch.from_numpy(envs.reset(seed=0)[0])
    root = model.root(observation, torch.zeros(3, dtype=torch.int64))
    for _ in range(2):
        model.unroll(root.hidden, torch.zeros(3, dtype=torch.int64))  # nothing moves
    if keep_values == "always":
        assert sizes == [3]
        model.unroll(root.hidden.repeat(2, 1, 1), torch.ones(6, dtype=torch.int64))
        assert sizes == [3, 3]
    else:
        assert sizes == [3, 3]
        model.root(observation, torch.zeros(3, dtype=torch.int64))
        model.unroll(root.hidden, torch.zeros(3, dtype=torch.int64))
        assert sizes == [3, 3, 3, 3]


class Counting:
    """A `PolicyAndValue` that counts the states it evaluates; a state's value is the sum of its numbers and action."""

    def __init__(self) -> None:
        self.evaluated = 0

    def __call__(self, observation, last_action):
        self.evaluated += len(observation)
        value = observation.float().flatten(1).sum(1) + last_action
        return torch.stack((value, -value), 1), value


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
@pytest.mark.parametrize("most_states", [1, 7, 1000])
def test_every_state_is_evaluated_once_until_the_table_is_full_or_cleared(dtype, most_states):
    counting = Counting()
    values = KnownValues(counting, 2, most_states)
    random = torch.Generator().manual_seed(0)
    for _ in range(20):
        observation = torch.randint(0, 2, (9, 1, 3), generator=random).to(dtype)
        action = torch.randint(-1, 2, (9,), generator=random)
        policy, value = values(observation, action)
        expected = Counting()(observation, action)
        assert torch.equal(policy, expected[0])
        assert torch.equal(value, expected[1])
    if most_states == 1000:
        assert counting.evaluated == 8 * 3  # all states that there are
        values.clear()
        values(observation[:1], action[:1])
        assert counting.evaluated == 8 * 3 + 1
    elif most_states == 7:
        assert 24 < counting.evaluated < 180
