"""The source of the levels of Sokoban's episodes: the generator, or a set of levels in random or sequential order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from os import PathLike
from typing import Literal, NamedTuple, get_args

import numpy as np

from thinker.envs.sokoban import generator
from thinker.envs.sokoban.levels import LevelSet
from thinker.errors import UserError

LevelSource = Literal["generated"] | str | PathLike[str] | Sequence[str | PathLike[str]] | LevelSet
Order = Literal["random", "sequential"]
_DEFAULT_SIZE = 10
_DEFAULT_BOXES = 4


class Streams(NamedTuple):
    """The positions of B boards in their own streams of random levels."""

    key: np.ndarray  # [B] uint64   see `generator.stream_key`
    number: np.ndarray  # [B] int64    levels taken from the stream so far


class Feed(ABC):
    """Writes the next level to each board that starts an episode."""

    size: tuple[int, int]  # height, width
    levels: LevelSet | None  # the set that levels are taken from, if any

    @abstractmethod
    def deal(self, indices: np.ndarray, streams: Streams, tiles: np.ndarray, level: np.ndarray) -> None:
        """Write the next level of the boards at ``indices``.

        Args:
            indices: int64 [N]
            streams: of all B boards; those at the indices advance by one level
            tiles: uint8 [B, H, W], written
            level: int64 [B], written: the number of the level
        """


class GeneratedLevels(Feed):
    """An endless sequence of new levels; a level is identified by its number in its board's stream."""

    levels = None

    def __init__(self, size: tuple[int, int], boxes: int, reverse_moves: tuple[int, int]) -> None:
        generator.check_request(size, boxes, reverse_moves)
        self.size = size
        self._recipe = generator.Recipe(boxes, *reverse_moves)

    def deal(self, indices: np.ndarray, streams: Streams, tiles: np.ndarray, level: np.ndarray) -> None:
        level[indices] = streams.number[indices]
        generator.generate_boards(tiles, indices, streams.key, streams.number, self._recipe)


class RandomLevels(Feed):
    """Levels of a set, sampled by each board's stream."""

    def __init__(self, levels: LevelSet) -> None:
        self.levels = levels
        self.size = levels.size
        self._boards = levels.boards

    def deal(self, indices: np.ndarray, streams: Streams, tiles: np.ndarray, level: np.ndarray) -> None:
        generator.choose_levels(tiles, indices, streams.key, streams.number, self._boards, level)


class SequentialLevels(Feed):
    """Evaluation mode: every level of a set once; board i plays levels i, i + num_envs, i + 2 num_envs and so on."""

    def __init__(self, levels: LevelSet, num_envs: int) -> None:
        self.levels = levels
        self.size = levels.size
        self.first = levels.boards[0]  # shown by boards that have no level to play
        self._boards = levels.boards
        self._num_envs = num_envs

    def has_next(self, indices: np.ndarray, streams: Streams) -> np.ndarray:
        """Whether a level is left for the boards at ``indices``, bool [N]."""
        return self._next(indices, streams) < len(self._boards)

    def deal(self, indices: np.ndarray, streams: Streams, tiles: np.ndarray, level: np.ndarray) -> None:
        level[indices] = self._next(indices, streams)
        tiles[indices] = self._boards[level[indices]]
        streams.number[indices] += 1

    def _next(self, indices: np.ndarray, streams: Streams) -> np.ndarray:
        return indices + streams.number[indices] * self._num_envs


def choose_feed(
    levels: LevelSource,
    order: Order,
    num_envs: int,
    size: int | tuple[int, int] | None,
    boxes: int | None,
    reverse_moves: tuple[int, int] | None,
) -> Feed:
    """The feed for the arguments of `SokobanVectorEnv`; raises a `UserError` if they contradict each other."""
    if order not in get_args(Order):
        raise UserError(f"order={order!r} is unknown; expected one of {get_args(Order)}")
    asked = None if size is None else generator.board_size(size)
    if isinstance(levels, str) and levels == "generated":
        if order == "sequential":
            raise UserError(
                'order="sequential" needs a level set, but levels="generated" has no end; '
                "create a set with generate_levels(count, ...) and pass it as levels"
            )
        return GeneratedLevels(
            asked or (_DEFAULT_SIZE, _DEFAULT_SIZE),
            _DEFAULT_BOXES if boxes is None else boxes,
            generator.DEFAULT_REVERSE_MOVES if reverse_moves is None else reverse_moves,
        )
    level_set = levels if isinstance(levels, LevelSet) else LevelSet.load(levels)
    if asked is not None and asked != level_set.size:
        raise UserError(f"size={asked} was requested, but the levels are {level_set.size}; omit size")
    if boxes is not None and (level_set.boxes != boxes).any():
        found = sorted(set(level_set.boxes.tolist()))
        raise UserError(f"boxes={boxes} was requested, but the levels have {found} boxes; omit boxes")
    if reverse_moves is not None:
        raise UserError(f'reverse_moves={reverse_moves} can be used only with levels="generated"; omit it')
    return RandomLevels(level_set) if order == "random" else SequentialLevels(level_set, num_envs)
