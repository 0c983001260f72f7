"""Acting with a network: what the actor knows at every step, what it draws, and that it goes on from its state."""

import copy

import numpy as np
import pytest
import torch

from tests.agents.support import CPU, as_if_learned, begun, build_network, trajectory_for
from tests.fake_device import fake_cuda
from tests.fakes import NUM_ACTIONS, FakeModel, NoiseModel, noise_env, random_episodes
from thinker.agents import NetworkActor, ThinkerAgentSpec
from thinker.augmented import ThinkerEnv, collect
from thinker.errors import UserError
from thinker.interfaces import NO_ACTION

TREE_ENCODERS = ("mlp", "lstm-attention")


def step(env, actor):
    decision = actor.act()
    outcome = env.step(decision.actions, decision.policy)
    actor.observe(decision, *outcome)
    return decision, outcome


# ---------------------------------------------------------------------------------------------------- drawing


def test_policies_are_distributions_and_actions_are_drawn_from_them():
    env = noise_env(200)
    actor = begun(env, as_if_learned(build_network(env)))
    counts, expected = torch.zeros(2, 200, NUM_ACTIONS)
    resets, reset_probability = torch.zeros(2, 200)
    for _ in range(50):
        decision = actor.act()  # nothing is taken in, so the policy stays the same
        counts += torch.nn.functional.one_hot(decision.actions[:, 0], NUM_ACTIONS)
        expected += decision.policy
        resets += decision.actions[:, 1]
        reset_probability += decision.reset_probability
    torch.testing.assert_close(decision.policy.sum(1), torch.ones(200))
    drawn = decision.policy.gather(1, decision.actions[:, :1]).log().squeeze(1)
    torch.testing.assert_close(drawn, decision.log_prob[:, 0])
    reset = torch.where(decision.actions[:, 1] == 1, decision.reset_probability, 1 - decision.reset_probability)
    torch.testing.assert_close(reset.log(), decision.log_prob[:, 1], rtol=1e-3, atol=1e-3)
    assert (counts.sum(0) - expected.sum(0)).abs().max() < 250  # of 10,000
    assert (resets.sum() - reset_probability.sum()).abs() < 250


def test_the_greedy_actor_takes_the_likeliest_actions():
    env = noise_env(50)
    decision = begun(env, as_if_learned(build_network(env)), greedy=True).act()
    assert torch.equal(decision.actions[:, 0], decision.policy.argmax(1))
    assert torch.equal(decision.actions[:, 1] == 1, decision.reset_probability > 0.5)
    assert (decision.log_prob >= np.log(0.5) - 1e-6)[:, 1].all()


def test_two_actors_of_one_seed_do_the_same_and_two_seeds_do_not():
    def actions(seed):
        env = noise_env(8)
        network = as_if_learned(build_network(env, tree_encoder="lstm-attention"))
        trajectory = trajectory_for(env, network, 5)
        collect(env, begun(env, network, seed=seed, trajectory=trajectory), 15)
        return trajectory.read().action

    assert torch.equal(actions(0), actions(0))
    assert not torch.equal(actions(0), actions(1))


def test_acting_leaves_the_global_generator_alone():
    env = noise_env(3)
    actor = begun(env, build_network(env))
    state = torch.get_rng_state()
    for _ in range(6):
        step(env, actor)
    assert torch.equal(torch.get_rng_state(), state)


# --------------------------------------------------------------------------------------------- what it knows


def test_last_actions_and_rewards_are_those_of_the_step_before():
    env = noise_env(8, stage_length=3, end_probability=0.4)
    actor = begun(env, build_network(env))
    assert (actor.given.last_action == NO_ACTION).all()
    last_real = np.full(8, NO_ACTION)
    for time in range(60):
        decision, (_, reward, terminated, truncated, info) = step(env, actor)
        ended, given, actions = terminated | truncated, actor.given, decision.actions.numpy()
        assert np.array_equal(given.episode_start.numpy(), ended)
        if time % 3 == 2:  # that was the real step of the stage
            last_real = np.where(ended, NO_ACTION, actions[:, 0])
            assert (given.last_action[:, 1:] == NO_ACTION).all()
            np.testing.assert_allclose(given.last_reward[:, 0].numpy(), np.where(ended, 0, reward), rtol=1e-6)
        else:
            assert np.array_equal(given.last_action[:, 1:].numpy(), actions)
            np.testing.assert_allclose(given.last_reward[:, 1].numpy(), info["planning_reward"])
        assert np.array_equal(given.last_action[:, 0].numpy(), last_real)


def test_the_value_is_that_of_the_next_decision_and_asking_for_it_changes_nothing():
    env, other = noise_env(4), noise_env(4)
    network = as_if_learned(build_network(env, tree_encoder="lstm-attention"))
    asked, not_asked = begun(env, network), begun(other, network)
    for _ in range(9):
        value = asked.value()
        (decision, _), (expected, _) = step(env, asked), step(other, not_asked)
        torch.testing.assert_close(decision.value, value)
        assert torch.equal(decision.actions, expected.actions)


def test_a_refresh_shows_the_same_moment_with_another_model():
    env = noise_env(4)
    network = as_if_learned(build_network(env))
    actor = begun(env, network)
    for _ in range(3):
        step(env, actor)
    before, policy = actor.given, actor.act().policy
    env.model.encode = -env.model.encode
    seen = env.refresh()
    actor.refresh(seen)
    assert torch.equal(actor.given.observation["hidden"], seen["hidden"])
    assert not torch.equal(actor.given.observation["hidden"], before.observation["hidden"])
    for name in ("episode_start", "next_is_real", "last_action", "last_reward"):
        assert torch.equal(getattr(actor.given, name), getattr(before, name)), name
    assert not torch.equal(actor.act().policy, policy)


