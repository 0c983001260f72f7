"""The actor-critic network (appendix C), for the augmented MDP and, as the paper's baseline, for the raw one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from gymnasium import spaces
from torch import Tensor, nn

from thinker.agents.encoders import HiddenEncoder, SkipMLP, StateEncoder, tree_scale
from thinker.agents.memory import LSTMAttention, Memory
from thinker.agents.scale import RunningScale
from thinker.agents.settings import NetworkSize, TreeEncoderName
from thinker.augmented import Layout, ThinkerEnv
from thinker.world_model.blocks import initialise, one_hot_action
from thinker.world_model.protocol import EPISODE_START

NO_ACTION = EPISODE_START
"""A last action where there is none. The one-hot encoding of it is zeros."""
LAST_REAL, LAST_IMAGINARY, LAST_RESET = 0, 1, 2
"""Columns of `AgentInput.last_action`."""
RECURRENT_WIDTH = 128
INITIAL_HEAD_SCALE = 0.01
"""New agents begin with nearly uniform policies and values near 0."""


@dataclass(frozen=True)
class AgentInput:
    """What the agent knows when it acts. Leading dimensions: [E], or [T, B] of a trajectory."""

    observation: dict[str, Tensor]  # [..., *shape]
    episode_start: Tensor  # [...] bool         the first step of an episode
    next_is_real: Tensor  # [...] bool          the action to take is a real one
    last_action: Tensor  # [..., 3] int64       real, imaginary, reset; NO_ACTION where there was none in this
    #                                           episode (real) or in this stage (imaginary, reset)
    last_reward: Tensor  # [..., R] float32     real, planning

    def map(self, change: Callable[[Tensor], Tensor]) -> AgentInput:
        """The same with ``change`` made to every tensor."""
        return AgentInput(
            {key: change(value) for key, value in self.observation.items()},
            change(self.episode_start),
            change(self.next_is_real),
            change(self.last_action),
            change(self.last_reward),
        )


@dataclass(frozen=True)
class AgentOutput:
    """What the network says, with the leading dimensions of its input."""

    logits: Tensor  # [..., A]  of the action to take: the real or the imaginary one
    reset_logits: Tensor  # [..., 2]  zeros on the raw MDP
    value: Tensor  # [..., R]  of the real and the planning rewards to come
    features: Tensor  # [..., F]  the final layer's input


class ActorCritic(nn.Module):
    """Encoders for everything that is observed, and one final layer for policies and values.

    Args:
        observation_space: of one environment: any choice of tree, hidden, root_hidden, real_state, predicted_state.
        num_actions: A.
        layout: of the tree representation that the network is made for; None if the tree is not observed.
        tree_encoder: "lstm-attention", or "mlp" without memory.
        size: "paper", or "small" for boards on a laptop.
        plans: whether there are imaginary steps to act in; without them there is only the real policy and its value.
    """

    def __init__(
        self,
        observation_space: spaces.Dict,
        num_actions: int,
        layout: Layout | None,
        *,
        tree_encoder: TreeEncoderName = "mlp",
        size: NetworkSize = "small",
        plans: bool = True,
    ) -> None:
        super().__init__()
        if ("tree" in observation_space.spaces) != (layout is not None):
            raise ValueError(
                f"the observations are {', '.join(observation_space.spaces)}, but the layout of the tree is {layout}; "
                f"give the layout (env.layout) if and only if the tree is observed"
            )
        self.num_actions = num_actions
        self.layout = layout
        self.plans = plans
        self.reward_names = ("real", "planning") if plans else ("real",)

        self.encoders = nn.ModuleDict()
        for key, space in observation_space.spaces.items():
            if key in ("hidden", "root_hidden"):
                assert space.shape is not None
                self.encoders[key] = HiddenEncoder(space.shape, size)
            elif key in ("real_state", "predicted_state"):
                self.encoders[key] = StateEncoder(space, num_actions, size)
            elif key != "tree":
                raise ValueError(f"no encoder is known for the observation {key!r}; use those of ThinkerEnv's observe")
        width = sum(encoder.width for encoder in self.encoders.values())  # type: ignore[misc]

        self.recurrent: LSTMAttention | None = None
        if layout is not None:
            self.tree_scale = tree_scale(layout)
            if tree_encoder == "mlp":
                self.tree_encoder: nn.Module = SkipMLP(layout.size)
                width += self.tree_encoder.width
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

        self.last_action_sizes = (num_actions, num_actions, 2) if plans else (num_actions,)
        self.reward_scale = RunningScale(range(len(self.reward_names)))
        width += sum(self.last_action_sizes) + len(self.reward_names)
        # The separate final layers are the rows of one matrix.
        self.head_sizes = (num_actions, num_actions, 2, len(self.reward_names)) if plans else (num_actions, 1)
        self.heads = nn.Linear(width, sum(self.head_sizes))
        with torch.no_grad():
            self.heads.weight.mul_(INITIAL_HEAD_SCALE)
            self.heads.bias.zero_()

    def initial_memory(self, batch: int) -> Memory:
        """The memory of ``batch`` environments before anything has happened."""
        return {} if self.recurrent is None else self.recurrent.initial_memory(batch)

    def forward(self, given: AgentInput, memory: Memory) -> tuple[AgentOutput, Memory]:
        """Inputs [T, B, ...] of consecutive steps, and the memory [B, ...] before the first of them.

        All that does not depend on memory is computed for all steps in one batch.
        """
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

        heads = self.heads(features).split(self.head_sizes, 1)
        if self.plans:
            real_logits, imaginary_logits, reset_logits, value = heads
            logits = torch.where(flat.next_is_real.unsqueeze(1), real_logits, imaginary_logits)
        else:
            logits, value = heads
            reset_logits = logits.new_zeros(len(logits), 2)
        outputs = (x.unflatten(0, (time, batch)) for x in (logits, reset_logits, value, features))
        return AgentOutput(*outputs), memory

    @torch.no_grad()
    def update_scales(self, given: AgentInput) -> None:
        """Let the running scales of the inputs learn from a trajectory [T, B, ...]."""
        flat = given.map(lambda x: x.flatten(0, 1))
        for key, encoder in self.encoders.items():
            encoder.update_scale(flat.observation[key])  # type: ignore[operator]
        if self.layout is not None:
            self.tree_scale.update(flat.observation["tree"])
        self.reward_scale.update(flat.last_reward)


class RawActorCritic(ActorCritic):
    """The paper's baseline: the same on the raw MDP, with an encoder like the world model's."""

    def __init__(self, observation_space: spaces.Dict, num_actions: int, *, size: NetworkSize = "small") -> None:
        if tuple(observation_space.spaces) != ("real_state",):
            raise ValueError(
                f"on the raw MDP the real state is all there is to observe, not {', '.join(observation_space.spaces)}; "
                f"wrap the environments with thinker.agents.raw_env"
            )
        super().__init__(observation_space, num_actions, None, size=size, plans=False)


def build_network(
    env: ThinkerEnv,
    *,
    tree_encoder: TreeEncoderName = "mlp",
    size: NetworkSize = "small",
    plans: bool = True,
    seed: int = 0,
) -> ActorCritic:
    """A network with fresh weights for ``env``; with ``plans=False`` a `RawActorCritic` for a `raw_env`.

    The weights depend on ``seed`` alone; the global random state is left as it was.
    """
    space = env.single_observation_space
    assert isinstance(space, spaces.Dict)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if not plans:
            return RawActorCritic(space, env.num_actions, size=size)
        layout = env.layout if "tree" in env.observe else None
        return ActorCritic(space, env.num_actions, layout, tree_encoder=tree_encoder, size=size)


def _action_into(key: str, flat: AgentInput) -> Tensor:
    """The action that led to the state ``key``: the last real one, or an imaginary one to the current node."""
    real = flat.last_action[:, LAST_REAL]
    if key != "predicted_state":
        return real
    imaginary = flat.last_action[:, LAST_IMAGINARY]
    return torch.where(imaginary == NO_ACTION, real, imaginary)
