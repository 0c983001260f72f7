"""What agents have in common that see only the real state and act in the raw MDP: decoding, heads, and their specs."""

from __future__ import annotations

from abc import abstractmethod
from typing import Literal

import torch
import torch.nn.functional as F
from gymnasium import spaces
from torch import Tensor, nn

from thinker.agents.learned import LearnedAgentSpec
from thinker.agents.network import (
    AgentInput,
    AgentNetwork,
    AgentOutput,
    Heads,
    Memory,
    build_seeded,
    observation_spaces,
)
from thinker.augmented import ThinkerEnv
from thinker.errors import UserError
from thinker.interfaces import BoardStructure
from thinker.nn.codec import ObservationCodec
from thinker.nn.sizes import LARGEST_BOARD, SIZES, choose_size


class RealStateNetwork(AgentNetwork):
    """From planes of the real state to policy and value, by way of the ``width`` features of the subclass.

    Args:
        space: of a real state: a board or a picture.
        num_actions: A.
        board: what the environment declares of its boards, if anything; a constant border is left out.
        width: the number of features.
    """

    observes = ("real_state",)
    reward_names = ("real",)

    def __init__(self, space: spaces.Box, num_actions: int, board: BoardStructure | None, width: int) -> None:
        super().__init__()
        size = choose_size(space)
        if size == "vector":
            raise UserError(
                f"{type(self).__name__} consists of convolutions, but observations are vectors: {space}; use an agent "
                f"without them, such as RawAgentSpec"
            )
        self.num_actions = num_actions
        self.codec = ObservationCodec(space, SIZES[size], None if board is None else board.border)
        self.heads = Heads(width, (num_actions, 1))

    @property
    def planes(self) -> int:
        """The number of planes of a state."""
        return self.codec.state_shape[0]

    @property
    def spatial(self) -> tuple[int, int]:
        """Height and width of a state."""
        _, height, width = self.codec.state_shape
        return height, width

    @property
    def kind(self) -> Literal["board", "picture"]:
        """Networks keep the height and width of boards, and reduce those of pictures."""
        return "board" if max(self.spatial) <= LARGEST_BOARD else "picture"

    @abstractmethod
    def features(self, state: Tensor, given: AgentInput, memory: Memory) -> tuple[Tensor, Memory]:
        """The final layer's input [T * B, width] and the memory after the last step.

        ``state`` [T * B, planes, height, width] are the decoded observations of ``given`` [T, B, ...], with values
        0 .. 1.
        """

    def forward(self, given: AgentInput, memory: Memory) -> tuple[AgentOutput, Memory]:
        leading = given.episode_start.shape
        state = self.codec.encode(given.observation["real_state"].flatten(0, 1))
        features, memory = self.features(state, given, memory)
        logits, value = self.heads(features)
        reset_logits = logits.new_zeros(len(logits), 2)
        outputs = (x.unflatten(0, leading) for x in (logits, reset_logits, value, features))
        return AgentOutput(*outputs), memory


class SameConv2d(nn.Conv2d):
    """A convolution that keeps height and width; an even kernel sees one more row and column of zeros at the end."""

    def __init__(self, inputs: int, outputs: int, kernel: int) -> None:
        super().__init__(inputs, outputs, kernel)
        before, after = (kernel - 1) // 2, kernel // 2
        self.zeros = (before, after, before, after)

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(F.pad(input, self.zeros))


class RealStateSpec(LearnedAgentSpec):
    """Base class of the specs of these agents: subclasses are frozen dataclasses."""

    @abstractmethod
    def make_network(self, space: spaces.Box, num_actions: int, board: BoardStructure | None) -> RealStateNetwork:
        """A network with new weights. Arguments as for `RealStateNetwork`."""

    def acts_in(self) -> Literal["augmented", "raw"]:
        return "raw"

    def build_network(self, env: ThinkerEnv, *, seed: int, device: torch.device) -> AgentNetwork:
        seen = observation_spaces(env)
        if tuple(seen) != RealStateNetwork.observes:
            raise UserError(
                f"this agent sees only the real state, but the environment shows {', '.join(seen)}; create the "
                f"environment with observe=('real_state',)"
            )
        space, board = seen["real_state"], env.metadata.get("board")
        return build_seeded(lambda: self.make_network(space, env.num_actions, board), seed, device)


def at_least_one(spec: RealStateSpec, *names: str) -> None:
    """Raise an error if one of the settings ``names`` is below 1."""
    for name in names:
        if getattr(spec, name) < 1:
            raise UserError(f"{name} is {getattr(spec, name)}; it must be at least 1")
