"""I2A, imagination-augmented agents (Racanière et al., 2017): a policy that reads rollouts imagined in the world model.

Before every real step one rollout is imagined for each first action; later actions come from a small rollout policy,
which is trained to imitate the agent. The rollouts are part of the observation: the actor imagines them and the
trajectory keeps them, so that learning sees exactly what acting saw. The world model is not trained through them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn import functional

from thinker.agents.actor import NetworkActor
from thinker.agents.encoders import RawNetworkSize, Vector, raw_encoder
from thinker.agents.learned import LearnedAgent, LearnedAgentSpec
from thinker.agents.network import (
    LAST_REAL,
    AgentInput,
    AgentNetwork,
    AgentOutput,
    FinalLayer,
    Heads,
    Memory,
    build_seeded,
    observation_spaces,
)
from thinker.agents.settings import check_choice
from thinker.agents.trajectory import Trajectory, Unroll
from thinker.augmented import ThinkerEnv
from thinker.augmented.checks import checked_output, not_finite
from thinker.errors import UserError
from thinker.interfaces import BoardStructure, Decision, NodeOutput, WorldModel
from thinker.nn.blocks import initialise, one_hot_action
from thinker.nn.codec import ObservationCodec
from thinker.nn.scale import RunningScale
from thinker.nn.sizes import SIZES, choose_size

END = 0.5
"""An imagined episode ends where termination is predicted with a higher probability."""
STATES, REWARDS = "rollout_state", "rollout_reward"
"""Keys of the rollouts in the network's observation."""


def distinct(states: Tensor) -> tuple[Tensor, Tensor]:
    """The m different ones of ``states`` [n, ...]: the rows [m] of one of each, and each state's number [n] among them.

    States are compared by 64-bit hashes.
    """
    bytes_ = states.flatten(1).contiguous().view(torch.uint8)
    words = functional.pad(bytes_, (0, -bytes_.shape[1] % 4)).view(torch.int32)
    generator = torch.Generator().manual_seed(0)
    weights = torch.randint(-(2**62), 2**62, words.shape[1:], generator=generator).to(words.device)
    # Not a product of matrices, which CUDA does not have for integers
    hashes, number = (words * weights).sum(1).unique(return_inverse=True)
    rows = torch.empty(len(hashes), dtype=torch.int64, device=states.device)
    return rows.scatter_(0, number, torch.arange(len(number), device=states.device)), number


