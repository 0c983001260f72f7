"""Sokoban as the environment of a run: training levels, and validation and test levels that training never sees."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from thinker.envs.sokoban.feed import Augmentation, LevelSource, choose_feed
from thinker.envs.sokoban.generator import Boxes, board_size, generate_levels
from thinker.envs.sokoban.levels import LevelSet, level_files
from thinker.envs.sokoban.rendering import ObservationKind, observation_sprites
from thinker.envs.sokoban.vector_env import SokobanVectorEnv
from thinker.envs.spec import EnvironmentSpec, Split, check_counts, episode_number
from thinker.errors import UserError

GENERATED: Final = "generated"
HELD_OUT_SEEDS: Final[dict[Split, int]] = {"validation": 20_231_210, "test": 20_231_216}
"""Seeds of the generated held-out levels. Level sets and training episodes never share a stream, for any seeds."""
HELD_OUT_COUNT: Final = 100_000
"""The number of generated held-out levels in each split."""
_FOLDERS: Final[dict[Split, str]] = {"validation": "valid", "test": "test"}
"""Boxoban's names of the folders next to ``train``."""


@dataclass(frozen=True)
class SokobanSpec(EnvironmentSpec):
    """Sokoban, on generated levels or levels from Boxoban files."""

    size: int = 7  # height and width of generated boards, including walls: 5 to 20
    boxes: Boxes = 1  # boxes per generated level: 1 to 8, or a range to sample from for each level, such as 1 4
    reverse_moves: tuple[int, int] = (1, 2)  # difficulty of generated levels: how often a box is pulled away
    levels: str = GENERATED  # training levels: "generated", or a Boxoban file or folder
    generated_share: float = 0.0  # with level files: probability that a training episode plays a generated level
    augmentation: Augmentation = "none"  # "symmetries": turn and mirror the level of each training episode at random
    observation: ObservationKind = "tiles"  # one-hot planes of the board, or 8x8 pixels per square
    max_steps: int = 60  # real steps after which a training episode is truncated
    validation_levels: str | None = None  # a Boxoban file or folder; None: generated, or "valid" next to "train"
    test_levels: str | None = None  # a Boxoban file or folder; None: generated, or "test" next to "train"
    held_out_max_steps: int | None = None  # maximum real steps of a validation or test episode; None: max_steps

    @property
    def name(self) -> str:
        return "thinker/Sokoban-v0"

    def build(self, num_envs: int) -> SokobanVectorEnv:
        return SokobanVectorEnv(
            num_envs,
            levels=self.levels,
            observation=self.observation,
            max_steps=self.max_steps,
            **self._training_options(),
        )

    def held_out(self, split: Split, num_envs: int, count: int) -> SokobanVectorEnv:
        check_counts(num_envs, count)
        source = self._held_out_source(split)
        if source is None:
            _check_enough(split, count, HELD_OUT_COUNT)
            return self._in_order(num_envs, self._generated(split, count))
        levels = LevelSet.load(source)
        _check_enough(split, count, len(levels), f" in {source}")
        return self._in_order(num_envs, LevelSet(levels.boards[:count]))

    def chosen_episode(self, episode: str, split: Split, num_envs: int) -> SokobanVectorEnv:
        """See `EnvironmentSpec.chosen_episode`; ``episode`` may also be FILE:INDEX, a level of any Boxoban file."""
        check_counts(num_envs)
        file, _, number = episode.rpartition(":")
        source = Path(file) if file else self._held_out_source(split)
        if source is None:
            index = episode_number(number, HELD_OUT_COUNT, f"{split} level, nor FILE:INDEX")
            board = self._generated(split, 1, first=index).boards
        else:
            levels = LevelSet.load(source)
            index = episode_number(number, len(levels), f"level in {source}")
            board = levels.boards[index : index + 1]
            self._check_boards(LevelSet(board), f"episode {episode}")
        return self._in_order(num_envs, LevelSet(np.repeat(board, num_envs, 0)))

    def check(self) -> None:
        observation_sprites(self.observation)  # raises a UserError for an unknown kind
        for name, steps in (("max_steps", self.max_steps), ("held_out_max_steps", self.held_out_max_steps)):
            if steps is not None and steps < 1:
                raise UserError(f"{name} is {steps}; expected at least 1")
        choose_feed(self.levels, "random", 1, **self._training_options())
        users: dict[Path, str] = {}  # of each level file
        if self.levels != GENERATED:
            users = {file.resolve(): "levels" for file in level_files(self.levels)}
        for split in _FOLDERS:
            source = self._held_out_source(split)
            if source is not None:
                option = f"{split}_levels"
                self._check_boards(LevelSet.load(source), f"{option} {source}")
                for file in level_files(source):
                    user = users.setdefault(file.resolve(), option)
                    if user != option:
                        raise UserError(f"{file} is used for {option} and for {user}; use different files")

    def _training_options(self) -> dict[str, Any]:
        """The arguments of `SokobanVectorEnv` that describe training levels."""
        options: dict[str, Any] = {"generated_share": self.generated_share, "augmentation": self.augmentation}
        if self.levels == GENERATED or self.generated_share:
            options |= {"size": self.size, "boxes": self.boxes, "reverse_moves": self.reverse_moves}
        return options

    def _in_order(self, num_envs: int, levels: LevelSource) -> SokobanVectorEnv:
        """Environments that play ``levels`` once each, in their order."""
        max_steps = self.max_steps if self.held_out_max_steps is None else self.held_out_max_steps
        return SokobanVectorEnv(
            num_envs, levels=levels, observation=self.observation, max_steps=max_steps, order="sequential"
        )

    def _generated(self, split: Split, count: int, first: int = 0) -> LevelSet:
        return generate_levels(count, self.size, self.boxes, HELD_OUT_SEEDS[split], self.reverse_moves, first=first)

    def _held_out_source(self, split: Split) -> Path | None:
        """The file or folder of a split's levels; None if they are generated."""
        given = self.validation_levels if split == "validation" else self.test_levels
        if given is not None:
            return Path(given)
        if self.levels == GENERATED:
            return None
        training = Path(self.levels)
        sibling = training.parent / _FOLDERS[split]
        if training.name == "train" and sibling.is_dir():
            return sibling
        raise UserError(
            f"levels is {self.levels}, and there are no {split} levels next to it; set {split}_levels to a Boxoban "
            f'file or folder with levels that training never sees, or put them in a folder "{_FOLDERS[split]}" next to '
            f'"train"'
        )

    def _check_boards(self, levels: LevelSet, what: str) -> None:
        """Raise an error unless held-out boards have the size of the training boards, and walls around if those have.

        A model may rely on the walls, see `thinker.interfaces.BoardStructure`.
        """
        expected = board_size(self.size)
        if self.levels != GENERATED:
            expected = LevelSet.load(level_files(self.levels)[0]).size
        height, width = levels.size
        if (height, width) != expected:
            raise UserError(
                f"{what}: the boards are {height}x{width}, but those of training are {expected[0]}x{expected[1]}"
            )
        if not levels.walled and (self.levels == GENERATED or LevelSet.load(self.levels).walled):
            raise UserError(
                f"{what}: the outermost squares are not all walls, but those of training are; draw walls around the "
                f"boards"
            )


def _check_enough(split: Split, asked: int, found: int, where: str = "") -> None:
    if asked > found:
        raise UserError(f"{asked} {split} levels were requested, but there are only {found}{where}; request fewer")
