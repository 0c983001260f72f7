"""ATreeC (Farquhar et al., 2018): an actor-critic whose policy is the result of a small tree search inside the network.

The encoder's state is expanded by every action to a fixed depth with a learned transition, and the predicted rewards
and values are backed up to the root. The tree is trained end to end with the policy; only its rewards are grounded, by
a loss along the actions that were taken.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn import functional

from thinker.agents.encoders import RawNetworkSize, raw_encoder
from thinker.agents.learned import LearnedAgentSpec
from thinker.agents.network import (
    INITIAL_HEAD_SCALE,
    LAST_REAL,
    AgentInput,
    AgentNetwork,
    AgentOutput,
    FinalLayer,
    Heads,
    Memory,
    build_seeded,
    real_state_space,
)
from thinker.agents.settings import check_choice
from thinker.agents.trajectory import Unroll
from thinker.augmented import ThinkerEnv
from thinker.errors import UserError
from thinker.interfaces import BoardStructure
from thinker.nn.blocks import initialise

TransitionInput = Literal["intermediate", "state"]
"""What the action's part of a transition sees: the state after the shared part, or the state before it."""


def soft_backup(
    rewards: Sequence[Tensor],  # [N, A^l] for l = 1 .. depth: on reaching the nodes of that depth
    values: Sequence[Tensor],  # [N, A^l] likewise: of these nodes
    discount: float,
    weight: float,
) -> Tensor:
    """The root's action values [N, A], backed up from the leaves.

    Children of node i are the nodes i A .. i A + A - 1 of the next depth. A child is worth q = r + γ V. The value V of
    a leaf is its predicted value v; above, V = (1 - λ) v + λ Σ_a softmax(q)_a q_a with λ = ``weight``.
    """
    num_actions = rewards[0].shape[1]
    backed_up = values[-1]
    for depth in range(len(rewards) - 1, 0, -1):
        q = (rewards[depth] + discount * backed_up).unflatten(1, (-1, num_actions))  # [N, A^depth, A]
        backed_up = (1 - weight) * values[depth - 1] + weight * (q.softmax(-1) * q).sum(-1)
    return rewards[0] + discount * backed_up


def normalised(state: Tensor) -> Tensor:
    """States [..., width] scaled to length √width, so that their numbers have the size 1 whatever the width."""
    return functional.normalize(state, dim=-1) * math.sqrt(state.shape[-1])


class Transition(nn.Module):
    """Normalised states [..., width] to those after every action, [..., A, width].

    A part that all actions share, z' = z + tanh(W z + b), then one for each action, z_a = z' + tanh(W_a z') or, with
    ``sees="state"``, z_a = z' + tanh(W_a z).
    """

    def __init__(self, width: int, num_actions: int, sees: TransitionInput) -> None:
        super().__init__()
        self.num_actions, self.sees = num_actions, sees
        self.shared = nn.Linear(width, width)
        self.by_action = nn.Linear(width, num_actions * width, bias=False)

    def forward(self, state: Tensor) -> Tensor:
        intermediate = state + self.shared(state).tanh()
        seen = intermediate if self.sees == "intermediate" else state
        change = self.by_action(seen).tanh().unflatten(-1, (self.num_actions, -1))
        return normalised(intermediate.unsqueeze(-2) + change)


