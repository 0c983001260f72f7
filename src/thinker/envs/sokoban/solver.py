"""Breadth-first solvers: `solve` finds a solution of one board, `Solutions` those of all positions of a level."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal

import numba
import numpy as np

from thinker.envs.sokoban import engine
from thinker.envs.sokoban.engine import BOX, BOX_ON_TARGET, FLOOR, NUM_TILES, PLAYER, PLAYER_ON_TARGET, TARGET, UP, WALL
from thinker.envs.sokoban.levels import LevelError

DEFAULT_MAX_STATES: Final = 1_000_000
DEFAULT_MAX_POSITIONS: Final = 20_000_000
UNSOLVABLE: Final = -1
"""Steps to the solution of a board that has none."""
UNDECIDED: Final = -2
"""Steps to the solution of a board of a level with more positions than allowed."""

Outcome = Literal["solved", "unsolvable", "state limit"]
_OUTCOMES: Final[tuple[Outcome, ...]] = ("solved", "unsolvable", "state limit")
_SOLVED, _UNSOLVABLE, _STATE_LIMIT = range(len(_OUTCOMES))
_EMPTY: Final = -1
_WITHOUT_PIECES = np.array([WALL, FLOOR, TARGET, FLOOR, TARGET, FLOOR, TARGET], np.uint8)
"""Each tile without box and player."""
_HASH_START, _HASH_MULTIPLIER = np.uint64(0xCBF29CE484222325), np.uint64(0x9E3779B97F4A7C15)
_HASH_SHIFT = np.uint64(29)


@dataclass(frozen=True)
class Solution:
    """The solver's result for one level."""

    outcome: Outcome
    actions: np.ndarray  # int64 [steps], a shortest solution; empty unless solved
    pushes: int  # steps of the solution that push a box
    states: int  # states visited


def solve(board: np.ndarray, max_states: int = DEFAULT_MAX_STATES) -> Solution:
    """Search for a shortest solution of an unsolved board uint8 [H, W], visiting at most ``max_states`` states."""
    if board.dtype != np.uint8 or board.ndim != 2 or board.max() >= NUM_TILES:
        raise LevelError(f"expected a board of tile codes, uint8 [H, W]; got dtype {board.dtype}, shape {board.shape}")
    if max_states < 1:
        raise LevelError(f"max_states={max_states}; expected at least 1")
    tiles, walls, targets, offsets = _padded(board)
    boxes, players = np.isin(tiles, (BOX, BOX_ON_TARGET)), np.isin(tiles, (PLAYER, PLAYER_ON_TARGET))
    if players.sum() != 1:
        raise LevelError(f"{players.sum()} players on the board; expected exactly one")
    start = np.concatenate([np.flatnonzero(boxes), np.flatnonzero(players)])
    live = _live_squares(walls, targets, offsets)
    outcome, path, states = _search(start.astype(np.int16), walls, targets, live, offsets, max_states)
    moved = np.diff(path[:, -1].astype(np.int64))
    actions = UP + np.argmax(moved[:, None] == offsets, axis=1)
    pushes = int((path[1:, :-1] != path[:-1, :-1]).any(axis=1).sum())
    return Solution(_OUTCOMES[outcome], actions, pushes, states)


