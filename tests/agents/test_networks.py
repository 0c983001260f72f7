"""The networks: every choice of observations, and that learning sees exactly what acting saw."""

from itertools import combinations

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from tests.agents.support import as_if_learned, begun, build_network, played, trajectory_for
from tests.fakes import NUM_ACTIONS, OBSERVE, NoiseEnvs, NoiseModel, noise_env, raw_env
from thinker.agents import AgentInput
from thinker.agents.tree_encoder import SkipMLP, tree_scale
from thinker.augmented import ThinkerEnv, collect, layout
from thinker.interfaces import BoardStructure
from thinker.nn.scale import NOT_SCALED, RunningScale

COMBINATIONS = [names for count in range(1, 6) for names in combinations(OBSERVE, count)]


@pytest.mark.parametrize("observe", COMBINATIONS, ids="+".join)
def test_every_choice_of_observations_works(observe):
    env = noise_env(2, observe=observe)
    network = build_network(env)
    _, _, unroll = played(env, network, stages=1)
    assert set(unroll.given.observation) == set(observe)
    output, _ = network(unroll.given, unroll.memory)
    (output.logits.sum() + output.reset_logits.sum() + output.value.square().sum()).backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name


@pytest.mark.parametrize("size", ["small", "paper"])
@pytest.mark.parametrize("shapes", [((3, 16, 16), (4, 5, 6)), ((16, 16, 3), (2, 3, 3)), ((5,), (4, 3))], ids=str)
def test_pictures_planes_and_vectors_work_in_both_sizes(size, shapes):
    env = noise_env(2, observe=OBSERVE, shape=shapes[0], hidden=shapes[1])
    network = build_network(env, network_size=size)
    _, _, unroll = played(env, network, stages=1)
    output, _ = network(unroll.given, unroll.memory)
    assert output.value.shape == (env.stage_length + 1, 2, 2)


@pytest.mark.parametrize("tree_encoder", ["mlp", "lstm-attention", "per-action"])
@pytest.mark.parametrize("stage_length", [1, 3])
def test_learning_sees_what_acting_saw(tree_encoder, stage_length):
    env = noise_env(4, observe=("tree", "hidden", "predicted_state"), stage_length=stage_length, hidden=(4, 3, 3))
    network = as_if_learned(build_network(env, tree_encoder=tree_encoder))
    _, _, unroll = played(env, network, stages=8)
    assert unroll.given.episode_start[1:-1].any()  # episodes did end on the way
    with torch.no_grad():
        output, _ = network(unroll.given, unroll.memory)
    torch.testing.assert_close(output.value, unroll.value, rtol=1e-4, atol=1e-4)
    for logits, column in ((output.logits, 0), (output.reset_logits, 1)):
        log_prob = logits[:-1].log_softmax(-1).gather(-1, unroll.action[..., column : column + 1]).squeeze(-1)
        torch.testing.assert_close(log_prob, unroll.log_prob[..., column], rtol=1e-4, atol=1e-4)


