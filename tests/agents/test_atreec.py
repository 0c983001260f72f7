"""ATreeC: the tree inside the network against trees built node by node, and what grounds its rewards."""

import dataclasses

import hypothesis
import numpy as np
import pytest
import torch
from hypothesis import strategies as st

from tests.agents.support import CPU
from tests.agents.test_learning import SETTINGS, learned_return
from tests.fakes import NUM_ACTIONS, KeyEnvs, NoiseEnvs, noise_env, raw_env
from thinker.agents import ATreeCSpec
from thinker.agents.atreec import Transition, normalised, soft_backup
from thinker.augmented import collect
from thinker.errors import UserError


def played(*, shape=(4,), steps=6, **spec):
    """An agent in noise, its trajectory and one unroll of it."""
    env = raw_env(NoiseEnvs(3, shape))
    agent = ATreeCSpec(unroll_stages=steps, batch_size=2, **spec).build(env, seed=0, device=CPU)
    trajectory = agent.trajectory(env)
    actor = agent.actor(env, seed=0, trajectory=trajectory)
    actor.begin(*env.reset(seed=0))
    collect(env, actor, trajectory.num_steps)
    return agent, trajectory, trajectory.read()


# ---------------------------------------------------------------------------------------------------- the backup


def backed_up(reward, value, discount, weight, depth, num_actions, path=()):
    """V of the node at ``path`` by recursion over all action sequences; without a path: all q of the root."""
    q = None
    if len(path) < depth:
        children = [(*path, a) for a in range(num_actions)]
        q = np.array(
            [
                reward[child] + discount * backed_up(reward, value, discount, weight, depth, num_actions, child)
                for child in children
            ]
        )
        if not path:
            return q
        likely = np.exp(q - q.max())
        return (1 - weight) * value[path] + weight * float((likely / likely.sum() * q).sum())
    return value[path]


@hypothesis.settings(max_examples=30, deadline=None)
@hypothesis.given(
    depth=st.integers(1, 4),
    num_actions=st.integers(1, 3),
    discount=st.floats(0, 1),
    weight=st.floats(0, 1),
    seed=st.integers(0, 1000),
)
def test_the_soft_backup_is_that_of_a_recursion_over_all_action_sequences(depth, num_actions, discount, weight, seed):
    random = np.random.default_rng(seed)
    paths = [
        [tuple(path) for path in np.ndindex(*[num_actions] * length)]  # in the order of node i = (parent) A + action
        for length in range(1, depth + 1)
    ]
    rows = [{path: random.normal(0, 3, 2) for level in paths for path in level} for _ in range(4)]

    def tensors(column):
        levels = [[[row[path][column] for path in level] for row in rows] for level in paths]
        return [torch.tensor(np.array(level)) for level in levels]

    q = soft_backup(tensors(0), tensors(1), discount, weight)
    for row, found in zip(rows, q):
        reward, value = ({path: numbers[column] for path, numbers in row.items()} for column in (0, 1))
        expected = backed_up(reward, value, discount, weight, depth, num_actions)
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6, atol=1e-9)


def test_a_weight_of_0_looks_one_step_ahead_and_a_tree_of_depth_1_needs_no_backup():
    rewards = [torch.randn(2, 3), torch.randn(2, 9)]
    values = [torch.randn(2, 3), torch.randn(2, 9)]
    expected = rewards[0] + 0.5 * values[0]
    torch.testing.assert_close(soft_backup(rewards, values, 0.5, weight=0.0), expected)
    torch.testing.assert_close(soft_backup(rewards[:1], values[:1], 0.5, weight=0.8), expected)


# ------------------------------------------------------------------------------------------------------ the tree


@pytest.mark.parametrize("sees", ["intermediate", "state"])
def test_a_transition_is_a_shared_and_an_actions_residual_step_to_a_normalised_state(sees):
    transition = Transition(6, 3, sees)
    state = torch.randn(5, 6)
    found = transition(state)
    assert found.shape == (5, 3, 6)
    for n in range(5):
        middle = state[n] + torch.tanh(transition.shared.weight @ state[n] + transition.shared.bias)
        for action in range(3):
            weight = transition.by_action.weight[action * 6 : action * 6 + 6]
            after = middle + torch.tanh(weight @ (middle if sees == "intermediate" else state[n]))
            torch.testing.assert_close(found[n, action], after / after.norm() * 6**0.5)


