"""Shared by the tests of the viewer: small environments and models, policies, and a log of what an environment said."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode
from torch import Tensor

from thinker.augmented import ThinkerEnv
from thinker.envs.sokoban import SokobanVectorEnv
from thinker.interfaces import Decision, NodeOutput
from thinker.viewer import Recording, record
from thinker.world_model.simulator import simulator

LAPTOP, TABLET, PHONE = ({"width": w, "height": h} for w, h in ((1440, 900), (1024, 768), (390, 844)))


class LoggedEnv(ThinkerEnv):
    """Keeps everything that `reset` and `step` returned: the truth that a recording is compared with."""

    def reset(self, **arguments: Any) -> Any:
        self.begin = super().reset(**arguments)
        self.steps: list[dict[str, Any]] = []
        self._next_is_real = bool(self.begin[1]["next_is_real"][0])
        return self.begin

    def step(self, actions: Any, policy: Any = None, root_value: Any = None) -> Any:
        result = super().step(actions, policy, root_value)
        observation, reward, terminated, truncated, info = result
        self.steps.append(
            {
                "actions": np.asarray(torch.as_tensor(actions)).copy(),
                "observation": observation,
                "reward": reward,
                "terminated": terminated,
                "truncated": truncated,
                "info": info,
                "was_real": self._next_is_real,
            }
        )
        self._next_is_real = bool(info["next_is_real"][0])
        return result


class RandomPolicy:
    """Samples from probabilities that it makes up, and remembers its decisions."""

    def __init__(self, env: ThinkerEnv, seed: int, reset: float = 0.3) -> None:
        self._generator = np.random.default_rng(seed)
        self._shape, self._reset = (env.num_envs, env.num_actions), reset
        self.decisions: list[Decision] = []

    def __call__(self, observation: dict, info: dict) -> Decision:
        policy = self._generator.dirichlet(np.ones(self._shape[1]), self._shape[0])
        actions = [self._generator.choice(self._shape[1], p=row) for row in policy]
        resets = self._generator.random(self._shape[0]) < self._reset
        decision = Decision(
            actions=torch.from_numpy(np.stack([actions, resets], 1).astype(np.int64)),
            policy=torch.from_numpy(policy.astype(np.float32)),
            reset_probability=torch.full((self._shape[0],), self._reset),
        )
        self.decisions.append(decision)
        return decision


class TinyActor:
    """An actor that goes through all actions in turn, and resets after every third step."""

    def __init__(self, env: ThinkerEnv) -> None:
        self._num_envs, self._num_actions = env.num_envs, env.num_actions
        self.count = 0
        self.observed: list[Decision] = []

    def begin(self, observation: dict[str, Tensor], info: dict[str, Any]) -> None:
        self.count = 0

    def act(self) -> Decision:
        pair = [self.count % self._num_actions, int(self.count % 3 == 2)]
        return Decision(torch.tensor([pair] * self._num_envs))

    def observe(self, decision: Decision, *step: Any) -> None:
        self.count += 1
        self.observed.append(decision)

    def refresh(self, observation: dict[str, Tensor]) -> None:
        pass

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.count = state["count"]


class FickleModel:
    """A model whose predictions for the same actions depend on the root, so that carried nodes change their mind.

    The hidden state is one number in 0 .. 1, made from the real observation and the actions since. A share ``ends`` of
    all nodes is predicted to end the episode.
    """

    def __init__(self, envs: gym.vector.VectorEnv, ends: float = 0.0) -> None:
        self.num_actions = int(envs.single_action_space.n)
        self._space, self._ends = envs.single_observation_space, ends

    def root(self, observation: Tensor, last_action: Tensor) -> NodeOutput:
        numbers = observation.flatten(1).double()
        hidden = (numbers @ torch.arange(1, numbers.shape[1] + 1).double() * 7.31).frac().abs()
        return self._output(hidden, observation, is_root=True)

    def unroll(self, hidden: Tensor, action: Tensor) -> NodeOutput:
        hidden = (hidden[:, 0] * 17.3 + 0.37 * (action + 1)).frac()
        state = hidden.reshape(-1, *[1] * len(self._space.shape)).expand(-1, *self._space.shape)
        return self._output(hidden, state.to(torch.from_numpy(np.zeros(0, self._space.dtype)).dtype), is_root=False)

    def _output(self, hidden: Tensor, state: Tensor, *, is_root: bool) -> NodeOutput:
        logits = (hidden.unsqueeze(1) * torch.arange(1, self.num_actions + 1) * 5).sin()
        zero = torch.zeros_like(hidden)
        return NodeOutput(
            hidden=hidden.unsqueeze(1),
            value=(9 * hidden).cos(),
            policy=logits.softmax(1),
            reward=zero if is_root else hidden - 0.5,
            termination=zero if is_root else (hidden > 1 - self._ends).double(),
            state=state,
        )


def sokoban_env(
    num_envs: int = 2,
    *,
    max_steps: int = 12,
    observation: str = "tiles",
    autoreset_mode: AutoresetMode = AutoresetMode.SAME_STEP,
    kind: type[ThinkerEnv] = ThinkerEnv,
    **options: Any,
) -> Any:
    """Small boards with the perfect model, and values that it makes up."""
    envs = SokobanVectorEnv(
        num_envs,
        size=6,
        boxes=1,
        reverse_moves=(1, 2),
        max_steps=max_steps,
        observation=observation,
        autoreset_mode=autoreset_mode,
    )
    options = {"stage_length": 6, "max_depth": 3, "keep_states": True, **options}
    return kind(envs, simulator(envs, policy_and_value), **options)


def policy_and_value(observation: Tensor, last_action: Tensor) -> tuple[Tensor, Tensor]:
    """A base policy and values that differ from board to board."""
    numbers = observation.flatten(1).double() @ torch.arange(observation[0].numel()).double()
    logits = (numbers.unsqueeze(1) * torch.tensor([0.1, 0.2, 0.3, 0.4, 0.5], dtype=torch.float64)).sin()
    return logits.softmax(1).float(), (numbers * 0.7).cos().float()


def sokoban_recording(episodes: int = 2, *, title: str = "", seed: int = 0, **options: Any) -> Recording:
    """Random play on small boards."""
    env = sokoban_env(episodes, **options)
    return record(env, RandomPolicy(env, seed), episodes=episodes, seed=seed, title=title)


class Pictures(gym.Env):
    """Noisy pictures, or vectors without bounds: states whose numbers tell the step and the actions so far."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 8}

    def __init__(self, shape: tuple[int, ...], length: int = 5, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        image = len(shape) == 3
        self.observation_space = (
            spaces.Box(0, 255, shape, np.uint8) if image else spaces.Box(-np.inf, np.inf, shape, np.float32)
        )
        self.action_space = spaces.Discrete(3)
        self._length = length

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self._past = [int(self.np_random.integers(1000))]
        return self._state(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self._past.append(int(action))
        return self._state(), float(action) - 1.0, len(self._past) > self._length, False, {}

    def render(self) -> np.ndarray | None:
        """A picture of one colour that tells the state: one for each seed and past."""
        return None if self.render_mode is None else np.full((20, 30, 3), self.colour(self._past), np.uint8)

    @staticmethod
    def colour(past: list[int]) -> np.ndarray:
        return np.random.default_rng([len(past), *past]).integers(0, 256, 3)

    def _state(self) -> np.ndarray:
        generator = np.random.default_rng(self._past)
        if self.observation_space.dtype == np.uint8:
            return generator.integers(0, 256, self.observation_space.shape, np.uint8)
        return (10 * generator.standard_normal(self.observation_space.shape)).astype(np.float32)


class Corridor(gym.Env):
    """A corridor as one-hot planes (floor, walker, door): walk right to the door, or left out of it.

    It describes itself through its metadata.
    """

    WIDTH = 4
    TILES = np.stack([np.full((2, 2, 3), 80 * tile, np.uint8) for tile in range(3)])
    metadata = {"action_names": ["west", "east"], "tile_pictures": TILES, "success": "at_the_door"}

    def __init__(self) -> None:
        self.observation_space = spaces.Box(0, 1, (3, 1, self.WIDTH), np.uint8)
        self.action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self._place = 1
        return self._state(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self._place += 2 * int(action) - 1
        is_out = self._place == 0
        is_there = self._place == self.WIDTH - 1
        return self._state(), float(is_there), is_there or is_out, False, {"at_the_door": is_there}

    def _state(self) -> np.ndarray:
        tiles = np.zeros((1, self.WIDTH), np.int64)
        tiles[0, -1], tiles[0, self._place] = 2, 1
        return (np.arange(3)[:, None, None] == tiles).astype(np.uint8)


def fact(page: Any, name: str) -> str:
    """A fact of the real environment on the page."""
    return page.locator(f"#facts dt:text-is('{name}') + dd").inner_text()


def close(numbers: list[float] | float) -> Any:
    """Equal up to the digits that a recording keeps."""
    return pytest.approx(numbers, rel=1e-4, abs=1e-5)