def test_a_batch_of_environments_is_learned_from_as_it_was_acted_in():
    env = noise_env(5, hidden=(4, 3, 3))
    network = as_if_learned(build_network(env, tree_encoder="lstm-attention"))
    _, trajectory, whole = played(env, network, stages=4)
    chosen = torch.tensor([3, 0, 4])
    batch = trajectory.read(chosen)
    for name, rows in whole.memory.items():
        assert torch.equal(batch.memory[name], rows[chosen]), name
    for name in ("action", "log_prob", "reset_acts", "reward", "terminated", "truncated", "final_value"):
        assert torch.equal(getattr(batch, name), getattr(whole, name)[:, chosen]), name
    with torch.no_grad():
        output, _ = network(batch.given, batch.memory)
    torch.testing.assert_close(output.value, whole.value[:, chosen], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("stage_length", [1, 2, 4])
@pytest.mark.parametrize("mask", [0.0, 0.5])
@pytest.mark.parametrize("tree_encoder", ["mlp", "lstm-attention"])
def test_the_real_state_is_encoded_once_in_a_stage_and_seen_in_all_of_its_steps(stage_length, mask, tree_encoder):
    stages, num_envs = 5, 3
    env = noise_env(num_envs, stage_length=stage_length, observe=("tree", "real_state"), shape=(2, 5, 5))
    network = as_if_learned(build_network(env, tree_encoder=tree_encoder))
    trajectory = trajectory_for(env, network, stages)
    actor = begun(env, network, trajectory=trajectory, tree_mask_probability=mask)
    encoded = []
    encoder = network.encoders["real_state"]
    encoder.register_forward_hook(lambda module, inputs, output: encoded.append(len(output)))
    collect(env, actor, trajectory.num_steps)
    unroll = trajectory.read()
    if mask == 0:
        final = int((unroll.truncated & ~unroll.terminated).sum())  # whose values are needed, too
        assert sum(encoded) == (stages + 1) * num_envs + final  # and that after the unroll
    with torch.no_grad():
        learned, _ = network(unroll.given, unroll.memory)
    torch.testing.assert_close(learned.value[:-1], unroll.value[:-1])
    everywhere = encoder(
        unroll.given.observation["real_state"].flatten(0, 1), unroll.given.last_action[..., 0].flatten()
    )
    torch.testing.assert_close(learned.features.flatten(0, 1)[:, : encoder.width], everywhere)


def test_learning_sees_what_acting_saw_on_the_raw_mdp():
    env = raw_env(NoiseEnvs(4))
    network = as_if_learned(build_network(env, raw=True))
    _, _, unroll = played(env, network, stages=8)
    with torch.no_grad():
        output, _ = network(unroll.given, unroll.memory)
    torch.testing.assert_close(output.value, unroll.value, rtol=1e-4, atol=1e-4)
    assert unroll.reward.shape[-1] == 1
    assert not unroll.reset_acts.any()


def test_real_and_imaginary_actions_have_their_own_heads():
    env = noise_env(4)
    network = as_if_learned(build_network(env))
    _, _, unroll = played(env, network)
    given = unroll.given
    other = AgentInput(
        given.observation, given.episode_start, ~given.next_is_real, given.last_action, given.last_reward
    )
    with torch.no_grad():
        ours, _ = network(given, unroll.memory)
        swapped, _ = network(other, unroll.memory)
        features = ours.features @ network.heads.weight.T
    real, imaginary = features[..., :NUM_ACTIONS], features[..., NUM_ACTIONS : 2 * NUM_ACTIONS]
    is_real = given.next_is_real.unsqueeze(-1)
    torch.testing.assert_close(ours.logits, torch.where(is_real, real, imaginary))
    torch.testing.assert_close(swapped.logits, torch.where(is_real, imaginary, real))


def test_last_actions_and_rewards_reach_the_final_layer():
    env = noise_env(2)
    network = as_if_learned(build_network(env))
    actor, _, _ = played(env, network)
    given = actor.given.map(lambda x: x.unsqueeze(0))
    with torch.no_grad():
        before = network(given, {})[0].value
        for change in (given.last_action, given.last_reward):
            change += 1
            assert (network(given, {})[0].value != before).any()
            before = network(given, {})[0].value


def test_the_mlp_has_a_skip_connection_from_the_input_to_each_hidden_layer():
    mlp = SkipMLP(5)
    assert mlp.first.weight.shape == (200, 5)
    assert [layer.weight.shape for layer in mlp.rest] == [(200, 205), (200, 205)]


def test_the_papers_lstm_attention_network_has_the_papers_sizes():
    env = noise_env(1, hidden=(256, 6, 6))
    network = build_network(env, tree_encoder="lstm-attention", network_size="paper")
    assert network.tree.recurrent.cells == 3
    assert network.tree.recurrent.window == 2 * env.stage_length
    # CNN 256, RNN 128, one-hot last actions (real, imaginary, reset), last rewards
    assert network.heads.in_features == 256 + 128 + 2 * NUM_ACTIONS + 2 + 2


@pytest.mark.parametrize("stage_length", [1, 3, 7])
def test_the_attention_reaches_back_two_stages(stage_length):
    env = noise_env(1, stage_length=stage_length)
    assert build_network(env, tree_encoder="lstm-attention").tree.recurrent.window == 2 * stage_length


@pytest.mark.parametrize(("observe", "raw"), [(("tree", "real_state", "predicted_state"), False), (None, True)])
def test_states_are_encoded_without_the_border_that_the_environment_declares(observe, raw):
    encoders = {}
    for border in (None, (1, 0)):
        envs = NoiseEnvs(2, (2, 6, 6))
        envs.single_observation_space = spaces.Box(0, 1, (2, 6, 6), np.uint8)
        envs.metadata = {**envs.metadata, "board": BoardStructure(border, None, None)}
        model = NoiseModel((2, 6, 6))
        env = raw_env(envs) if raw else ThinkerEnv(envs, model, stage_length=2, observe=observe)
        encoders[border] = build_network(env, raw=raw).encoders
    assert encoders[None].keys() == encoders[1, 0].keys() >= {"real_state"}
    for key in encoders[None]:
        assert encoders[None][key].codec.state_shape == (2, 6, 6)
        assert encoders[1, 0][key].codec.state_shape == (2, 4, 4)
        boards = torch.zeros(3, 2, 6, 6, dtype=torch.uint8)
        assert encoders[1, 0][key](boards, torch.zeros(3, dtype=torch.int64)).shape == (3, encoders[1, 0][key].width)


def test_a_vector_that_the_model_has_computed_needs_one_layer_only():
    network = build_network(noise_env(1, observe=("tree", "hidden", "real_state"), hidden=(128,)))
    layers = [sum(isinstance(one, nn.Linear) for one in network.encoders["hidden"].modules())]
    assert layers == [1]
    assert network.encoders["hidden"].width == 128


def test_scaled_features_have_unit_size_and_zero_stays_zero():
    scale = RunningScale([0, 0, 1, NOT_SCALED])
    x = torch.tensor([3.0, 0.0, -0.5, 2.0]) * torch.ones(10, 1)
    for _ in range(3):
        scale.update(x)
    scaled = scale(x)
    assert scaled[:, :2].square().mean().item() == pytest.approx(1)
    assert scaled[:, 2].tolist() == pytest.approx([-1.0] * 10)
    assert (scaled[:, 1] == 0).all()
    assert (scaled[:, 3] == 2).all()
    assert scale(torch.full((1, 4), 1e6)).max() == RunningScale.LARGEST


def test_a_group_that_is_always_zero_is_left_as_it_is():
    scale = RunningScale([0])
    scale.update(torch.zeros(5, 1))
    assert scale(torch.ones(1, 1)).item() == 1


def test_all_returns_of_the_tree_share_one_scale():
    known = layout(NUM_ACTIONS, 4)
    scale = tree_scale(known)
    scale.update(torch.randn(50, known.size) * 100)
    parts = known.decode(scale.factor)
    shared = parts["root_value"]
    for name in ("current_value", "root_child_mean_return", "current_child_max_return", "max_return", "rollout_return"):
        assert (parts[name] == shared).all(), name
    for name in ("root_policy", "current_action", "step", "reset", "trailing_discount"):
        assert (parts[name] == 1).all(), name
