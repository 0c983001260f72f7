"""The replay's storage: ring buffers of real transitions, one per environment, and the kernels that write them.

Frames are stored once, as bytes. Transitions and frames are numbered from 0 in each environment; number n is in slot
n modulo the length of its ring.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from thinker.interfaces import NO_ACTION
from thinker.world_model.targets import CONTINUES, TERMINATED, TRANSITION, TRUNCATED

NOTHING_WRONG = -1
"""Returned by a kernel that checks its input and found no invalid row."""


class Rings(NamedTuple):
    """The stored data of E environments: the last C transitions and F frames of each."""

    transitions: np.ndarray  # [E, C] TRANSITION
    policies: np.ndarray  # [E, C, A] float32          the agent's distribution of each transition
    frames: np.ndarray  # [E, F, bytes of a frame] uint8
    transition_count: np.ndarray  # [E] int64          transitions added
    frame_count: np.ndarray  # [E] int64               frames added
    oldest: np.ndarray  # [E] int64                    the oldest transition still stored
    ready: np.ndarray  # [E] int64                     the first transition whose targets are not yet known
    last_action: np.ndarray  # [E] int64               the latest action, NO_ACTION where an episode starts next


class Step(NamedTuple):
    """One real step of E environments, ready to be written; observations are S stacked frames of bytes."""

    valid: np.ndarray  # [E] bool
    observation: np.ndarray  # [E, S, bytes of a frame] uint8
    next_observation: np.ndarray  # [E, S, bytes of a frame] uint8
    action: np.ndarray  # [E] int64
    reward: np.ndarray  # [E] float32
    root_value: np.ndarray  # [E] float32
    final_value: np.ndarray  # [E] float32
    terminated: np.ndarray  # [E] bool
    truncated: np.ndarray  # [E] bool
    random_play: bool


def make_rings(num_envs: int, length: int, num_frames: int, frame_bytes: int, num_actions: int) -> Rings:
    """Empty rings of C = ``length`` transitions and F = ``num_frames`` frames."""
    return Rings(
        transitions=np.zeros((num_envs, length), TRANSITION),
        policies=np.zeros((num_envs, length, num_actions), np.float32),
        frames=np.zeros((num_envs, num_frames, frame_bytes), np.uint8),
        transition_count=np.zeros(num_envs, np.int64),
        frame_count=np.zeros(num_envs, np.int64),
        oldest=np.zeros(num_envs, np.int64),
        ready=np.zeros(num_envs, np.int64),
        last_action=np.full(num_envs, NO_ACTION, np.int64),
    )


@numba.njit(cache=True)
def first_row_out_of_step(rings: Rings, check: np.ndarray, observation: np.ndarray) -> int:
    """The first row of ``check`` [E] whose observation [E, S, bytes] is not the last stored frame, or NOTHING_WRONG."""
    frames, frame_count = rings.frames, rings.frame_count
    for row in range(check.shape[0]):
        if check[row]:
            stored, received = frames[row, (frame_count[row] - 1) % frames.shape[1]], observation[row, -1]
            difference = np.uint8(0)
            for k in range(stored.shape[0]):  # no early exit, so that the loop is vectorised
                difference |= stored[k] ^ received[k]
            if difference != 0:
                return row
    return NOTHING_WRONG


@numba.njit(cache=True)
def write_step(rings: Rings, step: Step, return_length: int) -> tuple[np.ndarray, np.ndarray]:
    """Append one transition per valid row, without its policy; return the overwritten and the newly ready leaves.

    The leaf of a transition is its environment times C plus its slot. Its targets are known, and it is ready, once the
    transition ``return_length`` steps later or the last one of the episode is stored.
    """
    # Read before the loop: Numba counts references on every access to a field of a tuple.
    transitions, frames = rings.transitions, rings.frames
    count, frame_count, last_action = rings.transition_count, rings.frame_count, rings.last_action
    oldest, ready = rings.oldest, rings.ready
    valid, action, reward = step.valid, step.action, step.reward
    observation, next_observation = step.observation, step.next_observation
    root_value, final_value = step.root_value, step.final_value
    terminated, truncated, random_play = step.terminated, step.truncated, step.random_play

    num_envs, length = transitions.shape
    num_frames, stack = frames.shape[1], observation.shape[1]
    overwritten = np.empty(num_envs * (stack + 1), np.int64)
    became_ready = np.empty(num_envs * (return_length + 1), np.int64)
    num_overwritten = num_ready = 0
    for row in range(num_envs):
        if not valid[row]:
            continue
        if last_action[row] == NO_ACTION:  # the whole first stack, so that every later one can be rebuilt
            for k in range(stack):
                frames[row, (frame_count[row] + k) % num_frames] = observation[row, k]
            frame_count[row] += stack
        frames[row, frame_count[row] % num_frames] = next_observation[row, stack - 1]
        frame_count[row] += 1

        number = count[row]
        record = transitions[row, number % length]
        record.frame = frame_count[row] - 2
        record.action = action[row]
        record.last_action = last_action[row]
        record.reward = reward[row]
        record.root_value = root_value[row]
        record.final_value = final_value[row]
        record.random_play = random_play
        record.outcome = TERMINATED if terminated[row] else TRUNCATED if truncated[row] else CONTINUES
        ended = record.outcome != CONTINUES
        last_action[row] = NO_ACTION if ended else action[row]
        count[row] += 1

        # Drop the oldest transitions whose slot, or whose stack's oldest frame, has just been overwritten.
        while oldest[row] <= number - length or (
            transitions[row, oldest[row] % length].frame - (stack - 1) < frame_count[row] - num_frames
        ):
            overwritten[num_overwritten] = row * length + oldest[row] % length
            num_overwritten += 1
            oldest[row] += 1
        while ready[row] <= (number if ended else number - return_length):
            became_ready[num_ready] = row * length + ready[row] % length
            num_ready += 1
            ready[row] += 1
    return overwritten[:num_overwritten], became_ready[:num_ready]
