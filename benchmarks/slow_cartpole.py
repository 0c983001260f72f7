"""CartPole with a delay at every step, as environments have that wait for a game, a robot or another program."""

from __future__ import annotations

import time
from typing import Any

import gymnasium as gym
from gymnasium.envs.classic_control import CartPoleEnv

ID = "benchmarks.slow_cartpole:SlowCartPole-v1"


class SlowCartPole(CartPoleEnv):
    """CartPole that sleeps for ``delay`` seconds at every step."""

    def __init__(self, delay: float = 0.005, **options: Any) -> None:
        super().__init__(**options)
        self._delay = delay

    def step(self, action: Any) -> Any:
        time.sleep(self._delay)
        return super().step(action)


gym.register("SlowCartPole-v1", entry_point=SlowCartPole, max_episode_steps=500)
