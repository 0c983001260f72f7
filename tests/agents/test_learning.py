"""The agents learn small tasks in seconds: by looking, and by trying out in imagination what cannot be seen."""

import pytest

from tests.agents.support import CPU
from tests.fakes import NUM_ACTIONS, KeyEnvs, KeyModel, raw_env
from thinker.agents import RawAgentSpec, ThinkerAgentSpec
from thinker.augmented import ThinkerEnv, collect

SETTINGS = {"batch_size": 32, "unroll_stages": 2, "learning_rate": 3e-3, "real_entropy_cost": 1e-3}


def learned_return(env, spec, updates):
    """The mean return of the last episodes of training."""
    agent = spec.build(env, seed=0, device=CPU)
    trajectory = agent.trajectory(env)
    actor = agent.actor(env, seed=0, trajectory=trajectory)
    actor.begin(*env.reset(seed=0))
    for update in range(updates):
        returns = collect(env, actor, trajectory.num_steps).returns
        agent.learner.learn(trajectory, update / updates)
    return returns.mean()


@pytest.mark.parametrize("objective", ["v-trace", "ppo"])
def test_the_raw_agent_learns_what_it_can_see(objective):
    env = raw_env(KeyEnvs(32))
    assert learned_return(env, RawAgentSpec(objective=objective, **SETTINGS), updates=40) > 0.95


@pytest.mark.parametrize(
    ("objective", "tree_encoder"),
    [("v-trace", "mlp"), ("ppo", "mlp"), ("v-trace", "lstm-attention"), ("ppo", "per-action")],
)
def test_the_planning_agent_learns_to_find_out_what_it_cannot_see(objective, tree_encoder):
    """The tree shows the reward of what was tried in imagination; blind choice earns a third."""
    envs = KeyEnvs(32)
    env = ThinkerEnv(envs, KeyModel(), stage_length=NUM_ACTIONS + 1, max_depth=1, discount=0.9, observe=("tree",))
    spec = ThinkerAgentSpec(objective=objective, tree_encoder=tree_encoder, **SETTINGS)
    assert learned_return(env, spec, updates=25) > 0.85