def test_beginning_again_forgets_everything_but_the_generator():
    env = noise_env(4)
    network = as_if_learned(build_network(env, tree_encoder="lstm-attention"))
    actor = begun(env, network)
    for _ in range(4):
        step(env, actor)
    start = env.reset(seed=3)
    actor.begin(*start)
    fresh = NetworkActor(network, env)
    fresh.begin(*start)
    assert torch.equal(actor.act().policy, fresh.act().policy)
    assert actor.given.episode_start.all()
    assert (actor.given.last_action == NO_ACTION).all()


def test_two_actors_of_one_network_do_not_disturb_each_other():
    """Each has its own memory and generator, so that playing in turns is as playing alone."""

    def actions(played_by):
        envs = [noise_env(4), noise_env(4, end_probability=0.1)]
        network = as_if_learned(build_network(envs[0], tree_encoder="lstm-attention"))
        actors = [begun(env, network, seed=seed) for seed, env in enumerate(envs)]
        found = [[], []]
        for _ in range(12):
            for which in played_by:
                found[which].append(step(envs[which], actors[which])[0])
        return [[(one.actions, one.policy, one.value) for one in decisions] for decisions in found]

    together, first, second = actions((0, 1)), actions((0,))[0], actions((1,))[1]
    for got, alone in zip(together, (first, second)):
        assert len(got) == len(alone) == 12
        for one, other in zip(got, alone):
            assert all(torch.equal(a, b) for a, b in zip(one, other))


# ------------------------------------------------------------------------------------------------- its state


@pytest.mark.parametrize("tree_encoder", TREE_ENCODERS)
@pytest.mark.parametrize("save_at", [1, 3, 7])
def test_an_actor_goes_on_exactly_from_its_state(tree_encoder, save_at):
    def decisions(save_at):
        env = noise_env(4)
        network = as_if_learned(build_network(env, tree_encoder=tree_encoder))
        actor = begun(env, network)
        found = []
        for time in range(12):
            if time == save_at:
                state = copy.deepcopy(actor.state_dict())
                assert all(isinstance(value, torch.Tensor) for value in state.values())
                actor = NetworkActor(network, env, seed=99)
                actor.load_state_dict(state)
            found.append(step(env, actor)[0])
        return found

    for unbroken, resumed in zip(decisions(None), decisions(save_at)):
        assert torch.equal(unbroken.policy, resumed.policy)
        assert torch.equal(unbroken.actions, resumed.actions)
        assert torch.equal(unbroken.value, resumed.value)


def test_an_actor_that_has_seen_nothing_says_what_to_do():
    env = noise_env(2)
    with pytest.raises(RuntimeError, match=r"call actor.begin\(\*env.reset\(\)\)"):
        NetworkActor(build_network(env), env).act()


# ------------------------------------------------------------------------------------- what does not fit


@pytest.mark.parametrize("observe", [("tree",), ("tree", "hidden"), ("tree", "real_state", "hidden")])
def test_an_environment_that_shows_something_else_is_refused(observe):
    network = build_network(noise_env(2, observe=observe))
    with pytest.raises(UserError, match=r"the network sees \[.*\], but the environment shows \['real_state', 'tree'\]"):
        NetworkActor(network, noise_env(2, observe=("tree", "real_state")))


def test_the_order_of_the_observations_does_not_matter():
    network = build_network(noise_env(2, observe=("tree", "hidden")))
    env = noise_env(2, observe=("hidden", "tree"))
    step(env, begun(env, network))


def test_an_environment_with_other_actions_is_refused():
    network = build_network(noise_env(2, observe=("tree",)))
    env = ThinkerEnv(random_episodes(num_actions=2), FakeModel(2), observe=("tree",))
    with pytest.raises(UserError, match="the network has 3 actions, but the environments 2"):
        NetworkActor(network, env)


def test_an_environment_of_arrays_is_refused():
    network = build_network(noise_env(2))
    with pytest.raises(UserError, match="agents act on tensors, but this ThinkerEnv gives 'numpy'"):
        NetworkActor(network, noise_env(2, output="numpy"))


def test_an_environment_on_another_device_is_refused():
    network = build_network(noise_env(2))
    with fake_cuda():
        env = noise_env(2, device="cuda")
        assert env.device.type == "cuda"
        with pytest.raises(UserError, match=r"the network is on cpu, but .* are on cuda.*; make it with device='cpu'"):
            NetworkActor(network, env)
        elsewhere = ThinkerAgentSpec().build_network(env, seed=0, device=torch.device("cuda"))
        with pytest.raises(UserError, match=r"the network is on cuda:0, but the environment's observations are on cpu"):
            NetworkActor(elsewhere, noise_env(2))


def test_an_environment_may_show_a_model_of_another_device_where_the_network_is():
    """The model computes on one device, agent and observations are on another."""
    expected = []
    for device in ("cpu", "cuda"):
        with fake_cuda():
            env = noise_env(4)
            env = ThinkerEnv(env.envs, NoiseModel((4,), device=device), stage_length=3, device=CPU, seed=1)
            actor = begun(env, as_if_learned(build_network(env)))
            expected.append(torch.stack([step(env, actor)[0].actions for _ in range(9)]))
    assert torch.equal(*expected)
