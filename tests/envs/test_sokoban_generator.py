"""Generated levels: well formed, solvable, not trivial, the same for the same seed; and the solver that proves it."""

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.envs.sokoban_reference import ReferenceSokoban
from thinker.envs.sokoban import (
    LevelError,
    LevelSet,
    SokobanEnv,
    SokobanVectorEnv,
    engine,
    generate_levels,
    generator,
    solver,
)
from thinker.envs.sokoban.solver import solve


def is_connected(board: np.ndarray) -> bool:
    open_squares = {(int(row), int(column)) for row, column in np.argwhere(board != 0)}
    waiting = [min(open_squares)]
    seen = set(waiting)
    while waiting:
        row, column = waiting.pop()
        for square in ((row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1)):
            if square in open_squares and square not in seen:
                seen.add(square)
                waiting.append(square)
    return seen == open_squares


@settings(max_examples=100, deadline=None)
@given(
    height=st.integers(5, 20), width=st.integers(5, 20), boxes=st.integers(1, 8), seed=st.integers(0, 2**70),
    low=st.integers(1, 5), more=st.integers(0, 10),
)  # fmt: skip
def test_levels_of_any_size_are_walled_connected_and_have_all_their_boxes(
    height: int, width: int, boxes: int, seed: int, low: int, more: int
) -> None:
    boxes = min(boxes, (height - 2) * (width - 2) // 3)
    levels = generate_levels(4, (height, width), boxes, seed, (low, low + more))
    assert levels.size == (height, width)
    assert (levels.boxes == boxes).all()  # that boxes and targets match and one player exists, LevelSet checks
    for board in levels.boards:
        assert not board[[0, -1]].any()
        assert not board[:, [0, -1]].any()
        assert is_connected(board)
    again = generate_levels(4, (height, width), boxes, seed, (low, low + more))
    np.testing.assert_array_equal(levels.boards, again.boards)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((200, 7, 1, 0, (1, 2)), "692058b914e87b88"),
        ((200, 7, 2, 3, (1, 2)), "2f53a0c1aa9f4aca"),
        ((100, 10, 4, 0, (2, 10)), "19b7836b38b26048"),
        ((50, (6, 9), 3, 7, (1, 5)), "778dc6c109fe0631"),
        ((40, 5, 3, 1, (2, 2)), "8c2cb21343c7e527"),
    ],
)
def test_the_levels_of_a_seed_never_change(arguments: tuple, expected: str) -> None:
    count, size, boxes, seed, moves = arguments
    for same in (boxes, (boxes, boxes)):
        boards = generate_levels(count, size, same, seed, moves).boards
        assert hashlib.sha256(boards.tobytes()).hexdigest()[:16] == expected


def test_a_range_of_boxes_is_sampled_uniformly_for_each_level() -> None:
    levels = generate_levels(2000, 9, (2, 5), seed=3, reverse_moves=(1, 2))
    numbers, counts = np.unique(levels.boxes, return_counts=True)
    assert numbers.tolist() == [2, 3, 4, 5]
    assert (np.abs(counts - 500) < 80).all()  # four standard deviations
    later = generate_levels(5, 9, (2, 5), seed=3, reverse_moves=(1, 2), first=1990)
    np.testing.assert_array_equal(later.boards, levels.boards[1990:1995])
    envs = SokobanVectorEnv(400, size=7, boxes=(1, 2), reverse_moves=(1, 2))
    envs.reset(seed=0)
    found = LevelSet(envs.snapshot()["boards"]).boxes
    assert set(found.tolist()) == {1, 2}
    assert 140 < (found == 1).sum() < 260
    for board in generate_levels(20, 7, (1, 3), seed=1).boards:
        assert solve(board).outcome == "solved"