class ATreeCNetwork(AgentNetwork):
    """An encoder, the tree over its state, and a critic that sees the encoder's state alone.

    Args:
        state_space: of one real state.
        num_actions: A.
        discount: γ of the real MDP.
        depth: of the tree, at least 1.
        backup_weight: λ of `soft_backup`.
        transition_input: see `Transition`.
        reward_width: of the hidden layer that predicts rewards.
        size: of the encoder.
        board: what the environment declares about its boards, if anything.
    """

    observes = ("real_state",)
    reward_names = ("real",)

    def __init__(
        self,
        state_space: spaces.Box,
        num_actions: int,
        *,
        discount: float,
        depth: int = 2,
        backup_weight: float = 0.8,
        transition_input: TransitionInput = "intermediate",
        reward_width: int = 64,
        size: RawNetworkSize = "small",
        board: BoardStructure | None = None,
    ) -> None:
        super().__init__()
        self.num_actions = num_actions
        self.discount, self.depth, self.backup_weight = discount, depth, backup_weight
        self.encoder = raw_encoder(state_space, num_actions, size, board)
        initialise(self.encoder)
        width = self.encoder.width
        self.transition = Transition(width, num_actions, transition_input)
        self.reward = nn.Sequential(nn.Linear(width, reward_width), nn.ReLU(), FinalLayer(reward_width, num_actions))
        self.value = nn.Linear(width, 1, bias=False)  # a constant would add the same to every logit
        nn.init.normal_(self.value.weight, std=INITIAL_HEAD_SCALE / math.sqrt(width))
        self.critic = Heads(width, (1,))

    def forward(self, given: AgentInput, memory: Memory) -> tuple[AgentOutput, Memory]:
        leading = given.episode_start.shape
        flat = given.map(lambda x: x.flatten(0, 1))
        encoded = self.encoder(flat.observation["real_state"], flat.last_action[:, LAST_REAL])
        state = normalised(encoded)
        rewards, values = self.expand(state)
        logits = soft_backup(rewards, values, self.discount, self.backup_weight)
        reset_logits = logits.new_zeros(len(logits), 2)
        (value,) = self.critic(state)
        named = {"logits": logits, "reset_logits": reset_logits, "value": value, "features": state}
        outputs = {name: x.unflatten(0, leading) for name, x in named.items()}
        return AgentOutput(**outputs, auxiliary={"rewards": torch.cat(rewards, 1).unflatten(0, leading)}), memory

    def expand(self, state: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """The tree below states [N, width]: rewards and values [N, A^l] of the nodes at depth l = 1 .. depth."""
        rewards, values = [], []
        nodes = state.unsqueeze(1)  # [N, A^l, width]
        for _ in range(self.depth):
            rewards.append(self.reward(nodes).flatten(1))
            nodes = self.transition(nodes).flatten(1, 2)
            values.append(self.value(nodes).squeeze(2))
        return rewards, values

    @torch.no_grad()
    def update_scales(self, given: AgentInput) -> None:
        self.encoder.update_scale(given.observation["real_state"].flatten(0, 1))

    def auxiliary_losses(self, unroll: Unroll, output: AgentOutput) -> dict[str, Tensor]:
        """Reward grounding: half the squared errors of the rewards predicted along the actions taken from each step.

        The errors of all depths are summed, as far as episode and unroll go.
        """
        predicted = output.auxiliary["rewards"]  # [T + 1, B, A + A^2 + ...]
        action, reward = unroll.action[..., 0], unroll.reward[..., 0]
        ended = unroll.terminated | unroll.truncated
        loss = torch.zeros_like(reward)
        node, known = torch.zeros_like(action), torch.ones_like(ended)  # of the steps 0 .. steps - 1 at this depth
        first, nodes = 0, self.num_actions  # where this depth's rewards begin, and how many there are
        for depth in range(min(self.depth, len(reward))):
            steps = len(reward) - depth
            node = node[:steps] * self.num_actions + action[depth:]
            chosen = predicted[:steps, :, first : first + nodes].gather(2, node.unsqueeze(2)).squeeze(2)
            error = functional.pad((chosen - reward[depth:]) * known[:steps], (0, 0, 0, depth))
            loss = loss + 0.5 * error.square()
            known = known[:steps] & ~ended[depth:]
            first, nodes = first + nodes, nodes * self.num_actions
        return {"reward": loss}


@dataclass(frozen=True)
class ATreeCSpec(LearnedAgentSpec):
    """ATreeC: a tree of abstract states inside the network, on the raw MDP."""

    depth: int = 2  # of the tree; it has A^depth leaves
    backup_weight: float = 0.8  # λ: weight of the backed-up value of an inner node, and 1 - λ of its predicted value
    transition_input: TransitionInput = "intermediate"  # what the action's part of the transition sees
    reward_width: int = 64  # of the hidden layer that predicts rewards
    reward_loss_scale: float = 1.0  # scale of the reward grounding
    network_size: RawNetworkSize = "small"  # size of the encoder; board: the board model's, for boards of 0s and 1s

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice(self, "network_size", get_args(RawNetworkSize))
        check_choice(self, "transition_input", get_args(TransitionInput))
        for name in ("depth", "reward_width"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if not 0 <= self.backup_weight <= 1:
            raise UserError(f"backup_weight is {self.backup_weight}; it must be between 0 and 1")

    def acts_in(self) -> Literal["raw"]:
        return "raw"

    def auxiliary_scales(self) -> dict[str, float]:
        return {"reward": self.reward_loss_scale}

    def build_network(self, env: ThinkerEnv, *, seed: int, device: torch.device) -> AgentNetwork:
        space, board = real_state_space(env), env.metadata.get("board")

        def make() -> ATreeCNetwork:
            return ATreeCNetwork(
                space,
                env.num_actions,
                discount=env.discount,
                depth=self.depth,
                backup_weight=self.backup_weight,
                transition_input=self.transition_input,
                reward_width=self.reward_width,
                size=self.network_size,
                board=board,
            )

        return build_seeded(make, seed, device)