class FrameEncoder(nn.Module):
    """A small network from one state, real or imagined, to a vector of ``width`` features."""

    LARGEST = 10
    """Planes with more rows or columns are halved by further convolutions."""
    CHANNELS = 16, 32

    def __init__(self, space: spaces.Box, width: int, board: BoardStructure | None = None) -> None:
        super().__init__()
        border = None if board is None else board.border
        self.codec = ObservationCodec(space, SIZES[choose_size(space)], border)
        self.body: nn.Module
        shape = self.codec.state_shape
        if len(shape) == 1:
            hidden = Vector(shape[0], "small", layers=1)
            self.body = nn.Sequential(hidden, nn.Linear(hidden.width, width), nn.ReLU(inplace=True))
            return
        (inputs, *sides), (few, many) = shape, self.CHANNELS
        layers: list[nn.Module] = []
        while max(sides) > self.LARGEST:
            layers += [nn.Conv2d(inputs, few, 3, stride=2, padding=1), nn.ReLU(inplace=True)]
            inputs, sides = few, [(side + 1) // 2 for side in sides]
        layers += [nn.Conv2d(inputs, few, 3, padding=1), nn.ReLU(inplace=True)]
        layers += [nn.Conv2d(few, many, 3, stride=2, padding=1), nn.ReLU(inplace=True), nn.Flatten()]
        squares = ((sides[0] + 1) // 2) * ((sides[1] + 1) // 2)
        self.body = nn.Sequential(*layers, nn.Linear(many * squares, width), nn.ReLU(inplace=True))
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, state: Tensor) -> Tensor:
        """``state`` [B, *observation_shape] to [B, width]."""
        features: Tensor = self.body(self.codec.encode(state))
        return features


class I2ANetwork(AgentNetwork):
    """A model-free path beside the encoded rollouts, and one final layer for policy and value; and the rollout policy.

    The steps of a rollout, imagined state and reward, are read by an LSTM from the last to the first; what it then
    knows describes the rollout. The observation has two entries that the actor adds to those of the environment:

    * ``rollout_state`` [..., A, length, *observation_shape]: the states imagined after each first action,
    * ``rollout_reward`` [..., A, length]: the rewards on reaching them; both are 0 after a predicted end.

    Args:
        state_space: of one real state.
        num_actions: A.
        length: of a rollout.
        width: of the encoding of a rollout.
        size: of the model-free path's encoder.
        board: what the environment declares about its boards, if anything.
    """

    observes = ("real_state", "predicted_state")
    reward_names = ("real",)

    def __init__(
        self,
        state_space: spaces.Box,
        num_actions: int,
        *,
        length: int = 5,
        width: int = 256,
        size: RawNetworkSize = "small",
        board: BoardStructure | None = None,
    ) -> None:
        super().__init__()
        self.num_actions, self.length = num_actions, length
        self.model_free = raw_encoder(state_space, num_actions, size, board)
        self.frames = FrameEncoder(state_space, width, board)
        self.rollout_encoder = nn.LSTM(width + 1, width)
        rollout_policy = FrameEncoder(state_space, width, board)
        self.rollout_policy = nn.Sequential(rollout_policy, FinalLayer(width, num_actions))
        for module in (self.model_free, self.frames, rollout_policy):
            initialise(module)
        self.reward_scale = RunningScale([0])
        features = self.model_free.width + num_actions * width + num_actions + 1
        self.heads = Heads(features, (num_actions, 1))

    def forward(self, given: AgentInput, memory: Memory) -> tuple[AgentOutput, Memory]:
        leading = given.episode_start.shape
        flat = given.map(lambda x: x.flatten(0, 1))
        state, last_action = flat.observation["real_state"], flat.last_action[:, LAST_REAL]
        features = torch.cat(
            (
                self.model_free(state, last_action),
                self.encode_rollouts(flat.observation[STATES], flat.observation[REWARDS]).flatten(1),
                one_hot_action(last_action, self.num_actions),
                self.reward_scale(flat.last_reward),
            ),
            1,
        )
        logits, value = self.heads(features)
        reset_logits = logits.new_zeros(len(logits), 2)
        named = {"logits": logits, "reset_logits": reset_logits, "value": value, "features": features}
        outputs = {name: x.unflatten(0, leading) for name, x in named.items()}
        rollout_logits = self.rollout_policy(state).unflatten(0, leading)
        return AgentOutput(**outputs, auxiliary={"rollout_logits": rollout_logits}), memory

    def encode_rollouts(self, states: Tensor, rewards: Tensor) -> Tensor:
        """Rollouts, states [N, A, length, ...] and rewards [N, A, length], to their encodings [N, A, width]."""
        leading = rewards.shape[:2]
        rows, number = distinct(states.flatten(0, 2))  # different paths often lead to the same state
        frames = self.frames(states.flatten(0, 2)[rows]).index_select(0, number).unflatten(0, (-1, self.length))
        scaled = self.reward_scale(rewards.flatten(0, 1).unsqueeze(2))
        steps = torch.cat((frames, scaled), 2).flip(1).transpose(0, 1)  # the last step first
        _, (encoding, _) = self.rollout_encoder(steps.contiguous())
        encodings: Tensor = encoding.squeeze(0).unflatten(0, leading)
        return encodings

    def auxiliary_losses(self, unroll: Unroll, output: AgentOutput) -> dict[str, Tensor]:
        """Distillation: the cross-entropy -Σ_a π(a) log π̂(a) of the rollout policy π̂ under the agent's policy π.

        It trains the rollout policy alone.
        """
        policy = output.logits[:-1].detach().softmax(-1)
        log_rollout_policy = output.auxiliary["rollout_logits"][:-1].log_softmax(-1)
        return {"distillation": -(policy * log_rollout_policy).sum(-1)}

    @torch.no_grad()
    def update_scales(self, given: AgentInput) -> None:
        self.reward_scale.update(given.last_reward.flatten(0, 1))
        self.model_free.update_scale(given.observation["real_state"].flatten(0, 1))


@torch.no_grad()
def imagine(
    model: WorldModel, root: NodeOutput, choose: Callable[[Tensor], Tensor], length: int
) -> tuple[Tensor, Tensor]:
    """Imagine one rollout of ``length`` steps for each first action below ``root``, what ``model`` says of E states.

    ``choose`` gives the later actions [n] in imagined states [n, *observation_shape]. Returns the states [E, A, length,
    *observation_shape] and rewards [E, A, length], 0 after a predicted end.
    """
    num_actions = model.num_actions
    if root.state is None:
        raise UserError("I2A reads imagined states, but this model predicts none; use another model, or a state loss")
    shape, hidden_shape = tuple(root.state.shape[1:]), tuple(root.hidden.shape[1:])
    count = len(root.hidden) * num_actions
    states = root.state.new_zeros(count, length, *shape)
    rewards = torch.zeros(count, length, device=states.device)
    rows = torch.arange(count, device=states.device)  # the rollouts that have not ended
    hidden, action = root.hidden.repeat_interleave(num_actions, 0), rows % num_actions
    for step in range(length):
        output = model.unroll(hidden, action.to(getattr(model, "device", hidden.device)))
        _, _, reward, termination = checked_output(output, len(rows), num_actions, hidden_shape, shape, "unroll")
        if output.state is None:
            raise UserError("the model's unroll() predicted no states, but its root() did; it must do both or none")
        finite = np.isfinite(reward) & np.isfinite(termination)
        if not finite.all():
            raise not_finite("unroll", int(rows[finite.argmin()]) // num_actions)
        states[rows, step] = output.state.to(states)
        rewards[rows, step] = torch.from_numpy(reward).to(rewards)
        going = torch.from_numpy(termination <= END)
        if step == length - 1 or not going.any():
            break
        rows, hidden = rows[going.to(rows.device)], output.hidden[going.to(output.hidden.device)]
        action = choose(output.state[going.to(output.state.device)])
    return states.unflatten(0, (-1, num_actions)), rewards.unflatten(0, (-1, num_actions))


class ImaginingActor(NetworkActor):
    """A `NetworkActor` that imagines rollouts with the model of ``env`` whenever a new real state is observed.

    Actions of the rollout policy are sampled even if the actor is greedy. The value of a truncated episode's final
    state, in which nothing was imagined, is such that the last step teaches nothing: r + γ V(final) = V(last).
    """

    network: I2ANetwork

    def __init__(self, network: I2ANetwork, env: ThinkerEnv, **options: Any) -> None:
        if env.stage_length != 1:
            raise UserError(
                f"I2A takes no imaginary steps, but stage_length is {env.stage_length}; use an environment with "
                f"stage_length=1 and set the rollouts' length instead"
            )
        super().__init__(network, env, **options)
        self._env = env
        self._last_value = torch.zeros(0)
        self._before_imagining = self._generator.get_state()

    def begin(self, observation: dict[str, Tensor], info: dict[str, Any]) -> None:
        """See `Actor`."""
        super().begin(self._with_rollouts(observation), info)

    def refresh(self, observation: dict[str, Tensor]) -> None:
        """See `Actor`."""
        super().refresh(self._with_rollouts(observation))

    def observe(self, decision: Decision, observation: dict[str, Tensor], *outcome: Any) -> None:
        """See `Actor`."""
        assert decision.value is not None
        self._last_value = decision.value
        super().observe(decision, self._with_rollouts(observation), *outcome)

    def _with_rollouts(self, observation: dict[str, Tensor]) -> dict[str, Tensor]:
        env, device = self._env, self.network.device
        self._before_imagining = self._generator.get_state()
        states, rewards = imagine(env.model, env.root_output, self._rollout_action, self.network.length)
        return {"real_state": observation["real_state"], STATES: states.to(device), REWARDS: rewards.to(device)}

    def _rollout_action(self, state: Tensor) -> Tensor:
        """Actions [n] of the rollout policy in states [n, *observation_shape]."""
        policy = self.network.rollout_policy(state.to(self.network.device)).softmax(1)
        uniform = torch.rand(len(policy), 1, generator=self._generator).to(policy.device)
        # Inverse transform sampling; the clamp covers rounding errors in the cumulative sum.
        return (policy.cumsum(1) < uniform).sum(1).clamp_(max=policy.shape[1] - 1).to(state.device)

    def _final_value(
        self, which: Tensor, observations: list[dict[str, Tensor]], last_action: Tensor, last_reward: Tensor
    ) -> Tensor:
        difference = self._last_value[which] - last_reward[which]
        return difference / self._env.discount if self._env.discount > 0 else torch.zeros_like(difference)

    def state_dict(self) -> dict[str, Tensor]:
        """See `NetworkActor`."""
        return {**super().state_dict(), "before_imagining": self._before_imagining}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """See `Actor`. The environments must have been restored.

        The rollouts are loaded, and imagined once more for the sake of models that remember what they have computed:
        rounding depends on what they compute together.
        """
        super().load_state_dict(state)
        self._generator.set_state(state["before_imagining"].cpu())
        self._with_rollouts(self.given.observation)
        self._generator.set_state(state["generator"].cpu())


@dataclass(frozen=True)
class I2AAgent(LearnedAgent):
    """A learned agent whose actors imagine."""

    network: I2ANetwork

    def actor(
        self, env: ThinkerEnv, *, seed: int, greedy: bool = False, trajectory: Trajectory | None = None
    ) -> ImaginingActor:
        """See `LearnedAgent`."""
        return ImaginingActor(self.network, env, seed=seed, greedy=greedy, trajectory=trajectory)


@dataclass(frozen=True)
class I2ASpec(LearnedAgentSpec):
    """I2A: real steps only, each after one imagined rollout for every action."""

    rollout_length: int = 5  # imagined steps in a rollout
    rollout_width: int = 256  # width of the encoding of a rollout
    distillation_scale: float = 0.1  # scale of the loss that trains the rollout policy to imitate the agent
    network_size: RawNetworkSize = "small"  # size of the model-free path; board: as in the board model

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice(self, "network_size", get_args(RawNetworkSize))
        for name in ("rollout_length", "rollout_width"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} is {getattr(self, name)}; it must be at least 1")

    def acts_in(self) -> Literal["raw-with-states"]:
        return "raw-with-states"

    def auxiliary_scales(self) -> dict[str, float]:
        return {"distillation": self.distillation_scale}

    def build(self, env: ThinkerEnv, *, seed: int, device: torch.device) -> I2AAgent:
        agent = super().build(env, seed=seed, device=device)
        assert isinstance(agent.network, I2ANetwork)
        return I2AAgent(agent.network, agent.learner, agent.unroll_stages)

    def build_network(self, env: ThinkerEnv, *, seed: int, device: torch.device) -> AgentNetwork:
        seen = observation_spaces(env)
        if set(seen) != set(I2ANetwork.observes):
            raise UserError(
                f"I2A sees real and predicted states, but the environment shows {', '.join(seen)}; create the "
                f"environment with observe={I2ANetwork.observes}"
            )

        def make() -> I2ANetwork:
            return I2ANetwork(
                seen["real_state"],
                env.num_actions,
                length=self.rollout_length,
                width=self.rollout_width,
                size=self.network_size,
                board=env.metadata.get("board"),
            )

        return build_seeded(make, seed, device)
