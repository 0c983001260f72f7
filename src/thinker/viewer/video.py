"""A recording as a video: the real state on the left, what was imagined before the next real step on the right.

Numbers and colours mean what they mean on the page: the number beside a rollout is its g, a star marks the highest g in
the tree. An MP4 file shows every imaginary step, or every rollout of a long search; a GIF file shows each stage as a
whole, to stay small.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from thinker.errors import UserError
from thinker.viewer.encoding import decoded
from thinker.viewer.frames import CODES, PALETTE, UNCLEAR
from thinker.viewer.recording import ImaginedStep, Recording, Stage

_REAL, _THUMB, _GAP, _HEAD = 384, 72, 8, 34  # pixels
_ROWS = 5  # rollouts that are in sight at once
_LONGEST_ROW = 8  # imaginary steps of a rollout that are in sight at once
_MOST_MOMENTS = 60  # imaginary steps of a stage that are shown one by one
_IMAGINARY_SECONDS, _REAL_SECONDS = 0.15, 0.6
_FRAMES_PER_SECOND = 20
_PAPER, _INK, _QUIET, _TAKEN = "#f5f5f2", "#1d1f23", "#646872", "#2f62d9"
_RIGHT, _WRONG, _BEST, _UNCLEAR = "#00795a", "#a0338a", "#8a6100", "#8d8d8d"


def check_video(path: str | PathLike[str]) -> None:
    """Raise a UserError if no video can be written to a file of this name."""
    kind = Path(path).suffix.lower()
    if kind not in (".mp4", ".gif"):
        raise UserError(f"cannot write the video {path}: expected a name that ends in .mp4 or .gif")
    if kind == ".mp4" and not all(importlib.util.find_spec(name) for name in ("imageio", "imageio_ffmpeg")):
        raise UserError(
            f'cannot write the video {path}: .mp4 files need imageio; pip install "thinker[video]", or write a .gif'
        )


def write_video(recording: Recording, path: str | PathLike[str]) -> None:
    """Write all episodes of ``recording`` as one ``.mp4`` or ``.gif`` file."""
    check_video(path)
    if Path(path).suffix.lower() == ".gif":
        # Each picture has a palette of its own; Pillow stores only what changes.
        pictures = [picture.quantize(64) for picture, _ in _pictures(recording, every_step=False)]
        milliseconds = int(1000 * _REAL_SECONDS)
        pictures[0].save(path, save_all=True, append_images=pictures[1:], duration=milliseconds, loop=0, optimize=False)
        return
    import imageio.v2 as imageio

    writer: Any
    with imageio.get_writer(str(path), fps=_FRAMES_PER_SECOND, macro_block_size=2) as writer:
        for picture, seconds in _pictures(recording, every_step=True):
            for _ in range(max(1, round(seconds * _FRAMES_PER_SECOND))):
                writer.append_data(np.asarray(picture))


def _pictures(recording: Recording, every_step: bool) -> Iterator[tuple[Image.Image, float]]:
    """The pictures of the video and how long each is shown, in seconds."""
    painter = _Painter(recording)
    for episode in recording.episodes:
        gathered = 0.0
        for number, stage in enumerate(episode.stages):
            real = painter.real_state(stage.frame, stage.picture)
            text = f"step {number + 1} of {len(episode.stages)}   reward so far {gathered:.2f}"
            if every_step:
                for count in _moments(stage):
                    yield painter.paint(real, text, stage, count), _IMAGINARY_SECONDS
            name = recording.actions[stage.action]
            yield painter.paint(real, f"{text}   action {name}", stage, len(stage.steps), True), _REAL_SECONDS
            gathered += stage.reward
        last = episode.stages[-1]
        if episode.final_frame is None:
            real = painter.real_state(last.frame, last.picture)
        else:
            real = painter.real_state(episode.final_frame, episode.final_picture)
        yield painter.paint(real, f"{episode.outcome}   reward {gathered:.2f}", None, 0), 3 * _REAL_SECONDS


def _moments(stage: Stage) -> list[int]:
    """The numbers of imaginary steps that are shown one after another: all, or whole rollouts if there are many."""
    if len(stage.steps) <= _MOST_MOMENTS:
        return list(range(1, len(stage.steps) + 1))
    return np.cumsum([len(row) for row in rollouts(stage.steps)]).tolist()


def rollouts(steps: list[ImaginedStep]) -> list[list[ImaginedStep]]:
    """Imaginary steps as rows that each begin at the root."""
    rows: list[list[ImaginedStep]] = []
    begins = True
    for step in steps:
        if begins:
            rows.append([])
        rows[-1].append(step)
        begins = step.reset != "none"
    return rows


class _Painter:
    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._view = recording.view
        self._font, self._small_font = ImageFont.load_default(15), ImageFont.load_default(12)
        sheet = recording.view.sprites
        self._sprites = None if sheet is None else decoded(sheet)
        self._cache: dict[tuple[int, int], Image.Image] = {}
        longest = max((len(row) for e in recording.episodes for s in e.stages for row in rollouts(s.steps)), default=0)
        self._columns = min(max(longest, 1), _LONGEST_ROW)
        width = _REAL + 3 * _GAP + 84 + self._columns * (_THUMB + _GAP) + _GAP
        self._size = (width + width % 2, _HEAD + _REAL + 2 * _GAP + 16)
        if recording.view.kind == "vector":  # one baseline for all numbers, and a scale of its own for each
            numbers = np.array(recording.frames, np.float64).reshape(len(recording.frames), -1)
            self._scale = np.abs(numbers).max(0)
            self._baseline = 0.5 if (numbers < 0).any() else 0.0

    def real_state(self, frame: int, picture: int | None) -> Image.Image:
        """A real state in a square: the environment's rendering if there is one, with the numbers of a vector below."""
        if picture is None or self._recording.renderings is None:
            return self._frame(frame, _REAL)
        rendered = decoded(self._recording.renderings.pictures[picture])
        if self._view.kind != "vector":
            return _in_square(rendered, _REAL)
        square = Image.new("RGB", (_REAL, _REAL), _PAPER)
        height = min(_REAL * rendered.height // rendered.width, 2 * _REAL // 3)
        square.paste(rendered.resize((height * rendered.width // rendered.height, height)), (0, 0))
        square.paste(
            self._draw_vector(np.array(self._recording.frames[frame]), _REAL, _REAL - height - 4), (0, height + 4)
        )
        return square

    def paint(self, real: Image.Image, text: str, stage: Stage | None, count: int, acted: bool = False) -> Image.Image:
        """The ``real`` state and the first ``count`` imaginary steps of ``stage``."""
        picture = Image.new("RGB", self._size, _PAPER)
        draw = ImageDraw.Draw(picture)
        draw.text((_GAP, _GAP), text, _INK, self._font)
        picture.paste(real, (_GAP, _HEAD))
        if stage is None:
            return picture
        rows = rollouts(stage.steps[:count])
        best = int(np.argmax(stage.tree.rollout_return)) if acted else -1
        left = _REAL + 3 * _GAP
        draw.text((left, _GAP), f"rollouts: {len(rows)}", _QUIET, self._font)
        for place, row in enumerate(rows[-_ROWS:]):
            top = _HEAD + place * (_THUMB + _GAP)
            taken = acted and row[0].action == stage.action
            if taken:
                draw.rectangle((left - 6, top - 2, left - 3, top + _THUMB + 2), _TAKEN)
            draw.text((left, top + 20), f"g {row[-1].rollout_return:.2f}", _TAKEN if taken else _INK, self._font)
            ending = {"forced": "depth limit", "chosen": "reset", "none": ""}[row[-1].reset]
            draw.text((left, top + 40), ending, _QUIET, self._small_font)
            for column, step in enumerate(row[-self._columns :]):
                x = left + 84 + column * (_THUMB + _GAP)
                if step.frame is None:
                    draw.rectangle((x, top, x + _THUMB, top + _THUMB), outline=_QUIET)
                else:
                    picture.paste(self._frame(step.frame, _THUMB), (x, top))
                error = stage.tree.error[step.node]
                if acted and error is not None:
                    colour = _WRONG if error > self._view.tolerance else _RIGHT
                    draw.rectangle((x - 2, top - 2, x + _THUMB + 1, top + _THUMB + 1), outline=colour, width=3)
                if step.node == best:
                    draw.polygon(_star(x + 10, top + 10, 10), _BEST, _PAPER)
        return picture

    def _frame(self, index: int, side: int) -> Image.Image:
        """Frame ``index`` in a square of ``side`` pixels."""
        if (index, side) not in self._cache:
            frame = self._recording.frames[index]
            drawn = self._draw_vector(np.array(frame), side, side) if isinstance(frame, list) else self._draw(frame)
            self._cache[index, side] = _in_square(drawn, side)
        return self._cache[index, side]

    def _draw(self, frame: str) -> Image.Image:
        if self._view.kind == "image":
            return decoded(frame)
        side = 32 if self._sprites is None else self._sprites.height
        picture = Image.new("RGB", (side * self._view.width, side * self._view.height))
        draw = ImageDraw.Draw(picture)
        for square, letter in enumerate(frame):
            y, x = divmod(square, self._view.width)
            corner = (x * side, y * side)
            if letter == UNCLEAR:
                picture.paste(_UNCLEAR, (*corner, corner[0] + side, corner[1] + side))
                draw.text((corner[0] + side / 2, corner[1] + side / 2), UNCLEAR, "#ffffff", self._font, anchor="mm")
            elif self._sprites is None:
                colour = PALETTE[CODES.index(letter) % len(PALETTE)]
                picture.paste(colour, (*corner, corner[0] + side, corner[1] + side))
            else:
                code = CODES.index(letter)
                picture.paste(self._sprites.crop((code * side, 0, (code + 1) * side, side)), corner)
        return picture

    def _draw_vector(self, numbers: np.ndarray, width: int, height: int) -> Image.Image:
        """Horizontal bars from one baseline; with names and numbers where there is room for text."""
        picture = Image.new("RGB", (width, height), "#ffffff")
        draw = ImageDraw.Draw(picture)
        line = min(height / len(numbers), 34.0)
        labelled = line >= 15 and width >= 200
        left, right = (0.42 * width, 0.8 * width) if labelled else (0.0, float(width - 1))
        zero = left + self._baseline * (right - left)
        ends = zero + (1 - self._baseline) * (right - left) * numbers / np.where(self._scale > 0, self._scale, 1.0)
        for i, end in enumerate(ends):
            top, bottom = i * line + 0.15 * line, (i + 1) * line - 0.15 * line
            draw.rectangle((min(zero, end), top, max(zero, end), max(bottom, top)), _TAKEN)
            if labelled:
                middle = (top + bottom) / 2
                name = self._view.names[i] if self._view.names is not None else str(i)
                draw.text((4, middle), name[:24], _QUIET, self._small_font, anchor="lm")
                draw.text((width - 4, middle), f"{numbers[i]:.3g}", _INK, self._small_font, anchor="rm")
        draw.line((zero, 0, zero, line * len(numbers)), _QUIET)
        return picture


def _in_square(picture: Image.Image, side: int) -> Image.Image:
    scale = side / max(picture.size)
    size = (max(1, round(picture.width * scale)), max(1, round(picture.height * scale)))
    smooth = Image.Resampling.BOX if scale < 1 else Image.Resampling.NEAREST
    square = Image.new("RGB", (side, side), _PAPER)
    square.paste(picture.resize(size, smooth), ((side - size[0]) // 2, (side - size[1]) // 2))
    return square


def _star(x: float, y: float, radius: float) -> list[tuple[float, float]]:
    """The corners of a five-pointed star."""
    sizes = (radius, 0.42 * radius)
    angles = [math.pi * (corner / 5 - 0.5) for corner in range(10)]
    return [(x + sizes[i % 2] * math.cos(a), y + sizes[i % 2] * math.sin(a)) for i, a in enumerate(angles)]
