"""MinAtar: five games on 10x10 boards of binary planes, as Gymnasium environments and as the environment of a run.

The rules are those of the package ``minatar`` (extra ``thinker[minatar]``).
"""

from __future__ import annotations

import copy
import difflib
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

import gymnasium as gym
import numpy as np
from gymnasium import error, spaces

from thinker.envs.gymnasium import SingleEnvironmentsSpec
from thinker.envs.replayable import SnapshotEnvs
from thinker.envs.spec import check_counts
from thinker.errors import UserError
from thinker.interfaces import BoardStructure

Game = Literal["asterix", "breakout", "freeway", "seaquest", "space_invaders"]
Actions = Literal["minimal", "all"]
Difficulty = Literal["ramping", "constant"]

ACTION_NAMES: Final = ("no-op", "left", "up", "right", "down", "fire")
PLAYER_PLANE: Final = 0
"""In every game the first plane marks the one square of what the player moves."""
COLOURS: Final = np.array(
    [
        (240, 240, 240),
        (230, 85, 65),
        (95, 95, 110),
        (235, 190, 70),
        (80, 160, 230),
        (110, 190, 90),
        (190, 110, 210),
        (70, 200, 200),
        (150, 110, 70),
        (245, 150, 190),
    ],
    np.uint8,
)
"""Of the planes, in their order; a square with several has the colour of the first."""
_NOT_STATE: Final = ("channels", "action_map", "random", "ramping")
"""Attributes of a game that are settings, or saved apart."""


class MinAtarEnv(gym.Env[np.ndarray, np.int64]):
    """One game of MinAtar. Observations are uint8 planes [C, 10, 10]; C depends on the game.

    Args:
        game: one of `Game`
        actions: only those that have an effect in this game, or all six
        sticky_action_probability: with which an action is replaced by the one before it
        difficulty: games that become faster do so ("ramping"), or not
        max_steps: steps after which an episode is truncated
    """

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(
        self,
        game: str = "breakout",
        *,
        actions: Actions = "minimal",
        sticky_action_probability: float = 0.1,
        difficulty: Difficulty = "ramping",
        max_steps: int = 5_000,
        render_mode: None = None,
    ) -> None:
        check_choice("game", game, get_args(Game))
        check_choice("actions", actions, get_args(Actions))
        check_choice("difficulty", difficulty, get_args(Difficulty))
        if not 0 <= sticky_action_probability <= 1:
            raise UserError(f"sticky_action_probability is {sticky_action_probability}; expected 0 to 1")
        if max_steps < 1:
            raise UserError(f"max_steps is {max_steps}; expected at least 1")
        self.max_steps = max_steps
        self._minatar = _minatar().Environment(game, sticky_action_probability, difficulty == "ramping")
        played = self._minatar.minimal_action_set() if actions == "minimal" else range(len(ACTION_NAMES))
        self._played = [int(action) for action in played]
        height, width, planes = self._minatar.state_shape()
        self.observation_space = spaces.Box(0, 1, (planes, height, width), np.uint8)
        self.action_space = spaces.Discrete(len(self._played))
        self.metadata = {
            "render_modes": [],
            "action_names": tuple(ACTION_NAMES[action] for action in self._played),
            "plane_colours": COLOURS[:planes],
            "plane_names": _plane_names(self._minatar.env.channels),
            "board": BoardStructure(None, None, None, player_planes=(PLAYER_PLANE,)),
        }
        self._steps = 0
        self._ready = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None or not self._ready:
            self._minatar.seed(int(self.np_random.integers(2**32)))
        self._minatar.reset()
        self._minatar.last_action = 0  # which the package keeps from the previous episode
        self._steps, self._ready = 0, True
        return self._observation(), {}

    def step(self, action: np.int64 | int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if not self._ready:
            raise error.ResetNeeded("call reset() before step()")
        reward, terminated = self._minatar.act(self._played[action])
        self._steps += 1
        return self._observation(), float(reward), bool(terminated), self._steps >= self.max_steps, {}

    def snapshot(self) -> dict[str, Any]:
        """The exact state, including that of the random generator."""
        if not self._ready:
            raise error.ResetNeeded("call reset() before snapshot()")
        game = self._minatar.env
        return {
            "game": {name: copy.deepcopy(value) for name, value in vars(game).items() if name not in _NOT_STATE},
            "last_action": self._minatar.last_action,
            "generator": game.random.get_state(legacy=False),
            "steps": self._steps,
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Continue from a `snapshot` of the same game; raises a `UserError` for one of another game."""
        game = self._minatar.env
        names = vars(game).keys() - set(_NOT_STATE)
        if snapshot["game"].keys() != names:
            raise UserError(f"not a snapshot of this game: it has {sorted(snapshot['game'])}, expected {sorted(names)}")
        vars(game).update(copy.deepcopy(snapshot["game"]))
        self._minatar.last_action = snapshot["last_action"]
        if not self._ready:  # the package shares one generator between the game and sticky actions only once seeded
            self._minatar.seed(0)
        game.random.set_state(snapshot["generator"])
        self._steps, self._ready = snapshot["steps"], True

    def _observation(self) -> np.ndarray:
        return np.ascontiguousarray(self._minatar.state().transpose(2, 0, 1)).view(np.uint8)


@dataclass(frozen=True)
class MinAtarSpec(SingleEnvironmentsSpec):
    """A game of MinAtar."""

    game: Game = "breakout"  # which of the five games
    actions: Actions = "minimal"  # only those that have an effect in the game, or all six
    sticky_action_probability: float = 0.1  # with which an action is replaced by the one before it
    difficulty: Difficulty = "ramping"  # ramping: some games become faster
    max_steps: int = 5_000  # real steps after which an episode is truncated

    @property
    def name(self) -> str:
        return f"MinAtar {self.game}"

    def make_env(self) -> MinAtarEnv:
        """A new environment."""
        return MinAtarEnv(
            self.game,
            actions=self.actions,
            sticky_action_probability=self.sticky_action_probability,
            difficulty=self.difficulty,
            max_steps=self.max_steps,
        )

    def build(self, num_envs: int) -> SnapshotEnvs:
        check_counts(num_envs)
        return SnapshotEnvs([self.make_env] * num_envs)


def _plane_names(channels: dict[str, int]) -> tuple[str, ...]:
    ordered = sorted(channels, key=lambda name: channels[name])
    return tuple(name.replace("_", " ").replace("guage", "gauge") for name in ordered)


def check_choice(what: str, value: str, known: tuple[str, ...]) -> None:
    """Raise a `UserError`, with the nearest names, unless ``value`` is one of ``known``."""
    if value not in known:
        near = difflib.get_close_matches(str(value).lower(), known, n=3)
        hint = f"did you mean {' or '.join(near)}? " if near else ""
        raise UserError(f"{what} is {value!r}; {hint}expected one of {', '.join(known)}")


def _minatar() -> Any:
    try:
        import minatar
    except ImportError as problem:
        raise UserError(
            f"MinAtar's games need the package minatar ({problem}); install it with pip install 'thinker[minatar]', or "
            f'in a clone of the repository pip install -c constraints.txt -e ".[minatar]"'
        ) from problem
    return minatar
