"""An actor driven by a network: it keeps the inputs and memory of every environment and samples actions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from thinker.agents.network import LAST_IMAGINARY, LAST_REAL, LAST_RESET, AgentInput, AgentNetwork, Memory
from thinker.agents.stage_length import convert_stage_length, without_search
from thinker.agents.trajectory import Trajectory
from thinker.augmented import ThinkerEnv
from thinker.errors import UserError
from thinker.interfaces import NO_ACTION, Decision


class NetworkActor:
    """Acts in the environments of ``env`` with ``network``, with its own random generator and memory.

    The stage length may differ from the one that the network was trained with: see `convert_stage_length`.

    Args:
        network: computes policies and values; its weights may change between unrolls.
        env: the environments to act in.
        seed: of the generator that samples actions.
        greedy: take the most likely actions instead of sampling; equally likely ones are still drawn at random.
        trajectory: every step is written to it, one unroll after another; a learner reads it when it is complete.
        tree_mask_probability: of a real decision that sees only what was known before the search of its stage.
        tree_dropout: probability with which a step sees zeros instead of the tree.
    """

    def __init__(
        self,
        network: AgentNetwork,
        env: ThinkerEnv,
        *,
        seed: int = 0,
        greedy: bool = False,
        trajectory: Trajectory | None = None,
        tree_mask_probability: float = 0.0,
        tree_dropout: float = 0.0,
    ) -> None:
        if network.num_actions != env.num_actions:
            raise UserError(f"the network has {network.num_actions} actions, but the environments {env.num_actions}")
        if env.output != "torch":
            raise UserError(f"agents act on tensors, but this ThinkerEnv gives {env.output!r}; use output='torch'")
        if set(network.observes) != set(env.observe):
            raise UserError(
                f"the network sees {sorted(network.observes)}, but the environment shows {sorted(env.observe)}; create "
                f"the environment with observe={tuple(network.observes)}"
            )
        if network.device.type != env.device.type:
            raise UserError(
                f"the network is on {network.device}, but the environment's observations are on {env.device}; make it "
                f"with device={str(network.device)!r}"
            )
        if trajectory is not None and not env.copy:
            raise UserError("a trajectory keeps observations, which ThinkerEnv(copy=False) overwrites; use copy=True")
        if not 0 <= tree_mask_probability <= 1:
            raise UserError(f"tree_mask_probability is {tree_mask_probability}; it must be between 0 and 1")
        if tree_mask_probability > 0 and not env.copy:
            raise UserError("tree_mask_probability needs the tree at the start of a stage; use ThinkerEnv(copy=True)")
        if not 0 <= tree_dropout <= 1:
            raise UserError(f"tree_dropout is {tree_dropout}; it must be between 0 and 1")
        self.network = network
        self.num_envs = env.num_envs
        self._device = network.device
        self.greedy = greedy
        self._layout = env.layout
        self._stage_length = env.stage_length
        self._forced_reset_depth = np.inf if env.max_depth is None else env.max_depth
        self._generator = torch.Generator().manual_seed(seed)
        self._trajectory = trajectory
        self._tree_mask_probability = tree_mask_probability
        self._tree_dropout = tree_dropout
        self._given: AgentInput | None = None
        self._stage_start: AgentInput | None = None  # the input of the first step of this stage
        self._memory: Memory = {}
        self._next_memory: Memory = {}

    @property
    def given(self) -> AgentInput:
        """The current input of the network, [E, ...]."""
        if self._given is None:
            raise RuntimeError("the actor has no observation yet; call actor.begin(*env.reset())")
        return self._given

    def begin(self, observation: dict[str, Tensor], info: dict[str, Any]) -> None:
        """See `Actor`."""
        device = self._device
        if self._trajectory is not None:
            self._trajectory.restart()
        self._memory = self.network.initial_memory(self.num_envs)
        self._stage_start = AgentInput(
            observation=self._converted(observation),
            episode_start=torch.ones(self.num_envs, dtype=torch.bool, device=device),
            next_is_real=self._tensor(info["next_is_real"]),
            last_action=torch.full((self.num_envs, 3), NO_ACTION, device=device),
            last_reward=torch.zeros(self.num_envs, len(self.network.reward_names), device=device),
        )
        self._given = self._dropped(self._stage_start)

    def refresh(self, observation: dict[str, Tensor]) -> None:
        """See `Actor`."""
        self._stage_start = replace(self.given, observation=self._converted(observation))
        self._given = self._dropped(self._stage_start)

    @torch.no_grad()
    def act(self) -> Decision:
        """See `Actor`."""
        output, self._next_memory = self.network(self.given.map(lambda x: x.unsqueeze(0)), self._memory)
        log_policy = output.logits[0].log_softmax(-1)  # [E, A]
        log_reset = output.reset_logits[0].log_softmax(-1)  # [E, 2]
        policy = log_policy.exp()
        drawn_from, reset_from = policy, log_reset.exp()
        if self.greedy:
            drawn_from, reset_from = _most_likely(log_policy), _most_likely(log_reset)
        uniform = torch.rand(self.num_envs, 2, generator=self._generator).to(policy.device)
        # Inverse transform sampling; the clamp covers rounding errors in the cumulative sum.
        primary = (drawn_from.cumsum(-1) <= uniform[:, :1]).sum(-1).clamp_(max=policy.shape[1] - 1)
        reset = (uniform[:, 1] < reset_from[:, 1]).long()
        actions = torch.stack((primary, reset), 1)
        log_prob = torch.cat((log_policy.gather(1, actions[:, :1]), log_reset.gather(1, actions[:, 1:])), 1)
        return Decision(actions, policy, log_reset[:, 1].exp(), log_prob, output.value[0])

    def observe(
        self,
        decision: Decision,
        observation: dict[str, Tensor],
        reward: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
        info: dict[str, Any],
    ) -> None:
        """See `Actor`."""
        given, memory = self.given, self._memory
        real = given.next_is_real
        last_action = given.last_action.clone()
        last_action[:, LAST_REAL] = torch.where(real, decision.actions[:, 0], last_action[:, LAST_REAL])
        last_action[:, LAST_IMAGINARY] = torch.where(real, NO_ACTION, decision.actions[:, 0])
        last_action[:, LAST_RESET] = torch.where(real, NO_ACTION, decision.actions[:, 1])
        rewards = self._rewards(reward, info)
        last_reward = rewards
        self._memory = self._next_memory
        ended = terminated | truncated
        final_value = torch.zeros_like(rewards)
        if ended.any():
            bootstrapped = np.flatnonzero(truncated & ~terminated)
            if len(bootstrapped) and self._trajectory is not None:
                which = self._tensor(bootstrapped)
                final_value[which] = self._final_value(
                    which, [info["final_obs"][e] for e in bootstrapped], last_action, last_reward
                )
            last_action[self._tensor(ended)] = NO_ACTION
            last_reward = last_reward * self._tensor(~ended).unsqueeze(1)
        self._given = AgentInput(
            observation=self._converted(observation),
            episode_start=self._tensor(ended),
            next_is_real=self._tensor(info["next_is_real"]),
            last_action=last_action,
            last_reward=last_reward,
        )
        if real.any():
            self._stage_start = self._given
        elif self._tree_mask_probability > 0 and info["next_is_real"].any():
            self._given = self._masked(self._given)
        self._given = self._dropped(self._given)
        if self._trajectory is not None:
            self._trajectory.write(
                given,
                memory,
                decision,
                reset_acts=~real & self._tensor(info["depth"] < self._forced_reset_depth),
                reward=rewards,
                terminated=self._tensor(terminated),
                truncated=self._tensor(truncated),
                final_value=final_value,
            )
            if self._trajectory.is_complete:
                self._trajectory.write_last(self.given, self.value())

    @torch.no_grad()
    def value(self) -> Tensor:
        """The critic's values [E, R] of the current step; changes neither the generator nor the memory."""
        output, _ = self.network(self.given.map(lambda x: x.unsqueeze(0)), self._memory)
        value: Tensor = output.value[0]
        return value

    def _masked(self, given: AgentInput) -> AgentInput:
        """``given`` at the last step of a stage; in some environments, drawn at random, as if nothing was searched."""
        start = self._stage_start
        if start is None:
            raise RuntimeError("the actor has not seen the start of this stage")
        observation = dict(start.observation)
        if self.network.layout is not None:
            observation["tree"] = without_search(observation["tree"], self.network.layout)
        uniform = torch.rand(self.num_envs, generator=self._generator).to(self._device)
        masked = uniform < self._tree_mask_probability  # [E]

        def choose(unsearched: Tensor, searched: Tensor) -> Tensor:
            return torch.where(masked.view(-1, *[1] * (searched.ndim - 1)), unsearched, searched)

        return replace(
            given,
            observation={key: choose(observation[key], seen) for key, seen in given.observation.items()},
            last_action=choose(start.last_action, given.last_action),
            last_reward=choose(start.last_reward, given.last_reward),
        )

    def _dropped(self, given: AgentInput) -> AgentInput:
        """``given``; in some environments, drawn at random, with zeros instead of the tree."""
        if self._tree_dropout == 0 or "tree" not in given.observation:
            return given
        uniform = torch.rand(self.num_envs, 1, generator=self._generator).to(self.network.device)
        tree = given.observation["tree"] * (uniform >= self._tree_dropout)
        return replace(given, observation={**given.observation, "tree": tree})

    def _rewards(self, reward: np.ndarray, info: dict[str, Any]) -> Tensor:
        """The rewards [E, R] of a step, in the order of the network's ``reward_names``."""
        kinds = {"real": reward, "planning": info["planning_reward"]}
        columns = [kinds[name] for name in self.network.reward_names]
        return torch.from_numpy(np.stack(columns, 1).astype(np.float32)).to(self._device)

    @torch.no_grad()
    def _final_value(
        self, which: Tensor, observations: list[dict[str, Tensor]], last_action: Tensor, last_reward: Tensor
    ) -> Tensor:
        """Values [n, R] of the final observations of the environments ``which`` [n], as if their episodes continued."""
        device = self._device
        observation = {key: torch.stack([one[key] for one in observations]) for key in observations[0]}
        given = AgentInput(
            observation=self._converted(observation),
            episode_start=torch.zeros(len(which), dtype=torch.bool, device=device),
            next_is_real=torch.full((len(which),), self._stage_length == 1, device=device),
            last_action=last_action[which],
            last_reward=last_reward[which],
        )
        memory = {key: value[which] for key, value in self._memory.items()}
        output, _ = self.network(given.map(lambda x: x.unsqueeze(0)), memory)
        value: Tensor = output.value[0]
        return value

    def _converted(self, observation: dict[str, Tensor]) -> dict[str, Tensor]:
        observation = {key: _compact(seen) if key in _HIDDEN else seen for key, seen in observation.items()}
        known = self.network.layout
        if known is None or known.stage_length == self._layout.stage_length:
            return observation
        return {**observation, "tree": convert_stage_length(observation["tree"], self._layout, known)}

    def _tensor(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(np.array(array)).to(self._device)

    def state_dict(self) -> dict[str, Tensor]:
        """The current input, the memory and the generator; the learner saves the network."""
        state = _input_state(self.given)
        if self._tree_mask_probability > 0 and self._stage_start is not None and self._stage_start is not self._given:
            state |= {f"stage_start/{key}": value for key, value in _input_state(self._stage_start).items()}
        state |= {f"memory/{key}": value for key, value in self._memory.items()}
        return {**state, "generator": self._generator.get_state()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """See `Actor`."""
        device = self._device
        if self._trajectory is not None:
            self._trajectory.restart()

        def under(prefix: str) -> dict[str, Tensor]:
            return {
                key.removeprefix(prefix): value.to(device) for key, value in state.items() if key.startswith(prefix)
            }

        self._given = self._stage_start = _input_from(under(""))
        if start := under("stage_start/"):
            self._stage_start = _input_from(start)
        self._memory = under("memory/")
        self._generator.set_state(state["generator"].cpu())


_HIDDEN = ("hidden", "root_hidden")


def _compact(hidden: Tensor) -> Tensor:
    """Hidden states that are planes [E, C, H, W], in half precision: they are most of a trajectory.

    The network acts on what is stored, so that the learner sees exactly the same.
    """
    if hidden.ndim < 4:
        return hidden
    largest = torch.finfo(torch.float16).max
    return hidden.clamp(-largest, largest).half()


def _most_likely(log_policy: Tensor) -> Tensor:
    """The uniform distribution [E, A] over the most likely of the actions."""
    best = (log_policy == log_policy.amax(-1, keepdim=True)).float()
    return best / best.sum(-1, keepdim=True)


_SAVED = ("episode_start", "next_is_real", "last_action", "last_reward")
_OBSERVATION = "observation/"


def _input_state(given: AgentInput) -> dict[str, Tensor]:
    state = {f"{_OBSERVATION}{key}": value for key, value in given.observation.items()}
    return {**state, **{name: getattr(given, name) for name in _SAVED}}


def _input_from(state: dict[str, Tensor]) -> AgentInput:
    observation = {
        key.removeprefix(_OBSERVATION): value for key, value in state.items() if key.startswith(_OBSERVATION)
    }
    return AgentInput(observation, *(state[name] for name in _SAVED))
