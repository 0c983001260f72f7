"""`pass_on`: a new convolution mixes the channels of every square, and keeps their length."""

from __future__ import annotations

import pytest
import torch

from thinker.agents.real_state import SameConv2d
from thinker.nn.blocks import pass_on


@pytest.mark.parametrize("kernel", [3, 4])
@pytest.mark.parametrize(("inputs", "outputs"), [(7, 7), (3, 8)])
def test_squares_keep_their_place_and_their_length(kernel: int, inputs: int, outputs: int) -> None:
    convolution = SameConv2d(inputs, outputs, kernel)
    pass_on(convolution)
    board = torch.randn(2, inputs, 5, 6)
    with torch.no_grad():
        passed = convolution(board)
        torch.testing.assert_close(passed.square().sum(1), board.square().sum(1))
        board[0, :, 2, 3] = 0
        changed = (convolution(board) != passed).any(1)
    assert changed.nonzero().tolist() == [[0, 2, 3]]
