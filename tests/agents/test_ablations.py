"""The agent's side of the paper's ablations: random imaginary actions, trees dropped at random, no planning rewards."""

import dataclasses

import pytest
import torch

from tests.agents.support import CPU, as_if_learned, begun, build_network, played, trajectory_for
from tests.fakes import NUM_ACTIONS, noise_env
from thinker.agents import NetworkActor, ThinkerAgentSpec, paper_settings
from thinker.agents.learner import ActorCriticLearner
from thinker.augmented import collect
from thinker.errors import UserError


def random_imagination(env, **settings):
    return as_if_learned(build_network(env, imaginary_actions="random", **settings))


@pytest.mark.parametrize("tree_encoder", ["mlp", "per-action"])
@pytest.mark.parametrize("greedy", [False, True])
def test_random_imaginary_actions_are_uniform_and_real_ones_are_the_networks(tree_encoder, greedy):
    env = noise_env(400, stage_length=3)
    actor = begun(env, random_imagination(env, tree_encoder=tree_encoder), greedy=greedy)
    taken = []
    for step in range(6):
        decision = actor.act()
        if step % 3 < 2:
            torch.testing.assert_close(decision.policy, torch.full((400, NUM_ACTIONS), 1 / NUM_ACTIONS))
            torch.testing.assert_close(decision.reset_probability, torch.full((400,), 0.5))
            taken.append(decision.actions)
        else:
            assert decision.policy.amax(1).mean() > 1.5 / NUM_ACTIONS
        actor.observe(decision, *env.step(decision.actions, decision.policy))
    primary, reset = torch.cat(taken).unbind(1)
    assert (primary.bincount(minlength=NUM_ACTIONS) / len(primary) - 1 / NUM_ACTIONS).abs().max() < 0.06
    assert abs(reset.float().mean() - 0.5) < 0.06


@pytest.mark.parametrize("objective", ["ppo", "v-trace"])
def test_nothing_is_learned_from_random_imaginary_actions(objective):
    env = noise_env(8)
    spec = dataclasses.replace(
        ThinkerAgentSpec() if objective == "ppo" else paper_settings(),
        tree_encoder="mlp",
        network_size="small",
        imaginary_actions="random",
        feature_cost=0.0,
    )
    network = as_if_learned(spec.build_network(env, seed=0, device=CPU))
    _, trajectory, unroll = played(env, network)
    assert (~unroll.given.next_is_real).any()
    learner = ActorCriticLearner(network, spec, discount=env.augmented_discount, stage_length=env.stage_length)
    before = network.heads.weight.clone()
    learner.learn(trajectory, 0.0)
    changed = (network.heads.weight != before).any(1)
    real, imaginary, reset, value = changed.split(network.heads.sizes)
    assert real.all()
    assert value.all()
    assert not imaginary.any()
    assert not reset.any()


def test_a_dropped_tree_is_all_zeros_as_often_as_asked_for_and_the_rest_stays():
    env, same = noise_env(300, stage_length=1), noise_env(300, stage_length=1)
    network = as_if_learned(build_network(env))
    dropping, seeing = begun(env, network, tree_dropout=0.2), begun(same, network)
    count = 0
    for _ in range(10):
        tree, whole = dropping.given.observation["tree"], seeing.given.observation["tree"]
        zero = (tree == 0).all(1)
        assert torch.equal(tree[~zero], whole[~zero])
        assert torch.equal(dropping.given.observation["hidden"], seeing.given.observation["hidden"])
        count += int(zero.sum())
        decision = seeing.act()
        for one, actor in ((env, dropping), (same, seeing)):
            actor.act()
            actor.observe(decision, *one.step(decision.actions, decision.policy))
    assert 500 < count < 700  # of 3,000


def test_the_trajectory_holds_the_dropped_trees():
    env = noise_env(6)
    network = as_if_learned(build_network(env))
    trajectory = trajectory_for(env, network, stages=4)
    collect(env, begun(env, network, trajectory=trajectory, tree_dropout=0.5), trajectory.num_steps)
    unroll = trajectory.read()
    zero = (unroll.given.observation["tree"] == 0).all(-1)
    assert zero.any()
    assert not zero.all()
    with torch.no_grad():
        output, _ = network(unroll.given, unroll.memory)
    torch.testing.assert_close(output.value, unroll.value, rtol=1e-4, atol=1e-4)


def test_dropped_trees_resume_exactly():
    env, other = noise_env(8), noise_env(8)
    network = as_if_learned(build_network(env))
    options = {"tree_dropout": 0.5, "tree_mask_probability": 0.5}
    actor, same = (begun(one, network, **options) for one in (env, other))
    for one, playing in ((env, actor), (other, same)):
        collect(one, playing, 6)
    resumed = NetworkActor(network, env, seed=9, **options)
    resumed.load_state_dict({name: value.clone() for name, value in actor.state_dict().items()})
    for _ in range(3):
        for one, playing in ((env, resumed), (other, same)):
            collect(one, playing, 3)
        assert torch.equal(resumed.given.observation["tree"], same.given.observation["tree"])


def test_trees_are_dropped_in_training_only():
    env = noise_env(8)
    agent = ThinkerAgentSpec(tree_dropout=1.0).build(env, seed=0, device=CPU)
    for trajectory, dropped in ((agent.trajectory(env), True), (None, False)):
        actor = agent.actor(env, seed=0, trajectory=trajectory)
        actor.begin(*env.reset())
        assert bool((actor.given.observation["tree"] == 0).all()) == dropped


def test_without_planning_rewards_the_agent_neither_sees_nor_predicts_them():
    env = noise_env(4)
    spec = ThinkerAgentSpec(planning_reward_scale=0.0)
    agent = spec.build(env, seed=0, device=CPU)
    assert agent.network.reward_names == ("real",)
    trajectory = agent.trajectory(env)
    actor = agent.actor(env, seed=0, trajectory=trajectory)
    actor.begin(*env.reset())
    collect(env, actor, trajectory.num_steps)
    unroll = trajectory.read()
    assert unroll.reward.shape[-1] == unroll.value.shape[-1] == unroll.given.last_reward.shape[-1] == 1
    metrics = agent.learner.learn(trajectory, 0.0)
    assert "loss/value_real" in metrics
    assert "loss/value_planning" not in metrics


def test_settings_that_make_no_sense_are_errors():
    with pytest.raises(UserError, match=r"tree_dropout is 1\.5; it must be between 0 and 1"):
        ThinkerAgentSpec(tree_dropout=1.5)
    with pytest.raises(UserError, match=r"imaginary_actions is 'none'; it must be one of 'learned', 'random'"):
        ThinkerAgentSpec(imaginary_actions="none")
    env = noise_env(2)
    with pytest.raises(UserError, match=r"tree_dropout is -0\.1"):
        NetworkActor(build_network(env), env, tree_dropout=-0.1)
