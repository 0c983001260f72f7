"""The source of the levels of Sokoban's episodes: the generator, a set of levels in random or sequential order, a mix.

Everything random is a function of a board's stream and its position there, so a feed has no state of its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from os import PathLike
from typing import Literal, NamedTuple, get_args

import numpy as np

from thinker.envs.sokoban import generator
from thinker.envs.sokoban.generator import Boxes
from thinker.envs.sokoban.levels import LevelSet
from thinker.errors import UserError

LevelSource = Literal["generated"] | str | PathLike[str] | Sequence[str | PathLike[str]] | LevelSet
Order = Literal["random", "sequential"]
Augmentation = Literal["none", "symmetries"]
"""What is done to the level of each episode: nothing, or one of the eight symmetries of a square, at random."""
_DEFAULT_SIZE = 10
_DEFAULT_BOXES = 4
_MIX, _SYMMETRY = 1, 2
"""The purposes of `generator.draw_beside`."""
_CERTAIN = 2**32
"""The share of generated levels is rounded to a multiple of 1 / this."""
_SYMMETRIES = 8


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

    def __init__(self, size: tuple[int, int], boxes: Boxes | None, reverse_moves: tuple[int, int] | None) -> None:
        self.size = size
        self._recipe = generator.make_recipe(
            size,
            _DEFAULT_BOXES if boxes is None else boxes,
            generator.DEFAULT_REVERSE_MOVES if reverse_moves is None else reverse_moves,
        )

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


class MixedLevels(Feed):
    """Generated levels with probability ``share``, else levels of a set, decided by each board's stream.

    The numbers of generated levels continue those of the set: they start at its length.
    """

    def __init__(self, levels: LevelSet, generated: GeneratedLevels, share: float) -> None:
        self.levels = levels
        self.size = levels.size
        self._chosen, self._generated = RandomLevels(levels), generated
        self._count = len(levels)
        self._limit = round(share * _CERTAIN)

    def deal(self, indices: np.ndarray, streams: Streams, tiles: np.ndarray, level: np.ndarray) -> None:
        drawn = generator.draw_beside(indices, *streams, _MIX, _CERTAIN)
        generated = indices[drawn < self._limit]
        self._chosen.deal(indices[drawn >= self._limit], streams, tiles, level)
        self._generated.deal(generated, streams, tiles, level)
        level[generated] += self._count


class SymmetricLevels(Feed):
    """The levels of another feed, each turned and mirrored by one of the eight symmetries, sampled by its stream."""

    def __init__(self, feed: Feed) -> None:
        height, width = feed.size
        if height != width:
            raise UserError(
                f'augmentation="symmetries" needs square boards, but these are {height}x{width}; use "none"'
            )
        self.levels = feed.levels
        self.size = feed.size
        self._feed = feed

    def deal(self, indices: np.ndarray, streams: Streams, tiles: np.ndarray, level: np.ndarray) -> None:
        drawn = generator.draw_beside(indices, *streams, _SYMMETRY, _SYMMETRIES)
        self._feed.deal(indices, streams, tiles, level)
        for index, which in zip(indices.tolist(), drawn.tolist()):
            mirrored = np.fliplr(tiles[index]) if which & 4 else tiles[index]
            tiles[index] = np.rot90(mirrored, which & 3)


def choose_feed(
    levels: LevelSource,
    order: Order,
    num_envs: int,
    *,
    size: int | tuple[int, int] | None = None,
    boxes: Boxes | None = None,
    reverse_moves: tuple[int, int] | None = None,
    generated_share: float = 0.0,
    augmentation: Augmentation = "none",
) -> Feed:
    """The feed for the arguments of `SokobanVectorEnv`; raises a `UserError` if they contradict each other."""
    if order not in get_args(Order):
        raise UserError(f"order={order!r} is unknown; expected one of {get_args(Order)}")
    if augmentation not in get_args(Augmentation):
        raise UserError(f"augmentation={augmentation!r} is unknown; expected one of {get_args(Augmentation)}")
    if not 0 <= generated_share <= 1:
        raise UserError(f"generated_share={generated_share}; expected a probability from 0 to 1")
    generated = isinstance(levels, str) and levels == "generated"
    if order == "sequential":
        if generated:
            raise UserError(
                'order="sequential" needs a level set, but levels="generated" has no end; '
                "create a set with generate_levels(count, ...) and pass it as levels"
            )
        if generated_share or augmentation != "none":
            raise UserError('order="sequential" plays a set as it is; omit generated_share and augmentation')
    asked = None if size is None else generator.board_size(size)
    if generated:
        if generated_share:
            raise UserError(f'generated_share={generated_share} has no effect with levels="generated"; omit it')
        feed: Feed = GeneratedLevels(asked or (_DEFAULT_SIZE, _DEFAULT_SIZE), boxes, reverse_moves)
    else:
        level_set = levels if isinstance(levels, LevelSet) else LevelSet.load(levels)
        if asked is not None and asked != level_set.size:
            raise UserError(f"size={asked} was requested, but the levels are {level_set.size}; use their size")
        if not generated_share:
            _check_set(level_set, boxes, reverse_moves)
        if order == "sequential":
            return SequentialLevels(level_set, num_envs)
        if generated_share:
            feed = MixedLevels(level_set, GeneratedLevels(level_set.size, boxes, reverse_moves), generated_share)
        else:
            feed = RandomLevels(level_set)
    return SymmetricLevels(feed) if augmentation == "symmetries" else feed


def _check_set(levels: LevelSet, boxes: Boxes | None, reverse_moves: tuple[int, int] | None) -> None:
    """Raise an error for settings of generated levels that contradict a set without generated levels."""
    if boxes is not None:
        fewest, most = generator.box_range(boxes)
        if ((levels.boxes < fewest) | (levels.boxes > most)).any():
            found = sorted(set(levels.boxes.tolist()))
            raise UserError(f"boxes={boxes} was requested, but the levels have {found} boxes; omit boxes")
    if reverse_moves is not None:
        raise UserError(f"reverse_moves={reverse_moves} can be used only with generated levels; omit it")
