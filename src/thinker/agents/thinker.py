"""The paper's agent (section 5, appendix C): an actor-critic that sees its search tree and learns to plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from gymnasium import spaces
from torch import Tensor, nn

from thinker.agents.encoders import HiddenEncoder, SkipMLP, StateEncoder, tree_scale
from thinker.agents.learned import LearnedAgentSpec
from thinker.agents.network import (
    LAST_IMAGINARY,
    LAST_REAL,
    AgentInput,
    AgentNetwork,
    AgentOutput,
    Memory,
    build_seeded,
    final_layer,
    observation_spaces,
)
from thinker.agents.settings import NetworkSize, check_choice
from thinker.augmented import Layout, ThinkerEnv
from thinker.errors import UserError
from thinker.interfaces import NO_ACTION
from thinker.nn.blocks import initialise, one_hot_action
from thinker.nn.lstm_attention import LSTMAttention
from thinker.nn.scale import RunningScale

TreeEncoderName = Literal["lstm-attention", "mlp"]
RECURRENT_WIDTH = 128


class ThinkerNetwork(AgentNetwork):
    """Encoders for all observations, and one final layer for policies and values.

    Args:
        observation_spaces: of one environment: any of tree, hidden, root_hidden, real_state, predicted_state.
        num_actions: A.
        layout: of the tree representation; None if the tree is not observed.
        tree_encoder: "lstm-attention", or "mlp" without memory.
        size: "paper", or "small" for boards on a laptop.
    """

    reward_names = ("real", "planning")

    def __init__(
        self,
        observation_spaces: Mapping[str, spaces.Box],
        num_actions: int,
        layout: Layout | None,
        *,
        tree_encoder: TreeEncoderName = "mlp",
        size: NetworkSize = "small",
    ) -> None:
        super().__init__()
        if ("tree" in observation_spaces) != (layout is not None):
            raise UserError(
                f"the observations are {', '.join(observation_spaces)}, but the layout of the tree is {layout}; "
                f"give the layout (env.layout) if and only if the tree is observed"
            )
        self.num_actions = num_actions
        self.observes = tuple(observation_spaces)
        self.layout = layout

        self.encoders = nn.ModuleDict()
        width = 0
        for key, space in observation_spaces.items():
            if key == "tree":
                continue
            encoder: HiddenEncoder | StateEncoder
            if key in ("hidden", "root_hidden"):
                encoder = HiddenEncoder(space.shape, size)
            elif key in ("real_state", "predicted_state"):
                encoder = StateEncoder(space, num_actions, size)
            else:
                raise UserError(f"no encoder is known for the observation {key!r}; use those of ThinkerEnv's observe")
            self.encoders[key] = encoder
            width += encoder.width

        self.recurrent: LSTMAttention | None = None
        if layout is not None:
            self.tree_scale = tree_scale(layout)
            if tree_encoder == "mlp":
                self.tree_encoder: nn.Module = SkipMLP(layout.size)
                width += SkipMLP.WIDTH
            else:
                self.recurrent = LSTMAttention(RECURRENT_WIDTH)
                self.tree_encoder = nn.Sequential(nn.Linear(layout.size, RECURRENT_WIDTH), nn.ReLU())
                self.after_recurrent = nn.Sequential(nn.Linear(RECURRENT_WIDTH, RECURRENT_WIDTH), nn.ReLU())
                width += RECURRENT_WIDTH

        initialise(self.encoders)
        if layout is not None:
            initialise(self.tree_encoder)
        if self.recurrent is not None:
            initialise(self.after_recurrent)

        self.last_action_sizes = (num_actions, num_actions, 2)
        self.reward_scale = RunningScale(range(len(self.reward_names)))
        width += sum(self.last_action_sizes) + len(self.reward_names)
        self.head_sizes = (num_actions, num_actions, 2, len(self.reward_names))
        self.heads = final_layer(width, self.head_sizes)

    def initial_memory(self, batch: int) -> Memory:
        return {} if self.recurrent is None else self.recurrent.initial_memory(batch)

    def forward(self, given: AgentInput, memory: Memory) -> tuple[AgentOutput, Memory]:
        """See `AgentNetwork`. Everything that does not depend on memory is computed for all steps in one batch."""
        time, batch = given.episode_start.shape
        flat = given.map(lambda x: x.flatten(0, 1))
        parts = [encoder(flat.observation[key], _action_into(key, flat)) for key, encoder in self.encoders.items()]
        if self.layout is not None:
            tree = self.tree_encoder(self.tree_scale(flat.observation["tree"]))
            if self.recurrent is not None:
                tree, memory = self.recurrent(tree.unflatten(0, (time, batch)), given.episode_start, memory)
                tree = self.after_recurrent(tree.flatten(0, 1))
            parts.append(tree)
        for column, size in enumerate(self.last_action_sizes):
            parts.append(one_hot_action(flat.last_action[:, column], size))
        parts.append(self.reward_scale(flat.last_reward))
        features = torch.cat(parts, 1)

        real_logits, imaginary_logits, reset_logits, value = self.heads(features).split(self.head_sizes, 1)
        logits = torch.where(flat.next_is_real.unsqueeze(1), real_logits, imaginary_logits)
        outputs = (x.unflatten(0, (time, batch)) for x in (logits, reset_logits, value, features))
        return AgentOutput(*outputs), memory

    @torch.no_grad()
    def update_scales(self, given: AgentInput) -> None:
        flat = given.map(lambda x: x.flatten(0, 1))
        for key, encoder in self.encoders.items():
            encoder.update_scale(flat.observation[key])  # type: ignore[operator]
        if self.layout is not None:
            self.tree_scale.update(flat.observation["tree"])
        self.reward_scale.update(flat.last_reward)


def _action_into(key: str, flat: AgentInput) -> Tensor:
    """The action that led to the state ``key``: the last real action, or the imaginary action into the current node."""
    real = flat.last_action[:, LAST_REAL]
    if key != "predicted_state":
        return real
    imaginary = flat.last_action[:, LAST_IMAGINARY]
    return torch.where(imaginary == NO_ACTION, real, imaginary)


@dataclass(frozen=True)
class ThinkerAgentSpec(LearnedAgentSpec):
    """The agent that learns to plan. The defaults suit small boards on a laptop; see `paper_settings`."""

    tree_encoder: TreeEncoderName = "mlp"  # encoder of the tree representation: recurrent as in the paper, or an MLP
    network_size: NetworkSize = "small"  # size of the encoders
    planning_reward_scale: float = 1.0  # c^p at the start; 0 turns planning rewards off
    final_planning_reward_scale: float = 0.0  # c^p at the end, annealed linearly
    imaginary_entropy_cost: float = 1e-2  # entropy bonus of imaginary and reset actions

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice(self, "tree_encoder", get_args(TreeEncoderName))
        check_choice(self, "network_size", get_args(NetworkSize))

    def acts_in(self) -> Literal["augmented", "raw"]:
        return "augmented"

    def reward_scales(self, progress: float) -> dict[str, float]:
        first, final = self.planning_reward_scale, self.final_planning_reward_scale
        return {**super().reward_scales(progress), "planning": first + (final - first) * progress}

    def entropy_costs(self) -> dict[str, float]:
        return {**super().entropy_costs(), "imaginary": self.imaginary_entropy_cost}

    def build_network(self, env: ThinkerEnv, *, seed: int, device: torch.device) -> AgentNetwork:
        layout = env.layout if "tree" in env.observe else None
        seen = observation_spaces(env)

        def make() -> ThinkerNetwork:
            encoder = self.tree_encoder
            return ThinkerNetwork(seen, env.num_actions, layout, tree_encoder=encoder, size=self.network_size)

        return build_seeded(make, seed, device)


def paper_settings() -> ThinkerAgentSpec:
    """The actor-critic of the paper's table (appendix D): IMPALA with the LSTM-attention network."""
    return ThinkerAgentSpec(
        tree_encoder="lstm-attention",
        network_size="paper",
        objective="v-trace",
        unroll_stages=20,
        batch_size=16,
        epochs=1,
        trace_decay=1.0,
        importance_clip=1.0,
        trace_clip=1.0,
        normalise_advantages=False,
        planning_reward_scale=1.0,
        final_planning_reward_scale=0.0,
        loss_reduction="sum",
        baseline_scale=0.5,
        real_entropy_cost=1e-3,
        imaginary_entropy_cost=5e-5,
        feature_cost=1e-9,
        real_logits_cost=1e-6,
        learning_rate=6e-4,
        adam_beta_1=0.9,
        adam_beta_2=0.999,
        adam_epsilon=1e-8,
        gradient_norm_clip=1200.0,
    )
