"""Small environments, models and sinks that all tests share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import batch_space

from thinker.augmented import ThinkerEnv
from thinker.interfaces import NodeOutput, RealTransition
from thinker.world_model.no_model import NoModel

NUM_ACTIONS = 3
"""Of the noise and key environments."""
OBSERVE = ("tree", "hidden", "root_hidden", "real_state", "predicted_state")

# ---------------------------------------------------------------- everything is a hash: for exact comparisons

MODULUS = 2**31 - 1


def mix(*numbers: int) -> int:
    """A deterministic hash of integers."""
    value = 17
    for number in numbers:
        value = (value * 1_000_003 + int(number) * 7_919 + 101) % MODULUS
        value ^= value >> 13
    return value % MODULUS


def fraction(*numbers: int) -> float:
    return (mix(*numbers) % 10_007) / 10_007


@dataclass(frozen=True)
class FakeModel:
    """All that a model says of a node is a hash of the path to it. ``version`` changes it all, as learning does."""

    num_actions: int
    termination_rate: float = 0.2
    version: int = 0
    calls: list[tuple[str, int]] = field(default_factory=list)

    def describe(self, hidden: int, is_root: bool) -> dict:
        weights = np.array([fraction(hidden, 3, a) + 0.1 for a in range(self.num_actions)])
        return {
            "value": 4 * fraction(hidden, 1) - 2,
            "policy": weights / weights.sum(),
            "reward": 0.0 if is_root else 2 * fraction(hidden, 2) - 1,
            "termination": 0.0 if is_root else float(fraction(hidden, 4) < self.termination_rate),
            "state": [fraction(hidden, 5), fraction(hidden, 6)],
        }

    def root_hidden(self, observation: np.ndarray, last_action: int) -> int:
        return mix(self.version, int(observation[0]), int(observation[1]), last_action + 1)

    def unroll_hidden(self, hidden: int, action: int) -> int:
        return mix(self.version, hidden, action + 11)

    def _output(self, hidden: list[int], observation: torch.Tensor | None) -> NodeOutput:
        nodes = [self.describe(h, observation is not None) for h in hidden]

        def tensor(name: str) -> torch.Tensor:
            return torch.tensor(np.array([node[name] for node in nodes]), dtype=torch.float32)

        return NodeOutput(
            hidden=torch.tensor(hidden, dtype=torch.int64)[:, None],
            value=tensor("value"),
            policy=tensor("policy"),
            reward=tensor("reward"),
            termination=tensor("termination"),
            state=tensor("state") if observation is None else observation.float(),
        )

    def root(self, observation: torch.Tensor, last_action: torch.Tensor) -> NodeOutput:
        self.calls.append(("root", len(observation)))
        rows = zip(observation.numpy(), last_action.tolist())
        return self._output([self.root_hidden(row, action) for row, action in rows], observation)

    def unroll(self, hidden: torch.Tensor, action: torch.Tensor) -> NodeOutput:
        self.calls.append(("unroll", len(hidden)))
        pairs = zip(hidden[:, 0].tolist(), action.tolist())
        return self._output([self.unroll_hidden(h, a) for h, a in pairs], None)


class RandomEpisodes(gym.Env):
    """Observations (environment, time), hashed rewards, hashed ends: termination, truncation or both."""

    def __init__(self, number: int, num_actions: int, end_rate: float) -> None:
        self.number, self.end_rate = number, end_rate
        self.action_space = spaces.Discrete(num_actions)
        self.observation_space = spaces.Box(-1, np.inf, (2,), np.float32)
        self.time = 0

    def _observation(self) -> np.ndarray:
        return np.array([self.number, self.time], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time += 1
        return self._observation(), {"started_at": self.time}

    def step(self, action):
        self.time += 1
        reward = 2 * fraction(self.number, self.time, action) - 1
        terminated = fraction(self.number, self.time, 71) < self.end_rate
        truncated = fraction(self.number, self.time, 72) < self.end_rate
        return self._observation(), reward, terminated, truncated, {"time": self.time}


def random_episodes(
    num_envs: int = 3,
    end_rate: float = 0.3,
    mode: AutoresetMode = AutoresetMode.SAME_STEP,
    kind: Callable[..., VectorEnv] = SyncVectorEnv,
    num_actions: int = 2,
) -> VectorEnv:
    """``num_envs`` numbered `RandomEpisodes` in one of Gymnasium's own vector environments."""
    return kind([partial(RandomEpisodes, n, num_actions, end_rate) for n in range(num_envs)], autoreset_mode=mode)


