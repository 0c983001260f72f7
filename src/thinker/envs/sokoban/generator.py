"""Random Sokoban levels, solvable by construction: boxes start on their targets and are pulled away (reverse play).

Every level is a function of a 64-bit key and a number, both plain integers, so a stream of levels can be continued,
copied or saved exactly. Kernels represent a board as one integer per row, bit c for column c, which makes flood fill
cheap. No kernel here calls a kernel of another module: Numba's cache would not notice a change there.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

import numba
import numpy as np

from thinker.envs.sokoban.engine import BOX, FLOOR, PLAYER, TARGET, WALL
from thinker.envs.sokoban.levels import LevelError, LevelSet

MIN_SIZE: Final = 5
MAX_SIZE: Final = 20
MAX_BOXES: Final = 8
MAX_REVERSE_MOVES: Final = 100
DEFAULT_REVERSE_MOVES: Final = (2, 10)

Boxes = int | tuple[int, int]
"""The number of boxes per level, or a range (inclusive) from which each level's number is sampled."""

_ATTEMPTS: Final = 40
"""Random attempts per level; if none of them moves a box, the level is an open room with one pull."""
_ATTEMPTS_PER_ROOM: Final = 4
_MAX_PULL: Final = 4
"""Maximum number of squares by which one reverse move pulls a box."""
_ROW_OFFSETS: Final = (-1, 1, 0, 0)
_COLUMN_OFFSETS: Final = (0, 0, -1, 1)
"""Directions come in opposite pairs: the opposite of d is d ^ 1."""
_NO_DIRECTION: Final = -1
_STREAM_DOMAINS: Final = {"episodes": 0, "level set": 1}
_INCREMENT = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLIER_1 = np.uint64(0xBF58476D1CE4E5B9)
_MULTIPLIER_2 = np.uint64(0x94D049BB133111EB)
_SHIFT_27, _SHIFT_30, _SHIFT_31, _SHIFT_32 = np.uint64(27), np.uint64(30), np.uint64(31), np.uint64(32)


class Recipe(NamedTuple):
    """The kind of levels to generate."""

    fewest_boxes: int  # per level
    most_boxes: int
    low: int  # fewest reverse moves per box
    high: int  # most reverse moves per box


def stream_key(seed: int | None, domain: Literal["episodes", "level set"] = "episodes") -> int:
    """The 64-bit key of the stream of levels for a seed (random for None).

    The streams of different seeds, and those of the episodes and of the level set of one seed, are disjoint with
    overwhelming probability.
    """
    if seed is not None and seed < 0:
        raise LevelError(f"seed {seed} is negative; expected an integer of at least 0")
    sequence = np.random.SeedSequence(seed, spawn_key=(_STREAM_DOMAINS[domain],))
    return int(sequence.generate_state(1, np.uint64)[0])


def board_size(size: int | tuple[int, int]) -> tuple[int, int]:
    """(height, width) of a size given by the user."""
    height, width = (size, size) if isinstance(size, (int, np.integer)) else size
    return int(height), int(width)


def box_range(boxes: Boxes) -> tuple[int, int]:
    """(fewest, most) boxes of a number or range given by the user."""
    fewest, most = (boxes, boxes) if isinstance(boxes, (int, np.integer)) else boxes
    return int(fewest), int(most)


