"""Network sizes: one dataclass per kind of observation, the named sizes, and how a size is chosen.

"paper" and "paper-stacked" have the numbers of appendix C.
"""

from __future__ import annotations

from dataclasses import dataclass

import gymnasium as gym
import numpy as np

from thinker.errors import UnsupportedError, UserError

LARGEST_BOARD = 32
"""Binary observations with up to this many rows and columns are treated as boards, larger ones as images."""


def _at_least_one(**values: int) -> None:
    for name, value in values.items():
        if value < 1:
            raise UserError(f"{name} must be at least 1, got {value}")


@dataclass(frozen=True)
class ImageSize:
    """Convolutional networks for images; they downsample height and width by a factor of 16."""

    channels: int = 64  # after the first convolution; twice as many from the second convolution on
    blocks: int = 1  # D, residual blocks at each resolution of encoder and decoder
    unroll_blocks: int = 5  # 4D + 1, residual blocks of an unrolling function
    stacked_frames: int = 1  # frames in one observation, the newest last; only the newest is predicted

    def __post_init__(self) -> None:
        _at_least_one(
            channels=self.channels,
            blocks=self.blocks,
            unroll_blocks=self.unroll_blocks,
            stacked_frames=self.stacked_frames,
        )


@dataclass(frozen=True)
class SmallImageSize(ImageSize):
    """Cheaper networks for images on a CPU; they downsample height and width by a factor of 8.

    There is no pooling, which blurs small objects, and the change of the newest frame is predicted.
    """

    channels: int = 16  # after the first convolution; twice as many from the second convolution on
    blocks: int = 1  # residual blocks at the end of the encoder
    unroll_blocks: int = 2  # residual blocks of an unrolling function


@dataclass(frozen=True)
class TilesSize:
    """Convolutional networks for boards of 0s and 1s; they keep the board's height and width."""

    channels: int = 32  # channels of the hidden state
    state_reward_channels: int = 32  # channels of a dual network's state-reward half, which has the easier task
    blocks: int = 0  # residual blocks of encoder and decoder
    unroll_blocks: int = 1  # residual blocks of an unrolling function

    def __post_init__(self) -> None:
        _at_least_one(
            channels=self.channels,
            state_reward_channels=self.state_reward_channels,
            blocks=self.blocks + 1,
            unroll_blocks=self.unroll_blocks,
        )


@dataclass(frozen=True)
class VectorSize:
    """Residual multi-layer perceptrons for one-dimensional observations."""

    channels: int = 128  # width of the hidden layers
    blocks: int = 1  # residual blocks of encoder and decoder
    unroll_blocks: int = 1  # residual blocks of an unrolling function

    def __post_init__(self) -> None:
        _at_least_one(channels=self.channels, blocks=self.blocks, unroll_blocks=self.unroll_blocks)


ModelSize = ImageSize | TilesSize | VectorSize

SIZES: dict[str, ModelSize] = {
    "paper": ImageSize(channels=64, blocks=1, unroll_blocks=5, stacked_frames=1),
    "paper-stacked": ImageSize(channels=64, blocks=2, unroll_blocks=9, stacked_frames=4),
    "image-small": SmallImageSize(),
    "image-small-stacked": SmallImageSize(stacked_frames=4),
    "tiles": TilesSize(),
    "board": TilesSize(channels=32, state_reward_channels=24, blocks=2),
    "board-large": TilesSize(channels=32, state_reward_channels=24, blocks=4),
    "vector": VectorSize(),
}

SUPPORTED_SPACES = (
    "a Box of images (channels, height, width) or (height, width, channels) with finite bounds, "
    f"a Box or MultiBinary board of the same shapes with values 0 and 1 (up to {LARGEST_BOARD} rows and columns), "
    "or a Box or MultiBinary with one dimension"
)


class UnsupportedSpaceError(UnsupportedError):
    """No network supports the observation space."""

    def __init__(self, space: gym.Space, problem: str) -> None:
        super().__init__(
            f"no network fits the observation space {space}: {problem}. Supported are {SUPPORTED_SPACES}. "
            "Wrap the environment so that it returns one of these (for example with "
            "gymnasium.wrappers.FlattenObservation, GrayscaleObservation or TransformObservation)."
        )


def bounds_of(space: gym.Space) -> tuple[np.ndarray, np.ndarray]:
    """The lowest and highest values of a Box or MultiBinary space, as float64 arrays of the space's shape."""
    if isinstance(space, gym.spaces.MultiBinary):
        return np.zeros(space.shape), np.ones(space.shape)
    if isinstance(space, gym.spaces.Box):
        return space.low.astype(np.float64), space.high.astype(np.float64)
    raise UnsupportedSpaceError(space, f"{type(space).__name__} is neither a Box nor a MultiBinary space")


def is_binary(space: gym.Space) -> bool:
    """Whether every value of the space is 0 or 1: an integer or bool dtype with these bounds."""
    low, high = bounds_of(space)
    return not np.issubdtype(space.dtype, np.floating) and bool((low == 0).all() and (high == 1).all())


def channels_come_last(shape: tuple[int, ...]) -> bool:
    """Whether a three-dimensional shape is (height, width, channels).

    Two equal sides are height and width. If that is ambiguous, channels come first unless the last side can only be
    colours.
    """
    first, middle, last = shape
    if (first == middle) != (middle == last):
        return first == middle
    return last <= 4 < first


def choose_size(observation_space: gym.Space) -> str:
    """The name in `SIZES` that fits a (single) observation space; raises `UnsupportedSpaceError` if none does."""
    low, high = bounds_of(observation_space)
    shape = low.shape
    if low.size == 0:
        raise UnsupportedSpaceError(observation_space, "it is empty")
    if len(shape) == 1:
        return "vector"
    if len(shape) != 3:
        raise UnsupportedSpaceError(observation_space, f"it has {len(shape)} dimensions")
    channels, rows, columns = (shape[2], *shape[:2]) if channels_come_last(shape) else shape
    if is_binary(observation_space) and max(rows, columns) <= LARGEST_BOARD:
        return "tiles"
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise UnsupportedSpaceError(observation_space, "images need finite bounds")
    return "paper-stacked" if channels in (4, 12) else "paper"


def named_size(name: str) -> ModelSize:
    """The size with this name in `SIZES`."""
    if name not in SIZES:
        raise UserError(f"unknown size {name!r}; choose one of {', '.join(SIZES)} or give a ModelSize")
    return SIZES[name]


def size_for(observation_space: gym.Space, size: str | ModelSize | None = None) -> ModelSize:
    """``size`` itself, the size with this name, or with None the one that fits the (single) observation space."""
    if size is None:
        size = choose_size(observation_space)
    return named_size(size) if isinstance(size, str) else size
