"""Your own environment: a little docking task, registered with Gymnasium, wrapped with `thinker.make` and trained on.

    python examples/own_environment.py            # about a minute on one CPU core
    python examples/own_environment.py --quick    # about half a minute

The learner is the PPO of own_algorithm.py, the world model is learned from scratch. `docs/own_environment.md` is the
guide to this file. The agent that comes with Thinker learns the task as well, from the folder of this file:

    thinker train gymnasium --environment.id own_environment:examples/Docking-v0
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from own_algorithm import Policy, PPOSettings, Progress, train

import thinker

ENV_ID = "examples/Docking-v0"


class Docking(gym.Env[np.ndarray, np.int64]):
    """A craft on a line has to come to rest at the station (+1) without leaving the line (-1); a step costs 0.01.

    Thrust changes the velocity, not the position: who brakes only on arrival has long passed the station.
    """

    thrust, fastest, near = 0.02, 0.2, 0.1

    def __init__(self) -> None:
        # Position, velocity, station. Thinker chooses its networks by this space, and scales by its bounds.
        highest = np.array([1.5, self.fastest, 1.0], np.float32)
        self.observation_space = gym.spaces.Box(-highest, highest)
        self.action_space = gym.spaces.Discrete(3)  # thrust to the left, none, to the right

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.position, self.station = self.np_random.uniform(-0.8, 0.8, 2)
        self.velocity = 0.0
        return self._observe(), {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.velocity = float(np.clip(self.velocity + self.thrust * (int(action) - 1), -self.fastest, self.fastest))
        self.position += self.velocity
        lost = abs(self.position) > 1
        docked = abs(self.position - self.station) < self.near and abs(self.velocity) < 1.5 * self.thrust
        reward = -1.0 if lost else 1.0 if docked else -0.01
        return self._observe(), reward, lost or docked, False, {"is_success": docked}  # counted where it is told

    def _observe(self) -> np.ndarray:
        return np.array([self.position, self.velocity, self.station], np.float32)


gym.register(id=ENV_ID, entry_point=f"{__name__}:Docking", max_episode_steps=60)


def make(**options: Any) -> thinker.ThinkerEnv:
    """The docking task augmented; ``options`` say which model, and what else `thinker.make` should know."""
    return thinker.make(
        ENV_ID, num_envs=32, stage_length=5, max_depth=4, discount=0.97, observe=("tree", "real_state"), **options
    )


def evaluate(env: thinker.ThinkerEnv, policy: Policy, episodes_each: int, seed: int) -> tuple[float, float]:
    """Mean return, and share of episodes that ended docked, over the first episodes of each environment."""
    torch.manual_seed(seed)
    observation, info = env.reset(seed=seed)
    returns: list[list[float]] = [[] for _ in range(env.num_envs)]
    while min(map(len, returns)) < episodes_each:
        with torch.no_grad():
            primary, reset, _ = policy(policy.flat(observation), torch.tensor(info["next_is_real"]))
        observation, _, terminated, truncated, info = env.step(torch.stack((primary.sample(), reset.sample()), 1))
        for i in np.flatnonzero(terminated | truncated):
            returns[i].append(float(info["episode"]["r"][i]))
    counted = np.array([each[:episodes_each] for each in returns])
    return float(counted.mean()), float((counted > 0).mean())


def main(
    arguments: Sequence[str] | None = None, log: Callable[[str], None] = print
) -> tuple[Progress, tuple[float, float], tuple[float, float]]:
    parser = argparse.ArgumentParser(description="A custom environment, from its class to a trained agent.")
    parser.add_argument("--quick", action="store_true", help="about half a minute, to see that it learns")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args(arguments)
    settings = PPOSettings(real_steps=14_000 if chosen.quick else 40_000, rollout_length=16, entropy_cost=0.01)

    env = make(
        seed=chosen.seed,
        model=thinker.DualModelSpec(
            size=thinker.VectorSize(channels=64),
            training=thinker.TrainerSettings(learning_rate=1e-3, warm_up_transitions=500),
        ),
        total_transitions=settings.real_steps,
    )
    # The same model without its trainer: playing there teaches it nothing, so it measures and nothing else.
    evaluation = make(model=env.model)

    before = evaluate(evaluation, Policy(env), 5, seed=chosen.seed + 1)
    log(f"before: mean return {before[0]:5.2f}, docked in {before[1]:.0%} of episodes")
    progress = train(env, settings, seed=chosen.seed, log=log)
    after = evaluate(evaluation, progress.policy, 5, seed=chosen.seed + 1)
    log(f"after:  mean return {after[0]:5.2f}, docked in {after[1]:.0%} of episodes")
    env.close()
    evaluation.close()
    return progress, before, after


if __name__ == "__main__":
    main()
