"""Specs of the learned agents: what they build, from what seed, for which environments, with which settings."""

import dataclasses

import pytest
import torch
from gymnasium import spaces

from tests.agents.support import CPU
from tests.fakes import NUM_ACTIONS, OBSERVE, NoiseEnvs, NoiseModel, noise_env, raw_env
from thinker.agents import (
    LearnerSettings,
    RawAgentSpec,
    RawNetwork,
    ThinkerAgentSpec,
    ThinkerNetwork,
    paper_settings,
)
from thinker.augmented import ThinkerEnv, layout
from thinker.errors import UserError

BOTH = pytest.mark.parametrize("raw", [False, True], ids=["ThinkerAgentSpec", "RawAgentSpec"])


def spec_and_env(raw, **settings):
    if raw:
        return RawAgentSpec(**settings), raw_env(NoiseEnvs(2))
    return ThinkerAgentSpec(**settings), noise_env(2, observe=OBSERVE)


# -------------------------------------------------------------------------------------------------- building


@BOTH
def test_weights_depend_on_the_seed_alone_and_the_global_generator_is_left_alone(raw):
    spec, env = spec_and_env(raw)
    torch.manual_seed(0)
    state = torch.get_rng_state()
    first = spec.build_network(env, seed=4, device=CPU)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(1)
    second, other = (spec.build_network(env, seed=seed, device=CPU) for seed in (4, 5))
    assert first.state_dict().keys() == second.state_dict().keys()
    assert all(torch.equal(value, second.state_dict()[name]) for name, value in first.state_dict().items())
    assert not torch.equal(first.heads.weight, other.heads.weight)


@BOTH
def test_a_whole_agent_has_the_weights_of_its_network_and_the_global_generator_is_left_alone(raw):
    spec, env = spec_and_env(raw)
    state = torch.get_rng_state()
    agent = spec.build(env, seed=4, device=CPU)
    assert torch.equal(torch.get_rng_state(), state)
    alone = spec.build_network(env, seed=4, device=CPU)
    assert all(torch.equal(one, other) for one, other in zip(agent.network.parameters(), alone.parameters()))
    assert agent.learner.network is agent.network
    assert agent.learner.settings == spec
    assert agent.learner.discount == env.augmented_discount


@BOTH
def test_an_agents_trajectory_and_actors_fit(raw):
    spec, env = spec_and_env(raw, unroll_stages=3)
    agent = spec.build(env, seed=0, device=CPU)
    trajectory = agent.trajectory(env)
    assert trajectory.num_steps == 3 * env.stage_length
    assert trajectory.num_envs == env.num_envs
    actor = agent.actor(env, seed=0, trajectory=trajectory)
    actor.begin(*env.reset())
    for _ in range(trajectory.num_steps):
        decision = actor.act()
        actor.observe(decision, *env.step(decision.actions, decision.policy))
    assert trajectory.is_complete
    assert trajectory.read().reward.shape == (trajectory.num_steps, 2, 1 if raw else 2)
    greedy = agent.actor(env, seed=0, greedy=True)
    greedy.begin(*env.reset())
    decision = greedy.act()
    assert torch.equal(decision.actions[:, 0], decision.policy.argmax(1))


def test_the_networks_say_what_they_are():
    thinker, env = spec_and_env(raw=False)
    network = thinker.build_network(env, seed=0, device=CPU)
    assert isinstance(network, ThinkerNetwork)
    assert set(network.observes) == set(OBSERVE)
    assert network.reward_names == ("real", "planning")
    assert network.layout == env.layout
    assert (network.num_actions, network.device) == (NUM_ACTIONS, CPU)
    raw, env = spec_and_env(raw=True)
    network = raw.build_network(env, seed=0, device=CPU)
    assert isinstance(network, RawNetwork)
    assert network.observes == ("real_state",)
    assert network.reward_names == ("real",)
    assert network.layout is None
    assert (network.num_actions, network.device) == (NUM_ACTIONS, CPU)
    assert (thinker.acts_in(), raw.acts_in()) == ("augmented", "raw")


def test_a_network_that_does_not_see_the_tree_has_no_layout():
    env = noise_env(2, observe=("hidden",))
    assert ThinkerAgentSpec().build_network(env, seed=0, device=CPU).layout is None


