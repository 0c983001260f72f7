"""The paper's agent (section 5, appendix C): an actor-critic that sees its search tree and learns to plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from gymnasium import spaces
from torch import Tensor, nn

from thinker.agents.encoders import HiddenEncoder, ObservationEncoder, RawNetworkSize, StateEncoder, raw_encoder
from thinker.agents.learned import LearnedAgent, LearnedAgentSpec
from thinker.agents.network import (
    LAST_IMAGINARY,
    LAST_REAL,
    AgentInput,
    AgentNetwork,
    AgentOutput,
    Heads,
    Memory,
    build_seeded,
    observation_spaces,
)
from thinker.agents.per_action import PerActionTreeEncoder
from thinker.agents.settings import NetworkSize, check_choice
from thinker.agents.tree_encoder import MLPTreeEncoder, RecurrentTreeEncoder, TreeEncoder
from thinker.augmented import Layout, ThinkerEnv
from thinker.errors import UserError
from thinker.interfaces import NO_ACTION, BoardStructure
from thinker.nn.blocks import initialise, one_hot_action
from thinker.nn.scale import RunningScale

TreeEncoderName = Literal["lstm-attention", "mlp", "per-action"]
ImaginaryActions = Literal["learned", "random"]
"""How imaginary and reset actions are chosen."""
REAL_STATE = "real_state"
"""The observation that does not change in a stage, and the key of its features in the memory."""


class ThinkerNetwork(AgentNetwork):
    """Encoders for all observations, and one final layer for policies and values.

    The real state is encoded once in a stage: its features are kept in the memory.

    Args:
        observation_spaces: of one environment: any of tree, hidden, root_hidden, real_state, predicted_state.
        num_actions: A.
        layout: of the tree representation; None if the tree is not observed.
        tree_encoder: "lstm-attention", "mlp" without memory, or "per-action", which treats actions alike.
        size: "paper", "small" for a laptop, or "board", which is small with the board model's encoder of real states.
        board: what the environment declares of its boards, if anything.
        imaginary_actions: "learned", or "random": uniform, whatever the input, so that there is nothing to learn.
        reward_names: the kinds of reward that it sees and predicts values for.
    """

    def __init__(
        self,
        observation_spaces: Mapping[str, spaces.Box],
        num_actions: int,
        layout: Layout | None,
        *,
        tree_encoder: TreeEncoderName = "mlp",
        size: RawNetworkSize = "small",
        board: BoardStructure | None = None,
        imaginary_actions: ImaginaryActions = "learned",
        reward_names: tuple[str, ...] = ("real", "planning"),
    ) -> None:
        super().__init__()
        if ("tree" in observation_spaces) != (layout is not None):
            raise UserError(
                f"the observations are {', '.join(observation_spaces)}, but the layout of the tree is {layout}; "
                f"give the layout (env.layout) if and only if the tree is observed"
            )
        if tree_encoder == "per-action" and layout is None:
            raise UserError("tree_encoder is 'per-action', which reads the tree; add 'tree' to the observations")
        self.num_actions = num_actions
        self.observes = tuple(observation_spaces)
        self.layout = layout
        self.reward_names = reward_names
        self.imaginary_actions = imaginary_actions

        self.encoders = nn.ModuleDict()
        others: NetworkSize = "small" if size == "board" else size
        width = 0
        for key, space in observation_spaces.items():
            if key == "tree":
                continue
            encoder: ObservationEncoder
            if key in ("hidden", "root_hidden"):
                encoder = HiddenEncoder(space.shape, others)
            elif key == REAL_STATE:
                encoder = raw_encoder(space, num_actions, size, board)
                self.real_state_width = encoder.width
            elif key == "predicted_state":
                encoder = StateEncoder(space, num_actions, others, board)
            else:
                raise UserError(f"no encoder is known for the observation {key!r}; use those of ThinkerEnv's observe")
            self.encoders[key] = encoder
            width += encoder.width

        initialise(self.encoders)

        self.last_action_sizes = (num_actions, num_actions, 2)
        self.reward_scale = RunningScale(range(len(self.reward_names)))
        self.tree = (
            None if layout is None else _tree_encoder(tree_encoder, layout, others, width + 2 + len(self.reward_names))
        )
        width += 0 if self.tree is None else self.tree.width
        width += sum(self.last_action_sizes) + len(self.reward_names)
        self.heads = Heads(width, (num_actions, num_actions, 2, len(self.reward_names)))

    def initial_memory(self, batch: int) -> Memory:
        memory = {} if self.tree is None else dict(self.tree.initial_memory(batch))
        if REAL_STATE in self.encoders:
            memory[REAL_STATE] = torch.zeros(batch, self.real_state_width, device=self.device)
        return memory

    def forward(self, given: AgentInput, memory: Memory) -> tuple[AgentOutput, Memory]:
        """See `AgentNetwork`. Everything that does not depend on memory is computed for all steps in one batch."""
        flat = given.map(lambda x: x.flatten(0, 1))
        memory, encoded = dict(memory), []
        for key, encoder in self.encoders.items():
            if key == REAL_STATE:
                features = self._real_state_features(given, flat, memory.pop(REAL_STATE))
                last_real_state = features[-given.episode_start.shape[1] :]
            else:
                features = encoder(flat.observation[key], _action_into(key, flat))
            encoded.append(features)
        *last_actions, last_reset = (
            one_hot_action(flat.last_action[:, column], size) for column, size in enumerate(self.last_action_sizes)
        )
        context = torch.cat((*encoded, last_reset, self.reward_scale(flat.last_reward)), 1)
        parts, own_logits = [context, *last_actions], None
        if self.tree is not None:
            features, own_logits, memory = self.tree(flat, context, given.episode_start, memory)
            parts.append(features)
        features = torch.cat(parts, 1)

        real_logits, imaginary_logits, reset_logits, value = self.heads(features)
        if own_logits is not None:
            real_logits, imaginary_logits = real_logits + own_logits[..., 0], imaginary_logits + own_logits[..., 1]
        if self.imaginary_actions == "random":
            imaginary_logits, reset_logits = torch.zeros_like(imaginary_logits), torch.zeros_like(reset_logits)
        logits = torch.where(flat.next_is_real.unsqueeze(1), real_logits, imaginary_logits)
        leading = given.episode_start.shape
        outputs = (x.unflatten(0, leading) for x in (logits, reset_logits, value, features))
        if REAL_STATE in self.encoders:
            memory = {**memory, REAL_STATE: last_real_state.detach()}
        return AgentOutput(*outputs), memory

    def _real_state_features(self, given: AgentInput, flat: AgentInput, remembered: Tensor) -> Tensor:
        """Features [T * B, F] of the real states; ``remembered`` [B, F] are those of the step before.

        Only the first step of a stage is encoded, where no imaginary action has been taken yet.
        """
        steps, batch = given.episode_start.shape
        new = (given.last_action[..., LAST_IMAGINARY] == NO_ACTION) | given.episode_start  # [T, B]
        rows = new.flatten().nonzero().squeeze(1)
        if not len(rows):
            return remembered.repeat(steps, 1)
        encoded = self.encoders[REAL_STATE](flat.observation[REAL_STATE][rows], flat.last_action[rows, LAST_REAL])
        # Of every step: the row of ``known`` with its features. The remembered ones come first.
        known = torch.cat((remembered.to(encoded.dtype), encoded))
        source = torch.zeros(steps + 1, batch, dtype=torch.int64, device=new.device)
        source[0] = torch.arange(batch, device=new.device)
        source[1:][new] = batch + torch.arange(len(rows), device=new.device)
        return known[source.cummax(0).values[1:].flatten()]

    @torch.no_grad()
    def update_scales(self, given: AgentInput) -> None:
        flat = given.map(lambda x: x.flatten(0, 1))
        for key, encoder in self.encoders.items():
            assert isinstance(encoder, ObservationEncoder)
            encoder.update_scale(flat.observation[key])
        if self.tree is not None:
            self.tree.update_scale(flat)
        self.reward_scale.update(flat.last_reward)


def _tree_encoder(name: TreeEncoderName, layout: Layout, size: NetworkSize, context_width: int) -> TreeEncoder:
    if name == "per-action":
        return PerActionTreeEncoder(layout, context_width)
    return MLPTreeEncoder(layout) if name == "mlp" else RecurrentTreeEncoder(layout, size)


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

    tree_encoder: TreeEncoderName = "mlp"  # recurrent as in the paper, an MLP, or one network for each action alike
    network_size: RawNetworkSize = "small"  # of the encoders and the RNN; board: real states as in the board model
    planning_reward_scale: float = 1.0  # c^p at the start; with 0 at the end too there are no planning rewards
    final_planning_reward_scale: float = 0.0  # c^p at the end, annealed linearly
    planning_reward_annealing: float = 1.0  # fraction of the run after which c^p stays at its final value
    tree_mask_probability: float = 0.0  # of real decisions in training that see no search, so that K = 1 works too
    tree_dropout: float = 0.0  # probability with which a step in training sees zeros instead of the tree
    imaginary_actions: ImaginaryActions = "learned"  # random: imaginary and reset actions are uniform and not trained
    trace_decay: float = 0.92  # λ per real step; per augmented step it is raised to 1 / K
    imaginary_entropy_cost: float = 1e-2  # entropy bonus of imaginary and reset actions

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice(self, "tree_encoder", get_args(TreeEncoderName))
        check_choice(self, "network_size", get_args(RawNetworkSize))
        check_choice(self, "imaginary_actions", get_args(ImaginaryActions))
        for name in ("tree_mask_probability", "tree_dropout"):
            if not 0 <= getattr(self, name) <= 1:
                raise UserError(f"{name} is {getattr(self, name)}; it must be between 0 and 1")
        if not 0 < self.planning_reward_annealing <= 1:
            annealing = self.planning_reward_annealing
            raise UserError(f"planning_reward_annealing is {annealing}; it must be greater than 0 and at most 1")

    def acts_in(self) -> Literal["augmented", "raw"]:
        return "augmented"

    def reward_scales(self, progress: float) -> dict[str, float]:
        first, final = self.planning_reward_scale, self.final_planning_reward_scale
        if first == final == 0:
            return super().reward_scales(progress)
        done = min(1.0, progress / self.planning_reward_annealing)
        return {**super().reward_scales(progress), "planning": first + (final - first) * done}

    def entropy_costs(self) -> dict[str, float]:
        return {**super().entropy_costs(), "imaginary": self.imaginary_entropy_cost}

    def build(self, env: ThinkerEnv, *, seed: int, device: torch.device) -> LearnedAgent:
        agent = super().build(env, seed=seed, device=device)
        return replace(agent, tree_mask_probability=self.tree_mask_probability, tree_dropout=self.tree_dropout)

    def build_network(self, env: ThinkerEnv, *, seed: int, device: torch.device) -> AgentNetwork:
        layout = env.layout if "tree" in env.observe else None
        seen = observation_spaces(env)

        def make() -> ThinkerNetwork:
            return ThinkerNetwork(
                seen,
                env.num_actions,
                layout,
                tree_encoder=self.tree_encoder,
                size=self.network_size,
                board=env.metadata.get("board"),
                imaginary_actions=self.imaginary_actions,
                reward_names=tuple(self.reward_scales(0.0)),
            )

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