@pytest.mark.parametrize(
    ("size", "boxes", "count"),
    [(5, 1, 60), (5, 3, 40), (6, 2, 40), (7, 1, 100), (7, 2, 40), ((5, 12), 2, 20), (8, 3, 10), (7, 8, 4), (20, 1, 15)],
)
def test_the_solver_proves_generated_levels_solvable_and_its_solution_plays(
    size: int | tuple[int, int], boxes: int, count: int
) -> None:
    levels = generate_levels(count, size, boxes, seed=11)
    env = SokobanEnv(levels=levels, order="sequential", max_steps=400)
    for board in levels.boards:
        solution = solve(board, max_states=3_000_000)
        assert solution.outcome == "solved"
        _, info = env.reset()
        expected = -0.01 * len(solution.actions) + (boxes - info["boxes_on_target"]) + 10
        total = 0.0
        for index, action in enumerate(solution.actions):
            _, reward, terminated, truncated, info = env.step(action)
            total += reward
            assert terminated == info["solved"] == (index == len(solution.actions) - 1)
            assert not truncated
        assert total == pytest.approx(expected)
    assert env.evaluation_done


def test_levels_need_several_pushes_and_a_change_of_direction_by_default() -> None:
    for size, boxes in ((7, 1), (7, 2), (9, 1)):
        for board in generate_levels(60, size, boxes, seed=4).boards:
            solution = solve(board)
            assert solution.pushes >= 2
            assert len(push_directions(board, solution.actions)) >= 2


def push_directions(board: np.ndarray, actions: np.ndarray) -> set[int]:
    reference = ReferenceSokoban(LevelSet(board[None]).text(0))
    pushes = set()
    for action in actions:
        boxes = reference.boxes
        reference.step(int(action))
        if reference.boxes != boxes:
            pushes.add(int(action))
    return pushes


def test_more_reverse_moves_make_longer_solutions() -> None:
    def mean_steps(reverse_moves: tuple[int, int]) -> float:
        levels = generate_levels(150, 8, 1, seed=0, reverse_moves=reverse_moves)
        return float(np.mean([len(solve(board).actions) for board in levels.boards]))

    assert mean_steps((1, 1)) + 2 < mean_steps((2, 3)) < mean_steps((8, 12))


def test_seeds_and_numbers_give_different_levels_and_longer_sets_begin_with_shorter_ones() -> None:
    first, second = generate_levels(300, 8, 2, seed=0), generate_levels(300, 8, 2, seed=1)
    boards = {board.tobytes() for levels in (first, second) for board in levels.boards}
    assert len(boards) == 600
    np.testing.assert_array_equal(generate_levels(20, 8, 2, seed=0).boards, first.boards[:20])
    np.testing.assert_array_equal(generate_levels(20, 8, 2, seed=0, first=280).boards, first.boards[280:])


def test_a_level_set_never_shares_the_stream_of_episodes_with_the_same_seed() -> None:
    env = SokobanEnv(size=8, boxes=2)
    episodes = {env.reset(seed=0)[0].tobytes()} | {env.reset()[0].tobytes() for _ in range(100)}
    level_set = SokobanEnv(levels=generate_levels(100, 8, 2, seed=0), order="sequential")
    assert not episodes & {level_set.reset()[0].tobytes() for _ in range(100)}