def make_recipe(size: tuple[int, int], boxes: Boxes, reverse_moves: tuple[int, int]) -> Recipe:
    """The recipe of levels of ``size``; raises LevelError for levels that cannot be generated."""
    fewest, most = box_range(boxes)
    if not all(MIN_SIZE <= side <= MAX_SIZE for side in size):
        raise LevelError(
            f"size {size[0]}x{size[1]} (height x width, including walls) cannot be generated; "
            f"expected {MIN_SIZE} to {MAX_SIZE} for both"
        )
    if not 1 <= fewest <= most <= MAX_BOXES:
        raise LevelError(
            f"boxes={boxes} cannot be generated; expected 1 to {MAX_BOXES}, or a range (low, high) of such numbers"
        )
    room = (size[0] - 2) * (size[1] - 2)
    if 3 * most > room:
        raise LevelError(
            f"{most} boxes do not fit a {size[0]}x{size[1]} board: its {room} inner squares have room for at most "
            f"{room // 3} (three squares per box); use fewer boxes or a larger size"
        )
    low, high = reverse_moves
    if not 1 <= low <= high <= MAX_REVERSE_MOVES:
        raise LevelError(
            f"reverse_moves={reverse_moves} is not a range; expected (low, high) with "
            f"1 <= low <= high <= {MAX_REVERSE_MOVES}"
        )
    return Recipe(fewest, most, low, high)


def generate_levels(
    count: int,
    size: int | tuple[int, int] = 10,
    boxes: Boxes = 4,
    seed: int = 0,
    reverse_moves: tuple[int, int] = DEFAULT_REVERSE_MOVES,
    *,
    first: int = 0,
) -> LevelSet:
    """Generate ``count`` levels, always the same for the same arguments, and never those of an environment's episodes.

    Args:
        count: number of levels
        size: height and width of the boards, including walls, or (height, width); 5 to 20
        boxes: boxes per level, 1 to 8, or a range (inclusive) from which each level's number is sampled
        seed: of the endless sequence of levels
        reverse_moves: the difficulty: how often each box is pulled away from its target on average, sampled from this
            range (inclusive) for each level. From 2 on, a level has a box that cannot be pushed onto a target in a
            straight line.
        first: the index in the sequence at which to start
    """
    if count < 1:
        raise LevelError(f"count={count} levels cannot be generated; expected at least 1")
    if first < 0:
        raise LevelError(f"first={first} is negative; the levels of a seed are counted from 0")
    recipe = make_recipe(board_size(size), boxes, reverse_moves)
    boards = np.empty((count, *board_size(size)), np.uint8)
    keys = np.full(count, stream_key(seed, "level set"), np.uint64)
    generate_boards(boards, np.arange(count), keys, np.arange(first, first + count), recipe)
    return LevelSet(boards)


@numba.njit(cache=True)
def _mix(state):  # type: ignore[no-untyped-def]
    """The output function of the SplitMix64 generator."""
    state = (state ^ (state >> _SHIFT_30)) * _MULTIPLIER_1
    state = (state ^ (state >> _SHIFT_27)) * _MULTIPLIER_2
    return state ^ (state >> _SHIFT_31)


@numba.njit(cache=True)
def _start(key, number):  # type: ignore[no-untyped-def]
    """The random 64-bit number of level ``number`` in the stream of ``key``."""
    return _mix(key + (np.uint64(number) + np.uint64(1)) * _INCREMENT)


@numba.njit(cache=True)
def _draw(random, bound):  # type: ignore[no-untyped-def]
    """A random integer in 0 .. bound - 1; ``random``: uint64 [1], the state of a SplitMix64 generator."""
    random[0] += _INCREMENT
    return np.int64(((_mix(random[0]) >> _SHIFT_32) * np.uint64(bound)) >> _SHIFT_32)


@numba.njit(cache=True)
def _carve(random, floor, wanted, width, squares):  # type: ignore[no-untyped-def]
    """Carve a connected room of about ``wanted`` squares: short straight passages that start at carved squares.

    ``floor`` int64 [H] bit rows and ``squares`` int64 [H * W] (the carved ones) are written; returns how many.
    """
    height = len(floor)
    floor[:] = 0
    row, column = 1 + _draw(random, height - 2), 1 + _draw(random, width - 2)
    floor[row] = 1 << column
    squares[0] = row * width + column
    carved = 1
    for _ in range(32 * wanted):  # almost always enough; a smaller room is fine too
        if carved >= wanted:
            break
        start = squares[_draw(random, carved)]
        row, column = start // width, start % width
        chance = _draw(random, 16)
        direction, length = chance & 3, 1 + (chance >> 2)
        for _ in range(length):
            row += _ROW_OFFSETS[direction]
            column += _COLUMN_OFFSETS[direction]
            if row < 1 or column < 1 or row > height - 2 or column > width - 2:
                break
            if not (floor[row] >> column) & 1:
                floor[row] |= 1 << column
                squares[carved] = row * width + column
                carved += 1
    return carved


