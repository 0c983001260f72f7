"""A game of the Atari 2600, preprocessed as in the paper (appendix D): stacked frames, repeated actions, lives."""

from __future__ import annotations

import difflib
import functools
from typing import Any, Literal, get_args

import gymnasium as gym
import numpy as np
from gymnasium import error, spaces

from thinker.envs.atari.screen import overlaps, shrink
from thinker.errors import UserError

Colours = Literal["rgb", "gray"]
LifeLoss = Literal["ends-episode", "continues"]
Rewards = Literal["clipped", "raw"]
Fire = Literal["at-start", "never"]
Actions = Literal["minimal", "all"]

HEIGHT, WIDTH = 210, 160
"""Of the emulator's screen in most games, in pixels."""
SMALLEST, LARGEST = 16, WIDTH
"""The sizes that an observation can have: the networks halve it four times, and it is never enlarged."""
NO_OP, FIRE = 0, 1
"""The emulator's numbers of these actions."""


class AtariEnv(gym.Env[np.ndarray, np.int64]):
    """One game. Observations are uint8 [S C, size, size]: S stacked frames of C channels, the newest last.

    An episode starts with a new game, or with the next life of a running one. A new game starts with a random number
    of no-ops. Every step repeats its action for some of the emulator's frames. Its frame is the maximum of the last two
    of them, since some objects are drawn only on every other one, shrunk by averaging.

    ``info`` contains ``raw_reward``, the change of the score since the step before, ``lives``, and ``game_continues``:
    the episode has ended, but the game goes on in the next one. ``reset()`` without a seed then continues the game, by
    a no-op.

    Args:
        game: the name of the game, such as "ms_pacman" (or MsPacman); see `game_names`
        size: height and width of an observation
        colours: "rgb", C = 3, or "gray", C = 1
        frame_stack: S, the number of frames in an observation
        action_repeat: frames of the emulator in a step
        life_loss: whether it ends an episode
        rewards: "clipped" to -1 .. 1, or "raw"
        max_no_ops: a new game starts with 1 to so many no-ops; 0: with none
        fire: "at-start" presses the button once at the start of every episode, in games that have it, as many of them
            wait for that
        actions: only those that have an effect in this game, or all 18
        sticky_action_probability: with which the emulator repeats its last action, in each of its frames
        max_frames: frames of the emulator after which a game is truncated
    """

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012

    def __init__(
        self,
        game: str = "pong",
        *,
        size: int = 80,
        colours: Colours = "rgb",
        frame_stack: int = 4,
        action_repeat: int = 4,
        life_loss: LifeLoss = "ends-episode",
        rewards: Rewards = "clipped",
        max_no_ops: int = 30,
        fire: Fire = "at-start",
        actions: Actions = "minimal",
        sticky_action_probability: float = 0.0,
        max_frames: int = 108_000,
        render_mode: str | None = None,
    ) -> None:
        for what, value, kind in (
            ("colours", colours, Colours),
            ("life_loss", life_loss, LifeLoss),
            ("rewards", rewards, Rewards),
            ("fire", fire, Fire),
            ("actions", actions, Actions),
            ("render_mode", render_mode, Literal["rgb_array", None]),
        ):
            if value not in get_args(kind):
                raise UserError(f"{what} is {value!r}; expected one of {', '.join(map(repr, get_args(kind)))}")
        if not SMALLEST <= size <= LARGEST:
            raise UserError(f"size is {size}; observations can be {SMALLEST} to {LARGEST} pixels high and wide")
        for what, number, least in (
            ("frame_stack", frame_stack, 1),
            ("action_repeat", action_repeat, 1),
            ("max_no_ops", max_no_ops, 0),
            ("max_frames", max_frames, 1),
        ):
            if number < least:
                raise UserError(f"{what} is {number}; expected at least {least}")
        if not 0 <= sticky_action_probability <= 1:
            raise UserError(f"sticky_action_probability is {sticky_action_probability}; expected 0 to 1")
        self.game = rom_name(game)
        self.render_mode = render_mode
        self._repeat, self._max_no_ops, self._max_frames = action_repeat, max_no_ops, max_frames
        self._ends_with_life, self._clips = life_loss == "ends-episode", rewards == "clipped"
        self._sticky = sticky_action_probability > 0
        self._ale = _emulator(self.game, sticky_action_probability)
        played = self._ale.getMinimalActionSet() if actions == "minimal" else self._ale.getLegalActionSet()
        self._played = [action.value for action in played]
        self._fires = fire == "at-start" and FIRE in [action.value for action in self._ale.getMinimalActionSet()]

        height, width = self._ale.getScreenDims()
        channels = 3 if colours == "rgb" else 1
        self._look = self._ale.getScreenRGB if colours == "rgb" else self._ale.getScreenGrayscale
        self._screens = np.zeros((2, height, width, channels), np.uint8)
        self._pixels = self._screens if colours == "rgb" else self._screens[..., 0]  # as the emulator writes them
        self._rows, self._columns = overlaps(height, size), overlaps(width, size)
        self._stack = np.zeros((frame_stack, channels, size, size), np.uint8)
        self.observation_space = spaces.Box(0, 255, (frame_stack * channels, size, size), np.uint8)
        self.action_space = spaces.Discrete(len(self._played))
        self.metadata = {
            "render_modes": ["rgb_array"],
            "render_fps": 60 // action_repeat,
            "action_names": tuple(action.name.lower() for action in played),
            "reported_reward": "raw_reward",
            "unfinished": "game_continues",
        }
        self._lives = 0
        self._game_continues = False  # the episode has ended, but the game has not
        self._uncounted = 0.0  # change of the score between the last episode and the first step of this one
        self._ready = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None and self._sticky:
            _load(self._ale, self.game, seed)
        self._uncounted = 0.0
        if seed is None and self._game_continues:
            self._uncounted = self._play(NO_OP)
        if seed is not None or not self._game_continues or self._ale.game_over():
            self._start_game()
        if self._fires:
            self._uncounted += self._play(FIRE)
            if self._ale.game_over():
                self._start_game()
        self._stack[:] = self._frame()
        self._lives, self._game_continues, self._ready = self._ale.lives(), False, True
        return self._observation(), {"lives": self._lives}

    def step(self, action: np.int64 | int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if not self._ready:
            raise error.ResetNeeded("call reset() before step()")
        score = self._play(self._played[action])
        self._stack[:-1] = self._stack[1:]
        self._stack[-1] = self._frame()
        over, lives = self._ale.game_over(), self._ale.lives()
        # In some games a last life is shown as 0 lives for a while before the game is over.
        life_lost = self._ends_with_life and 0 < lives < self._lives and not over
        truncated = not over and self._ale.getEpisodeFrameNumber() >= self._max_frames
        self._lives, self._game_continues = lives, life_lost and not truncated
        raw_reward, self._uncounted = score + self._uncounted, 0.0
        info = {"lives": lives, "raw_reward": raw_reward, "game_continues": self._game_continues}
        reward = min(max(score, -1.0), 1.0) if self._clips else score
        return self._observation(), reward, over or life_lost, truncated, info

    def snapshot(self) -> dict[str, Any]:
        """The exact state, including that of the random generators."""
        if not self._ready:
            raise error.ResetNeeded("call reset() before snapshot()")
        emulator = self._ale.cloneState(include_rng=True).serialize()
        return {
            "game": self.game,
            "emulator": np.frombuffer(emulator, np.uint8),
            "stack": self._stack.copy(),
            "lives": self._lives,
            "game_continues": self._game_continues,
            "uncounted": self._uncounted,
            "generator": self.np_random.bit_generator.state,
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Continue from a `snapshot` of an environment that was created in the same way."""
        game, shape = snapshot["game"], snapshot["stack"].shape
        if game != self.game or shape != self._stack.shape:
            raise UserError(
                f"this is a snapshot of {game} with frames of shape {shape}, but the environment plays {self.game} "
                f"with {self._stack.shape}"
            )
        import ale_py

        self._ale.restoreState(ale_py.ALEState(snapshot["emulator"].tobytes()))
        self._stack[:] = snapshot["stack"]
        self._lives, self._game_continues = snapshot["lives"], snapshot["game_continues"]
        self._uncounted = snapshot["uncounted"]
        self.np_random.bit_generator.state = snapshot["generator"]
        self._ready = True

    def render(self) -> np.ndarray | None:
        """The screen, uint8 [210, 160, 3]."""
        return None if self.render_mode is None else self._ale.getScreenRGB()

    def _start_game(self) -> None:
        self._uncounted = 0.0
        self._ale.reset_game()
        if self._max_no_ops:
            for _ in range(int(self.np_random.integers(1, self._max_no_ops + 1))):
                self._ale.act(NO_OP)
                if self._ale.game_over():
                    self._ale.reset_game()
        self._look(self._pixels[0])
        self._screens[1] = 0

    def _play(self, action: int) -> float:
        """Repeat ``action``; returns the change of the score and keeps the last two screens."""
        score = 0.0
        for number in range(self._repeat):
            score += self._ale.act(action)
            over = self._ale.game_over()
            if over or number >= self._repeat - 2:
                self._look(self._pixels[number % 2])
            if over or self._repeat == 1:
                self._screens[1 - number % 2] = 0  # not the one before this, or one of the previous step
            if over:
                break
        return score

    def _frame(self) -> np.ndarray:
        """The frame [C, size, size] of the last two screens."""
        frame = np.empty(self._stack.shape[1:], np.uint8)
        shrink(self._screens, self._rows, self._columns, frame)
        return frame

    def _observation(self) -> np.ndarray:
        return self._stack.reshape(self.observation_space.shape).copy()


def game_names() -> list[str]:
    """The names of all games that the emulator knows."""
    return sorted(_ale_py().roms.get_all_rom_ids())


def rom_name(game: str) -> str:
    """The emulator's name of a game; "MsPacman", "ms-pacman" and "ALE/MsPacman-v5" are "ms_pacman"."""
    known = {name.replace("_", ""): name for name in game_names()}
    key = game.removeprefix("ALE/").removesuffix("-v5").lower()
    key = "".join(letter for letter in key if letter.isalnum())
    if key not in known:
        near = [known[name] for name in difflib.get_close_matches(key, known, n=3)]
        hint = f"did you mean {' or '.join(near)}?" if near else f"games are {', '.join(known.values())}"
        raise UserError(f"there is no Atari game {game!r}; {hint}")
    return known[key]


def _emulator(game: str, sticky_action_probability: float) -> Any:
    ale_py = _ale_py()
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    ale = ale_py.ALEInterface()
    ale.setFloat("repeat_action_probability", sticky_action_probability)
    _load(ale, game, 0)
    return ale


def _load(ale: Any, game: str, seed: int) -> None:
    ale.setInt("random_seed", seed % 2**31)
    ale.loadROM(_rom(game))


@functools.lru_cache
def _rom(game: str) -> str:
    try:
        path = _ale_py().roms.get_rom_path(game)
    except OSError as problem:
        raise UserError(
            f"the ROM of {game} cannot be read ({problem}); reinstall ale-py, which contains it, or correct the "
            f"environment variable ALE_ROMS_DIR if it is set"
        ) from problem
    return str(path)


def _ale_py() -> Any:
    try:
        import ale_py
        import ale_py.roms
    except ImportError as problem:
        raise UserError(
            f"Atari games need the package ale-py ({problem}); install it with pip install 'thinker[atari]', or in a "
            f'clone of the repository pip install -c constraints.txt -e ".[atari]"'
        ) from problem
    return ale_py
