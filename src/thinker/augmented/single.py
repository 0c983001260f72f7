"""One environment of the augmented MDP as an ordinary `gymnasium.Env`, for libraries that need one."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from thinker.augmented.env import ThinkerEnv
from thinker.errors import UserError


class SingleThinkerEnv(gym.Env):
    """The single-environment view: NumPy observations, no autoreset, no vector dimension."""

    def __init__(self, vector_env: ThinkerEnv) -> None:
        """``vector_env``: one environment (see `single_vector`), with ``output="numpy"`` and ``autoreset=False``."""
        if vector_env.num_envs != 1 or vector_env.output != "numpy":
            raise UserError(
                f"SingleThinkerEnv needs a ThinkerEnv of one environment with output='numpy'; this one has "
                f"{vector_env.num_envs} and output={vector_env.output!r}"
            )
        self.vector_env = vector_env
        self.observation_space = vector_env.single_observation_space
        self.action_space = vector_env.single_action_space
        self.render_mode = vector_env.render_mode
        self.augmented_discount = vector_env.augmented_discount
        self.metadata = {key: value for key, value in vector_env.metadata.items() if key != "autoreset_mode"}
        self._ended = True

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Start a new episode."""
        super().reset(seed=seed)
        observation, info = self.vector_env.reset(seed=seed, options=options)
        self._ended = False
        return _row(observation), _row(info)

    def step(self, action: np.ndarray) -> tuple[dict[str, np.ndarray], float, bool, bool, dict[str, Any]]:
        """Take one augmented step with ``action`` [2]."""
        if self._ended:
            raise ResetNeeded("the episode has ended, or none has started; call reset() before step()")
        actions = np.asarray(action)[None]
        observation, reward, terminated, truncated, info = self.vector_env.step(actions)
        self._ended = bool(terminated[0] or truncated[0])
        seen = info.pop("final_obs")[0] if self._ended else _row(observation)
        return seen, float(reward[0]), bool(terminated[0]), bool(truncated[0]), _row(info)

    def decode(self, tree: np.ndarray) -> dict[str, np.ndarray]:
        """Split a tree representation [..., size] into its named parts."""
        return self.vector_env.decode(tree)

    def render(self) -> Any:
        """Render the real environment."""
        pictures = self.vector_env.render()
        return None if pictures is None else pictures[0]

    def close(self) -> None:
        """Close the real environment."""
        self.vector_env.close()


def single_vector(env: gym.Env) -> SyncVectorEnv:
    """``env`` as a vector environment of size one without autoreset."""
    return SyncVectorEnv([lambda: env], autoreset_mode=AutoresetMode.DISABLED)


def _row(values: dict[str, Any]) -> dict[str, Any]:
    """Row 0 of a dict of arrays over environments; Gymnasium's masks (``_name``) are left out."""
    return {
        key: _row(value) if isinstance(value, dict) else value[0]
        for key, value in values.items()
        if not key.startswith("_")
    }
