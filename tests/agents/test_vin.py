"""Value iteration networks: with known transitions they are dynamic programming; attention at the player's square."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gymnasium import spaces

from thinker.agents import VINNetwork
from thinker.agents.vin import ValueIteration
from thinker.interfaces import BoardStructure

MOVES = [(0, 0), (-1, 0), (1, 0), (0, -1), (0, 1)]
DISCOUNT = 0.9


def with_moves(iterations: int) -> ValueIteration:
    """Five actions that stay or move by one square: q(s, a) = r(s) + γ v(s')."""
    module = ValueIteration(1, len(MOVES), iterations)
    with torch.no_grad():
        module.of_reward.weight.zero_()
        module.of_value.zero_()
        for action, (down, right) in enumerate(MOVES):
            module.of_reward.weight[action, 0, 1, 1] = 1.0
            module.of_value[action, 0, 1 + down, 1 + right] = DISCOUNT
    return module


def dynamic_programming(reward: np.ndarray, iterations: int) -> np.ndarray:
    """q [actions, H, W] after so many sweeps from v = 0; beyond the board, v is 0."""
    height, width = reward.shape
    value = np.zeros_like(reward)
    for _ in range(iterations):
        q = np.zeros((len(MOVES), height, width))
        for row in range(height):
            for column in range(width):
                for action, (down, right) in enumerate(MOVES):
                    y, x = row + down, column + right
                    inside = 0 <= y < height and 0 <= x < width
                    q[action, row, column] = reward[row, column] + DISCOUNT * (value[y, x] if inside else 0.0)
        value = q.max(0)
    return q


@pytest.mark.parametrize("iterations", [1, 2, 5, 12])
def test_with_known_transitions_it_is_dynamic_programming(iterations):
    reward = np.random.default_rng(iterations).normal(size=(4, 6))
    with torch.no_grad():
        found = with_moves(iterations)(torch.from_numpy(reward).float()[None, None])[0]
    np.testing.assert_allclose(found, dynamic_programming(reward, iterations), atol=1e-5)


def test_the_best_actions_lead_around_a_wall_to_the_goal():
    reward = np.full((5, 5), -0.1)
    reward[2, :4] = -10.0  # a wall with a gap on the right
    reward[4, 0] = 1.0
    with torch.no_grad():
        policy = with_moves(25)(torch.from_numpy(reward).float()[None, None])[0].argmax(0).numpy()
    square, steps = (0, 0), 0
    while square != (4, 0) and steps < 20:
        down, right = MOVES[policy[square]]
        square, steps = (square[0] + down, square[1] + right), steps + 1
        assert reward[square] > -1
    assert steps == 12


SPACE = spaces.Box(0, 1, (3, 4, 4), np.uint8)


def board(player_planes: tuple[int, ...] | None) -> BoardStructure:
    return BoardStructure(None, None, None, player_planes)


def test_attention_reads_the_players_square():
    network = VINNetwork(SPACE, 5, board((1, 2)), hidden_channels=4)
    state = torch.zeros(2, 3, 4, 4)
    state[0, 1, 2, 3] = 1  # two planes can mark the player
    state[1, 2, 0, 1] = 1
    maps = torch.randn(2, 14, 4, 4)
    torch.testing.assert_close(network.attend(maps, state), torch.stack((maps[0, :, 2, 3], maps[1, :, 0, 1])))


@pytest.mark.parametrize("structure", [None, board(None)])
def test_boards_without_a_player_are_pooled(structure):
    network = VINNetwork(SPACE, 5, structure, hidden_channels=4)
    maps = torch.randn(2, 14, 4, 4)
    expected = torch.cat((maps.mean((2, 3)), maps.amax((2, 3))), 1)
    torch.testing.assert_close(network.attend(maps, torch.zeros(2, 3, 4, 4)), expected)
