"""Perfect world models: the real dynamics as a simulator, with a given base policy and value (the paper's appendix H).

Environments that offer a simulator of their own (`OffersSimulator`) are searched with that. `EnvSimulator` serves all
others: those with ``snapshot()`` and ``restore(snapshot)``, and those that can be deep-copied.
"""

from __future__ import annotations

import copy
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv, VectorEnv
from torch import Tensor

from thinker.errors import UnsupportedError
from thinker.interfaces import NodeOutput, OffersSimulator, PolicyAndValue, WorldModel


def uniform_policy(num_actions: int) -> PolicyAndValue:
    """The base policy that knows nothing: all actions alike, value 0."""

    def policy_and_value(observation: Tensor, last_action: Tensor) -> tuple[Tensor, Tensor]:
        count, device = len(observation), observation.device
        return torch.full((count, num_actions), 1 / num_actions, device=device), torch.zeros(count, device=device)

    return policy_and_value


def simulator(envs: VectorEnv, policy_and_value: PolicyAndValue | None = None) -> WorldModel:
    """The perfect model of ``envs``: their own if they offer one, else the general one.

    An offer is taken from the unwrapped vector environment or from its first single environment, unless wrappers have
    changed what is observed. Without ``policy_and_value`` the policy is uniform and values are 0.
    """
    real = envs.unwrapped
    if isinstance(real, OffersSimulator) and real.single_observation_space == envs.single_observation_space:
        return real.simulator(policy_and_value)
    if isinstance(real, SyncVectorEnv):
        first = real.envs[0].unwrapped
        if isinstance(first, OffersSimulator) and first.observation_space == envs.single_observation_space:
            return first.simulator(policy_and_value)
    return EnvSimulator(envs, policy_and_value)


class EnvSimulator:
    """Copies of the real environments as a world model. A node is a copy; its hidden state is where the copy lies.

    The copies share the state of the real environments' random generators: what is random there is foreseen here.
    Time limits set by wrappers are not part of it: an imagined episode ends only by termination. Environments are
    stepped one after another, on the CPU, wherever ``policy_and_value`` computes.
    """

    device = torch.device("cpu")

    def __init__(self, envs: VectorEnv, policy_and_value: PolicyAndValue | None = None) -> None:
        """``envs``: a SyncVectorEnv, whose environments offer ``snapshot`` and ``restore`` or can be deep-copied."""
        if not isinstance(envs, SyncVectorEnv):
            raise UnsupportedError(
                f"a simulator needs the single environments of a gymnasium.vector.SyncVectorEnv, not {envs}; wrap the "
                f"single environments rather than the vector environment, or use a learned model"
            )
        space = envs.single_action_space
        if not isinstance(space, spaces.Discrete):
            raise UnsupportedError(f"a simulator needs a Discrete action space, not {space}")
        self.num_actions = int(space.n)
        self._first_action = int(space.start)
        self._envs = envs
        shape = envs.single_observation_space.shape
        if shape is None:
            raise UnsupportedError(f"a simulator needs arrays as observations, not {envs.single_observation_space}")
        self.hidden_shape = shape
        self._policy_and_value = policy_and_value or uniform_policy(self.num_actions)
        # Per node: its environment's number; a snapshot, a copy, or None for a final state, which is never unrolled.
        self._nodes: list[tuple[int, Any]] = []
        self._states: list[np.ndarray] = []
        first = envs.envs[0]
        self._has_snapshots = first.has_wrapper_attr("snapshot") and first.has_wrapper_attr("restore")
        # Environments to restore snapshots in: one per real one, since they may have been made with other arguments.
        self._scratch: dict[int, gym.Env] = {}

    def root(self, observation: Tensor, last_action: Tensor) -> NodeOutput:
        """Begin at the real environments as they are now; fewer rows are final states, see `WorldModel.root`."""
        self._nodes, self._states = [], []
        at_real = len(observation) == self._envs.num_envs
        for row, state in enumerate(observation.numpy()):
            self._nodes.append((row, self._leave(self._envs.envs[row]) if at_real else None))
            self._states.append(state)
        zeros = torch.zeros(len(observation), device=self.device)
        return self._output(0, observation, last_action, zeros, zeros)

    def unroll(self, hidden: Tensor, action: Tensor) -> NodeOutput:
        """Step a copy of each node's environment."""
        first = len(self._nodes)
        rewards, terminated = [], []
        for slot, a in zip(hidden[:, 0].tolist(), action.tolist()):
            row, node = self._nodes[slot]
            env = self._enter(row, node)
            state, reward, ended, _, _ = env.step(np.int64(a + self._first_action))
            self._nodes.append((row, self._leave(env)))
            self._states.append(np.array(state))
            rewards.append(float(reward))
            terminated.append(float(ended))
        states = torch.from_numpy(np.stack(self._states[first:]))
        return self._output(first, states, action, self._numbers(rewards), self._numbers(terminated))

    def visible_hidden(self, hidden: Tensor) -> Tensor:
        """The states of the nodes: a copy has no other hidden state to show."""
        return torch.from_numpy(np.stack([self._states[slot] for slot in hidden[:, 0].tolist()]))

    def _numbers(self, values: list[float]) -> Tensor:
        return torch.tensor(values, dtype=torch.float32, device=self.device)

    def _leave(self, env: gym.Env) -> Any:
        """What to keep of ``env`` so that its present state can be entered again."""
        return env.get_wrapper_attr("snapshot")() if self._has_snapshots else env

    def _enter(self, row: int, node: Any) -> gym.Env:
        """An environment in the state of ``node``, of the real environment ``row``, that may be stepped."""
        if not self._has_snapshots:
            return _copied(node)
        if row not in self._scratch:
            scratch = self._envs.env_fns[row]()
            self._scratch[row] = _copied(scratch) if scratch is self._envs.envs[row] else scratch
            self._scratch[row].reset(seed=0)
        self._scratch[row].get_wrapper_attr("restore")(node)
        return self._scratch[row]

    def _output(
        self, first: int, state: Tensor, last_action: Tensor, reward: Tensor, termination: Tensor
    ) -> NodeOutput:
        slots = torch.arange(first, first + len(state), device=self.device)[:, None]
        policy, value = self._policy_and_value(state, last_action)
        return NodeOutput(slots, value, policy, reward, termination, state)


def _copied(env: gym.Env) -> gym.Env:
    try:
        return copy.deepcopy(env)
    except Exception as error:
        raise UnsupportedError(
            f"the environment {env} cannot be deep-copied ({error}); give it snapshot() and restore(snapshot) methods "
            f"and make it anew for each environment, or use a learned model"
        ) from error
