"""The paper's baseline: the same actor-critic on the raw MDP, with an encoder like the world model's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from gymnasium import spaces
from torch import nn

from thinker.agents.encoders import ObservationEncoder, RawNetworkSize, raw_encoder
from thinker.agents.learned import LearnedAgentSpec
from thinker.agents.network import (
    LAST_REAL,
    AgentInput,
    AgentNetwork,
    AgentOutput,
    Heads,
    Memory,
    build_seeded,
    real_state_space,
)
from thinker.agents.settings import check_choice
from thinker.augmented import ThinkerEnv
from thinker.interfaces import BoardStructure
from thinker.nn.blocks import initialise, one_hot_action
from thinker.nn.scale import RunningScale


class RawNetwork(AgentNetwork):
    """An encoder of the real state, and one final layer for policy and value."""

    observes = ("real_state",)
    reward_names = ("real",)

    def __init__(
        self,
        state_space: spaces.Box,
        num_actions: int,
        *,
        size: RawNetworkSize = "small",
        board: BoardStructure | None = None,
    ) -> None:
        super().__init__()
        self.num_actions = num_actions
        encoder = raw_encoder(state_space, num_actions, size, board)
        self.encoders = nn.ModuleDict({"real_state": encoder})
        initialise(self.encoders)
        self.reward_scale = RunningScale([0])
        self.heads = Heads(encoder.width + num_actions + 1, (num_actions, 1))

    def forward(self, given: AgentInput, memory: Memory) -> tuple[AgentOutput, Memory]:
        leading = given.episode_start.shape
        flat = given.map(lambda x: x.flatten(0, 1))
        last_action = flat.last_action[:, LAST_REAL]
        encoded = self.encoders["real_state"](flat.observation["real_state"], last_action)
        one_hot = one_hot_action(last_action, self.num_actions)
        features = torch.cat((encoded, one_hot, self.reward_scale(flat.last_reward)), 1)
        logits, value = self.heads(features)
        reset_logits = logits.new_zeros(len(logits), 2)
        outputs = (x.unflatten(0, leading) for x in (logits, reset_logits, value, features))
        return AgentOutput(*outputs), memory

    @torch.no_grad()
    def update_scales(self, given: AgentInput) -> None:
        self.reward_scale.update(given.last_reward.flatten(0, 1))
        encoder = self.encoders["real_state"]
        assert isinstance(encoder, ObservationEncoder)
        encoder.update_scale(given.observation["real_state"].flatten(0, 1))


@dataclass(frozen=True)
class RawAgentSpec(LearnedAgentSpec):
    """The actor-critic without planning, on the raw MDP."""

    network_size: RawNetworkSize = "small"  # size of the encoder; board: the board model's, for boards of 0s and 1s

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice(self, "network_size", get_args(RawNetworkSize))

    def acts_in(self) -> Literal["augmented", "raw"]:
        return "raw"

    def build_network(self, env: ThinkerEnv, *, seed: int, device: torch.device) -> AgentNetwork:
        space, num_actions = real_state_space(env), env.num_actions
        board = env.metadata.get("board")
        return build_seeded(lambda: RawNetwork(space, num_actions, size=self.network_size, board=board), seed, device)
