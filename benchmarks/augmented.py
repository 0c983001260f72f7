"""Speed of `ThinkerEnv`: with a model that costs nothing, and its share of the time beside the paper's network sizes.

    python -m benchmarks.augmented [--envs 64] [--million]

Everything runs on one core, in processor time, so that other programs do not count. Ratios are measured within one run.
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from torch import Tensor, nn

from thinker import NodeOutput, ThinkerEnv

A, K, L = 5, 20, 5


class NothingHappens(VectorEnv):
    """Real environments that cost nothing."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012 - Gymnasium's convention

    def __init__(self, num_envs: int, shape: tuple[int, ...], dtype: type) -> None:
        self.num_envs = num_envs
        self.single_action_space = spaces.Discrete(A)
        self.single_observation_space = spaces.Box(0, 255, shape, dtype)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self._observation: np.ndarray = np.zeros((num_envs, *shape), dtype)

    def reset(self, *, seed: object = None, options: object = None) -> tuple[np.ndarray, dict]:
        return self._observation, {}

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict]:
        nothing = np.zeros(self.num_envs, bool)
        return self._observation, np.zeros(self.num_envs), nothing, nothing, {}


class FreeModel:
    """A model that hands out slices of what it made at the start."""

    num_actions = A
    hidden_shape = (8,)

    def __init__(self, num_envs: int) -> None:
        self._hidden = torch.zeros(num_envs, 8)
        self._numbers = torch.zeros(num_envs)
        self._policy = torch.full((num_envs, A), 1 / A)

    def _output(self, count: int) -> NodeOutput:
        numbers = self._numbers[:count]
        return NodeOutput(self._hidden[:count], numbers, self._policy[:count], numbers, numbers, None)

    def root(self, observation: Tensor, last_action: Tensor) -> NodeOutput:
        return self._output(len(observation))

    def unroll(self, hidden: Tensor, action: Tensor) -> NodeOutput:
        return self._output(len(hidden))


class PaperSized(nn.Module):
    """Random weights with the arithmetic of the paper's Sokoban dual network: times its own calls."""

    num_actions = A
    hidden_shape = (256, 5, 5)

    def __init__(self) -> None:
        super().__init__()

        def blocks(count: int, channels: int) -> list[nn.Module]:
            return [nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU()) for _ in range(2 * count)]

        self.encoder = nn.Sequential(
            nn.Conv2d(3, 64, 3, 2, 1), *blocks(1, 64), nn.Conv2d(64, 128, 3, 2, 1), *blocks(1, 128),
            nn.AvgPool2d(2), *blocks(1, 128), nn.AvgPool2d(2),
        )  # fmt: skip
        self.decoder = nn.Sequential(
            *blocks(1, 128), nn.ConvTranspose2d(128, 128, 4, 2, 1), *blocks(1, 128),
            nn.ConvTranspose2d(128, 128, 4, 2, 1), nn.ConvTranspose2d(128, 64, 4, 2, 1), *blocks(1, 64),
            nn.ConvTranspose2d(64, 3, 4, 2, 1),
        )  # fmt: skip
        self.unroll_state, self.unroll_value = nn.Sequential(*blocks(5, 128)), nn.Sequential(*blocks(5, 128))
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.seconds = 0.0

    def _output(self, state_hidden: Tensor, value_hidden: Tensor) -> NodeOutput:
        count = len(state_hidden)
        hidden = torch.cat((state_hidden, value_hidden), 1).contiguous(memory_format=torch.channels_last)
        numbers, policy = torch.zeros(count), torch.full((count, A), 1 / A)
        return NodeOutput(hidden, numbers, policy, numbers, numbers, None)

    def root(self, observation: Tensor, last_action: Tensor) -> NodeOutput:
        start = time.process_time()
        frames = observation.float().contiguous(memory_format=torch.channels_last)
        output = self._output(self.encoder(frames), self.unroll_value(self.encoder(frames)))
        self.seconds += time.process_time() - start
        return output

    def unroll(self, hidden: Tensor, action: Tensor) -> NodeOutput:
        start = time.process_time()
        state_hidden = self.unroll_state(hidden[:, :128])
        output = self._output(state_hidden, self.unroll_value(self.encoder(self.decoder(state_hidden))))
        self.seconds += time.process_time() - start
        return output


def steps_per_second(env: ThinkerEnv, num_steps: int) -> float:
    """Augmented steps per second, all environments counted, with actions drawn beforehand."""
    random = np.random.default_rng(0)
    actions = [random.integers(0, (A, 2), (env.num_envs, 2)) for _ in range(1000)]
    env.reset(seed=0)
    for step in range(2 * K):
        env.step(actions[step])
    start = time.process_time()
    for step in range(num_steps):
        env.step(actions[step % 1000])
    return env.num_envs * num_steps / (time.process_time() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--envs", type=int, default=64, help="environments (default 64)")
    parser.add_argument("--million", action="store_true", help="also take a million vector steps and watch the memory")
    options = parser.parse_args()
    torch.set_num_threads(1)
    settings = {"stage_length": K, "max_depth": L}
    print(f"{options.envs} environments, A = {A}, K = {K}, L = {L}, one core")

    for copy in (True, False):
        env = ThinkerEnv(NothingHappens(options.envs, (4,), np.float32), FreeModel(options.envs), copy=copy, **settings)  # type: ignore[arg-type]
        print(f"  free model, copy={copy!s:5}: {steps_per_second(env, 10_000):>12,.0f} augmented steps/s")

    model = PaperSized()
    env = ThinkerEnv(NothingHappens(options.envs, (3, 80, 80), np.uint8), model, **settings)  # type: ignore[arg-type]
    env.reset()
    model.seconds, start = 0.0, time.process_time()
    random = np.random.default_rng(0)
    for _ in range(2 * K):
        env.step(random.integers(0, (A, 2), (options.envs, 2)))
    whole = time.process_time() - start
    share = 1 - model.seconds / whole
    print(f"  paper's Sokoban sizes:    {share:.1%} of the time in ThinkerEnv outside the network calls")

    if options.million:
        env = ThinkerEnv(NothingHappens(4, (4,), np.float32), FreeModel(4), **settings)  # type: ignore[arg-type]
        steps_per_second(env, 50_000)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        steps_per_second(env, 1_000_000)
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(f"  a million vector steps:   peak memory grew by {(after - before) / 1024:.1f} MiB")


if __name__ == "__main__":
    main()
