"""Sets of Sokoban levels: reading, checking and writing the Boxoban text format (the paper's section 5.1).

A level is a block of rows of the characters ``# .$*@+`` (wall, floor, target, box, box on target, player, player on
target). Blank lines and lines that start with ``;`` separate levels.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import numpy as np

from thinker.envs.sokoban import engine
from thinker.errors import UserError

_NOT_LEVELS = {"license", "readme", "notice"}
"""Names (without suffix, case-insensitive) of text files in a folder that are not level files."""
_UNKNOWN = 255
_CODES = np.full(256, _UNKNOWN, np.uint8)
_CODES[list(engine.SYMBOLS.encode())] = np.arange(engine.NUM_TILES)
_CODE_TABLE = _CODES.tobytes()
_SYMBOL_TABLE = engine.SYMBOLS.encode().ljust(256, b"?")


class LevelError(UserError):
    """Levels that cannot be read, played or generated; errors in a file give its name, the line and the reason."""


@dataclass(frozen=True)
class LevelSet:
    """Levels of the same board size. ``boards``: uint8 [L, H, W] tile codes, read-only."""

    boards: np.ndarray

    def __post_init__(self) -> None:
        boards = np.array(self.boards, order="C")
        if boards.dtype != np.uint8 or boards.ndim != 3 or boards.size == 0:
            raise LevelError(
                f"a level set needs boards of dtype uint8 and shape (levels, height, width) with at least one level; "
                f"got dtype {boards.dtype}, shape {boards.shape}"
            )
        found = _first_problem(boards)
        if found is not None:
            raise LevelError(f"level {found[0]}: {found[1]}")
        boards.flags.writeable = False
        object.__setattr__(self, "boards", boards)

    def __len__(self) -> int:
        return len(self.boards)

    @property
    def size(self) -> tuple[int, int]:
        """(height, width) of every board."""
        return self.boards.shape[1], self.boards.shape[2]

    @property
    def boxes(self) -> np.ndarray:
        """The number of boxes in each level, int64 [L]."""
        return _count(self.boards, engine.BOX, engine.BOX_ON_TARGET)

    @property
    def walled(self) -> bool:
        """Whether the outermost squares of every board are walls."""
        rows, columns = self.boards[:, [0, -1]], self.boards[:, :, [0, -1]]
        return bool((rows == engine.WALL).all() and (columns == engine.WALL).all())

    def text(self, index: int) -> str:
        """One level as Boxoban text, without a trailing newline."""
        return board_text(self.boards[index])

    def save(self, path: str | PathLike[str]) -> None:
        """Write the set as one Boxoban file."""
        blocks = (f"; {index}\n{self.text(index)}\n" for index in range(len(self)))
        try:
            Path(path).write_text("\n".join(blocks), encoding="ascii")
        except OSError as problem:
            raise LevelError(f"{path}: the levels cannot be written ({problem.strerror})") from problem

    @classmethod
    def parse(cls, text: str | bytes, source: str = "text") -> LevelSet:
        """Read the levels of one Boxoban text; ``source`` names it in error messages."""
        return cls(_parse(text.encode() if isinstance(text, str) else text, source))

    @classmethod
    def load(cls, paths: str | PathLike[str] | Iterable[str | PathLike[str]]) -> LevelSet:
        """Read a Boxoban file, a folder (its ``.txt`` files, with subfolders, by name), or a list of them, in order.

        Files called LICENSE, README or NOTICE in a folder are skipped; all others must contain levels.
        """
        listed: Sequence[str | PathLike[str]] = [paths] if isinstance(paths, (str, PathLike)) else list(paths)
        if not listed:
            raise LevelError("the list of level paths is empty; give at least one Boxoban file or folder")
        files = [file for path in listed for file in level_files(path)]
        parts = []
        for file in files:
            try:
                text = file.read_bytes()
            except OSError as problem:
                raise LevelError(f"{file}: the file cannot be read ({problem.strerror})") from problem
            parts.append(_parse(text, str(file)))
            if parts[-1].shape[1:] != parts[0].shape[1:]:
                raise LevelError(
                    f"{file}: boards are {_size_text(parts[-1])}, but those of {files[0]} are {_size_text(parts[0])}; "
                    f"load sets of different board size separately"
                )
        return cls(np.concatenate(parts))


def board_text(board: np.ndarray) -> str:
    """One board uint8 [H, W] as Boxoban text, without a trailing newline."""
    return "\n".join(row.tobytes().translate(_SYMBOL_TABLE).decode("ascii") for row in board)


def level_files(path: str | PathLike[str]) -> list[Path]:
    """The file, or the files of the folder, that `LevelSet.load` reads, in its order."""
    path = Path(path)
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise LevelError(f"{path}: no such file or folder; expected a Boxoban .txt file or a folder of them")
    files = sorted(file for file in path.rglob("*.txt") if file.is_file() and file.stem.lower() not in _NOT_LEVELS)
    if not files:
        raise LevelError(f"{path}: the folder contains no level files (no .txt file in it or its subfolders)")
    return files


def _parse(text: bytes, source: str) -> np.ndarray:
    """The boards of a Boxoban text, uint8 [L, H, W]."""
    if text.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise LevelError(f"{source}:1: the file is encoded as UTF-16; save it as plain text (UTF-8 or ASCII)")
    text = text.removeprefix(codecs.BOM_UTF8)
    starts: list[int] = []  # line number of each level's first row
    blocks: list[list[bytes]] = []
    inside = False
    header = 0  # line number of a header whose board has not followed yet
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith(b";"):
            if header:
                raise LevelError(f"{source}:{header}: no board follows this header")
            header, inside = number, False
        elif not line:
            inside = False
        else:
            if not inside:
                starts.append(number)
                blocks.append([])
                inside, header = True, 0
            blocks[-1].append(line)
    if header:
        raise LevelError(f"{source}:{header}: no board follows this header")
    if not blocks:
        raise LevelError(f"{source}:1: no levels found; expected rows of the characters {engine.SYMBOLS!r}")

    height, width = len(blocks[0]), len(blocks[0][0])
    for start, block in zip(starts, blocks):
        for offset, row in enumerate(block):
            if not row.translate(None, delete=engine.SYMBOLS.encode()):
                if len(row) == len(block[0]):
                    continue
                reason = f"ragged rows: this row has {len(row)} squares, the level's first row has {len(block[0])}"
            else:
                column = next(column for column, symbol in enumerate(row) if _CODES[symbol] == _UNKNOWN)
                reason = (
                    f"unknown character {chr(row[column])!r} in column {column + 1}; "
                    f"expected one of the characters {engine.SYMBOLS!r}"
                )
            raise LevelError(f"{source}:{start + offset}: {reason}")
        if (len(block), len(block[0])) != (height, width):
            raise LevelError(
                f"{source}:{start}: this board is {len(block)}x{len(block[0])}, but the first one (line {starts[0]}) "
                f"is {height}x{width}; all boards of a set must have the same size"
            )
    codes = b"".join(row for block in blocks for row in block).translate(_CODE_TABLE)
    boards = np.frombuffer(codes, np.uint8).reshape(len(blocks), height, width)
    found = _first_problem(boards)
    if found is not None:
        raise LevelError(f"{source}:{starts[found[0]]}: {found[1]}")
    return boards


def _first_problem(boards: np.ndarray) -> tuple[int, str] | None:
    """The first level of [L, H, W] that cannot be played, and why."""
    players = _count(boards, engine.PLAYER, engine.PLAYER_ON_TARGET)
    boxes = _count(boards, engine.BOX, engine.BOX_ON_TARGET)
    targets = _count(boards, engine.TARGET, engine.BOX_ON_TARGET, engine.PLAYER_ON_TARGET)
    loose = _count(boards, engine.BOX)
    unknown = boards.max(axis=(1, 2)) >= engine.NUM_TILES
    bad = unknown | (players != 1) | (boxes != targets) | (loose == 0)
    if not bad.any():
        return None
    index = int(bad.argmax())
    if unknown[index]:
        return index, f"unknown tile code {boards[index].max()}; expected 0 .. {engine.NUM_TILES - 1}"
    if players[index] == 0:
        return index, "no player ('@' or '+') on the board"
    if players[index] > 1:
        return index, f"{players[index]} players on the board; expected exactly one '@' or '+'"
    if boxes[index] != targets[index]:
        found = f"{counted(boxes[index], 'box', 'boxes')} but {counted(targets[index], 'target')}"
        return index, f"{found}; expected as many boxes as targets"
    if boxes[index] == 0:
        return index, "no box ('$') on the board"
    return index, "already solved: every box is on a target"


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """A number with its noun: "1 box", "2 boxes"."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def _count(boards: np.ndarray, *tiles: int) -> np.ndarray:
    return np.isin(boards, tiles).sum(axis=(1, 2))


def _size_text(boards: np.ndarray) -> str:
    return f"{boards.shape[1]}x{boards.shape[2]}"