def test_nodes_of_the_tree_are_what_their_actions_lead_to_one_after_another():
    agent, _, _ = played(depth=3)
    network = agent.network
    state = normalised(torch.randn(2, network.encoder.width))
    rewards, values = network.expand(state)
    assert [tuple(x.shape) for x in rewards] == [tuple(x.shape) for x in values] == [(2, 3), (2, 9), (2, 27)]
    for path in [(0, 0, 0), (2, 0, 1), (1, 2, 2)]:
        node, number = state, 0
        for depth, action in enumerate(path):
            number = number * NUM_ACTIONS + action
            torch.testing.assert_close(rewards[depth][:, number], network.reward(node)[:, action])
            node = network.transition(node)[:, action]
            torch.testing.assert_close(values[depth][:, number], network.value(node)[:, 0])


def test_the_policy_is_the_softmax_of_the_roots_q_and_the_critic_sees_only_the_state():
    agent, _, unroll = played(depth=2, backup_weight=0.6)
    network = agent.network
    with torch.no_grad():
        output, _ = network(unroll.given, {})
        given = unroll.given
        encoded = network.encoder(given.observation["real_state"].flatten(0, 1), given.last_action[..., 0].flatten())
        state = normalised(encoded)
        q = soft_backup(*network.expand(state), 0.9, 0.6)  # the environment's discount
        torch.testing.assert_close(output.logits.flatten(0, 1), q)
        torch.testing.assert_close(output.value.flatten(0, 1), *network.critic(state))
    assert output.reset_logits.shape == (7, 3, 2)
    assert output.auxiliary["rewards"].shape == (7, 3, 3 + 9)


@pytest.mark.parametrize("shape", [(4,), (3, 16, 16)], ids=str)
@pytest.mark.parametrize("depth", [1, 3])
def test_learning_reaches_every_parameter(shape, depth):
    agent, trajectory, _ = played(shape=shape, depth=depth)
    metrics = agent.learner.learn(trajectory, 0.0)
    assert metrics["loss/reward"] > 0
    for name, parameter in agent.network.named_parameters():
        if not parameter.requires_grad:
            continue
        assert parameter.grad is not None, name
        assert parameter.grad.any(), name


# ----------------------------------------------------------------------------------------------- reward grounding


@pytest.mark.parametrize("steps", [1, 2, 7])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_rewards_are_grounded_along_the_actions_taken_until_the_episode_or_the_unroll_ends(depth, steps):
    agent, _, unroll = played(depth=depth, steps=steps)
    network = agent.network
    if steps == 7:
        assert unroll.terminated.any()
        assert unroll.truncated.any()
    with torch.no_grad():
        output, _ = network(unroll.given, {})
        loss = network.auxiliary_losses(unroll, output)["reward"]
        rewards = [network.expand(output.features[t])[0] for t in range(steps)]
    for t in range(steps):
        for b in range(3):
            expected, number = 0.0, 0
            for length in range(depth):
                if t + length >= steps:
                    break
                number = number * NUM_ACTIONS + int(unroll.action[t + length, b, 0])
                error = rewards[t][length][b, number] - unroll.reward[t + length, b, 0]
                expected += 0.5 * float(error) ** 2
                if unroll.terminated[t + length, b] or unroll.truncated[t + length, b]:
                    break
            assert float(loss[t, b]) == pytest.approx(expected, rel=1e-4, abs=1e-6)


def test_grounding_makes_predicted_rewards_more_like_the_real_ones():
    agent, trajectory, _ = played(depth=2, steps=8, learning_rate=1e-2)
    losses = [agent.learner.learn(trajectory, 0.0)["loss/reward"] for _ in range(15)]
    assert losses[-1] < 0.5 * losses[0]


# ------------------------------------------------------------------------------------------------------ the agent


@pytest.mark.parametrize("objective", ["v-trace", "ppo"])
def test_the_agent_learns_what_it_can_see(objective):
    env = raw_env(KeyEnvs(32))
    assert learned_return(env, ATreeCSpec(objective=objective, **SETTINGS), updates=40) > 0.95


def test_the_agent_refuses_to_see_more_than_the_real_state():
    with pytest.raises(UserError, match="sees only the real state, but the environment shows hidden, tree"):
        ATreeCSpec().build(noise_env(2), seed=0, device=CPU)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"depth": 0}, "depth is 0; it must be at least 1"),
        ({"reward_width": 0}, "reward_width is 0; it must be at least 1"),
        ({"backup_weight": 1.5}, "backup_weight is 1.5; it must be between 0 and 1"),
        ({"reward_loss_scale": -1.0}, "reward_loss_scale is -1.0; it must not be negative"),
        ({"network_size": "huge"}, "network_size is 'huge'; it must be one of 'paper', 'small', 'board'"),
        ({"transition_input": "z"}, "transition_input is 'z'; it must be one of 'intermediate', 'state'"),
    ],
    ids=str,
)
def test_settings_that_make_no_sense_are_errors(wrong, message):
    with pytest.raises(UserError, match=message):
        dataclasses.replace(ATreeCSpec(), **wrong)
