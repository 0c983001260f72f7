"""The rules of Sokoban for all boards in one native call (the environment of the paper's section 5.1).

A board is one `uint8` tile code per square. Everything outside of a board counts as wall. An observation is a picture
of the board composed of sprites, so the one-hot planes ("tiles": sprites of one pixel with seven channels) and the
pixels ("rgb") share all code. No kernel here calls a kernel of another module: Numba's cache would not notice a change
there.

Kernels read the fields of `Boards` before their loop: Numba counts references on every access to a field of a tuple,
which inside the loop would cost more than the work itself.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numba
import numpy as np

WALL: Final = 0
FLOOR: Final = 1
TARGET: Final = 2
BOX: Final = 3
BOX_ON_TARGET: Final = 4
PLAYER: Final = 5
PLAYER_ON_TARGET: Final = 6
NUM_TILES: Final = 7
SYMBOLS: Final = "# .$*@+"
"""The character of each tile code in the Boxoban text format."""

NOOP: Final = 0
UP: Final = 1
DOWN: Final = 2
LEFT: Final = 3
RIGHT: Final = 4
NUM_ACTIONS: Final = 5
ACTION_NAMES: Final = ("noop", "up", "down", "left", "right")
TURNED_ACTIONS: Final = (NOOP, LEFT, RIGHT, DOWN, UP)
"""What each action becomes when the board is turned to the left by a quarter turn, as by `numpy.rot90`."""
MIRRORED_ACTIONS: Final = (NOOP, UP, DOWN, RIGHT, LEFT)
"""What each action becomes when left and right are swapped, as by `numpy.fliplr`."""

STEP_REWARD: Final = -0.01
BOX_REWARD: Final = 1.0
"""For a box that is pushed onto a target; the negative for one that is pushed off its target."""
SOLVED_REWARD: Final = 10.0
"""In addition to the other two, so that the solving step gives -0.01 + 1 + 10 = 10.99."""

RUNNING: Final = 0
"""Status of a board: an episode is being played."""
ENDED: Final = 1
"""Status of a board: the episode is over and the next one has not started."""
IDLE: Final = 2
"""Status of a board: evaluation mode has no more levels for it; it never changes again."""

_ROW_OFFSET = np.array([0, -1, 1, 0, 0])
_COLUMN_OFFSET = np.array([0, 0, 0, -1, 1])


class Boards(NamedTuple):
    """B boards of H x W squares with running episodes, drawn with C channels and P x P pixels per square."""

    tiles: np.ndarray  # [B, H, W] uint8    tile codes
    player: np.ndarray  # [B, 2] int64       row and column
    boxes: np.ndarray  # [B] int64
    boxes_on_target: np.ndarray  # [B] int64
    steps: np.ndarray  # [B] int64          played in the running episode
    status: np.ndarray  # [B] uint8          RUNNING, ENDED or IDLE
    # Results of the last step
    pictures: np.ndarray  # [B, C, H * P, W * P] uint8
    reward: np.ndarray  # [B] float64
    terminated: np.ndarray  # [B] bool
    truncated: np.ndarray  # [B] bool


def make_boards(count: int, height: int, width: int, sprites: np.ndarray) -> Boards:
    """``count`` empty boards, to be drawn with sprites uint8 [7, C, P, P]; no episode has started on any of them."""
    _, channels, pixels, _ = sprites.shape
    return Boards(
        tiles=np.zeros((count, height, width), np.uint8),
        player=np.zeros((count, 2), np.int64),
        boxes=np.zeros(count, np.int64),
        boxes_on_target=np.zeros(count, np.int64),
        steps=np.zeros(count, np.int64),
        status=np.full(count, ENDED, np.uint8),
        pictures=np.zeros((count, channels, height * pixels, width * pixels), np.uint8),
        reward=np.zeros(count, np.float64),
        terminated=np.zeros(count, np.bool_),
        truncated=np.zeros(count, np.bool_),
    )


@numba.njit(cache=True)
def _is_free(board, row, column):  # type: ignore[no-untyped-def]
    if row < 0 or column < 0 or row >= board.shape[0] or column >= board.shape[1]:
        return False
    return board[row, column] == FLOOR or board[row, column] == TARGET


@numba.njit(cache=True)
def _move(board, row, column, action):  # type: ignore[no-untyped-def]
    """Move the player of one board [H, W].

    Returns the number of squares that changed (0, 2 or 3, in a line from the player) and the gain in boxes on target.
    """
    if action == NOOP:
        return 0, 0
    row_offset, column_offset = _ROW_OFFSET[action], _COLUMN_OFFSET[action]
    next_row, next_column = row + row_offset, column + column_offset
    changed, gain = 2, 0
    if not _is_free(board, next_row, next_column):
        if next_row < 0 or next_column < 0 or next_row >= board.shape[0] or next_column >= board.shape[1]:
            return 0, 0
        pushed = board[next_row, next_column]
        if pushed != BOX and pushed != BOX_ON_TARGET:
            return 0, 0
        box_row, box_column = next_row + row_offset, next_column + column_offset
        if not _is_free(board, box_row, box_column):
            return 0, 0
        changed = 3
        gain = (board[box_row, box_column] - FLOOR) - (pushed - BOX)
        board[box_row, box_column] += BOX - FLOOR
        board[next_row, next_column] -= BOX - FLOOR
    board[next_row, next_column] += PLAYER - FLOOR
    board[row, column] -= PLAYER - FLOOR
    return changed, gain


@numba.njit(cache=True)
def _find_player(board):  # type: ignore[no-untyped-def]
    for row in range(board.shape[0]):
        for column in range(board.shape[1]):
            if board[row, column] >= PLAYER:
                return row, column
    return -1, -1


@numba.njit(cache=True)
def _has_loose_box(board):  # type: ignore[no-untyped-def]
    for row in range(board.shape[0]):
        for column in range(board.shape[1]):
            if board[row, column] == BOX:
                return True
    return False


@numba.njit(cache=True)
def step_boards(tiles, actions, reward_out, solved_out):  # type: ignore[no-untyped-def]
    """Play one action on each of B boards, in place: the perfect simulator of Sokoban.

    Args:
        tiles: uint8 [B, H, W] tile codes, C-contiguous; a board without a player does not change
        actions: int64 [B], 0 .. 4
        reward_out: float32 or float64 [B], written
        solved_out: bool [B], written: True where this step pushed the last box onto a target
    """
    for index in range(tiles.shape[0]):
        board = tiles[index]
        row, column = _find_player(board)
        gain = 0
        if row >= 0:
            _, gain = _move(board, row, column, actions[index])
        solved = gain > 0 and not _has_loose_box(board)
        solved_out[index] = solved
        reward_out[index] = STEP_REWARD + gain * BOX_REWARD + (SOLVED_REWARD if solved else 0.0)


@numba.njit(cache=True)
def _draw_square(picture, sprites, tile, row, column):  # type: ignore[no-untyped-def]
    pixels = sprites.shape[2]
    for channel in range(sprites.shape[1]):
        for y in range(pixels):
            for x in range(pixels):
                picture[channel, row * pixels + y, column * pixels + x] = sprites[tile, channel, y, x]


@numba.njit(cache=True)
def _draw_board(picture, sprites, board):  # type: ignore[no-untyped-def]
    height, width = board.shape
    if sprites.shape[2] == 1:  # one pixel per square: this order of loops is several times faster
        for channel in range(sprites.shape[1]):
            for row in range(height):
                for column in range(width):
                    picture[channel, row, column] = sprites[board[row, column], channel, 0, 0]
    else:
        for row in range(height):
            for column in range(width):
                _draw_square(picture, sprites, board[row, column], row, column)


@numba.njit(cache=True)
def draw_boards(tiles, sprites, pictures_out):  # type: ignore[no-untyped-def]
    """Draw whole boards from scratch.

    Args:
        tiles: uint8 [B, H, W]
        sprites: uint8 [7, C, P, P]
        pictures_out: uint8 [B, C, H * P, W * P], written
    """
    for index in range(tiles.shape[0]):
        _draw_board(pictures_out[index], sprites, tiles[index])


@numba.njit(cache=True)
def step_environments(boards, actions, max_steps, sprites):  # type: ignore[no-untyped-def]
    """Play one action on each running board of `Boards`, redraw changed squares, and return how many episodes ended.

    Boards that are not `RUNNING` get reward 0.

    Args:
        boards: `Boards`, changed in place
        actions: int64 [B], 0 .. 4, already checked
        max_steps: the step after which an episode is truncated
        sprites: uint8 [7, C, P, P]
    """
    tiles, players, boxes, boxes_on_target = boards.tiles, boards.player, boards.boxes, boards.boxes_on_target
    steps, status, pictures = boards.steps, boards.status, boards.pictures
    rewards, terminated, truncated = boards.reward, boards.terminated, boards.truncated
    ended = 0
    for index in range(tiles.shape[0]):
        terminated[index] = False
        truncated[index] = False
        rewards[index] = 0.0
        if status[index] != RUNNING:
            continue
        board = tiles[index]
        row, column = players[index]
        action = actions[index]
        changed, gain = _move(board, row, column, action)
        row_offset, column_offset = _ROW_OFFSET[action], _COLUMN_OFFSET[action]
        for square in range(changed):
            square_row, square_column = row + square * row_offset, column + square * column_offset
            tile = board[square_row, square_column]
            _draw_square(pictures[index], sprites, tile, square_row, square_column)
        if changed > 0:
            players[index, 0] = row + row_offset
            players[index, 1] = column + column_offset
        boxes_on_target[index] += gain
        solved = gain > 0 and boxes_on_target[index] == boxes[index]
        steps[index] += 1
        rewards[index] = STEP_REWARD + gain * BOX_REWARD + (SOLVED_REWARD if solved else 0.0)
        terminated[index] = solved
        truncated[index] = not solved and steps[index] >= max_steps
        if solved or truncated[index]:
            status[index] = ENDED
            ended += 1
    return ended


@numba.njit(cache=True)
def place_boards(boards, indices, sprites):  # type: ignore[no-untyped-def]
    """Update players, counts of boxes and pictures after new tiles were written at ``indices`` int64 [N]."""
    tiles, players, boxes, boxes_on_target = boards.tiles, boards.player, boards.boxes, boards.boxes_on_target
    pictures = boards.pictures
    for index in indices:
        board = tiles[index]
        row, column = _find_player(board)
        players[index, 0] = row
        players[index, 1] = column
        loose, settled = 0, 0
        for tile in board.flat:
            loose += tile == BOX
            settled += tile == BOX_ON_TARGET
        boxes[index] = loose + settled
        boxes_on_target[index] = settled
        _draw_board(pictures[index], sprites, board)


@numba.njit(cache=True)
def begin_episodes(boards, indices, sprites):  # type: ignore[no-untyped-def]
    """Start an episode with the new tiles at ``indices`` int64 [N], see `place_boards`."""
    steps, status = boards.steps, boards.status
    for index in indices:
        steps[index] = 0
        status[index] = RUNNING
    place_boards(boards, indices, sprites)


@numba.njit(cache=True)
def first_bad_action(actions):  # type: ignore[no-untyped-def]
    """The index of the first action outside of 0 .. 4 in int64 [B], or -1."""
    for index in range(actions.shape[0]):
        if actions[index] < 0 or actions[index] >= NUM_ACTIONS:
            return index
    return -1
