"""Perfect world models: the real dynamics as a simulator, with a given base policy and value (the paper's appendix H).

Environments that offer their own simulator (`OffersSimulator`) use that. `EnvSimulator` works for all others that have
``snapshot()`` and ``restore(snapshot)`` or can be deep-copied.
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
    """A uniform base policy with value 0."""

    def policy_and_value(observation: Tensor, last_action: Tensor) -> tuple[Tensor, Tensor]:
        count, device = len(observation), observation.device
        return torch.full((count, num_actions), 1 / num_actions, device=device), torch.zeros(count, device=device)

    return policy_and_value


def simulator(envs: VectorEnv, policy_and_value: PolicyAndValue | None = None) -> WorldModel:
    """The perfect model of ``envs``: their own simulator if they offer one, else an `EnvSimulator`.

    The simulator of the unwrapped vector environment or of its first single environment is used, unless wrappers have
    changed the observations. Without ``policy_and_value`` the policy is uniform and values are 0.
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
    """Copies of the real environments as a world model. A node is a copy; its hidden state is the copy's index.

    The copies include the state of the real environments' random generators, so random events are predicted exactly.
    Time limits set by wrappers are ignored: an imagined episode ends only by termination. Environments are stepped one
    after another on the CPU, regardless of the device of ``policy_and_value``.
    """

    device = torch.device("cpu")

    def __init__(self, envs: VectorEnv, policy_and_value: PolicyAndValue | None = None) -> None:
        """``envs``: a SyncVectorEnv whose environments have ``snapshot`` and ``restore`` or can be deep-copied."""
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
        # Per node: its environment's index; a snapshot, a copy, or None for a final state, which is never unrolled.
        self._nodes: list[tuple[int, Any]] = []
        self._states: list[np.ndarray] = []
        first = envs.envs[0]
        self._has_snapshots = first.has_wrapper_attr("snapshot") and first.has_wrapper_attr("restore")
        # Environments to restore snapshots into: one per real environment, since their arguments may differ.
        self._scratch: dict[int, gym.Env] = {}

    def root(self, observation: Tensor, last_action: Tensor) -> NodeOutput:
        """Start at the current states of the real environments; fewer rows are final states, see `WorldModel.root`."""
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
        if int(hidden.max()) >= first:
            raise RuntimeError(
                "a simulator's nodes are not saved: a search can only be resumed at the start of a stage"
            )
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
        """The states of the nodes: a copy has no other hidden state."""
        return torch.from_numpy(np.stack([self._states[slot] for slot in hidden[:, 0].tolist()]))

    def _numbers(self, values: list[float]) -> Tensor:
        return torch.tensor(values, dtype=torch.float32, device=self.device)

    def _leave(self, env: gym.Env) -> Any:
        """A snapshot of ``env``, or ``env`` itself, from which `_enter` restores its current state."""
        return env.get_wrapper_attr("snapshot")() if self._has_snapshots else env

    def _enter(self, row: int, node: Any) -> gym.Env:
        """An environment that may be stepped, in the state of ``node`` of the real environment ``row``."""
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
            f"and create a new instance for each environment, or use a learned model"
        ) from error