# ---------------------------------------------------------------------------------------- wrong observations


@pytest.mark.parametrize("observe", [("tree",), ("tree", "real_state"), ("real_state", "hidden"), OBSERVE])
def test_the_raw_agent_refuses_to_see_more_than_the_real_state(observe):
    shown = ", ".join(sorted(observe))
    with pytest.raises(UserError, match=rf"sees only the real state, but the environment shows {shown}"):
        RawAgentSpec().build(noise_env(2, observe=observe), seed=0, device=CPU)


def test_a_network_for_the_tree_needs_its_layout():
    tree = {"tree": spaces.Box(-1, 1, (42,))}
    with pytest.raises(UserError, match="give the layout"):
        ThinkerNetwork(tree, NUM_ACTIONS, None)
    with pytest.raises(UserError, match="give the layout"):
        ThinkerNetwork({"hidden": spaces.Box(-1, 1, (4,))}, NUM_ACTIONS, layout(NUM_ACTIONS, 3))


def test_an_observation_without_an_encoder_is_refused():
    with pytest.raises(UserError, match="no encoder is known for the observation 'sound'"):
        ThinkerNetwork({"sound": spaces.Box(-1, 1, (4,))}, NUM_ACTIONS, None)


def test_observations_that_are_not_boxes_are_refused():
    env = noise_env(2)
    env.single_observation_space = spaces.Dict({"tree": spaces.Discrete(3)})
    with pytest.raises(UserError, match=r"the observation 'tree' is a Discrete\(3\)"):
        ThinkerAgentSpec().build_network(env, seed=0, device=CPU)


# -------------------------------------------------------------------------------------------------- settings


def test_the_papers_settings_are_those_of_its_table():
    paper = paper_settings()
    assert isinstance(paper, ThinkerAgentSpec)
    assert paper.learning_rate == 6e-4
    assert (paper.adam_beta_1, paper.adam_beta_2, paper.adam_epsilon) == (0.9, 0.999, 1e-8)
    assert (paper.batch_size, paper.unroll_stages) == (16, 20)
    assert (paper.baseline_scale, paper.gradient_norm_clip) == (0.5, 1200)
    assert (paper.real_entropy_cost, paper.imaginary_entropy_cost) == (1e-3, 5e-5)
    assert (paper.planning_reward_scale, paper.final_planning_reward_scale) == (1, 0)
    assert (paper.feature_cost, paper.real_logits_cost) == (1e-9, 1e-6)
    assert (paper.tree_encoder, paper.objective) == ("lstm-attention", "v-trace")


def test_planning_rewards_fade_and_real_ones_do_not():
    spec = ThinkerAgentSpec(planning_reward_scale=2.0, final_planning_reward_scale=1.0)
    assert spec.reward_scales(0.0) == {"real": 1.0, "planning": 2.0}
    assert spec.reward_scales(0.25) == {"real": 1.0, "planning": 1.75}
    assert spec.reward_scales(1.0) == {"real": 1.0, "planning": 1.0}
    assert RawAgentSpec().reward_scales(0.5) == {"real": 1.0}


def test_planning_rewards_can_fade_in_the_first_part_of_a_run():
    spec = ThinkerAgentSpec(planning_reward_scale=2.0, final_planning_reward_scale=1.0, planning_reward_annealing=0.5)
    scales = [spec.reward_scales(progress)["planning"] for progress in (0.0, 0.125, 0.25, 0.5, 0.75, 1.0)]
    assert scales == [2.0, 1.75, 1.5, 1.0, 1.0, 1.0]


def test_trace_decay_is_meant_per_real_step():
    """The defaults were chosen with 0.99 per augmented step at K = 8, and 0.99 per step without planning."""
    env = noise_env(2, stage_length=8)
    learner = ThinkerAgentSpec().build(env, seed=0, device=CPU).learner
    assert learner.trace_decay == pytest.approx(0.99, abs=1e-3)
    raw = RawAgentSpec()
    assert raw.build(raw_env(NoiseEnvs(2)), seed=0, device=CPU).learner.trace_decay == raw.trace_decay == 0.99
    assert paper_settings().trace_decay == 1