class Solutions:
    """Shortest solutions from every position of the levels that it is asked about.

    Boards with the same walls, targets and number of boxes are positions of one level. A level is searched once,
    backwards from its solved positions; after that, a board costs only a look into a table.

    Args:
        discount: γ of the returns.
        max_positions: levels with more positions are undecided. A position has all boxes on squares from which a
            box alone could be pushed onto a target; all others are unsolvable. It takes 6 bytes.
    """

    def __init__(self, discount: float, max_positions: int = DEFAULT_MAX_POSITIONS) -> None:
        if not 0 <= discount < 1:
            raise LevelError(f"discount={discount}; expected at least 0 and less than 1")
        if max_positions < 1:
            raise LevelError(f"max_positions={max_positions}; expected at least 1")
        self.discount = discount
        self.unsolvable_value = engine.STEP_REWARD / (1 - discount)
        self._max_positions = max_positions
        self._levels: dict[bytes, _Level] = {}

    def steps(self, boards: np.ndarray) -> np.ndarray:
        """Steps of a shortest solution, int64 [B], of boards uint8 [B, H, W].

        0 for solved boards; `UNSOLVABLE` and `UNDECIDED` where there is none and where none was searched for.
        """
        return self._look_up(boards)[0]

    def values(self, boards: np.ndarray) -> np.ndarray:
        """Discounted returns float64 [B] of the shortest solutions, the best of those with the fewest steps.

        0 for solved boards, NaN for undecided ones. Unsolvable boards get the return of steps without end in which
        nothing happens, ``unsolvable_value``, although a box that is not stuck could still be pushed onto a target.
        """
        return self._look_up(boards)[1]

    def successor_steps(self, boards: np.ndarray) -> np.ndarray:
        """`steps` after each of the five actions, int64 [B, 5]."""
        after, _ = _successors(_checked(boards))
        return self.steps(after.reshape(-1, *boards.shape[1:])).reshape(len(boards), engine.NUM_ACTIONS)

    def optimal_actions(self, boards: np.ndarray) -> np.ndarray:
        """Whether an action starts a shortest solution, bool [B, 5]; only where a solution is known."""
        steps = self.steps(boards)[:, None]
        return np.asarray((steps > 0) & (self.successor_steps(boards) == steps - 1))

    def best_actions(self, boards: np.ndarray) -> np.ndarray:
        """The optimal actions with the highest return, int64 [B]; no-op where no action is optimal."""
        optimal = self.optimal_actions(boards)
        after, rewards = _successors(boards)
        values = self.values(after.reshape(-1, *boards.shape[1:])).reshape(optimal.shape)
        best = np.where(optimal, rewards + self.discount * values, -np.inf).argmax(1)
        return np.where(optimal.any(1), best, engine.NOOP)

    def _look_up(self, boards: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        boards = _checked(boards)
        steps, values = np.full(len(boards), UNSOLVABLE, np.int64), np.full(len(boards), self.unsolvable_value)
        for row, (board, key) in enumerate(zip(boards, level_keys(boards))):
            level = self._levels.get(key)
            if level is None:
                level = self._levels[key] = _solve_level(board, self.discount, self._max_positions)
            if not len(level.steps):
                steps[row], values[row] = UNDECIDED, np.nan
                continue
            position = _position(board.reshape(-1), level.live_index, level.open_index, level.choose)
            if position != _EMPTY and level.steps[position] != UNSOLVABLE:
                steps[row], values[row] = level.steps[position], level.values[position]
        return steps, values


@dataclass(frozen=True)
class _Level:
    """The positions of a level: R choices of squares for the boxes, in colexicographic order, times O open squares."""

    live_index: np.ndarray  # [H * W] int64     number of a square among those for boxes, _EMPTY elsewhere
    open_index: np.ndarray  # [H * W] int64     number of a square among those without wall, _EMPTY elsewhere
    choose: np.ndarray  # [squares + 1, boxes + 1] int64   binomial coefficients
    steps: np.ndarray  # [R * O] int16     UNSOLVABLE where there is no solution; empty if there are too many positions
    values: np.ndarray  # [R * O] float32


def level_keys(boards: np.ndarray) -> list[bytes]:
    """A key for each of the boards uint8 [B, H, W]: the same for all boards that are positions of one level."""
    boxes = ((boards == BOX) | (boards == BOX_ON_TARGET)).sum((1, 2), dtype=np.uint8)
    height, width = boards.shape[1:]
    return [key.tobytes() for key in np.c_[_WITHOUT_PIECES[boards].reshape(-1, height * width), boxes]]


def _solve_level(board: np.ndarray, discount: float, max_positions: int) -> _Level:
    tiles, walls, targets, offsets = _padded(board)
    boxes = int(np.isin(tiles, (BOX, BOX_ON_TARGET)).sum())
    live = _live_squares(walls, targets, offsets)
    live_index, open_index = _numbered(live), _numbered(~walls)
    places = int(live.sum())
    choose = np.array([[math.comb(n, k) for k in range(boxes + 1)] for n in range(places + 1)], np.int64)
    rewards = np.array([engine.STEP_REWARD, engine.BOX_REWARD, engine.SOLVED_REWARD])
    steps, values = np.zeros(0, np.int16), np.zeros(0, np.float32)
    if math.comb(places, boxes) * int((~walls).sum()) <= max_positions:
        steps, values = _search_back(targets, live_index, open_index, offsets, choose, rewards, discount)
    return _Level(_inner(live_index, board), _inner(open_index, board), choose, steps, values)


def _padded(board: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Tiles, walls and targets [squares] of a board with walls around it, and the offsets up, down, left and right."""
    tiles = np.pad(board, 1, constant_values=WALL)  # so that every neighbour of a square exists
    offsets = np.array([-tiles.shape[1], tiles.shape[1], -1, 1])
    tiles = tiles.reshape(-1)
    return tiles, tiles == WALL, np.isin(tiles, (TARGET, BOX_ON_TARGET, PLAYER_ON_TARGET)), offsets


def _inner(squares: np.ndarray, board: np.ndarray) -> np.ndarray:
    """The squares of ``board``, flat, from those of a board with walls around it."""
    height, width = board.shape
    return np.ascontiguousarray(squares.reshape(height + 2, width + 2)[1:-1, 1:-1]).reshape(-1)


def _numbered(chosen: np.ndarray) -> np.ndarray:
    return np.where(chosen, np.cumsum(chosen) - 1, _EMPTY)


def _checked(boards: np.ndarray) -> np.ndarray:
    if boards.dtype != np.uint8 or boards.ndim != 3 or not boards.size or boards.max() >= NUM_TILES:
        raise LevelError(f"expected boards of tile codes, uint8 [B, H, W]; got {boards.dtype}, shape {boards.shape}")
    players = (boards >= PLAYER).sum((1, 2))
    if (players != 1).any():
        wrong = int((players != 1).argmax())
        raise LevelError(f"{players[wrong]} players on board {wrong}; expected exactly one")
    return np.ascontiguousarray(boards)


def _successors(boards: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Boards uint8 [B, 5, H, W] after each action, and the rewards float64 [B, 5]."""
    after = np.repeat(boards, engine.NUM_ACTIONS, 0)
    actions = np.tile(np.arange(engine.NUM_ACTIONS), len(boards))
    rewards, solved = np.empty(len(after)), np.empty(len(after), np.bool_)
    engine.step_boards(after, actions, rewards, solved)
    shape = len(boards), engine.NUM_ACTIONS
    return after.reshape(*shape, *boards.shape[1:]), rewards.reshape(shape)


@numba.njit(cache=True)
def _live_squares(walls, targets, offsets):  # type: ignore[no-untyped-def]
    """Squares from which a box alone on the board can be pushed onto a target, bool [squares]."""
    live = targets.copy()
    queue = np.empty(len(walls), np.int64)
    tail = 0
    for square in range(len(walls)):
        if targets[square]:
            queue[tail] = square
            tail += 1
    head = 0
    while head < tail:
        for offset in offsets:
            source = queue[head] - offset
            if not walls[source] and not live[source] and not walls[source - offset]:
                live[source] = True
                queue[tail] = source
                tail += 1
        head += 1
    return live


@numba.njit(cache=True)
def _slot(table, states, state):  # type: ignore[no-untyped-def]
    """The slot of the hash table that contains ``state``, or the empty slot to insert it."""
    code = _HASH_START
    for value in state:
        code = (code ^ np.uint64(value)) * _HASH_MULTIPLIER
        code ^= code >> _HASH_SHIFT
    slot = np.int64(code & np.uint64(len(table) - 1))
    while table[slot] != _EMPTY:
        other = states[table[slot]]
        same = True
        for index in range(len(state)):
            if other[index] != state[index]:
                same = False
                break
        if same:
            break
        slot = (slot + 1) & (len(table) - 1)
    return slot


@numba.njit(cache=True)
def _enlarged(array, capacity):  # type: ignore[no-untyped-def]
    larger = np.empty((capacity, array.shape[1]), array.dtype)
    larger[: len(array)] = array
    return larger


@numba.njit(cache=True)
def _push(state, hit, square):  # type: ignore[no-untyped-def]
    """Move box ``hit`` of a state to ``square`` and keep the boxes in ascending order."""
    last = len(state) - 2
    while hit > 0 and state[hit - 1] > square:
        state[hit] = state[hit - 1]
        hit -= 1
    while hit < last and state[hit + 1] < square:
        state[hit] = state[hit + 1]
        hit += 1
    state[hit] = square


@numba.njit(cache=True)
def _path(states, parents, last):  # type: ignore[no-untyped-def]
    """The states from the first one to ``last``, both included."""
    length = 1
    state = last
    while state != 0:
        length += 1
        state = parents[state, 0]
    path = np.empty((length, states.shape[1]), states.dtype)
    state = last
    for step in range(length - 1, -1, -1):
        path[step] = states[state]
        state = parents[state, 0]
    return path


@numba.njit(cache=True)
def _search(start, walls, targets, live, offsets, max_states):  # type: ignore[no-untyped-def]
    """Breadth-first search over states: the boxes' squares in ascending order, then the player's, int16 [boxes + 1].

    Returns the index of the outcome, the states of a shortest solution [steps + 1, boxes + 1] (only the first state
    unless solved), and the number of states visited.
    """
    boxes = len(start) - 1
    capacity = 1024
    states = np.empty((capacity, boxes + 1), np.int16)
    parents = np.zeros((capacity, 1), np.int32)
    table = np.full(4 * capacity, _EMPTY, np.int32)
    states[0] = start
    table[_slot(table, states, start)] = 0
    state = start.copy()
    head, tail = 0, 1
    while head < tail:
        for offset in offsets:
            state[:] = states[head]
            player = state[boxes] + offset
            if walls[player]:
                continue
            hit, blocked = _EMPTY, False
            for box in range(boxes):
                if state[box] == player:
                    hit = box
                blocked = blocked or state[box] == player + offset
            if hit != _EMPTY:
                if blocked or not live[player + offset]:  # walls are not live either
                    continue
                _push(state, hit, player + offset)
            state[boxes] = player
            slot = _slot(table, states, state)
            if table[slot] != _EMPTY:
                continue
            if tail >= max_states:
                return _STATE_LIMIT, states[:1], tail
            if tail == capacity:
                capacity *= 4
                states = _enlarged(states, capacity)
                parents = _enlarged(parents, capacity)
                table = np.full(4 * capacity, _EMPTY, np.int32)
                for known in range(tail):
                    table[_slot(table, states, states[known])] = known
                slot = _slot(table, states, state)
            states[tail] = state
            parents[tail, 0] = head
            table[slot] = tail
            tail += 1
            solved = hit != _EMPTY
            for box in range(boxes):
                solved = solved and targets[state[box]]
            if solved:
                return _SOLVED, _path(states, parents, tail - 1), tail
        head += 1
    return _UNSOLVABLE, states[:1], tail


@numba.njit(cache=True)
def _position(tiles, live_index, open_index, choose):  # type: ignore[no-untyped-def]
    """The number of the position of a board [H * W], or _EMPTY if a box stands where it can reach no target."""
    rank, found, player = 0, 0, 0
    for square in range(len(tiles)):
        tile = tiles[square]
        if BOX <= tile < PLAYER:
            if live_index[square] == _EMPTY:
                return _EMPTY
            found += 1
            rank += choose[live_index[square], found]
        elif tile >= PLAYER:
            player = open_index[square]
    return rank * (open_index.max() + 1) + player


@numba.njit(cache=True)
def _choices(choose):  # type: ignore[no-untyped-def]
    """All choices of squares for the boxes [R, boxes], numbers of `_Level.live_index`, in colexicographic order."""
    boxes = choose.shape[1] - 1
    choices = np.empty((choose[-1, boxes], boxes), np.int64)
    if len(choices):
        choices[0] = np.arange(boxes)
    for rank in range(1, len(choices)):
        choices[rank] = choices[rank - 1]
        box = 0
        while box < boxes - 1 and choices[rank, box] + 1 == choices[rank, box + 1]:
            choices[rank, box] = box
            box += 1
        choices[rank, box] += 1
    return choices


@numba.njit(cache=True)
def _search_back(targets, live_index, open_index, offsets, choose, rewards, discount):  # type: ignore[no-untyped-def]
    """Breadth-first search from all solved positions, one step of the player back at a time; arrays as in `_Level`.

    ``rewards``: of a step, of a box pushed onto a target, and of solving the level. Returns steps and values.
    """
    boxes = choose.shape[1] - 1
    choices = _choices(choose)
    live_squares = np.flatnonzero(live_index != _EMPTY)
    open_squares = np.flatnonzero(open_index != _EMPTY)
    opened = len(open_squares)
    steps = np.full(len(choices) * opened, UNSOLVABLE, np.int16)
    values = np.zeros(len(choices) * opened, np.float32)
    queue = np.empty(len(choices) * opened, np.int32)
    box_at = np.zeros(len(targets), np.bool_)
    state = np.empty(boxes + 1, np.int64)
    head, tail = 0, 0
    for rank in range(len(choices)):
        solved = True
        for place in choices[rank]:
            solved = solved and targets[live_squares[place]]
            box_at[live_squares[place]] = True
        for player in range(opened):
            if solved and not box_at[open_squares[player]]:
                steps[rank * opened + player] = 0
                queue[tail] = rank * opened + player
                tail += 1
        for place in choices[rank]:
            box_at[live_squares[place]] = False
    while head < tail:
        position = queue[head]
        head += 1
        rank, player = position // opened, open_squares[position % opened]
        for place in choices[rank]:
            box_at[live_squares[place]] = True
        for offset in offsets:
            before, ahead = player - offset, player + offset
            if open_index[before] == _EMPTY or box_at[before]:
                continue
            for pushed in range(2 if box_at[ahead] else 1):
                earlier, reward = rank, rewards[0]
                if pushed:
                    state[:boxes] = choices[rank]
                    hit = 0
                    while state[hit] != live_index[ahead]:
                        hit += 1
                    _push(state, hit, live_index[player])
                    earlier = 0
                    for box in range(boxes):
                        earlier += choose[state[box], box + 1]
                    reward += rewards[1] * (np.int64(targets[ahead]) - np.int64(targets[player]))
                    if steps[position] == 0:
                        reward += rewards[2]
                previous = earlier * opened + open_index[before]
                value = reward + discount * values[position]
                if steps[previous] == UNSOLVABLE:
                    steps[previous] = steps[position] + 1
                    values[previous] = value
                    queue[tail] = previous
                    tail += 1
                elif steps[previous] == steps[position] + 1:
                    values[previous] = max(values[previous], value)
        for place in choices[rank]:
            box_at[live_squares[place]] = False
    return steps, values
