"""Learned agents: one file per architecture, and the actor-critic that trains them (section 5, appendices C, D, G)."""

from thinker.agents.actor import NetworkActor
from thinker.agents.atreec import ATreeCNetwork, ATreeCSpec
from thinker.agents.drc import DRCNetwork, DRCSpec
from thinker.agents.i2a import I2ANetwork, I2ASpec
from thinker.agents.learned import LearnedAgent, LearnedAgentSpec
from thinker.agents.learner import ActorCriticLearner, NotFiniteError
from thinker.agents.network import AgentInput, AgentNetwork, AgentOutput, Heads, Memory
from thinker.agents.raw import RawAgentSpec, RawNetwork
from thinker.agents.real_state import RealStateNetwork, RealStateSpec
from thinker.agents.resnet import DeepImpalaNetwork, GuezResNet, ResNetSpec
from thinker.agents.settings import LearnerSettings
from thinker.agents.stage_length import convert_stage_length
from thinker.agents.thinker import ThinkerAgentSpec, ThinkerNetwork, paper_settings
from thinker.agents.trajectory import Trajectory, Unroll
from thinker.agents.vin import VINNetwork, VINSpec

__all__ = [
    "ATreeCNetwork",
    "ATreeCSpec",
    "ActorCriticLearner",
    "AgentInput",
    "AgentNetwork",
    "AgentOutput",
    "DRCNetwork",
    "DRCSpec",
    "DeepImpalaNetwork",
    "GuezResNet",
    "Heads",
    "I2ANetwork",
    "I2ASpec",
    "LearnedAgent",
    "LearnedAgentSpec",
    "LearnerSettings",
    "Memory",
    "NetworkActor",
    "NotFiniteError",
    "RawAgentSpec",
    "RawNetwork",
    "RealStateNetwork",
    "RealStateSpec",
    "ResNetSpec",
    "ThinkerAgentSpec",
    "ThinkerNetwork",
    "Trajectory",
    "Unroll",
    "VINNetwork",
    "VINSpec",
    "convert_stage_length",
    "paper_settings",
]
