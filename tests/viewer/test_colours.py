"""Colours that mean something can be told apart by colour-blind readers too, in light and dark."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest

from tests.viewer.support import sokoban_recording
from thinker.viewer.page import page_text

MEANINGS = ("good", "failed", "wrong", "gain", "loss")
# Machado, Oliveira and Fernandes (2009), severity 1, for linear RGB.
SIGHTS = {
    "full": np.eye(3),
    "protanopia": np.array([[0.1523, 1.0526, -0.2049], [0.1145, 0.7863, 0.0992], [-0.0039, -0.0481, 1.0520]]),
    "deuteranopia": np.array([[0.3673, 0.8606, -0.2280], [0.2801, 0.6725, 0.0474], [-0.0118, 0.0429, 0.9689]]),
    "tritanopia": np.array([[1.2555, -0.0767, -0.1788], [-0.0784, 0.9308, 0.1476], [0.0047, 0.6914, 0.3039]]),
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def linear(colour: str) -> np.ndarray:
    channels = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def lab(rgb: np.ndarray) -> np.ndarray:
    xyz = TO_XYZ @ rgb.clip(0, 1) / np.array([0.9505, 1.0, 1.0888])
    x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def contrast(one: str, other: str) -> float:
    low, high = sorted(float(TO_XYZ[1] @ linear(colour)) for colour in (one, other))
    return (high + 0.05) / (low + 0.05)


@pytest.fixture(scope="module", params=["light", "dark"])
def colours(request) -> dict[str, str]:
    style = page_text(sokoban_recording(1, max_steps=1)).partition("</style>")[0]
    light, _, rest = style.partition("@media (prefers-color-scheme: dark)")
    return dict(re.findall(r"--([\w-]+): (#\w{6});", light if request.param == "light" else rest.partition("* {")[0]))


@pytest.mark.parametrize("sight", SIGHTS)
def test_meanings_are_told_apart(colours, sight):
    seen = {name: lab(SIGHTS[sight] @ linear(colours[name])) for name in MEANINGS}
    for one, other in itertools.combinations(MEANINGS, 2):
        assert np.linalg.norm(seen[one] - seen[other]) > 18, (one, other)


def test_marks_and_texts_stand_out(colours):
    for name in ("good", "failed", "wrong", "best", "accent", "quiet", "text"):
        assert contrast(colours[name], colours["panel"]) > 4, name
