"""The memory of a replay: a frame is stored once, however many observations it is part of."""

from __future__ import annotations

import tracemalloc

import numpy as np
from gymnasium.spaces import Box

from thinker.interfaces import RealTransition
from thinker.world_model.replay import Replay

STACKED = Box(0, 255, (12, 80, 80), np.uint8)
FRAME = 3 * 80 * 80


def replay(capacity: int, num_envs: int, frame_stack: int = 4) -> Replay:
    return Replay(
        capacity,
        num_envs=num_envs,
        observation_space=STACKED,
        num_actions=18,
        discount=0.99,
        frame_stack=frame_stack,
    )


def test_200_000_stacked_transitions_of_the_paper_fit_in_6_gib():
    full = replay(200_000, 64)  # its pages are not touched, so this takes no memory
    assert full.nbytes < 6 * 2**30
    assert full.nbytes < 1.1 * 200_000 * FRAME
    assert replay(20_000, 64, frame_stack=1).nbytes > 3.5 * full.nbytes / 10


def observed(number: int) -> np.ndarray:
    """Two stacks [2, 12, 80, 80] of frames that all differ; ``number`` + 1 follows ``number``."""
    return np.concatenate([np.full((2, 3, 80, 80), (number + k) % 251, np.uint8) for k in range(4)], 1)


def fill(small: Replay, count: int) -> None:
    nothing = np.zeros(2, np.float32)
    for number in range(count):
        small.add(
            RealTransition(
                observation=observed(number),
                action=np.zeros(2, np.int64),
                policy=None,
                root_value=nothing,
                reward=nothing,
                terminated=np.full(2, number % 20 == 19),
                truncated=np.zeros(2, bool),
                next_observation=observed(number + 1),
                final_value=nothing,
                valid=np.ones(2, bool),
            )
        )


def test_memory_is_what_is_declared_however_many_episodes_are_stored():
    fill(replay(100, 2), 2)  # compiles
    tracemalloc.start()
    try:
        small = replay(400, 2)
        declared = small.nbytes
        fill(small, 500)
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert small.nbytes == declared
    assert used < 1.1 * declared
    assert len(small) > 380  # spare frames keep the transitions of short episodes
    batch = small.sample(16, 1.0)
    newest, before = batch.observation[:, 0, 9:, 0, 0], batch.observation[:, 0, 6:9, 0, 0]
    assert ((newest.int() - before.int()) % 251 == 1).all()
