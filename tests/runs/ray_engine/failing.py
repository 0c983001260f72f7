"""A CartPole whose steps raise an error while a certain file exists."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
from gymnasium.envs.classic_control import CartPoleEnv

ID = "tests.runs.ray_engine.failing:FailingCartPole-v0"
MESSAGE = "the pole is broken"


class FailingCartPole(CartPoleEnv):
    def __init__(self, fault: str) -> None:
        super().__init__()
        self._fault = Path(fault)

    def step(self, action: Any) -> Any:
        if self._fault.exists():
            raise RuntimeError(MESSAGE)
        return super().step(action)


gym.register("FailingCartPole-v0", entry_point=FailingCartPole, max_episode_steps=60)
