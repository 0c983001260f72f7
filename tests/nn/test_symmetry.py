"""The symmetries of a board: the real rules of Sokoban commute with all eight of them."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from thinker.envs.sokoban import SokobanEnv, SokobanVectorEnv, engine, generate_levels, step_boards
from thinker.errors import UserError
from thinker.interfaces import NO_ACTION, BoardStructure
from thinker.nn.symmetry import BoardSymmetries

COUNT = BoardSymmetries.COUNT


def of_sokoban(channels_last: bool = False) -> BoardSymmetries:
    return BoardSymmetries(SokobanEnv(size=7).metadata["board"], engine.NUM_ACTIONS, channels_last)


def planes(tiles: np.ndarray) -> Tensor:
    """One-hot planes [B, 7, H, W] of tile codes [B, H, W]."""
    return torch.from_numpy(np.moveaxis(np.eye(7, dtype=np.uint8)[tiles], -1, 1).copy())


def played(observation: Tensor, action: Tensor) -> tuple[Tensor, np.ndarray, np.ndarray]:
    """The next observation, reward and end of an episode by the real rules."""
    tiles = np.ascontiguousarray(observation.numpy().argmax(1).astype(np.uint8))
    reward, solved = np.empty(len(tiles), np.float32), np.empty(len(tiles), np.bool_)
    step_boards(tiles, action.numpy(), reward, solved)
    return planes(tiles), reward, solved


@pytest.mark.parametrize("which", range(COUNT))
@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 2**40), size=st.integers(5, 10), boxes=st.integers(1, 3), actions=st.lists(st.integers(0, 4))
)
def test_transforming_and_stepping_is_stepping_and_transforming(
    which: int, seed: int, size: int, boxes: int, actions: list[int]
) -> None:
    symmetries = of_sokoban()
    observation = planes(generate_levels(8, size, boxes, seed, (1, 2)).boards)
    for number, first in enumerate([*actions, 1, 2, 3, 4]):
        action = (torch.arange(8) + first + number) % engine.NUM_ACTIONS
        following, reward, solved = played(observation, action)
        found = played(symmetries.observation(observation, which), symmetries.action(action, which))
        torch.testing.assert_close(found[0], symmetries.observation(following, which), rtol=0, atol=0)
        np.testing.assert_array_equal(found[1], reward)
        np.testing.assert_array_equal(found[2], solved)
        observation = following


def test_the_eight_are_different_and_form_a_group_with_the_given_inverses() -> None:
    symmetries = of_sokoban()
    board = torch.arange(9).reshape(1, 3, 3)
    images = [symmetries.observation(board, which) for which in range(COUNT)]
    assert len({tuple(image.flatten().tolist()) for image in images}) == COUNT
    action, policy = torch.arange(5), torch.rand(6, 5)
    for which in range(COUNT):
        back = symmetries.inverse(which)
        assert torch.equal(symmetries.observation(images[which], back), board)
        assert torch.equal(symmetries.action(symmetries.action(action, which), back), action)
        assert torch.equal(symmetries.policy(symmetries.policy(policy, which), back), policy)
        for after in range(COUNT):  # any two in a row are one of the eight, of boards and actions alike
            twice = symmetries.observation(images[which], after)
            (one,) = [index for index, image in enumerate(images) if torch.equal(image, twice)]
            assert torch.equal(
                symmetries.action(symmetries.action(action, which), after), symmetries.action(action, one)
            )


def test_turns_and_mirrors_are_those_of_torch_with_either_layout() -> None:
    x = torch.rand(2, 3, 7, 5, 5)
    for which in range(COUNT):
        expected = (x.flip(-1) if which >= 4 else x).rot90(which % 4, (-2, -1))
        assert torch.equal(of_sokoban().observation(x, which), expected)
        last = of_sokoban(channels_last=True).observation(x.movedim(-3, -1), which)
        assert torch.equal(last.movedim(-1, -3), expected)


@pytest.mark.parametrize("which", range(COUNT))
def test_a_policy_gives_an_actions_probability_to_what_the_action_becomes_and_no_action_stays(which: int) -> None:
    symmetries = of_sokoban()
    policy = torch.rand(4, 3, 5)
    found = symmetries.policy(policy, which)
    for action in range(5):
        becomes = int(symmetries.action(torch.tensor(action), which))
        assert torch.equal(found[..., becomes], policy[..., action])
    given = torch.tensor([[NO_ACTION, 0], [4, NO_ACTION]])
    assert torch.equal(symmetries.action(given, which) == NO_ACTION, given == NO_ACTION)
    assert (symmetries.action(given, which) >= NO_ACTION).all()


def test_each_row_can_have_its_own_symmetry() -> None:
    symmetries = of_sokoban()
    which = torch.tensor([7, 0, 3, 7, 4])
    boards, actions, policies = torch.rand(5, 2, 7, 6, 6), torch.randint(-1, 5, (5, 2)), torch.rand(5, 2, 5)
    found = (
        symmetries.observation(boards, which), symmetries.action(actions, which), symmetries.policy(policies, which),
    )  # fmt: skip
    for row, one in enumerate(which.tolist()):
        assert torch.equal(found[0][row], symmetries.observation(boards[row], one))
        assert torch.equal(found[1][row], symmetries.action(actions[row], one))
        assert torch.equal(found[2][row], symmetries.policy(policies[row], one))


def test_what_has_no_eight_symmetries_is_refused() -> None:
    with pytest.raises(UserError, match="do not declare the symmetries of a square board"):
        BoardSymmetries(None, 5, False)
    with pytest.raises(UserError, match="turned_actions and mirrored_actions, or train without symmetries"):
        BoardSymmetries(SokobanVectorEnv(1, size=(6, 7)).metadata["board"], 5, False)
    with pytest.raises(UserError, match=r"turned_actions .* is \(0, 3, 4, 2, 1\); expected each action from 0 to 3"):
        BoardSymmetries(SokobanEnv().metadata["board"], 4, False)
    with pytest.raises(UserError, match=r"mirrored_actions .* is \(0, 0\); expected each action from 0 to 1 once"):
        BoardSymmetries(BoardStructure(None, (0, 1), (0, 0)), 2, False)
    with pytest.raises(UserError, match="boards of 6x7 squares do not have eight symmetries"):
        of_sokoban().observation(torch.zeros(7, 6, 7), 1)
    for which in (-1, COUNT):
        with pytest.raises(IndexError, match=r"expected 0 \.\. 7"):
            of_sokoban().action(torch.tensor(1), which)