class NativeNextStep(VectorEnv):
    """A vector environment in NEXT_STEP mode that cannot be reset one by one, as Gymnasium's own CartPole."""

    def __init__(self, inner: SyncVectorEnv) -> None:
        self._inner = inner
        self.num_envs, self.metadata = inner.num_envs, inner.metadata
        self.single_action_space, self.action_space = inner.single_action_space, inner.action_space
        self.single_observation_space, self.observation_space = inner.single_observation_space, inner.observation_space

    def reset(self, *, seed=None, options=None):
        assert not options
        return self._inner.reset(seed=seed)

    def step(self, actions):
        return self._inner.step(actions)


class Witness:
    """A sink that only remembers."""

    def __init__(self) -> None:
        self.transitions: list[RealTransition] = []
        self.abandoned = 0

    def add(self, transition: RealTransition) -> None:
        self.transitions.append(transition)

    def abandon_episodes(self) -> None:
        self.abandoned += 1


# ---------------------------------------------------------------------- noise and keys: for agents that learn


class SameStepEnvs(VectorEnv):
    """A vector environment with the bookkeeping of Gymnasium's SAME_STEP mode; subclasses say what happens."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}

    def __init__(self, num_envs: int, space: spaces.Box) -> None:
        self.num_envs = num_envs
        self.single_observation_space = space
        self.single_action_space = spaces.Discrete(NUM_ACTIONS)
        self.observation_space = batch_space(space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.random = np.random.default_rng(0)

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self.random = np.random.default_rng(seed)
        self.state = np.stack([self.first_state() for _ in range(self.num_envs)])
        return self.state.copy(), {}

    def step(self, actions):
        reward = np.zeros(self.num_envs)
        terminated, truncated = np.zeros((2, self.num_envs), bool)
        final = np.full(self.num_envs, None, object)
        for e in range(self.num_envs):
            self.state[e], reward[e], terminated[e], truncated[e] = self.next_state(self.state[e], int(actions[e]))
            if terminated[e] or truncated[e]:
                final[e] = self.state[e].copy()
                self.state[e] = self.first_state()
        ended = terminated | truncated
        info = {"final_obs": final, "_final_obs": ended} if ended.any() else {}
        return self.state.copy(), reward, terminated, truncated, info


class NoiseEnvs(SameStepEnvs):
    """Random states and rewards; episodes end at random, half of them by truncation."""

    def __init__(self, num_envs: int, shape: tuple[int, ...] = (4,), end_probability: float = 0.3) -> None:
        super().__init__(num_envs, spaces.Box(0, 255, shape, np.uint8))
        self.end_probability = end_probability

    def first_state(self):
        return self.random.integers(0, 256, self.single_observation_space.shape, np.uint8)

    def next_state(self, state, action):
        ended = self.random.random() < self.end_probability
        kind = self.random.random() < 0.5
        return self.first_state(), self.random.normal(), ended and kind, ended and not kind


class KeyEnvs(SameStepEnvs):
    """One real step: the action that the state shows is worth 1, the others nothing."""

    def __init__(self, num_envs: int) -> None:
        super().__init__(num_envs, spaces.Box(0, 1, (NUM_ACTIONS,), np.float32))

    def first_state(self):
        return np.eye(NUM_ACTIONS, dtype=np.float32)[self.random.integers(NUM_ACTIONS)]

    def next_state(self, state, action):
        return np.zeros_like(state), float(state[action]), True, False


class KeyModel:
    """The perfect model of `KeyEnvs`."""

    num_actions = NUM_ACTIONS
    hidden_shape = (NUM_ACTIONS,)

    def root(self, observation, last_action):
        zeros = torch.zeros(len(observation))
        return self._output(observation, zeros, zeros)

    def unroll(self, hidden, action):
        reward = hidden.gather(1, action.unsqueeze(1)).squeeze(1)
        return self._output(torch.zeros_like(hidden), reward, torch.ones_like(reward))

    def _output(self, hidden, reward, termination):
        policy = torch.full((len(hidden), NUM_ACTIONS), 1 / NUM_ACTIONS)
        return NodeOutput(hidden, torch.zeros(len(hidden)), policy, reward, termination, hidden)


class NoiseModel:
    """Any deterministic model: fixed random functions of the hidden state."""

    num_actions = NUM_ACTIONS

    def __init__(
        self, observation_shape: tuple[int, ...], hidden_shape: tuple[int, ...] = (6,), device: str = "cpu"
    ) -> None:
        generator = torch.Generator().manual_seed(5)
        self.hidden_shape, self.observation_shape, self.device = hidden_shape, observation_shape, torch.device(device)
        count, width = int(np.prod(observation_shape)), int(np.prod(hidden_shape))
        self.encode = torch.randn(count, width, generator=generator).to(device) / 255
        self.mix = torch.randn(width + NUM_ACTIONS, width, generator=generator).to(device)
        self.read = torch.randn(width, 3 + NUM_ACTIONS, generator=generator).to(device)
        self.decode = torch.randn(width, count, generator=generator).to(device)

    def root(self, observation, last_action):
        output = self._output((observation.flatten(1).float() @ self.encode).tanh(), observation)
        zeros = torch.zeros(len(observation), device=self.device)
        return NodeOutput(output.hidden, output.value, output.policy, zeros, zeros, observation)

    def unroll(self, hidden, action):
        one_hot = torch.nn.functional.one_hot(action, NUM_ACTIONS).float()
        return self._output((torch.cat((hidden.flatten(1), one_hot), 1) @ self.mix).tanh(), None)

    def _output(self, hidden, state):
        numbers = hidden @ self.read
        if state is None:
            state = (hidden @ self.decode).sigmoid().mul(255).to(torch.uint8).view(-1, *self.observation_shape)
        return NodeOutput(
            hidden=hidden.view(-1, *self.hidden_shape),
            value=numbers[:, 0],
            policy=numbers[:, 3:].softmax(1),
            reward=numbers[:, 1],
            termination=(numbers[:, 2] > 2).float(),
            state=state,
        )


def noise_env(
    num_envs: int = 4,
    *,
    observe=("tree", "hidden"),
    stage_length: int = 3,
    max_depth: int | None = 2,
    shape: tuple[int, ...] = (4,),
    hidden: tuple[int, ...] = (6,),
    end_probability: float = 0.3,
    device: str = "cpu",
    **options,
) -> ThinkerEnv:
    """A `ThinkerEnv` in which everything is noise and episodes end often."""
    return ThinkerEnv(
        NoiseEnvs(num_envs, shape, end_probability),
        NoiseModel(shape, hidden, device),
        stage_length=stage_length,
        max_depth=max_depth,
        discount=0.9,
        observe=observe,
        seed=1,
        **options,
    )


def raw_env(envs: VectorEnv, device: str = "cpu") -> ThinkerEnv:
    """The raw MDP of ``envs`` with `NUM_ACTIONS` actions."""
    model = NoModel(NUM_ACTIONS, torch.device(device))
    return ThinkerEnv(envs, model, stage_length=1, discount=0.9, observe=("real_state",), seed=0)
