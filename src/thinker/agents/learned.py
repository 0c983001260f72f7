"""A learned agent: its network, its actors and its learner."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

import torch

from thinker.agents.actor import NetworkActor
from thinker.agents.learner import ActorCriticLearner
from thinker.agents.network import AgentNetwork
from thinker.agents.settings import LearnerSettings
from thinker.agents.trajectory import Trajectory
from thinker.augmented import ThinkerEnv


@dataclass(frozen=True)
class LearnedAgent:
    """An agent built from a `LearnedAgentSpec`."""

    network: AgentNetwork
    learner: ActorCriticLearner
    unroll_stages: int
    tree_mask_probability: float = 0.0
    tree_dropout: float = 0.0

    def actor(
        self, env: ThinkerEnv, *, seed: int, greedy: bool = False, trajectory: Trajectory | None = None
    ) -> NetworkActor:
        """An actor for ``env``. With a ``trajectory`` it is one for training: it writes every step to the trajectory,
        and trees are hidden with ``tree_mask_probability`` and ``tree_dropout``."""
        hidden = {"tree_mask_probability": self.tree_mask_probability, "tree_dropout": self.tree_dropout}
        options = {} if trajectory is None else hidden
        return NetworkActor(self.network, env, seed=seed, greedy=greedy, trajectory=trajectory, **options)

    def trajectory(self, env: ThinkerEnv) -> Trajectory:
        """Storage for one unroll of all environments of ``env``."""
        steps = self.unroll_stages * env.stage_length
        return Trajectory(steps, env.num_envs, len(self.network.reward_names), self.network.device)


class LearnedAgentSpec(LearnerSettings, ABC):
    """Base class of the specs of learned agents: subclasses are frozen dataclasses that build a network."""

    @abstractmethod
    def acts_in(self) -> Literal["augmented", "raw", "raw-with-states"]:
        """Where the agent acts: in the augmented MDP, or with real steps only, with or without a model."""

    @abstractmethod
    def build_network(self, env: ThinkerEnv, *, seed: int, device: torch.device) -> AgentNetwork:
        """A network with new weights for ``env``."""

    def build(self, env: ThinkerEnv, *, seed: int, device: torch.device) -> LearnedAgent:
        """An agent with new weights for ``env``, and its learner."""
        network = self.build_network(env, seed=seed, device=device)
        learner = ActorCriticLearner(
            network, self, discount=env.augmented_discount, stage_length=env.stage_length, seed=seed + 2
        )
        return LearnedAgent(network, learner, self.unroll_stages)
