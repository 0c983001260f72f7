"""The base policy as an actor: it draws from what the model says of the root, and nothing else."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from tests.fakes import FakeModel, Witness, random_episodes
from thinker.augmented import ROOT, ThinkerEnv, collect
from thinker.planners import BasePolicy, RandomPlay

NUM_ACTIONS = 3


def make_env(num_envs=3, *, stage_length=1, end_rate=0.2, **options):
    envs = random_episodes(num_envs, end_rate, num_actions=NUM_ACTIONS)
    return ThinkerEnv(envs, FakeModel(NUM_ACTIONS, 0.1), stage_length=stage_length, **options)


def begun(env, **options):
    actor = BasePolicy(env, **options)
    actor.begin(*env.reset())
    return actor


def step(env, actor):
    decision = actor.act()
    outcome = env.step(decision.actions, decision.policy)
    actor.observe(decision, *outcome)
    return decision, outcome


def root_policy(env):
    """The base policy [E, A] of the roots, asked from the model itself."""
    model, last = env.model, env.search_tree().action[:, ROOT]
    hidden = [model.root_hidden(seen, int(action)) for seen, action in zip(env.real_observation, last)]
    return np.stack([model.describe(one, True)["policy"] for one in hidden])


def test_actions_are_drawn_from_the_policy_of_the_root():
    env = make_env(5)
    actor = begun(env)
    policy = root_policy(env)
    draws = torch.stack([actor.act().actions[:, 0] for _ in range(4000)])  # nothing is taken in, so nothing changes
    share = torch.nn.functional.one_hot(draws, NUM_ACTIONS).float().mean(0)
    np.testing.assert_allclose(share, policy, atol=0.04)
    np.testing.assert_allclose(actor.act().policy, policy, atol=1e-6)


@pytest.mark.parametrize("stage_length", [1, 4])
def test_the_greedy_one_takes_the_most_likely_actions(stage_length):
    env = make_env(stage_length=stage_length)
    actor = begun(env, greedy=True)
    for _ in range(20):
        decision, _ = step(env, actor)
        assert torch.equal(decision.actions[:, 0], decision.policy.argmax(1))


@pytest.mark.parametrize("stage_length", [1, 4])
def test_real_actions_follow_the_root_wherever_the_search_is(stage_length):
    witness = Witness()
    env = make_env(stage_length=stage_length, sink=witness)
    actor = begun(env)
    away = False
    for time in range(20 * stage_length):
        is_real = time % stage_length == stage_length - 1
        expected = root_policy(env)
        away = away or bool(is_real and (env.search_tree().position != ROOT).any())
        decision, _ = step(env, actor)
        if is_real:
            np.testing.assert_allclose(decision.policy, expected, atol=1e-6)
            np.testing.assert_array_equal(witness.transitions[-1].policy, decision.policy.numpy())
            np.testing.assert_array_equal(witness.transitions[-1].action, decision.actions[:, 0].numpy())
    assert away == (stage_length > 1)


def test_in_imagination_it_follows_the_base_policy_of_the_node_where_it_is():
    env = make_env(stage_length=6, max_depth=3)
    actor = begun(env)
    positions = set()
    for time in range(60):
        tree = env.search_tree()
        node = tree.position.copy()
        expected = tree.policy[np.arange(3), node].copy()
        decision, (*_, info) = step(env, actor)
        assert (decision.actions[:, 1] == 0).all()  # never a reset of its own
        if time % 6 != 5:
            positions |= set(node.tolist())
            np.testing.assert_array_equal(decision.policy.numpy(), expected)
            assert (info["depth"] == (time % 6) % 3 + 1).all()  # the only resets are those that max_depth forces
    assert len(positions) > 3


def decisions(env, actor, steps):
    return torch.stack([step(env, actor)[0].actions for _ in range(steps)])


@pytest.mark.parametrize("stage_length", [1, 3])
def test_it_goes_on_exactly_from_its_state(stage_length):
    def played(save_at):
        env = make_env(stage_length=stage_length)
        actor = begun(env, seed=5)
        before = decisions(env, actor, save_at)
        state = copy.deepcopy(actor.state_dict())
        resumed = BasePolicy(env, seed=99)
        resumed.load_state_dict(state)
        return torch.cat((before, decisions(env, resumed, 20 - save_at)))

    env = make_env(stage_length=stage_length)
    unbroken = decisions(env, begun(env, seed=5), 20)
    for save_at in (1, 2, 3, 10):
        assert torch.equal(played(save_at), unbroken)


def test_the_seed_alone_decides_and_the_global_generator_is_left_alone():
    state = torch.get_rng_state()

    def actions(seed):
        env = make_env()
        return decisions(env, begun(env, seed=seed), 30)

    first = actions(0)
    assert torch.equal(torch.get_rng_state(), state)
    torch.rand(3)
    assert torch.equal(first, actions(0))
    assert not torch.equal(first, actions(1))


@pytest.mark.parametrize(
    "options",
    [
        {"observe": ("real_state",)},
        {"observe": ("hidden",)},
        {"mask": ("hints", "base_policy_and_value")},
        {"output": "numpy"},
    ],
    ids=str,
)
def test_what_the_environment_shows_does_not_matter(options):
    """The policy comes from the tree itself, not from its representation."""
    usual, other = make_env(stage_length=3), make_env(stage_length=3, **options)
    assert torch.equal(decisions(usual, begun(usual), 30), decisions(other, begun(other), 30))


def test_after_a_refresh_it_follows_the_new_model():
    env = make_env(stage_length=2)
    actor = begun(env, greedy=True)
    for _ in range(2):
        step(env, actor)
    env.model = FakeModel(NUM_ACTIONS, 0.1, version=1)
    actor.refresh(env.refresh())
    decision = actor.act()
    np.testing.assert_allclose(decision.policy, root_policy(env), atol=1e-6)


def test_a_model_that_knows_the_way_is_followed_to_the_end():
    """Policies of 0 and 1 are followed exactly; nothing else is drawn."""

    class Certain(FakeModel):
        def describe(self, hidden, is_root):
            said = super().describe(hidden, is_root)
            return {**said, "policy": np.eye(NUM_ACTIONS)[said["policy"].argmax()]}

    envs = random_episodes(num_actions=NUM_ACTIONS)
    env = ThinkerEnv(envs, Certain(NUM_ACTIONS), stage_length=1, sink=(witness := Witness()))
    actor = begun(env)
    collect(env, actor, 40)
    for told in witness.transitions:
        np.testing.assert_array_equal(told.action, told.policy.argmax(1))


def test_random_play_takes_all_actions_equally_often_whatever_the_model_says():
    env = make_env(40)
    actor = RandomPlay(env, seed=3)
    actor.begin(*env.reset())
    taken = []
    for _ in range(60):
        decision, _ = step(env, actor)
        assert (decision.actions[:, 1] == 0).all()
        taken.append(decision.actions[:, 0])
    counts = torch.cat(taken).bincount(minlength=NUM_ACTIONS)
    assert (abs(counts / counts.sum() - 1 / NUM_ACTIONS) < 0.05).all()
    assert decision.policy.shape == (40, NUM_ACTIONS)
    assert decision.policy.unique().tolist() == pytest.approx([1 / NUM_ACTIONS])