def test_only_actors_for_training_mask_the_tree():
    env = noise_env(2)
    agent = ThinkerAgentSpec(tree_mask_probability=1.0).build(env, seed=0, device=CPU)
    for trajectory, expected in ((agent.trajectory(env), 0), (None, 2)):
        actor = agent.actor(env, seed=0, trajectory=trajectory)
        actor.begin(*env.reset())
        for _ in range(2):
            decision = actor.act()
            actor.observe(decision, *env.step(decision.actions, decision.policy))
        assert actor.given.next_is_real.all()
        visits = env.decode(actor.given.observation["tree"])["root_child_visits"] * env.stage_length
        assert (visits.sum(1) == 0).all() if expected == 0 else (visits.sum(1) >= 1).all()


def test_entropy_costs_are_those_of_the_actions_there_are():
    assert RawAgentSpec(real_entropy_cost=0.5).entropy_costs() == {"real": 0.5}
    spec = ThinkerAgentSpec(real_entropy_cost=0.5, imaginary_entropy_cost=0.25)
    assert spec.entropy_costs() == {"real": 0.5, "imaginary": 0.25}


WRONG = [
    ({"objective": "dqn"}, "objective is 'dqn'; it must be one of 'v-trace', 'ppo'"),
    ({"loss_reduction": "max"}, "loss_reduction is 'max'; it must be one of 'sum', 'mean'"),
    ({"batch_size": 0}, "batch_size is 0; it must be at least 1"),
    ({"trace_decay": 1.5}, "trace_decay is 1.5; it must be between 0 and 1"),
    ({"learning_rate": 0}, "learning_rate is 0; it must be greater than 0"),
    ({"learning_rate": float("nan")}, "learning_rate is nan"),
    ({"feature_cost": -1}, "feature_cost is -1; it must not be negative"),
]


@pytest.mark.parametrize("kind", [LearnerSettings, ThinkerAgentSpec, RawAgentSpec])
@pytest.mark.parametrize(("wrong", "message"), WRONG, ids=str)
def test_settings_that_make_no_sense_are_errors(kind, wrong, message):
    with pytest.raises(UserError, match=message):
        kind(**wrong)


@pytest.mark.parametrize(
    ("kind", "wrong", "message"),
    [
        (ThinkerAgentSpec, {"tree_encoder": "cnn"}, "tree_encoder is 'cnn'; it must be one of"),
        (ThinkerAgentSpec, {"network_size": "huge"}, "network_size is 'huge'; it must be one of 'paper', 'small'"),
        (RawAgentSpec, {"network_size": "huge"}, "network_size is 'huge'; it must be one of 'paper', 'small', 'board'"),
        (ThinkerAgentSpec, {"imaginary_entropy_cost": -1.0}, "imaginary_entropy_cost is -1.0; it must not be negative"),
        (ThinkerAgentSpec, {"planning_reward_scale": -1.0}, "planning_reward_scale is -1.0; it must not be negative"),
        (ThinkerAgentSpec, {"tree_mask_probability": 1.5}, "tree_mask_probability is 1.5; it must be between 0 and 1"),
        (ThinkerAgentSpec, {"planning_reward_annealing": 0.0}, "planning_reward_annealing is 0.0; it must be greater"),
        (ThinkerAgentSpec, {"planning_reward_annealing": 2.0}, "planning_reward_annealing is 2.0; .* at most 1"),
    ],
    ids=str,
)
def test_settings_of_one_kind_of_agent_are_checked_too(kind, wrong, message):
    with pytest.raises(UserError, match=message):
        kind(**wrong)


def test_specs_cannot_be_changed_and_can_be_compared():
    spec = ThinkerAgentSpec()
    with pytest.raises(dataclasses.FrozenInstanceError):
        spec.batch_size = 1
    assert spec == ThinkerAgentSpec()
    assert spec != dataclasses.replace(spec, batch_size=3)


def test_an_agent_is_made_for_other_numbers_of_environments():
    """Networks know nothing of how many environments there are, so one agent can play in several."""
    agent = ThinkerAgentSpec().build(noise_env(2), seed=0, device=CPU)
    for num_envs in (1, 5):
        env = ThinkerEnv(NoiseEnvs(num_envs), NoiseModel((4,)), stage_length=4, seed=0)
        actor = agent.actor(env, seed=0)
        actor.begin(*env.reset())
        assert actor.act().actions.shape == (num_envs, 2)
