"""Agents with convolutions over the real state: DRC, IMPALA's residual networks, value iteration networks."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from gymnasium import spaces

from tests.agents.support import CPU, as_if_learned, played
from tests.fake_device import fake_cuda
from tests.fakes import NUM_ACTIONS, NoiseEnvs, SameStepEnvs, noise_env, raw_env
from thinker.agents import DRCNetwork, DRCSpec, GuezResNet, RealStateSpec, ResNetSpec, VINSpec
from thinker.agents.real_state import SameConv2d
from thinker.augmented import ThinkerEnv, collect
from thinker.errors import UserError
from thinker.interfaces import BoardStructure

SMALL = {
    "drc": DRCSpec(layers=2, ticks=2, channels=6),
    "drc, the other choices": DRCSpec(
        layers=1, ticks=1, channels=6, readout="concatenation", output_gate="sigmoid", pooling="linear"
    ),
    "guez": ResNetSpec(channels=(6, 8)),
    "impala-deep": ResNetSpec(network="impala-deep", channels=(6, 8)),
    "vin": VINSpec(iterations=4, hidden_channels=8),
}
HAVE_MEMORY = ("drc", "drc, the other choices", "impala-deep")


def board_env(num_envs: int, device: str = "cpu", *, player_planes: tuple[int, ...] | None = None) -> ThinkerEnv:
    """Noise on boards of 3 planes and 5x5 squares; the outermost squares are constant."""
    envs = NoiseEnvs(num_envs, (3, 5, 5))
    envs.single_observation_space = spaces.Box(0, 1, (3, 5, 5), np.uint8)
    envs.metadata = {**envs.metadata, "board": BoardStructure((1, 0, 0), None, None, player_planes)}

    def first_state() -> np.ndarray:
        state = np.zeros((3, 5, 5), np.uint8)
        state[0] = 1
        state[:, 1:4, 1:4] = np.eye(3, dtype=np.uint8)[envs.random.integers(0, 2, (3, 3))].transpose(2, 0, 1)
        row, column = envs.random.integers(1, 4, 2)
        state[:, row, column] = 0, 0, 1
        return state

    envs.first_state = first_state  # type: ignore[method-assign]
    return raw_env(envs, device)


def parameters(network: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


# ------------------------------------------------------------------------------------------------ every network


@pytest.mark.parametrize("spec", SMALL.values(), ids=SMALL)
def test_gradients_reach_every_parameter(spec: RealStateSpec):
    env = board_env(3, player_planes=(2,))
    network = as_if_learned(spec.build_network(env, seed=0, device=CPU))
    _, _, unroll = played(env, network, stages=4)
    output, _ = network(unroll.given, unroll.memory)
    assert output.logits.shape == (5, 3, NUM_ACTIONS)
    assert output.value.shape == (5, 3, 1)
    assert not output.reset_logits.any()
    (output.logits.square().sum() + output.value.square().sum()).backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.any(), name


@pytest.mark.parametrize("name", SMALL)
def test_learning_sees_what_acting_saw(name: str):
    env = board_env(4)
    network = as_if_learned(SMALL[name].build_network(env, seed=0, device=CPU))
    actor, _, unroll = played(env, network, stages=8)
    assert unroll.given.episode_start[1:-1].any()  # episodes did end on the way
    assert bool(unroll.memory) == (name in HAVE_MEMORY)
    assert all(value.any() for value in unroll.memory.values())
    with torch.no_grad():
        output, memory = network(unroll.given, unroll.memory)
    torch.testing.assert_close(output.value, unroll.value)
    log_prob = output.logits[:-1].log_softmax(-1).gather(-1, unroll.action[..., :1]).squeeze(-1)
    torch.testing.assert_close(log_prob, unroll.log_prob[..., 0])


@pytest.mark.parametrize("name", HAVE_MEMORY)
def test_a_new_episode_does_not_depend_on_memory_and_a_running_one_does(name: str):
    env = board_env(2)
    network = as_if_learned(SMALL[name].build_network(env, seed=0, device=CPU))
    actor, _, unroll = played(env, network, stages=3)
    given = dataclasses.replace(unroll.given.map(lambda x: x[:1]), episode_start=torch.tensor([[True, False]]))
    other = {key: torch.randn_like(value) for key, value in unroll.memory.items()}
    with torch.no_grad():
        one, two = (network(given, memory)[0].logits[0] for memory in (unroll.memory, other))
    assert torch.equal(one[0], two[0])
    assert (one[1] != two[1]).any()


@pytest.mark.parametrize("spec", SMALL.values(), ids=SMALL)
@pytest.mark.parametrize("shape", [(3, 80, 80), (84, 84, 12), (1, 33, 40)], ids=str)
def test_pictures_of_any_size_work(spec: RealStateSpec, shape: tuple[int, ...]):
    env = raw_env(NoiseEnvs(2, shape))
    network = spec.build_network(env, seed=0, device=CPU)
    _, _, unroll = played(env, network, stages=1)
    assert torch.isfinite(unroll.value).all()


class ColourEnvs(SameStepEnvs):
    """One real step: the action whose plane is filled is worth 1, the others nothing."""

    def __init__(self, num_envs: int) -> None:
        super().__init__(num_envs, spaces.Box(0, 1, (NUM_ACTIONS, 3, 3), np.uint8))

    def first_state(self):
        return np.eye(NUM_ACTIONS, dtype=np.uint8)[self.random.integers(NUM_ACTIONS)].repeat(9).reshape(-1, 3, 3)

    def next_state(self, state, action):
        return np.zeros_like(state), float(state[action].all()), True, False


@pytest.mark.parametrize("spec", SMALL.values(), ids=SMALL)
def test_it_learns_what_it_can_see(spec: RealStateSpec):
    env = raw_env(ColourEnvs(32))
    spec = dataclasses.replace(spec, batch_size=32, unroll_stages=2, learning_rate=3e-3, real_entropy_cost=1e-3)
    agent = spec.build(env, seed=0, device=CPU)
    trajectory = agent.trajectory(env)
    actor = agent.actor(env, seed=0, trajectory=trajectory)
    actor.begin(*env.reset(seed=0))
    for update in range(40):
        returns = collect(env, actor, trajectory.num_steps).returns
        agent.learner.learn(trajectory, update / 40)
    assert returns.mean() > 0.9


@pytest.mark.parametrize("spec", SMALL.values(), ids=SMALL)
def test_it_acts_and_learns_on_a_device_as_on_the_cpu(spec: RealStateSpec):
    def trained(device: str) -> dict[str, torch.Tensor]:
        env = board_env(2, device, player_planes=(2,))
        agent = dataclasses.replace(spec, unroll_stages=4).build(env, seed=0, device=torch.device(device))
        trajectory = agent.trajectory(env)
        actor = agent.actor(env, seed=0, trajectory=trajectory)
        actor.begin(*env.reset())
        collect(env, actor, trajectory.num_steps)
        agent.learner.learn(trajectory, 0.0)
        return {name: value.cpu() for name, value in agent.learner.state_dict().items()}

    expected = trained("cpu")
    with fake_cuda():
        found = trained("cuda")
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-5)


# ------------------------------------------------------------------------------------------------- sizes, errors


def test_the_networks_have_the_published_numbers_of_parameters():
    """For 10x10 boards as pictures of one pixel per square, and 4 actions."""
    space = spaces.Box(0, 255, (3, 10, 10), np.uint8)
    assert parameters(DRCNetwork(space, 4)) == 1_285_125
    assert parameters(DRCNetwork(space, 4, layers=1, ticks=1)) == 987_525
    assert parameters(GuezResNet(space, 4)) == 3_068_421


def test_80_pixels_become_10_squares():
    space = spaces.Box(0, 255, (3, 80, 80), np.uint8)
    drc = DRCNetwork(space, 5)
    assert drc.core.shape == (3, 10, 10, 32)
    assert [layer.kernel_size for layer in drc.encoder] == [(8, 8), (4, 4)]
    assert drc.linear.in_features == 3200
    assert DRCNetwork(space, 5, readout="concatenation").linear.in_features == 6400
    assert GuezResNet(space, 5).linear.in_features == 6400


def test_the_border_is_left_out():
    network = DRCSpec().build_network(board_env(1), seed=0, device=CPU)
    assert network.core.shape == (3, 3, 3, 32)


@pytest.mark.parametrize("kernel", [3, 4])
def test_the_convolution_keeps_the_size_with_the_additional_zeros_at_the_end(kernel):
    layer = SameConv2d(1, 1, kernel)
    with torch.no_grad():
        layer.weight.zero_()
        layer.weight[0, 0, 1, 1] = 1.0
        layer.bias.zero_()
        x = torch.randn(2, 1, 5, 6)
        assert torch.equal(layer(x), x)  # the square at (1, 1) of the kernel is the output's own


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DRCSpec(layers=0), "layers is 0; it must be at least 1"),
        (lambda: DRCSpec(readout="none"), "readout is 'none'; it must be one of 'sum', 'concatenation'"),
        (lambda: DRCSpec(output_gate="relu"), "output_gate is 'relu'; it must be one of 'tanh', 'sigmoid'"),
        (lambda: DRCSpec(pooling="max"), "pooling is 'max'; it must be one of 'per-channel', 'linear'"),
        (lambda: ResNetSpec(network="small"), "network is 'small'; it must be one of 'guez', 'impala-deep'"),
        (lambda: ResNetSpec(channels=()), r"channels is \(\); it must hold a number of at least 1"),
        (lambda: VINSpec(iterations=0), "iterations is 0; it must be at least 1"),
        (
            lambda: DRCSpec().build(raw_env(NoiseEnvs(2)), seed=0, device=CPU),
            "DRCNetwork consists of convolutions, but observations are vectors.*RawAgentSpec",
        ),
        (
            lambda: VINSpec().build(noise_env(2), seed=0, device=CPU),
            r"sees only the real state, but the environment shows hidden, tree; .* observe=\('real_state',\)",
        ),
    ],
)
def test_what_does_not_work_is_refused(make, message):
    with pytest.raises(UserError, match=message):
        make()


def test_a_deep_residual_network_starts_with_features_of_the_size_of_its_input():
    torch.manual_seed(0)
    network = GuezResNet(spaces.Box(0, 1, (8, 8, 8), np.uint8), 5)
    state = torch.eye(8)[torch.randint(8, (16, 8, 8))].permute(0, 3, 1, 2)
    with torch.no_grad():
        size = network.body(state).square().mean().sqrt() / state.square().mean().sqrt()
    assert 1 / 3 < size < 3
