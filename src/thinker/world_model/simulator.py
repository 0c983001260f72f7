"""Perfect world models: the real dynamics as a simulator, with a given base policy and value (the paper's appendix H).

`SokobanSimulator` is native and stateless: the board is the hidden state. `EnvSimulator` serves any environment that
offers ``snapshot()`` and ``restore(snapshot)``, or that can be deep-copied; it steps one environment after another.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv, VectorEnv
from torch import Tensor

from thinker.envs.sokoban import SokobanEnv, SokobanVectorEnv, engine
from thinker.envs.sokoban.rendering import observation_sprites
from thinker.world_model.protocol import NodeOutput, WorldModel

PolicyAndValue = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""(observation [B, *observation_shape], last action [B]) -> base policy [B, A] as probabilities, its value [B]."""


def uniform_policy(num_actions: int) -> PolicyAndValue:
    """The base policy that knows nothing: all actions alike, value 0."""

    def policy_and_value(observation: Tensor, last_action: Tensor) -> tuple[Tensor, Tensor]:
        count = len(observation)
        return torch.full((count, num_actions), 1 / num_actions), torch.zeros(count)

    return policy_and_value


def simulator(envs: VectorEnv, policy_and_value: PolicyAndValue | None = None) -> WorldModel:
    """The perfect model of ``envs``: the native one for Sokoban, the general one for everything else."""
    real = envs.unwrapped
    first = real.envs[0].unwrapped if isinstance(real, SyncVectorEnv) else real
    if isinstance(first, SokobanEnv | SokobanVectorEnv):
        assert isinstance(envs.single_observation_space, spaces.Box)
        return SokobanSimulator(envs.single_observation_space, policy_and_value)
    return EnvSimulator(envs, policy_and_value)


class SokobanSimulator:
    """Sokoban's rules as a world model. What the agent sees of the hidden state is the board's one-hot planes."""

    num_actions = engine.NUM_ACTIONS

    def __init__(self, observation_space: spaces.Box, policy_and_value: PolicyAndValue | None = None) -> None:
        """``observation_space``: that of ``thinker/Sokoban-v0``, with tiles or rgb."""
        kind = "tiles" if observation_space.shape[0] == engine.NUM_TILES else "rgb"
        self._sprites = observation_sprites(kind)  # [7, C, P, P]
        channels, pixels = self._sprites.shape[1:3]
        if observation_space.shape[0] != channels or any(side % pixels for side in observation_space.shape[1:]):
            raise ValueError(
                f"{observation_space} is not an observation space of thinker/Sokoban-v0; use simulator(envs) or "
                f"EnvSimulator for other environments"
            )
        self._board_shape = tuple(side // pixels for side in observation_space.shape[1:])
        self.hidden_shape = (engine.NUM_TILES, *self._board_shape)
        self._policy_and_value = policy_and_value or uniform_policy(self.num_actions)
        # One number per sprite is enough to tell them apart.
        weights = np.random.default_rng(0).integers(1, 2**31, self._sprites[0].size)
        self._weights = weights.reshape(self._sprites.shape[1:])
        self._sprite_keys = (self._sprites * self._weights).sum((1, 2, 3))  # [7]

    def root(self, observation: Tensor, last_action: Tensor) -> NodeOutput:
        """Read the boards from the real observations."""
        zeros = torch.zeros(len(observation))
        return self._output(self._read(observation.numpy()), observation, last_action, zeros, zeros)

    def unroll(self, hidden: Tensor, action: Tensor) -> NodeOutput:
        """Play ``action`` on boards [B, H, W]."""
        boards = hidden.numpy().copy()
        count, channels, pixels = len(boards), *self._sprites.shape[1:3]
        reward, solved = np.empty(count, np.float32), np.empty(count, np.bool_)
        engine.step_boards(boards, action.numpy(), reward, solved)
        height, width = self._board_shape
        pictures = np.empty((count, channels, height * pixels, width * pixels), np.uint8)
        engine.observe_boards(boards, self._sprites, pictures)
        termination = torch.from_numpy(solved).float()
        return self._output(boards, torch.from_numpy(pictures), action, torch.from_numpy(reward), termination)

    def observe_hidden(self, hidden: Tensor) -> Tensor:
        """The boards [B, H, W] as one-hot planes [B, 7, H, W]."""
        planes = torch.nn.functional.one_hot(hidden.long(), engine.NUM_TILES)
        return planes.permute(0, 3, 1, 2).contiguous()

    def _output(
        self, boards: np.ndarray, state: Tensor, last_action: Tensor, reward: Tensor, termination: Tensor
    ) -> NodeOutput:
        policy, value = self._policy_and_value(state, last_action)
        return NodeOutput(torch.from_numpy(boards), value, policy, reward, termination, state)

    def _read(self, observation: np.ndarray) -> np.ndarray:
        """Tile codes [B, H, W] of observations [B, C, H * P, W * P]."""
        if observation.shape[1] == engine.NUM_TILES:
            return observation.argmax(1).astype(np.uint8)
        height, width = self._board_shape
        channels, pixels = self._sprites.shape[1:3]
        squares = observation.reshape(-1, channels, height, pixels, width, pixels)
        keys = np.einsum("bcyixj,cij->byx", squares, self._weights)
        return (keys[..., None] == self._sprite_keys).argmax(-1).astype(np.uint8)


class EnvSimulator:
    """Copies of the real environments as a world model. A node is a copy; its hidden state is where the copy lies.

    The copies share the state of the real environments' random generators: what is random there is foreseen here.
    Time limits set by wrappers are not part of it: an imagined episode ends only by termination.
    """

    def __init__(self, envs: VectorEnv, policy_and_value: PolicyAndValue | None = None) -> None:
        """``envs``: a SyncVectorEnv, whose environments offer ``snapshot`` and ``restore`` or can be deep-copied."""
        if not isinstance(envs, SyncVectorEnv):
            raise TypeError(
                f"a simulator needs the single environments of a gymnasium.vector.SyncVectorEnv, not {envs}; wrap the "
                f"single environments rather than the vector environment, or use a learned model"
            )
        space = envs.single_action_space
        if not isinstance(space, spaces.Discrete):
            raise TypeError(f"a simulator needs a Discrete action space, not {space}")
        self.num_actions = int(space.n)
        self._first_action = int(space.start)
        self._envs = envs
        assert envs.single_observation_space.shape is not None
        self.hidden_shape = envs.single_observation_space.shape
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
        zeros = torch.zeros(len(observation))
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
        return self._output(first, states, action, torch.tensor(rewards), torch.tensor(terminated))

    def observe_hidden(self, hidden: Tensor) -> Tensor:
        """The states of the nodes: a copy has no other hidden state to show."""
        return torch.from_numpy(np.stack([self._states[slot] for slot in hidden[:, 0].tolist()]))

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
        slots = torch.arange(first, first + len(state))[:, None]
        policy, value = self._policy_and_value(state, last_action)
        return NodeOutput(slots, value, policy, reward, termination, state)


def _copied(env: gym.Env) -> gym.Env:
    try:
        return copy.deepcopy(env)
    except Exception as error:
        raise TypeError(
            f"the environment {env} cannot be deep-copied ({error}); give it snapshot() and restore(snapshot) methods "
            f"and make it anew for each environment, or use a learned model"
        ) from error
