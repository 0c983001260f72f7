"""The agents learn small tasks in seconds: by looking, and by trying out in imagination what cannot be seen."""

import dataclasses

import pytest
from agents_support import NUM_ACTIONS, KeyEnvs, KeyModel

from thinker.agents import ActorCriticLearner, Agent, AgentSettings, Trajectory, build_network, collect, raw_env
from thinker.augmented import ThinkerEnv

SETTINGS = AgentSettings(batch_size=32, unroll_stages=2, learning_rate=3e-3, real_entropy_cost=1e-3)


def learned_return(env, settings, updates):
    """The mean return of the last episodes of training."""
    network = build_network(env, plans=env.stage_length > 1, tree_encoder=settings.tree_encoder)
    learner = ActorCriticLearner(network, settings, discount=env.augmented_discount)
    trajectory = Trajectory(settings.unroll_stages * env.stage_length, env.num_envs, len(network.reward_names))
    agent = Agent(network, env)
    agent.begin(*env.reset(seed=0))
    for update in range(updates):
        returns = collect(env, agent, trajectory).returns
        learner.learn(trajectory, update / updates)
    return returns.mean()


@pytest.mark.parametrize("objective", ["v-trace", "ppo"])
def test_the_raw_agent_learns_what_it_can_see(objective):
    env = raw_env(KeyEnvs(32), discount=0.9)
    assert learned_return(env, dataclasses.replace(SETTINGS, objective=objective), updates=40) > 0.95


@pytest.mark.parametrize(
    ("objective", "tree_encoder"), [("v-trace", "mlp"), ("ppo", "mlp"), ("v-trace", "lstm-attention")]
)
def test_the_planning_agent_learns_to_find_out_what_it_cannot_see(objective, tree_encoder):
    """The tree shows the reward of what was tried in imagination; blind choice earns a third."""
    envs = KeyEnvs(32)
    env = ThinkerEnv(envs, KeyModel(), stage_length=NUM_ACTIONS + 1, max_depth=1, discount=0.9, observe=("tree",))
    settings = dataclasses.replace(SETTINGS, objective=objective, tree_encoder=tree_encoder)
    assert learned_return(env, settings, updates=25) > 0.85
