"""Networks and actors for the tests of the agents."""

from __future__ import annotations

import torch

from thinker.agents import AgentNetwork, NetworkActor, RawAgentSpec, ThinkerAgentSpec, Trajectory, Unroll
from thinker.augmented import ThinkerEnv, collect
from thinker.nn.centre import RunningCentre
from thinker.nn.scale import RunningScale

CPU = torch.device("cpu")


def build_network(env: ThinkerEnv, *, raw: bool = False, seed: int = 0, **settings) -> AgentNetwork:
    """A network with fresh weights; ``settings`` are those of its spec."""
    spec = RawAgentSpec(**settings) if raw else ThinkerAgentSpec(**settings)
    return spec.build_network(env, seed=seed, device=CPU)


def as_if_learned(network: AgentNetwork) -> AgentNetwork:
    """Policies that are far from uniform, inputs that are scaled, and values with a unit."""
    with torch.no_grad():
        network.heads.weight.normal_(generator=torch.Generator().manual_seed(1))
    for module in network.modules():
        if isinstance(module, RunningScale):
            module.factor.fill_(0.7)
        if isinstance(module, RunningCentre):
            module.mean.fill_(0.3)
            module.mean_square.fill_(0.04)
    network.set_value_unit(torch.full((len(network.reward_names),), 0.4))
    return network


def begun(env: ThinkerEnv, network: AgentNetwork, **options) -> NetworkActor:
    """An actor at the beginning of new episodes."""
    actor = NetworkActor(network, env, **options)
    actor.begin(*env.reset())
    return actor


def trajectory_for(env: ThinkerEnv, network: AgentNetwork, stages: int) -> Trajectory:
    return Trajectory(stages * env.stage_length, env.num_envs, len(network.reward_names))


def played(env: ThinkerEnv, network: AgentNetwork, stages: int = 3) -> tuple[NetworkActor, Trajectory, Unroll]:
    """An actor's unroll of some stages, after one that was only for its memory to fill."""
    trajectory = trajectory_for(env, network, stages)
    actor = begun(env, network, seed=3, trajectory=trajectory)
    for _ in range(2):
        collect(env, actor, trajectory.num_steps)
    return actor, trajectory, trajectory.read()
