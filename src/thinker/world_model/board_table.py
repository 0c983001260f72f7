"""A hash table of boards and of the steps between them, in NumPy arrays and Numba kernels."""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

UNKNOWN = -1
"""No board: an empty slot of the hash table, or a step that has not been predicted."""
_REQUESTED = -2
"""A step that is about to be predicted."""
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)


class BoardTable(NamedTuple):
    """Up to N different boards, numbered in the order of their arrival, and up to N * A steps from them."""

    words: np.ndarray  # [N, W] int64      the boards' bits
    slots: np.ndarray  # [power of 2] int32  hash table of their numbers
    following: np.ndarray  # [N, A] int32   the board after an action, or UNKNOWN
    reward: np.ndarray  # [N, A] float32
    termination: np.ndarray  # [N, A] float32
    value: np.ndarray  # [N] float32
    policy: np.ndarray  # [N, A] float32


def make_table(capacity: int, num_words: int, num_actions: int) -> BoardTable:
    """An empty table."""
    num_slots = 1 << (2 * capacity - 1).bit_length()
    return BoardTable(
        words=np.zeros((capacity, num_words), np.int64),
        slots=np.full(num_slots, UNKNOWN, np.int32),
        following=np.full((capacity, num_actions), UNKNOWN, np.int32),
        reward=np.zeros((capacity, num_actions), np.float32),
        termination=np.zeros((capacity, num_actions), np.float32),
        value=np.zeros(capacity, np.float32),
        policy=np.zeros((capacity, num_actions), np.float32),
    )


def pack(bits: np.ndarray) -> np.ndarray:
    """Boards as bits [B, n], bool or uint8 of 0s and 1s, to words int64 [B, W]."""
    bytes_ = np.packbits(bits, axis=1)
    padded = np.zeros((len(bits), -(-bytes_.shape[1] // 8) * 8), np.uint8)
    padded[:, : bytes_.shape[1]] = bytes_
    return padded.view(np.int64)


def unpack(words: np.ndarray, num_bits: int) -> np.ndarray:
    """The inverse of `pack`: words [B, W] to uint8 [B, num_bits]."""
    return np.unpackbits(np.ascontiguousarray(words).view(np.uint8), axis=1, count=num_bits)


@numba.njit(cache=True, nogil=True)
def find_or_add(table: BoardTable, count: int, words: np.ndarray, numbers: np.ndarray) -> int:
    """Write the numbers [B] of the boards ``words`` [B, W]; unknown boards get the next numbers after ``count``.

    Returns the new number of boards; the table must have room for B more.
    """
    known, slots = table.words, table.slots
    mask = np.uint64(len(slots) - 1)
    for b in range(words.shape[0]):
        code = np.uint64(0xCBF29CE484222325)
        for w in range(words.shape[1]):
            code = (code ^ np.uint64(words[b, w])) * _MULTIPLIER
            code ^= code >> _SHIFT
        slot = code & mask
        while True:
            number = slots[slot]
            if number == UNKNOWN:
                slots[slot] = count
                known[count] = words[b]
                numbers[b] = count
                count += 1
                break
            same = True
            for w in range(words.shape[1]):
                if known[number, w] != words[b, w]:
                    same = False
                    break
            if same:
                numbers[b] = number
                break
            slot = (slot + np.uint64(1)) & mask
    return count


@numba.njit(cache=True, nogil=True)
def unknown_steps(table: BoardTable, numbers: np.ndarray, action: np.ndarray, chosen: np.ndarray) -> int:
    """Write the rows of ``numbers`` [B] and ``action`` [B] whose step is unknown, each step once; returns their number.

    The steps are marked, so `add_steps` must follow.
    """
    following, count = table.following, 0
    for b in range(len(numbers)):
        if following[numbers[b], action[b]] == UNKNOWN:
            following[numbers[b], action[b]] = _REQUESTED
            chosen[count] = b
            count += 1
    return count


@numba.njit(cache=True, nogil=True)
def add_steps(
    table: BoardTable,
    numbers: np.ndarray,  # [B]
    action: np.ndarray,  # [B]
    following: np.ndarray,  # [B]
    reward: np.ndarray,  # [B]
    termination: np.ndarray,  # [B]
) -> None:
    """Store predicted steps."""
    for b in range(len(numbers)):
        table.following[numbers[b], action[b]] = following[b]
        table.reward[numbers[b], action[b]] = reward[b]
        table.termination[numbers[b], action[b]] = termination[b]


@numba.njit(cache=True, nogil=True)
def read_steps(
    table: BoardTable,
    numbers: np.ndarray,  # [B]
    action: np.ndarray,  # [B]
    following: np.ndarray,  # [B], written
    reward: np.ndarray,  # [B], written
    termination: np.ndarray,  # [B], written
) -> None:
    """Read known steps."""
    for b in range(len(numbers)):
        following[b] = table.following[numbers[b], action[b]]
        reward[b] = table.reward[numbers[b], action[b]]
        termination[b] = table.termination[numbers[b], action[b]]
