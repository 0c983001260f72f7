"""Which network fits which observation space, and that observations survive the way into the network and back."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Text, Tuple

from thinker.errors import UserError
from thinker.nn.codec import ObservationCodec
from thinker.nn.sizes import (
    SIZES,
    ImageSize,
    ModelSize,
    TilesSize,
    UnsupportedSpaceError,
    VectorSize,
    channels_come_last,
    choose_size,
    size_for,
)

CARTPOLE = Box(np.array([-4.8, -np.inf, -0.42, -np.inf], np.float32), np.array([4.8, np.inf, 0.42, np.inf], np.float32))


@pytest.mark.parametrize(
    ("space", "name"),
    [
        (Box(0, 255, (3, 80, 80), np.uint8), "paper"),
        (Box(0, 255, (96, 96, 3), np.uint8), "paper"),
        (Box(0, 255, (12, 80, 80), np.uint8), "paper-stacked"),
        (Box(0, 255, (4, 84, 84), np.uint8), "paper-stacked"),
        (Box(0.0, 1.0, (3, 64, 64), np.float32), "paper"),
        (Box(0, 1, (7, 7, 7), np.uint8), "tiles"),
        (Box(0, 1, (10, 10, 4), np.int8), "tiles"),
        (Box(0, 1, (10, 10, 4), bool), "tiles"),
        (MultiBinary((4, 10, 10)), "tiles"),
        (Box(0, 1, (1, 64, 64), np.uint8), "paper"),
        (CARTPOLE, "vector"),
        (MultiBinary(12), "vector"),
        (Box(0, 255, (128,), np.uint8), "vector"),
    ],
)
def test_the_size_follows_from_the_observation_space(space: gym.Space, name: str) -> None:
    assert choose_size(space) == name
    ObservationCodec(space, SIZES[name])


@pytest.mark.parametrize(
    ("space", "reason"),
    [
        (Discrete(16), "Discrete is neither a Box nor a MultiBinary"),
        (MultiDiscrete([3, 3]), "MultiDiscrete is neither"),
        (Dict(a=Discrete(2)), "Dict is neither"),
        (Tuple((Discrete(2),)), "Tuple is neither"),
        (Text(5), "Text is neither"),
        (Box(0, 255, (84, 84), np.uint8), "it has 2 dimensions"),
        (Box(0, 255, (4, 84, 84, 3), np.uint8), "it has 4 dimensions"),
        (Box(0, 1, (), np.float32), "it has 0 dimensions"),
        (Box(-np.inf, np.inf, (3, 32, 32)), "images need finite bounds"),
        (Box(0, 1, (0,)), "it is empty"),
    ],
)
def test_spaces_that_fit_no_network_are_errors_that_say_what_is_supported(space: gym.Space, reason: str) -> None:
    with pytest.raises(UnsupportedSpaceError, match=f"{reason}.*Supported are .*Wrap the environment"):
        size_for(space)


@pytest.mark.parametrize(
    ("space", "size", "reason"),
    [
        (Box(0, 255, (3, 10, 10), np.uint8), TilesSize(), "only the integers 0 and 1"),
        (Box(0, 1, (3, 10, 10), np.float32), TilesSize(), "only the integers 0 and 1"),
        (Box(0, 255, (3, 10, 10), np.uint8), ImageSize(stacked_frames=4), "3 channels are not 4 stacked frames"),
        (Box(0, 255, (3, 10, 10), np.uint8), VectorSize(), "VectorSize cannot take the shape"),
        (CARTPOLE, TilesSize(), "TilesSize cannot take the shape"),
        (CARTPOLE, ImageSize(), "ImageSize cannot take the shape"),
    ],
)
def test_a_size_that_does_not_fit_the_space_is_an_error(space: gym.Space, size: ModelSize, reason: str) -> None:
    with pytest.raises(UnsupportedSpaceError, match=reason):
        ObservationCodec(space, size)


@pytest.mark.parametrize("shape", [(1, 16, 16), (16, 17, 1)])
def test_every_byte_of_a_picture_survives_the_way_in_and_out(shape: tuple[int, ...]) -> None:
    codec = ObservationCodec(Box(0, 255, shape, np.uint8), ImageSize())
    picture = torch.arange(int(np.prod(shape))).reshape(1, *shape).to(torch.uint8)
    state = codec.encode(picture)
    assert state.shape == (1, *codec.state_shape)
    assert codec.state_shape[0] == 1
    assert state.min() == 0
    assert state.max() == 1
    assert torch.equal(codec.decode(state), picture)
    assert codec.decode(torch.full_like(state, -3.0)).max() == 0
    assert codec.decode(torch.full_like(state, 3.0)).min() == 255


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, bool])
def test_boards_survive_and_are_rounded_to_0_and_1(dtype: type) -> None:
    codec = ObservationCodec(Box(0, 1, (2, 3, 4), dtype), TilesSize())
    board = torch.from_numpy(np.random.default_rng(0).integers(0, 2, (5, 2, 3, 4)).astype(dtype))
    state = codec.encode(board)
    assert torch.equal(state, board.float())
    assert torch.equal(codec.decode(state * 0.9 + 0.04), board)
    assert codec.decode(state).dtype == board.dtype


def test_vectors_are_scaled_by_their_bounds_or_a_logarithm_and_come_back() -> None:
    codec = ObservationCodec(CARTPOLE, VectorSize())
    observation = torch.tensor([[-4.8, -3.0, 0.42, 1000.0], [4.8, 0.0, 0.0, -0.5]])
    state = codec.encode(observation)
    assert state[:, 0].tolist() == pytest.approx([-1, 1])
    assert state[:, 2].tolist() == pytest.approx([1, 0])
    assert state[:, 1].tolist() == pytest.approx([-np.log(4), 0])
    assert state.abs().max() < 7
    torch.testing.assert_close(codec.decode(state), observation, rtol=1e-4, atol=1e-5)


def test_whole_number_vectors_come_back_whole_and_inside_their_bounds() -> None:
    space = Box(np.array([0, -5], np.int64), np.array([10, 5], np.int64), dtype=np.int64)
    codec = ObservationCodec(space, VectorSize())
    observation = torch.tensor([[0, -5], [10, 5], [3, 0]])
    assert torch.equal(codec.decode(codec.encode(observation) + 0.01), observation)
    assert codec.decode(torch.tensor([[5.0, 5.0], [-5.0, -5.0]])).tolist() == [[10, 5], [0, -5]]


@pytest.mark.parametrize(
    ("shape", "last"),
    [
        ((7, 5, 5), False),
        ((7, 10, 10), False),
        ((5, 5, 7), True),
        ((84, 84, 3), True),
        ((12, 80, 80), False),
        ((7, 5, 6), False),
        ((3, 9, 8), False),
        ((9, 8, 3), True),
    ],
)
def test_equal_sides_are_height_and_width(shape, last):
    assert channels_come_last(shape) == last


def test_a_size_is_given_by_name_or_as_it_is_or_follows_from_the_space():
    board = Box(0, 1, (3, 4, 5), np.uint8)
    own = TilesSize(channels=5)
    assert size_for(board) == size_for(board, "tiles") == SIZES["tiles"]
    assert size_for(board, own) is own
    with pytest.raises(UserError, match="unknown size 'huge'; choose one of paper, paper-stacked, image-small, "):
        size_for(board, "huge")


def test_unsupported_spaces_are_errors_of_the_users_and_of_types():
    assert issubclass(UnsupportedSpaceError, UserError)
    assert issubclass(UnsupportedSpaceError, TypeError)


@pytest.mark.parametrize("dtype", [bool, np.int8])
def test_vectors_of_truth_values_come_back(dtype):
    codec = ObservationCodec(Box(0, 1, (6,), dtype), VectorSize())
    vector = torch.tensor([[0, 1, 1, 0, 0, 1]]).to(codec.observation_dtype)
    codec.check(vector)
    assert torch.equal(codec.decode(codec.encode(vector) + 0.1), vector)


def test_float64_bounds_are_exact():
    codec = ObservationCodec(Box(0.1, 0.3, (2,), np.float64), VectorSize())
    codec.check(torch.tensor([[0.1, 0.3]], dtype=torch.float64))
    with pytest.raises(UserError, match="outside of the bounds"):
        codec.check(torch.tensor([[0.1, np.nextafter(0.3, 1)]], dtype=torch.float64))
