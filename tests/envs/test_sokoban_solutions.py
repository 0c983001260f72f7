"""`Solutions`: steps, returns and optimal actions of every position, against plain Python on small boards."""

import numpy as np
import pytest

from tests.envs.sokoban_reference import ReferenceSokoban
from thinker.envs.sokoban import LevelError, LevelSet, engine, generate_levels
from thinker.envs.sokoban.levels import board_text
from thinker.envs.sokoban.solver import UNDECIDED, UNSOLVABLE, Solutions, level_keys, solve

DISCOUNT = 0.9


class BruteForce:
    """All boards that can be reached from one, with what every action does there, in plain Python."""

    def __init__(self, board: np.ndarray) -> None:
        self.after: dict[str, list[tuple[str, float, bool]]] = {}  # of each unsolved board: next board, reward, solved
        waiting = [board_text(board)]
        while waiting:
            text = waiting.pop()
            if text in self.after:
                continue
            self.after[text] = []
            for action in range(5):
                sokoban = ReferenceSokoban(text)
                reward, solved = sokoban.step(action)
                self.after[text].append((sokoban.text(), reward, solved))
                if not solved:
                    waiting.append(sokoban.text())
        self.steps = dict.fromkeys(self.after, UNSOLVABLE)
        self.values = dict.fromkeys(self.after, -0.01 / (1 - DISCOUNT))
        for length in range(1, len(self.after) + 1):  # the boards that are solved in so many steps
            found = {}
            for text, every in self.after.items():
                ways = [
                    reward + DISCOUNT * (0.0 if solved else self.values[following])
                    for following, reward, solved in every
                    if (0 if solved else self.steps[following]) == length - 1
                ]
                if ways and self.steps[text] == UNSOLVABLE:
                    found[text] = max(ways)
            if not found:
                break
            self.steps |= dict.fromkeys(found, length)
            self.values |= found

    @property
    def boards(self) -> np.ndarray:
        return np.stack([read(text) for text in self.after])

    def steps_after(self) -> np.ndarray:
        return np.array(
            [[0 if solved else self.steps[text] for text, _, solved in every] for every in self.after.values()]
        )


def read(text: str) -> np.ndarray:
    return np.array([[engine.SYMBOLS.index(symbol) for symbol in row] for row in text.split("\n")], np.uint8)


@pytest.mark.parametrize(("size", "boxes", "seed"), [(5, 1, 0), (5, 2, 1), (5, 3, 2), (6, 2, 3), (7, 2, 4)])
def test_every_reachable_position_has_the_steps_returns_and_actions_of_brute_force(
    size: int, boxes: int, seed: int
) -> None:
    solutions = Solutions(DISCOUNT)
    unsolvable, longest = 0, 0
    for board in generate_levels((12 if boxes == 1 else 30) if size == 5 else 2, size, boxes, seed=seed).boards:
        expected = BruteForce(board)
        boards, steps = expected.boards, np.array(list(expected.steps.values()))
        unsolvable, longest = unsolvable + (steps == UNSOLVABLE).sum(), max(longest, steps.max())
        np.testing.assert_array_equal(solutions.steps(boards), steps)
        np.testing.assert_allclose(solutions.values(boards), list(expected.values.values()), atol=1e-5)
        after = expected.steps_after()
        np.testing.assert_array_equal(solutions.successor_steps(boards), after)
        optimal = (steps[:, None] > 0) & (after == steps[:, None] - 1)
        np.testing.assert_array_equal(solutions.optimal_actions(boards), optimal)
    assert unsolvable > 0
    assert longest > 3


def test_following_the_best_actions_gives_the_value() -> None:
    solutions = Solutions(DISCOUNT)
    for board in generate_levels(5, 7, 3, seed=5).boards:
        value, steps = solutions.values(board[None])[0], solutions.steps(board[None])[0]
        sokoban, total = ReferenceSokoban(board_text(board)), 0.0
        for step in range(steps):
            action = solutions.best_actions(read(sokoban.text())[None])[0]
            reward, solved = sokoban.step(int(action))
            total += DISCOUNT**step * reward
            assert solved == (step == steps - 1)
        assert total == pytest.approx(value, abs=1e-4)


def test_larger_levels_agree_with_the_forward_search() -> None:
    boards = generate_levels(3, 8, 3, seed=0).boards
    assert Solutions(DISCOUNT).steps(boards).tolist() == [len(solve(board).actions) for board in boards]


def test_the_first_box_is_placed_as_early_as_a_shortest_solution_allows() -> None:
    # Either box can be pushed first, with as many steps; the left one is on its target one step sooner.
    board = LevelSet.parse("#########\n#. $@$ .#\n#########").boards
    solutions = Solutions(DISCOUNT)
    near = LevelSet.parse("########\n#.$@$ .#\n########").boards
    assert solutions.optimal_actions(board)[0].tolist() == [False, False, False, True, True]
    assert solutions.best_actions(near)[0] == engine.LEFT


def test_solved_stuck_and_undecided_boards() -> None:
    solutions = Solutions(DISCOUNT)
    solved = read("#####\n#*@ #\n#####")
    stuck = read("#####\n#$ .#\n#@  #\n#####")
    assert (solutions.steps(solved[None])[0], solutions.values(solved[None])[0]) == (0, 0.0)
    assert solutions.steps(stuck[None])[0] == UNSOLVABLE
    assert solutions.values(stuck[None])[0] == pytest.approx(-0.01 / (1 - DISCOUNT))
    for board in (solved, stuck):
        assert not solutions.optimal_actions(board[None]).any()
        assert solutions.best_actions(board[None])[0] == engine.NOOP
    limited = Solutions(DISCOUNT, max_positions=100)
    board = generate_levels(1, 7, 2, seed=0).boards
    assert limited.steps(board)[0] == UNDECIDED
    assert np.isnan(limited.values(board)[0])
    assert not limited.optimal_actions(board).any()


def test_positions_of_one_level_share_a_key() -> None:
    first, second = generate_levels(2, 6, 2, seed=0).boards
    moved = first[None].copy()
    engine.step_boards(moved, solve(first).actions[:1], np.empty(1), np.empty(1, np.bool_))
    assert (moved[0] != first).any()
    keys = level_keys(np.stack([first, moved[0], second, np.where(first == engine.BOX, engine.FLOOR, first)]))
    assert keys[0] == keys[1]
    assert len(set(keys)) == 3


def test_wrong_input_is_an_error() -> None:
    board = generate_levels(1, 6, 2, seed=0).boards
    with pytest.raises(LevelError, match=r"got int64, shape \(1, 6, 6\)"):
        Solutions(DISCOUNT).steps(board.astype(np.int64))
    with pytest.raises(LevelError, match="0 players on board 1"):
        Solutions(DISCOUNT).steps(np.stack([board[0], np.where(board[0] >= engine.PLAYER, engine.FLOOR, board[0])]))
    with pytest.raises(LevelError, match=r"discount=1\.0"):
        Solutions(1.0)
    with pytest.raises(LevelError, match="max_positions=0"):
        Solutions(DISCOUNT, 0)
