"""Screens of the emulator as frames of an observation: the maximum of two screens, shrunk by averaging over areas."""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np


class Overlaps(NamedTuple):
    """How ``target`` equal intervals cover ``source`` pixels in a line; M: the most pixels that one of them touches."""

    first: np.ndarray  # [target] int64     the first pixel that an interval touches
    weight: np.ndarray  # [target, M] float32  the share of an interval that each of its pixels covers; they sum to 1


def overlaps(source: int, target: int) -> Overlaps:
    """The overlaps of ``target`` intervals with ``source`` pixels, ``target`` <= ``source``."""
    edges = np.arange(target + 1) * (source / target)
    first = np.floor(edges[:-1] + 1e-9).astype(np.int64)
    most = int((np.ceil(edges[1:] - 1e-9).astype(np.int64) - first).max())
    pixel = first[:, None] + np.arange(most)  # [target, M]
    covered = np.minimum(pixel + 1, edges[1:, None]) - np.maximum(pixel, edges[:-1, None])
    weight = np.clip(covered, 0, None) * (target / source)
    # Pixels beyond the last one have no weight, but they must exist.
    return Overlaps(np.minimum(first, source - most), _shifted(weight, first - np.minimum(first, source - most)))


def _shifted(weight: np.ndarray, by: np.ndarray) -> np.ndarray:
    """Rows of ``weight`` [target, M] moved right by ``by`` [target] places, whose last weights are 0."""
    return np.stack([np.roll(row, int(places)) for row, places in zip(weight, by)]).astype(np.float32)


@numba.njit(cache=True)
def shrink(screens: np.ndarray, rows: Overlaps, columns: Overlaps, frame: np.ndarray) -> None:
    """Write the maximum of two ``screens`` [2, H, W, C] as a ``frame`` [C, height, width], all uint8."""
    _, _, width, channels = screens.shape
    line = np.empty(width * channels, np.float32)
    first = screens[0].reshape(-1, width * channels)
    second = screens[1].reshape(-1, width * channels)
    row_first, row_weight, column_first, column_weight = rows.first, rows.weight, columns.first, columns.weight
    for y in range(frame.shape[1]):
        line[:] = 0.0
        for k in range(row_weight.shape[1]):
            source, weight = row_first[y] + k, row_weight[y, k]
            if weight > 0.0:
                for x in range(line.shape[0]):
                    line[x] += weight * max(first[source, x], second[source, x])
        for x in range(frame.shape[2]):
            for c in range(channels):
                total = np.float32(0.0)
                for k in range(column_weight.shape[1]):
                    total += column_weight[x, k] * line[(column_first[x] + k) * channels + c]
                frame[c, y, x] = np.uint8(np.rint(total))
