"""Pictures of real states that the environments render themselves."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.vector import SyncVectorEnv
from PIL import Image

from thinker.augmented import ThinkerEnv
from thinker.viewer.encoding import compact_url
from thinker.viewer.recording import Renderings
from thinker.world_model.simulator import EnvSimulator

_LARGEST_SIDE = 320  # pixels of a picture in the recording
_MOST_CHARACTERS = 6_000


class Renderer:
    """Renders the real environments of ``env`` as far as they can, and keeps the pictures that are asked for.

    They must have been reset, and made with render mode "rgb_array". Where pictures are not ``wanted``, nothing is
    rendered.
    """

    def __init__(self, env: ThinkerEnv, *, wanted: bool) -> None:
        self._env = env
        self._works = wanted and env.render_mode == "rgb_array" and _may_render(env)
        self._rendered: Sequence[Any] | None = None  # [E] of uint8 [H, W, 3]
        self._pictures: list[str] = []
        self._index: dict[bytes, int] = {}
        self._size: tuple[int, int] | None = None  # width and height of all pictures

    @property
    def renderings(self) -> Renderings | None:
        """The pictures that were asked for; None if there are none."""
        if self._size is None:
            return None
        width, height = self._size
        return Renderings(height, width, self._pictures)

    def render(self) -> None:
        """Render all environments as they are now."""
        if not self._works:
            return
        try:
            self._rendered = self._env.render()
        except Exception as problem:  # pictures are an extra: a recording does without them
            warnings.warn(f"the environment could not be rendered, so there are no pictures: {problem}", stacklevel=3)
            self._rendered, self._works = None, False

    def picture(self, e: int) -> int | None:
        """The index of the picture of environment ``e`` that was rendered last; None if there is none."""
        if self._rendered is None:
            return None
        pixels = np.asarray(self._rendered[e])
        if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != 3 or pixels.size == 0:
            return None
        key = pixels.tobytes()
        if key not in self._index:
            self._index[key] = len(self._pictures)
            self._pictures.append(compact_url(self._resized(pixels), _MOST_CHARACTERS))
        return self._index[key]

    def _resized(self, pixels: np.ndarray) -> Image.Image:
        picture = Image.fromarray(np.ascontiguousarray(pixels))
        if self._size is None:
            scale = min(1.0, _LARGEST_SIDE / max(picture.size))
            self._size = max(1, round(scale * picture.width)), max(1, round(scale * picture.height))
        return picture if picture.size == self._size else picture.resize(self._size, Image.Resampling.LANCZOS)


def _may_render(env: ThinkerEnv) -> bool:
    """Whether rendering is harmless.

    An `EnvSimulator` copies the environments, and one that has rendered often cannot be copied any more, since its
    window belongs to it; this is tried with a copy.
    """
    if not isinstance(env.model, EnvSimulator) or not isinstance(env.envs, SyncVectorEnv):
        return True
    try:
        trial = copy.deepcopy(env.envs.envs[0])
        trial.render()
        copy.deepcopy(trial)
    except Exception:  # whatever an environment raises, it is not harmless
        return False
    return True
