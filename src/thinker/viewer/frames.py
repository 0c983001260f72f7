"""States as they are shown: boards, pictures and vectors, each stored once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from gymnasium import spaces
from PIL import Image

from thinker.viewer.encoding import compact_url, png_url
from thinker.viewer.recording import View, rounded

CODES = "0123456789abcdefghijklmnopqrstuvwxyz"
UNCLEAR = "?"
"""A square for which the model predicts no tile, or several."""
PALETTE = (
    "#2b2d33",
    "#e8e3d6",
    "#e78f81",
    "#b9863f",
    "#5aa650",
    "#3a66c4",
    "#7a54b8",
    "#d9a441",
    "#4fb3bf",
    "#c65d94",
)
"""Colours of tiles without pictures, on the page and in videos."""
_LARGEST_SIDE = 160  # pixels of a picture in the recording
_SQUARE = 8  # pixels of a square in the picture of coloured planes
_MOST_NUMBERS = 256  # of a vector
_MOST_CHARACTERS = 2_200  # of a picture in the recording
_TOLERANCE = 0.02  # mean error of a predicted vector, in units of the observations' range
_PICTURE_TOLERANCE = 0.5  # error of a predicted picture; that of no change is 1
_VISIBLE = 0.1  # difference of one pixel, in units of the range, that is taken for the change if there is less


class FrameStore:
    """Turns states [*observation_shape] into frames, and measures the error of predicted states.

    Args:
        space: of the states. One-hot planes [tiles, H, W] are shown as boards, large bounded arrays as pictures,
            everything else as vectors.
        tile_pictures: uint8 [tiles, P, P, 3], used to draw boards with that many tiles; other boards are drawn with
            the colours of `PALETTE`.
        plane_colours: uint8 [planes, 3], for planes of which a square may have several or none: a square is drawn in
            the colour of its first plane, or black.
        plane_names: of these planes; without them, the page does not explain the colours.
        names: of the numbers of a vector, in the order of the flattened state; where their count does not fit, the
            numbers are named by their index.
    """

    def __init__(
        self,
        space: spaces.Box,
        *,
        tile_pictures: np.ndarray | None = None,
        plane_colours: np.ndarray | None = None,
        plane_names: Sequence[str] = (),
        names: Sequence[str] = (),
    ) -> None:
        self.frames: list[str | list[float]] = []
        self._index: dict[bytes, int] = {}
        self._space = space
        self._is_board = _is_board(space)
        shape = space.shape
        self._plane_colours: np.ndarray | None = None
        if self._is_board and plane_colours is not None and np.shape(plane_colours) == (shape[0], 3):
            self._plane_colours = np.asarray(plane_colours, np.uint8)
            codes = ["#{:02x}{:02x}{:02x}".format(*colour) for colour in self._plane_colours.tolist()]
            colours = dict(zip(map(str, plane_names), codes)) if len(plane_names) == len(codes) else None
            self.view = View("image", height=shape[1] * _SQUARE, width=shape[2] * _SQUARE, colours=colours)
        elif self._is_board:
            self.view = View("board", height=shape[1], width=shape[2], sprites=_sprites(tile_pictures, shape[0]))
        elif _is_picture(space):
            picture = self._picture(np.zeros(shape, space.dtype))
            self.view = View("image", height=picture.height, width=picture.width, tolerance=_PICTURE_TOLERANCE)
        else:
            size = int(np.prod(shape))
            shown = range(min(size, _MOST_NUMBERS))
            fitting = [str(names[i] if len(names) == size else i) for i in shown]
            self.view = View("vector", width=max(len(shown), 1), names=fitting, tolerance=_TOLERANCE)
        # What an error is measured by: the declared range, or where there is none the range seen in real states.
        low, high = space.low.astype(np.float64), space.high.astype(np.float64)
        self._bounded = np.isfinite(low) & np.isfinite(high) & (high - low < 1e4)
        self._low, self._high = np.where(self._bounded, low, np.inf), np.where(self._bounded, high, -np.inf)

    def add_real(self, state: np.ndarray) -> int:
        """The index of the frame of a real state; real states also show the range of unbounded observations."""
        if not self._bounded.all():
            self._low = np.where(self._bounded, self._low, np.minimum(self._low, state))
            self._high = np.where(self._bounded, self._high, np.maximum(self._high, state))
        return self.add(state)

    def add(self, state: np.ndarray) -> int:
        """The index of the frame of ``state``."""
        key = np.ascontiguousarray(state).tobytes()
        if key not in self._index:
            self._index[key] = len(self.frames)
            self.frames.append(self._frame(state))
        return self._index[key]

    def error(self, predicted: np.ndarray, real: np.ndarray, before: np.ndarray) -> float:
        """How wrong a predicted state is; ``before`` is the real state from which it was predicted.

        Boards: the share of squares that differ. Pictures: the squared error of the newest one, divided by that of
        predicting no change, since most of a picture never changes. Vectors: the mean difference in units of the range.
        """
        if self._is_board:
            return float((predicted != real).any(0).mean())
        if self.view.kind == "image":
            guess, truth, last = (self._newest(state).astype(np.float64) for state in (predicted, real, before))
            wrong, changed = np.square(guess - truth).sum(), np.square(last - truth).sum()
            visible = _VISIBLE * float(self._high.max() - self._low.min())
            return float(wrong / max(changed, visible**2))
        span = self._high - self._low
        difference = np.abs(predicted.astype(np.float64) - real.astype(np.float64))
        return float((difference / np.where(span > 0, span, 1.0)).mean())

    def _frame(self, state: np.ndarray) -> str | list[float]:
        if self.view.kind == "board":
            codes = np.where(state.sum(0) == 1, state.argmax(0), -1)
            return "".join(CODES[code] if code >= 0 else UNCLEAR for code in codes.ravel().tolist())
        if self.view.kind == "vector":
            return [rounded(x) for x in np.nan_to_num(state.ravel()[:_MOST_NUMBERS].astype(np.float64)).tolist()]
        return compact_url(self._picture(state), _MOST_CHARACTERS)

    def _picture(self, state: np.ndarray) -> Image.Image:
        """The newest picture of a stack, at most `_LARGEST_SIDE` pixels high and wide."""
        if self._plane_colours is not None:
            colours = np.vstack((self._plane_colours, np.zeros((1, 3), np.uint8)))
            first = np.where(state.any(0), state.argmax(0), len(state))  # [H, W]
            return Image.fromarray(colours[first].repeat(_SQUARE, 0).repeat(_SQUARE, 1))
        pixels = self._newest(state)
        if pixels.dtype != np.uint8:
            low, high = float(self._space.low.min()), float(self._space.high.max())
            pixels = ((pixels - low) / (high - low) * 255).clip(0, 255).astype(np.uint8)
        step = -(-max(pixels.shape[1:]) // _LARGEST_SIDE)
        pixels = np.ascontiguousarray(pixels[:, ::step, ::step].transpose(1, 2, 0))
        return Image.fromarray(pixels if pixels.shape[2] == 3 else pixels[:, :, 0])

    @staticmethod
    def _newest(state: np.ndarray) -> np.ndarray:
        """The newest picture of a stack, [1 or 3, height, width]."""
        pixels = state if state.ndim == 3 else state[None]
        if not _channels_first(pixels.shape):
            pixels = np.moveaxis(pixels, -1, 0)
        return pixels[-3:] if pixels.shape[0] % 3 == 0 else pixels[-1:]


def _is_board(space: spaces.Box) -> bool:
    """One-hot planes: whole numbers 0 and 1 in (tiles, height, width)."""
    binary = bool((space.low == 0).all() and (space.high == 1).all())
    return space.dtype == np.uint8 and binary and len(space.shape) == 3 and 1 < space.shape[0] <= len(CODES)


def _is_picture(space: spaces.Box) -> bool:
    bounded = bool(np.isfinite(space.low).all() and np.isfinite(space.high).all())
    large = len(space.shape) in (2, 3) and sorted(space.shape)[-2] >= 8
    return bounded and large and bool((space.high > space.low).any())


def _sprites(tile_pictures: np.ndarray | None, tiles: int) -> str | None:
    """All tiles side by side as one picture, if there are pictures of so many tiles."""
    if tile_pictures is None:
        return None
    pictures = np.asarray(tile_pictures)
    side = pictures.shape[1] if pictures.ndim > 1 else 0
    if pictures.dtype != np.uint8 or pictures.shape != (tiles, side, side, 3):
        return None
    return png_url(Image.fromarray(np.concatenate(list(pictures), axis=1)))


def _channels_first(shape: tuple[int, ...]) -> bool:
    return shape[0] <= shape[-1]