@numba.njit(cache=True)
def _open_room(floor, width, squares):  # type: ignore[no-untyped-def]
    """Carve the whole board except for its outer walls."""
    floor[:] = 0
    carved = 0
    for row in range(1, len(floor) - 1):
        floor[row] = (1 << (width - 1)) - 2
        for column in range(1, width - 1):
            squares[carved] = row * width + column
            carved += 1
    return carved


@numba.njit(cache=True)
def _spread(start, free):  # type: ignore[no-untyped-def]
    """All squares of a bit row that can be reached from ``start`` by moving left or right over ``free``."""
    reached = start | (free & ~(free + start))  # the carry of the sum runs through the free squares
    while True:
        further = reached | (free & (reached >> 1))
        if further == reached:
            return reached
        reached = further


@numba.njit(cache=True)
def _flood(free, row, column, reached):  # type: ignore[no-untyped-def]
    """Write to ``reached`` int64 [H] the bit rows that a player at (row, column) can reach over ``free``."""
    height = len(free)
    reached[:] = 0
    reached[row] = _spread(1 << column, free[row])
    changed = True
    while changed:
        changed = False
        for here in range(2, height - 1):
            new = reached[here - 1] & free[here] & ~reached[here]
            if new:
                reached[here] = _spread(reached[here] | new, free[here])
                changed = True
        for here in range(height - 3, 0, -1):
            new = reached[here + 1] & free[here] & ~reached[here]
            if new:
                reached[here] = _spread(reached[here] | new, free[here])
                changed = True


@numba.njit(cache=True)
def _can_be_pulled(floor, row, column):  # type: ignore[no-untyped-def]
    """Whether a box here could be pulled away in some direction if it were alone."""
    for direction in range(4):
        row_offset, column_offset = _ROW_OFFSETS[direction], _COLUMN_OFFSETS[direction]
        # If the adjacent square is floor, the one behind it is still on the board.
        beside = (floor[row + row_offset] >> (column + column_offset)) & 1
        if beside and (floor[row + 2 * row_offset] >> (column + 2 * column_offset)) & 1:
            return True
    return False


@numba.njit(cache=True)
def _needs_turn(floor, targets, box_row, box_column):  # type: ignore[no-untyped-def]
    """Whether the box cannot be pushed onto a target in a straight line, even on a board without other boxes."""
    for direction in range(4):
        row_offset, column_offset = _ROW_OFFSETS[direction], _COLUMN_OFFSETS[direction]
        if not (floor[box_row - row_offset] >> (box_column - column_offset)) & 1:
            continue  # nowhere to push from
        row, column = box_row + row_offset, box_column + column_offset
        while (floor[row] >> column) & 1:
            if (targets[row] >> column) & 1:
                return False
            row += row_offset
            column += column_offset
    return True


@numba.njit(cache=True)
def _score(floor, targets, boxes):  # type: ignore[no-untyped-def]
    """The quality of a level: the number of boxes that are off target, plus 1 if one of them needs a turn."""
    score, turns = 0, 0
    for row, column in boxes:
        if not (targets[row] >> column) & 1:
            score += 1
            turns += turns == 0 and _needs_turn(floor, targets, row, column)
    return score + turns


