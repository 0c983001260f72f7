"""Small environments and models for the tests of the agents."""

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from thinker.augmented import ThinkerEnv
from thinker.world_model.protocol import NodeOutput

NUM_ACTIONS = 3
OBSERVE = ("tree", "hidden", "root_hidden", "real_state", "predicted_state")


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

    def __init__(self, observation_shape: tuple[int, ...], hidden_shape: tuple[int, ...] = (6,)) -> None:
        generator = torch.Generator().manual_seed(5)
        self.hidden_shape, self.observation_shape = hidden_shape, observation_shape
        count, width = int(np.prod(observation_shape)), int(np.prod(hidden_shape))
        self.encode = torch.randn(count, width, generator=generator) / 255
        self.mix = torch.randn(width + NUM_ACTIONS, width, generator=generator)
        self.read = torch.randn(width, 3 + NUM_ACTIONS, generator=generator)
        self.decode = torch.randn(width, count, generator=generator)

    def root(self, observation, last_action):
        output = self._output((observation.flatten(1).float() @ self.encode).tanh(), observation)
        zeros = torch.zeros(len(observation))
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
    num_envs=4, *, observe=("tree", "hidden"), stage_length=3, max_depth=2, shape=(4,), hidden=(6,), **options
):
    """A `ThinkerEnv` in which everything is noise and episodes end often."""
    envs = NoiseEnvs(num_envs, shape, **options)
    model = NoiseModel(shape, hidden)
    return ThinkerEnv(
        envs, model, stage_length=stage_length, max_depth=max_depth, discount=0.9, observe=observe, seed=1
    )
