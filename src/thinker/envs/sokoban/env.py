"""Sokoban as a single Gymnasium environment: one board of the native vector environment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium import error
from gymnasium.vector import AutoresetMode

from thinker.envs.sokoban.feed import Augmentation, LevelSource, Order
from thinker.envs.sokoban.generator import Boxes
from thinker.envs.sokoban.rendering import ObservationKind
from thinker.envs.sokoban.vector_env import RENDER_MODES, SokobanVectorEnv
from thinker.errors import UserError

if TYPE_CHECKING:  # the simulator needs PyTorch, the environment does not
    from thinker.envs.sokoban.simulator import SokobanSimulator
    from thinker.interfaces import PolicyAndValue


class SokobanEnv(gymnasium.Env[np.ndarray, np.int64]):
    """One board of Sokoban; rules, rewards, settings and infos are those of `SokobanVectorEnv`.

    Seeded with s + i, it plays the same levels as board i of a vector environment seeded with s. With
    ``order="sequential"`` every ``reset()`` moves to the next level until ``evaluation_done``; after that, or with a
    seed, it starts over.
    """

    metadata = {"render_modes": list(RENDER_MODES), "render_fps": 8}  # noqa: RUF012

    def __init__(
        self,
        *,
        size: int | tuple[int, int] | None = None,
        boxes: Boxes | None = None,
        levels: LevelSource = "generated",
        observation: ObservationKind = "tiles",
        max_steps: int = 120,
        order: Order = "random",
        reverse_moves: tuple[int, int] | None = None,
        generated_share: float = 0.0,
        augmentation: Augmentation = "none",
        render_mode: str | None = None,
    ) -> None:
        self._board = SokobanVectorEnv(
            1,
            size=size,
            boxes=boxes,
            levels=levels,
            observation=observation,
            max_steps=max_steps,
            order=order,
            reverse_moves=reverse_moves,
            generated_share=generated_share,
            augmentation=augmentation,
            autoreset_mode=AutoresetMode.DISABLED,
            render_mode=render_mode,
        )
        described = {name: entry for name, entry in self._board.metadata.items() if name != "autoreset_mode"}
        self.metadata = {**type(self).metadata, **described}
        self.render_mode = render_mode
        self.size = self._board.size
        self.levels = self._board.levels
        self.observation_space = self._board.single_observation_space
        self.action_space = self._board.single_action_space

    @property
    def evaluation_done(self) -> bool:
        """Whether evaluation mode has played every level of the set."""
        return self._board.evaluation_done

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start the next episode; there are no options."""
        if options:
            raise UserError(f"unknown reset options {sorted(options)}; expected none")
        super().reset(seed=seed)
        next_level = {"reset_mask": np.ones(1, np.bool_)}
        observations, info = self._board.reset(seed=seed, options=None if self.evaluation_done else next_level)
        return observations[0], _first(info)

    def step(self, action: np.int64 | int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Play one action: 0 no-op, 1 up, 2 down, 3 left, 4 right."""
        if np.ndim(action) != 0:
            raise error.InvalidAction(f"the action has shape {np.shape(action)}; expected one integer")
        observations, rewards, terminated, truncated, info = self._board.step(np.asarray(action).reshape(1))
        return observations[0], float(rewards[0]), bool(terminated[0]), bool(truncated[0]), _first(info)

    def render(self) -> Any:
        """A picture (rgb_array, uint8 [32 H, 32 W, 3]) or Boxoban text (ansi)."""
        frames = self._board.render()
        return None if frames is None else frames[0]

    def close(self) -> None:
        """Close the board; every later call is an error."""
        self._board.close()

    def snapshot(self) -> dict[str, np.ndarray]:
        """The exact state of the board, see `SokobanVectorEnv.snapshot`."""
        return self._board.snapshot()

    def restore(self, snapshot: dict[str, np.ndarray]) -> None:
        """Restore a `snapshot`."""
        self._board.restore(snapshot)

    def simulator(self, policy_and_value: PolicyAndValue | None = None) -> SokobanSimulator:
        """Sokoban's rules as a perfect world model, see `SokobanVectorEnv.simulator`."""
        return self._board.simulator(policy_and_value)


def _first(info: dict[str, Any]) -> dict[str, Any]:
    """The infos of the only board as plain Python values."""
    return {name: values[0].item() for name, values in info.items() if not name.startswith("_")}
