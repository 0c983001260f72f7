"""Pictures of Sokoban boards: small sprites for observations and large ones for rendering.

The 8-pixel sprites are tables of colour letters; the large ones are drawn by code from the same colours.
"""

from __future__ import annotations

import struct
import zlib
from functools import cache
from os import PathLike
from pathlib import Path
from typing import Final, Literal, get_args

import numpy as np

from thinker.envs.sokoban import engine
from thinker.errors import UserError

ObservationKind = Literal["tiles", "rgb"]
OBSERVATION_PIXELS: Final = 8
RENDER_PIXELS: Final = 32

_COLOURS: Final = {
    "k": (38, 34, 40),  # mortar, outlines
    "b": (118, 92, 82),  # brick
    "l": (146, 116, 102),  # brick in light
    "f": (216, 206, 184),  # floor
    "g": (200, 189, 166),  # floor's grain
    "r": (214, 40, 40),  # border of a target
    "p": (244, 176, 160),  # inside of a target
    "w": (196, 132, 52),  # wood
    "d": (128, 78, 24),  # dark wood
    "o": (92, 178, 76),  # box on target
    "n": (36, 104, 44),  # box on target, dark
    "s": (246, 206, 164),  # skin
    "c": (44, 92, 196),  # clothes
    "h": (70, 44, 28),  # hair and shoes
}

_FIGURE = "..hhhh.. ..hssh.. ..ssss.. .cccccc. s.cccc.s ..cccc.. ..c..c.. .hh..hh."
_SMALL: Final = {
    engine.WALL: "lllkllll bbbkbbbb bbbkbbbb kkkkkkkk lllllllk bbbbbbbk bbbbbbbk kkkkkkkk",
    engine.FLOOR: "ffffffff fgffffff ffffffff fffffgff ffffffff ffgfffff ffffffff ffffffgf",
    engine.TARGET: "rrrrrrrr rppppppr rppppppr rppppppr rppppppr rppppppr rppppppr rrrrrrrr",
    engine.BOX: "dddddddd dwwwwwwd dwdwwdwd dwwddwwd dwwddwwd dwdwwdwd dwwwwwwd dddddddd",
    engine.BOX_ON_TARGET: "rrrrrrrr rnoooonr roooooor roonnoor roonnoor roooooor rnoooonr rrrrrrrr",
}


@cache
def observation_sprites(kind: ObservationKind) -> np.ndarray:
    """The sprites of an observation, uint8 [7, C, P, P]: one-hot single pixels, or 8x8 pictures."""
    if kind == "tiles":
        return np.eye(engine.NUM_TILES, dtype=np.uint8).reshape(engine.NUM_TILES, engine.NUM_TILES, 1, 1)
    if kind == "rgb":
        return np.ascontiguousarray(_small_sprites().transpose(0, 3, 1, 2))
    raise UserError(f"observation={kind!r} is unknown; expected one of {get_args(ObservationKind)}")


def _small_sprites() -> np.ndarray:
    """uint8 [7, 8, 8, 3]."""
    sprites = np.empty((engine.NUM_TILES, OBSERVATION_PIXELS, OBSERVATION_PIXELS, 3), np.uint8)
    for tile, letters in _SMALL.items():
        sprites[tile] = [[_COLOURS[letter] for letter in row] for row in letters.split()]
    for tile, ground in ((engine.PLAYER, engine.FLOOR), (engine.PLAYER_ON_TARGET, engine.TARGET)):
        sprites[tile] = sprites[ground]
        for y, row in enumerate(_FIGURE.split()):
            for x, letter in enumerate(row):
                if letter != ".":
                    sprites[tile, y, x] = _COLOURS[letter]
    return sprites


