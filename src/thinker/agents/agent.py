"""Who acts in the augmented MDP: `Agent` remembers where it stands in every environment, `collect` lets it act."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from thinker.agents.memory import Memory
from thinker.agents.networks import LAST_IMAGINARY, LAST_REAL, LAST_RESET, NO_ACTION, ActorCritic, AgentInput
from thinker.agents.stage_length import convert_stage_length
from thinker.agents.trajectory import Trajectory
from thinker.augmented import ThinkerEnv


@dataclass(frozen=True)
class Decision:
    """What the agent does next in every environment."""

    actions: Tensor  # [E, 2] int64     primary action, reset action: what ThinkerEnv.step takes
    policy: Tensor  # [E, A] float32    the probabilities that the primary action was drawn from
    log_prob: Tensor  # [E, 2] float32
    value: Tensor  # [E, R] float32     of the real and the planning rewards to come


@dataclass(frozen=True)
class Episodes:
    """What was played in an unroll. Episodes are in the order in which they ended."""

    real_steps: int
    augmented_steps: int
    returns: np.ndarray  # [episodes] float64
    lengths: np.ndarray  # [episodes] int64, in real steps
    solved: np.ndarray | None  # [episodes] bool, where the environments tell


class Agent:
    """A network that acts in the environments of ``env``, with its own random generator and memory.

    The stage length may differ from the one that the network was trained with: see `convert_stage_length`.

        agent.begin(*env.reset(seed=0))
        while True:
            decision = agent.act()
            agent.observe(decision, *env.step(decision.actions, decision.policy))
    """

    def __init__(self, network: ActorCritic, env: ThinkerEnv, *, seed: int = 0, greedy: bool = False) -> None:
        if network.num_actions != env.num_actions:
            raise ValueError(f"the network has {network.num_actions} actions, but the environments {env.num_actions}")
        if env.output != "torch":
            raise ValueError(f"agents act on tensors, but this ThinkerEnv gives {env.output!r}; make it output='torch'")
        expected = {*network.encoders, *(() if network.layout is None else ("tree",))}
        if expected != set(env.observe):
            raise ValueError(f"the network sees {sorted(expected)}, but the environment shows {sorted(env.observe)}")
        self.network = network
        self.num_envs = env.num_envs
        self.greedy = greedy
        self._layout = env.layout
        self._stage_length = env.stage_length
        self._generator = torch.Generator().manual_seed(seed)
        self._given: AgentInput | None = None
        self._memory: Memory = {}
        self._next_memory: Memory = {}

    @property
    def given(self) -> AgentInput:
        """What the agent knows now, [E, ...]."""
        if self._given is None:
            raise RuntimeError("the agent has seen nothing yet; call agent.begin(*env.reset())")
        return self._given

    @property
    def memory(self) -> Memory:
        """What it remembers of the steps before, [E, ...]."""
        return self._memory

    def begin(self, observation: dict[str, Tensor], info: dict[str, Any]) -> None:
        """Take in what ``env.reset`` returned."""
        self._memory = self.network.initial_memory(self.num_envs)
        self._given = AgentInput(
            observation=self._converted(observation),
            episode_start=torch.ones(self.num_envs, dtype=torch.bool),
            next_is_real=_tensor(info["next_is_real"]),
            last_action=torch.full((self.num_envs, 3), NO_ACTION),
            last_reward=torch.zeros(self.num_envs, len(self.network.reward_names)),
        )

    def look_again(self, observation: dict[str, Tensor]) -> None:
        """Take in what ``env.refresh`` returned: the same moment, seen through a model that has learned since."""
        self._given = replace(self.given, observation=self._converted(observation))

    @torch.no_grad()
    def act(self) -> Decision:
        """Draw actions for all environments, or with ``greedy`` take the likeliest ones."""
        output, self._next_memory = self.network(self.given.map(lambda x: x.unsqueeze(0)), self._memory)
        log_policy = output.logits[0].log_softmax(-1)  # [E, A]
        log_reset = output.reset_logits[0].log_softmax(-1)  # [E, 2]
        policy = log_policy.exp()
        if self.greedy:
            primary, reset = log_policy.argmax(-1), log_reset.argmax(-1)
        else:
            uniform = torch.rand(self.num_envs, 2, generator=self._generator).to(policy.device)
            # The action whose share of the interval 0 .. 1 the uniform number falls into; rounding may leave a gap.
            primary = (policy.cumsum(-1) < uniform[:, :1]).sum(-1).clamp_(max=policy.shape[1] - 1)
            reset = (uniform[:, 1] < log_reset[:, 1].exp()).long()
        actions = torch.stack((primary, reset), 1)
        log_prob = torch.cat((log_policy.gather(1, actions[:, :1]), log_reset.gather(1, actions[:, 1:])), 1)
        return Decision(actions, policy, log_prob, output.value[0])

    @torch.no_grad()
    def value(self) -> Tensor:
        """The critic's values [E, R] of where the agent stands; nothing is drawn or remembered."""
        output, _ = self.network(self.given.map(lambda x: x.unsqueeze(0)), self._memory)
        value: Tensor = output.value[0]
        return value

    def observe(
        self,
        decision: Decision,
        observation: dict[str, Tensor],
        reward: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
        info: dict[str, Any],
    ) -> Tensor:
        """Take in what ``env.step`` returned after ``decision``.

        Returns the values [E, R] of the final observations of truncated episodes, 0 elsewhere.
        """
        given = self.given
        last_action = given.last_action.clone()
        real = given.next_is_real
        last_action[:, LAST_REAL] = torch.where(real, decision.actions[:, 0], last_action[:, LAST_REAL])
        last_action[:, LAST_IMAGINARY] = torch.where(real, NO_ACTION, decision.actions[:, 0])
        last_action[:, LAST_RESET] = torch.where(real, NO_ACTION, decision.actions[:, 1])
        last_reward = self.rewards(reward, info)
        self._memory = self._next_memory
        final_value = torch.zeros_like(decision.value)
        ended = terminated | truncated
        if ended.any():
            bootstrapped = np.flatnonzero(truncated & ~terminated)
            if len(bootstrapped):
                which = torch.from_numpy(bootstrapped)
                final_value[which] = self._final_value(
                    which, [info["final_obs"][e] for e in bootstrapped], last_action, last_reward
                )
            last_action[torch.from_numpy(ended)] = NO_ACTION
            last_reward = last_reward * torch.from_numpy(~ended).unsqueeze(1)
        self._given = AgentInput(
            observation=self._converted(observation),
            episode_start=torch.from_numpy(ended),
            next_is_real=_tensor(info["next_is_real"]),
            last_action=last_action,
            last_reward=last_reward,
        )
        return final_value

    def rewards(self, reward: np.ndarray, info: dict[str, Any]) -> Tensor:
        """The rewards [E, R] of a step: real and, if the agent plans, planning."""
        kinds = (reward, info["planning_reward"])[: len(self.network.reward_names)]
        return torch.from_numpy(np.stack(kinds, 1).astype(np.float32))

    @torch.no_grad()
    def _final_value(
        self, which: Tensor, observations: list[dict[str, Tensor]], last_action: Tensor, last_reward: Tensor
    ) -> Tensor:
        """Values [n, R] of the final observations of the environments ``which`` [n], had their episodes gone on."""
        observation = {key: torch.stack([one[key] for one in observations]) for key in observations[0]}
        given = AgentInput(
            observation=self._converted(observation),
            episode_start=torch.zeros(len(which), dtype=torch.bool),
            next_is_real=torch.full((len(which),), self._stage_length == 1),
            last_action=last_action[which],
            last_reward=last_reward[which],
        )
        memory = {key: value[which] for key, value in self._memory.items()}
        output, _ = self.network(given.map(lambda x: x.unsqueeze(0)), memory)
        value: Tensor = output.value[0]
        return value

    def _converted(self, observation: dict[str, Tensor]) -> dict[str, Tensor]:
        known = self.network.layout
        if known is None or known.stage_length == self._layout.stage_length:
            return observation
        return {**observation, "tree": convert_stage_length(observation["tree"], self._layout, known)}

    def state_dict(self) -> dict[str, Tensor]:
        """Where the agent stands, what it remembers and its generator; the network is the learner's to save."""
        given = self.given
        state = {f"observation/{key}": value for key, value in given.observation.items()}
        state |= {f"memory/{key}": value for key, value in self._memory.items()}
        state |= {name: getattr(given, name) for name in _SAVED}
        return {**state, "generator": self._generator.get_state()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        def under(prefix: str) -> dict[str, Tensor]:
            return {key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)}

        self._given = AgentInput(under("observation/"), *(state[name] for name in _SAVED))
        self._memory = under("memory/")
        self._generator.set_state(state["generator"])


