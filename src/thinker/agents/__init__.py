"""Who acts in the augmented MDP and how it learns: the actor-critic of the paper's section 5 and appendices C, D, G."""

from thinker.agents.agent import Agent, Decision, Episodes, collect
from thinker.agents.learner import ActorCriticLearner, NotFiniteError
from thinker.agents.networks import ActorCritic, AgentInput, AgentOutput, RawActorCritic, build_network
from thinker.agents.raw import raw_env
from thinker.agents.settings import AgentSettings, paper_raw_settings, paper_settings
from thinker.agents.stage_length import convert_stage_length
from thinker.agents.trajectory import Trajectory, Unroll

__all__ = [
    "ActorCritic",
    "ActorCriticLearner",
    "Agent",
    "AgentInput",
    "AgentOutput",
    "AgentSettings",
    "Decision",
    "Episodes",
    "NotFiniteError",
    "RawActorCritic",
    "Trajectory",
    "Unroll",
    "build_network",
    "collect",
    "convert_stage_length",
    "paper_raw_settings",
    "paper_settings",
    "raw_env",
]
