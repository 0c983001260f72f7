"""A breadth-first solver: proves that a level can be solved and finds a solution with the fewest steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import numba
import numpy as np

from thinker.envs.sokoban.engine import BOX, BOX_ON_TARGET, NUM_TILES, PLAYER, PLAYER_ON_TARGET, TARGET, UP, WALL
from thinker.envs.sokoban.levels import LevelError

DEFAULT_MAX_STATES: Final = 1_000_000

Outcome = Literal["solved", "unsolvable", "state limit"]
_OUTCOMES: Final[tuple[Outcome, ...]] = ("solved", "unsolvable", "state limit")
_SOLVED, _UNSOLVABLE, _STATE_LIMIT = range(len(_OUTCOMES))
_EMPTY: Final = -1
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
    tiles = np.pad(board, 1, constant_values=WALL)  # so that every neighbour of a square exists
    offsets = np.array([-tiles.shape[1], tiles.shape[1], -1, 1])  # up, down, left, right
    tiles = tiles.reshape(-1)
    walls, targets = tiles == WALL, np.isin(tiles, (TARGET, BOX_ON_TARGET, PLAYER_ON_TARGET))
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