def test_the_last_resort_is_solvable_on_the_smallest_and_fullest_boards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(generator, "_ATTEMPTS", 0)
    for height, width, boxes in ((5, 5, 3), (5, 5, 1), (6, 6, 5), (5, 10, 8), (10, 5, 8), (7, 7, 8)):
        boards = np.empty((3, height, width), np.uint8)
        numbers = np.arange(3)
        keys, recipe = numbers.astype(np.uint64), generator.Recipe(boxes, boxes, 2, 5)
        generator.generate_boards.py_func(boards, np.arange(3), keys, numbers, recipe)
        assert (LevelSet(boards).boxes == boxes).all()
        for board in boards:
            assert (board == engine.BOX).sum() == 1  # one pull, of one box
            assert solve(board).outcome == "solved"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"size": 4}, "size 4x4 .* expected 5 to 20"),
        ({"size": (10, 21)}, "size 10x21 .* expected 5 to 20"),
        ({"boxes": 0}, "boxes=0 .* expected 1 to 8"),
        ({"boxes": 9}, "boxes=9 .* expected 1 to 8"),
        ({"boxes": (2, 9)}, r"boxes=\(2, 9\) .* expected 1 to 8, or a range \(low, high\)"),
        ({"boxes": (3, 2)}, r"boxes=\(3, 2\) .* or a range \(low, high\)"),
        ({"size": 5, "boxes": (1, 8)}, "8 boxes do not fit a 5x5 board"),
        ({"size": 5, "boxes": 8}, "8 boxes do not fit a 5x5 board: its 9 inner squares have room for at most 3"),
        ({"reverse_moves": (0, 3)}, r"reverse_moves=\(0, 3\) is not a range"),
        ({"reverse_moves": (5, 3)}, r"reverse_moves=\(5, 3\) is not a range"),
        ({"count": 0}, "count=0 .* at least 1"),
        ({"seed": -1}, "seed -1 is negative"),
        ({"first": -1}, "first=-1 is negative"),
    ],
)
def test_impossible_requests_are_errors(arguments: dict, reason: str) -> None:
    with pytest.raises(LevelError, match=reason):
        generate_levels(**{"count": 1, **arguments})


def test_the_solver_finds_a_shortest_solution_and_counts_its_pushes() -> None:
    solution = solve(LevelSet.parse("#######\n#@    #\n# $ . #\n#     #\n#######").boards[0])
    assert solution.outcome == "solved"
    assert solution.actions.tolist() == [2, 4, 4]
    assert solution.pushes == 2


def test_the_solver_tells_unsolvable_from_given_up() -> None:
    corner = LevelSet.parse("#####\n#$ .#\n#@  #\n#####").boards[0]
    assert solve(corner).outcome == "unsolvable"
    walled_in = LevelSet.parse("#######\n#@#$ .#\n#######").boards[0]
    assert solve(walled_in).outcome == "unsolvable"
    large = generate_levels(1, 12, 4, seed=0).boards[0]
    given_up = solve(large, max_states=500)
    assert (given_up.outcome, given_up.states, len(given_up.actions)) == ("state limit", 500, 0)
    with pytest.raises(ValueError, match="max_states=0"):
        solve(large, max_states=0)
    with pytest.raises(ValueError, match="dtype int64"):
        solve(large.astype(np.int64))


def test_the_solver_is_as_short_as_plain_breadth_first_search_and_looks_at_no_position_twice() -> None:
    for board in generate_levels(12, 6, 3, seed=1).boards:
        length, positions = plain_search(board)
        solution = solve(board)
        assert len(solution.actions) == length
        assert solution.states <= positions  # fewer, because boxes that are lost for good are given up


@given(
    boxes=st.lists(st.integers(0, 99), min_size=1, max_size=8, unique=True), square=st.integers(0, 99), data=st.data()
)
def test_the_solver_keeps_boxes_in_order_so_that_equal_positions_are_equal_states(
    boxes: list[int], square: int, data: st.DataObject
) -> None:
    boxes = sorted(set(boxes) - {square}) or [square + 1]
    hit = data.draw(st.integers(0, len(boxes) - 1))
    state = np.array([*boxes, 100], np.int16)
    solver._push(state, hit, square)
    assert state.tolist() == [*sorted({*boxes, square} - {boxes[hit]}), 100]


def plain_search(board: np.ndarray) -> tuple[int, int]:
    """The length of a shortest solution, and the number of positions met before it was found."""
    sokoban = ReferenceSokoban(LevelSet(board[None]).text(0))
    waiting = [(sokoban.player, frozenset(sokoban.boxes))]
    lengths = {waiting[0]: 0}
    for position in waiting:
        for action in (1, 2, 3, 4):
            sokoban.player, sokoban.boxes = position[0], set(position[1])
            _, solved = sokoban.step(action)
            following = (sokoban.player, frozenset(sokoban.boxes))
            if following not in lengths:
                lengths[following] = lengths[position] + 1
                waiting.append(following)
            if solved:
                return lengths[following], len(lengths)
    raise AssertionError("not solvable")