@numba.njit(cache=True)
def _pull_boxes(random, floor, targets, boxes, player, width, runs, wanted_score, reached):  # type: ignore[no-untyped-def]
    """Reverse play: let the player pull a random box in a straight line, ``runs`` times.

    If the level does not reach ``wanted_score`` by then, it continues for up to as many runs again. ``boxes``
    int64 [N, 2] (rows and columns) are changed; ``reached`` int64 [H] contains the squares that the player can reach at
    the end.
    """
    number_boxes = len(boxes)
    free = floor & ~targets
    forbidden = np.full(number_boxes, _NO_DIRECTION)  # pulling straight back would undo the box's last move
    candidates = np.empty(4 * number_boxes, np.int64)
    _flood(free, player // width, player % width, reached)
    for run in range(2 * runs):
        if run >= runs and _score(floor, targets, boxes) >= wanted_score:
            break
        number, number_unmoved = 0, 0
        for box in range(number_boxes):
            box_row, box_column = boxes[box]
            for direction in range(4):
                row_offset, column_offset = _ROW_OFFSETS[direction], _COLUMN_OFFSETS[direction]
                if (
                    (reached[box_row + row_offset] >> (box_column + column_offset)) & 1
                    and (free[box_row + 2 * row_offset] >> (box_column + 2 * column_offset)) & 1
                    and direction != forbidden[box]
                ):
                    candidates[number] = box * 4 + direction
                    if forbidden[box] == _NO_DIRECTION:  # not moved yet: kept at the front, to be chosen first
                        candidates[number] = candidates[number_unmoved]
                        candidates[number_unmoved] = box * 4 + direction
                        number_unmoved += 1
                    number += 1
        if number == 0:
            break
        chosen = candidates[_draw(random, number_unmoved if number_unmoved > 0 else number)]
        box, direction = chosen // 4, chosen % 4
        row_offset, column_offset = _ROW_OFFSETS[direction], _COLUMN_OFFSETS[direction]
        row, column = boxes[box]
        free[row] |= 1 << column
        for _ in range(1 + _draw(random, _MAX_PULL)):
            if not (free[row + 2 * row_offset] >> (column + 2 * column_offset)) & 1:
                break
            row += row_offset
            column += column_offset
        free[row] &= ~(1 << column)
        boxes[box, 0] = row
        boxes[box, 1] = column
        forbidden[box] = direction ^ 1
        _flood(free, row + row_offset, column + column_offset, reached)


@numba.njit(cache=True)
def _place_player(random, reached, targets, squares, carved, width):  # type: ignore[no-untyped-def]
    """The row and column of a random reachable square, off the targets if possible."""
    found, found_off_target = 0, 0
    player, player_off_target = 0, 0
    for square in squares[:carved]:
        row, column = square // width, square % width
        if (reached[row] >> column) & 1:
            found += 1
            if _draw(random, found) == 0:  # each of those found so far is equally likely
                player = square
            if not (targets[row] >> column) & 1:
                found_off_target += 1
                if _draw(random, found_off_target) == 0:
                    player_off_target = square
    chosen = player_off_target if found_off_target > 0 else player
    return chosen // width, chosen % width


@numba.njit(cache=True)
def generate_boards(boards, indices, keys, numbers, recipe):  # type: ignore[no-untyped-def]
    """Write a new level to the boards at ``indices``: number ``numbers[i]`` of the stream ``keys[i]`` to board i.

    The numbers are incremented, so that the next call writes the next levels.

    A level is accepted as soon as all its boxes are off target and, from two reverse moves per box on, one of them
    cannot be pushed onto a target in a straight line; if no attempt succeeds, the best one is used. This always
    terminates: the last resort is an open room with the targets along its first rows, where one pull is always
    possible.

    Args:
        boards: uint8 [B, H, W], written at the indices
        indices: int64 [N]
        keys: uint64 [B], see `stream_key`
        numbers: int64 [B], incremented at the indices
        recipe: `Recipe`
    """
    fewest_boxes, most_boxes, low, high = recipe
    _, height, width = boards.shape
    room = (height - 2) * (width - 2)
    floor = np.empty(height, np.int64)
    targets = np.empty(height, np.int64)
    reached = np.empty(height, np.int64)
    squares = np.empty(height * width, np.int64)
    boxes_of_most = np.empty((most_boxes, 2), np.int64)
    random = np.empty(1, np.uint64)
    for index in indices:
        random[0] = _start(keys[index], numbers[index])
        numbers[index] += 1
        number_boxes = fewest_boxes
        if most_boxes > fewest_boxes:
            number_boxes += _draw(random, most_boxes - fewest_boxes + 1)
        boxes = boxes_of_most[:number_boxes]
        moves = low + _draw(random, high - low + 1)
        full_score = number_boxes if moves == 1 else number_boxes + 1
        best_score, carved = 0, 0
        for attempt in range(_ATTEMPTS + 1):
            last_resort = attempt == _ATTEMPTS
            if last_resort:
                if best_score > 0:
                    break
                carved = _open_room(floor, width, squares)
            else:
                if attempt % _ATTEMPTS_PER_ROOM == 0:
                    wanted = max(3 * number_boxes, room * (50 + _draw(random, 36)) // 100)
                    carved = _carve(random, floor, wanted, width, squares)
                if carved <= number_boxes:
                    continue
                for place in range(number_boxes + 1):  # shuffle only as many as needed: the targets and the player
                    other = place + _draw(random, carved - place)
                    for _ in range(4):
                        if _can_be_pulled(floor, squares[other] // width, squares[other] % width):
                            break
                        other = place + _draw(random, carved - place)
                    squares[place], squares[other] = squares[other], squares[place]
            targets[:] = 0
            for box in range(number_boxes):
                boxes[box, 0] = squares[box] // width
                boxes[box, 1] = squares[box] % width
                targets[boxes[box, 0]] |= 1 << boxes[box, 1]
            runs = 1 if last_resort else number_boxes * moves
            wanted_score = 1 if last_resort else full_score
            _pull_boxes(random, floor, targets, boxes, squares[number_boxes], width, runs, wanted_score, reached)
            score = _score(floor, targets, boxes)
            if score <= best_score:
                continue
            best_score = score
            board = boards[index]
            for row in range(height):
                for column in range(width):
                    tile = TARGET if (targets[row] >> column) & 1 else FLOOR
                    board[row, column] = tile if (floor[row] >> column) & 1 else WALL
            for box in range(number_boxes):
                board[boxes[box, 0], boxes[box, 1]] += BOX - FLOOR
            row, column = _place_player(random, reached, targets, squares, carved, width)
            board[row, column] += PLAYER - FLOOR
            if score >= full_score:
                break


@numba.njit(cache=True)
def choose_levels(boards, indices, keys, numbers, levels, level_out):  # type: ignore[no-untyped-def]
    """Write one of ``levels`` uint8 [L, H, W], sampled by the board's stream, to each of the boards at ``indices``.

    ``level_out`` int64 [B] is written: the index of the level. The other arguments are those of `generate_boards`.
    """
    for index in indices:
        chosen = np.int64(_start(keys[index], numbers[index]) % np.uint64(len(levels)))
        numbers[index] += 1
        level_out[index] = chosen
        boards[index] = levels[chosen]


@numba.njit(cache=True)
def draw_beside(indices, keys, numbers, purpose, bound):  # type: ignore[no-untyped-def]
    """Random integers in 0 .. bound - 1 for the next level of each of the boards at ``indices``, int64 [N].

    They are functions of the board's stream, its position there and ``purpose`` (an integer), independent of the level
    itself; the streams do not advance. The other arguments are those of `generate_boards`.
    """
    drawn = np.empty(len(indices), np.int64)
    random = np.empty(1, np.uint64)
    for place, index in enumerate(indices):
        random[0] = _mix(_start(keys[index], numbers[index]) + np.uint64(purpose))
        drawn[place] = _draw(random, bound)
    return drawn
