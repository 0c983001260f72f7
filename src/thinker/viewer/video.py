"""A recording as a video: the real state on the left, what was imagined before the next real step on the right.

An MP4 file shows every imaginary step; a GIF file shows each stage as a whole, to stay small.
"""

from __future__ import annotations

import base64
import importlib.util
import io
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from thinker.errors import UserError
from thinker.viewer.frames import CODES, PALETTE, UNCLEAR
from thinker.viewer.recording import ImaginedStep, Recording, Stage

_REAL, _THUMB, _GAP, _HEAD = 384, 72, 8, 34  # pixels
_ROWS = 5  # rollouts that are in sight at once
_LONGEST_ROW = 8  # imaginary steps of a rollout that are in sight at once
_IMAGINARY_SECONDS, _REAL_SECONDS = 0.15, 0.6
_FRAMES_PER_SECOND = 20
_PAPER, _INK, _QUIET, _TAKEN, _RIGHT, _WRONG = "#f5f5f2", "#1d1f23", "#696d76", "#2f62d9", "#1a7f3c", "#c62f2f"


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
            text = f"step {number + 1} of {len(episode.stages)}   return {gathered:.2f}"
            if every_step:
                for count in range(1, len(stage.steps) + 1):
                    yield painter.paint(stage.frame, text, stage, count), _IMAGINARY_SECONDS
            name = recording.actions[stage.action]
            yield painter.paint(stage.frame, f"{text}   takes {name}", stage, len(stage.steps), True), _REAL_SECONDS
            gathered += stage.reward
        frame = episode.stages[-1].frame if episode.final_frame is None else episode.final_frame
        yield painter.paint(frame, f"{episode.outcome}   return {gathered:.2f}", None, 0), 3 * _REAL_SECONDS


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
        self._font = ImageFont.load_default(15)
        sheet = recording.view.sprites
        self._sprites = None if sheet is None else _picture(sheet)
        self._cache: dict[int, Image.Image] = {}
        longest = max((len(row) for e in recording.episodes for s in e.stages for row in rollouts(s.steps)), default=0)
        self._columns = min(max(longest, 1), _LONGEST_ROW)
        width = _REAL + 3 * _GAP + 74 + self._columns * (_THUMB + _GAP) + _GAP
        self._size = (width + width % 2, _HEAD + _REAL + 2 * _GAP + 16)
        if recording.view.kind == "vector":
            numbers = np.array(recording.frames, np.float64).reshape(len(recording.frames), -1)
            self._low, self._high = np.minimum(numbers.min(0), 0), np.maximum(numbers.max(0), 0)

    def paint(self, frame: int, text: str, stage: Stage | None, count: int, acted: bool = False) -> Image.Image:
        """The real state ``frame`` and the first ``count`` imaginary steps of ``stage``."""
        picture = Image.new("RGB", self._size, _PAPER)
        draw = ImageDraw.Draw(picture)
        draw.text((_GAP, _GAP), text, _INK, self._font)
        picture.paste(self._frame(frame, _REAL), (_GAP, _HEAD))
        if stage is None:
            return picture
        rows = rollouts(stage.steps[:count])
        left = _REAL + 3 * _GAP
        shown = rows[-_ROWS:]
        draw.text((left, _GAP), f"imagined: {len(rows)} rollouts", _QUIET, self._font)
        for place, row in enumerate(shown):
            top = _HEAD + place * (_THUMB + _GAP)
            taken = acted and row[0].action == stage.action
            if taken:
                draw.rectangle((left - 6, top - 2, left - 3, top + _THUMB + 2), _TAKEN)
            draw.text((left, top + 20), f"{row[-1].rollout_return:.2f}", _TAKEN if taken else _INK, self._font)
            ending = {"forced": "forced", "chosen": "reset", "none": ""}[row[-1].reset]
            draw.text((left, top + 40), ending, _QUIET, self._font)
            for column, step in enumerate(row[-self._columns :]):
                x = left + 74 + column * (_THUMB + _GAP)
                if step.frame is None:
                    draw.rectangle((x, top, x + _THUMB, top + _THUMB), outline=_QUIET)
                    continue
                picture.paste(self._frame(step.frame, _THUMB), (x, top))
                error = stage.tree.error[step.node]
                if acted and error is not None:
                    colour = _WRONG if error > self._view.tolerance else _RIGHT
                    draw.rectangle((x - 2, top - 2, x + _THUMB + 1, top + _THUMB + 1), outline=colour, width=3)
        return picture

    def _frame(self, index: int, side: int) -> Image.Image:
        """Frame ``index`` in a square of ``side`` pixels."""
        if index not in self._cache:
            self._cache[index] = self._draw(self._recording.frames[index])
        whole = self._cache[index]
        scale = side / max(whole.size)
        size = (max(1, round(whole.width * scale)), max(1, round(whole.height * scale)))
        smooth = Image.Resampling.BOX if scale < 1 else Image.Resampling.NEAREST
        square = Image.new("RGB", (side, side), _PAPER)
        square.paste(whole.resize(size, smooth), ((side - size[0]) // 2, (side - size[1]) // 2))
        return square

    def _draw(self, frame: str | list[float]) -> Image.Image:
        if isinstance(frame, list):
            return self._draw_vector(np.array(frame))
        if self._view.kind == "image":
            return _picture(frame)
        side = 32 if self._sprites is None else self._sprites.height
        picture = Image.new("RGB", (side * self._view.width, side * self._view.height))
        for square, letter in enumerate(frame):
            y, x = divmod(square, self._view.width)
            corner = (x * side, y * side)
            code = -1 if letter == UNCLEAR else CODES.index(letter)
            if code < 0 or self._sprites is None:
                colour = "#d63bd0" if code < 0 else PALETTE[code % len(PALETTE)]
                picture.paste(colour, (*corner, corner[0] + side, corner[1] + side))
            else:
                picture.paste(self._sprites.crop((code * side, 0, (code + 1) * side, side)), corner)
        return picture

    def _draw_vector(self, numbers: np.ndarray) -> Image.Image:
        side = 384
        picture = Image.new("RGB", (side, side), "#ffffff")
        draw = ImageDraw.Draw(picture)
        span = np.where(self._high > self._low, self._high - self._low, 1.0)
        top = side - (numbers - self._low) / span * side
        zero = side - (0 - self._low) / span * side
        width = side / len(numbers)
        for i, (a, b) in enumerate(zip(np.minimum(top, zero), np.maximum(top, zero))):
            draw.rectangle((i * width + 1, a - 1, (i + 1) * width - 1, b + 1), _TAKEN)
        return picture


def _picture(address: str) -> Image.Image:
    _, _, data = address.partition(",")
    return Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB")