_SAVED = ("episode_start", "next_is_real", "last_action", "last_reward")


def collect(env: ThinkerEnv, agent: Agent, trajectory: Trajectory) -> Episodes:
    """Let the agent act for one unroll, from where it stands, and write down what happens."""
    if trajectory.num_steps % env.stage_length:
        raise ValueError(
            f"the trajectory has {trajectory.num_steps} steps, which are not whole stages of {env.stage_length}; make "
            f"it a multiple"
        )
    forced_reset_depth = np.inf if env.max_depth is None else env.max_depth
    returns, lengths, solved = [], [], []
    trajectory.begin(agent.memory)
    for t in range(trajectory.num_steps):
        given = agent.given
        decision = agent.act()
        observation, reward, terminated, truncated, info = env.step(decision.actions, policy=decision.policy)
        final_value = agent.observe(decision, observation, reward, terminated, truncated, info)
        trajectory.write_input(t, given, decision.value)
        trajectory.write_step(
            t,
            action=decision.actions,
            log_prob=decision.log_prob,
            reset_acts=~given.next_is_real & torch.from_numpy(info["depth"] < forced_reset_depth),
            reward=agent.rewards(reward, info),
            terminated=torch.from_numpy(terminated),
            truncated=torch.from_numpy(truncated),
            final_value=final_value,
        )
        ended = terminated | truncated
        if ended.any():
            returns.append(info["episode"]["r"][ended])
            lengths.append(info["episode"]["l"][ended])
            if "solved" in info:
                solved.append(info["solved"][ended])
    trajectory.write_input(trajectory.num_steps, agent.given, agent.value())
    return Episodes(
        real_steps=trajectory.num_steps // env.stage_length * env.num_envs,
        augmented_steps=trajectory.num_steps * env.num_envs,
        returns=np.concatenate([np.zeros(0), *returns]),
        lengths=np.concatenate([np.zeros(0, np.int64), *lengths]),
        solved=np.concatenate(solved) if solved else None,
    )


def _tensor(array: np.ndarray) -> Tensor:
    return torch.from_numpy(np.array(array))