@cache
def tile_pictures() -> np.ndarray:
    """A picture of each tile for rendering: uint8 [7, 32, 32, 3], read-only."""
    sprites = np.empty((engine.NUM_TILES, RENDER_PIXELS, RENDER_PIXELS, 3), np.uint8)
    colour = {letter: np.array(value, np.uint8) for letter, value in _COLOURS.items()}
    y, x = np.mgrid[:RENDER_PIXELS, :RENDER_PIXELS]

    def frame(tile: int, outer: int, thickness: int, letter: str) -> None:
        distance = np.minimum(np.minimum(x, y), np.minimum(RENDER_PIXELS - 1 - x, RENDER_PIXELS - 1 - y))
        sprites[tile, (distance >= outer) & (distance < outer + thickness)] = colour[letter]

    def disc(tile: int, centre_y: float, centre_x: float, height: float, width: float, letter: str) -> None:
        sprites[tile, ((y - centre_y) / height) ** 2 + ((x - centre_x) / width) ** 2 <= 1] = colour[letter]

    wall = sprites[engine.WALL]
    wall[:] = colour["b"]
    for course in range(4):
        top, joint = 8 * course, 8 if course % 2 else 24
        wall[top : top + 2] = colour["l"]
        wall[top + 7] = colour["k"]
        wall[top : top + 8, (joint, (joint + 16) % RENDER_PIXELS)] = colour["k"]

    sprites[engine.FLOOR] = colour["f"]
    sprites[engine.FLOOR, -1] = sprites[engine.FLOOR, :, -1] = colour["g"]
    sprites[engine.TARGET] = sprites[engine.FLOOR]
    sprites[engine.TARGET, 3:-3, 3:-3] = colour["p"]
    frame(engine.TARGET, 2, 3, "r")

    for tile, ground, wood, dark in (
        (engine.BOX, engine.FLOOR, "w", "d"),
        (engine.BOX_ON_TARGET, engine.TARGET, "o", "n"),
    ):
        sprites[tile] = sprites[ground]
        inset = 2 if tile == engine.BOX else 6
        sprites[tile, inset:-inset, inset:-inset] = colour[wood]
        inside = (np.minimum(x, y) >= inset) & (np.maximum(x, y) < RENDER_PIXELS - inset)
        sprites[tile, inside & ((abs(x - y) <= 1) | (abs(x + y - RENDER_PIXELS + 1) <= 1))] = colour[dark]
        frame(tile, inset, 3, dark)

    for tile, ground in ((engine.PLAYER, engine.FLOOR), (engine.PLAYER_ON_TARGET, engine.TARGET)):
        sprites[tile] = sprites[ground]
        for side in (-1, 1):
            disc(tile, 27, 15.5 + 4.5 * side, 2.6, 4, "h")  # shoes
            disc(tile, 19.5, 15.5 + 8 * side, 2.6, 2.6, "s")  # hands
        disc(tile, 20, 15.5, 7.5, 7, "c")
        disc(tile, 9.5, 15.5, 7, 7, "h")
        disc(tile, 11, 15.5, 5.5, 5.5, "s")
        for side in (-1, 1):
            disc(tile, 10.5, 15.5 + 2.5 * side, 1.3, 1.1, "k")  # eyes
    sprites.flags.writeable = False
    return sprites


def render_board(board: np.ndarray) -> np.ndarray:
    """Render one board uint8 [H, W] as a picture uint8 [32 H, 32 W, 3]."""
    height, width = board.shape
    squares = tile_pictures()[board]  # [H, W, 32, 32, 3]
    return squares.swapaxes(1, 2).reshape(height * RENDER_PIXELS, width * RENDER_PIXELS, 3)


def save_png(picture: np.ndarray, path: str | PathLike[str]) -> None:
    """Write a picture uint8 [height, width, 3] as a PNG file."""
    height, width, _ = picture.shape
    rows = b"".join(b"\0" + row.tobytes() for row in picture)  # 0 before each row: no filter

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)  # 8 bits per channel, RGB
    parts = [b"\x89PNG\r\n\x1a\n", chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b"")]
    try:
        Path(path).write_bytes(b"".join(parts))
    except OSError as problem:
        raise UserError(f"{path}: the picture cannot be written ({problem.strerror})") from problem
