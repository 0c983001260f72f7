"""Board-steps per second of native Sokoban on one core, and the ratio to plain Python, measured in one run.

Run from the project's root: ``python -m benchmarks.sokoban``.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from tests.envs.sokoban_reference import ReferenceSokoban
from thinker.envs.sokoban import SokobanVectorEnv, generate_levels
from thinker.envs.sokoban.rendering import ObservationKind, observation_sprites

NUM_ENVS = 64
MAX_STEPS = 120
STEPS = 1200
REPEATS = 10


def seconds(run: Callable[[], object]) -> float:
    """Processor time of the fastest of several runs, after one that compiles, so that other processes count little."""
    run()
    times = []
    for _ in range(REPEATS):
        start = time.process_time()
        run()
        times.append(time.process_time() - start)
    return min(times)


def native_speed(observation: ObservationKind, generated: bool, copy: bool) -> float:
    """Board-steps per second of the whole `step`, with ends of episodes and new levels, spread evenly over time."""
    levels = "generated" if generated else generate_levels(1000)
    envs = SokobanVectorEnv(NUM_ENVS, levels=levels, observation=observation, max_steps=MAX_STEPS, copy=copy)
    envs.reset(seed=0)
    snapshot = envs.snapshot()
    snapshot["steps"] = np.arange(NUM_ENVS) * MAX_STEPS // NUM_ENVS
    envs.restore(snapshot)
    actions = np.random.default_rng(0).integers(0, 5, (STEPS, NUM_ENVS))

    def run() -> None:
        for row in actions:
            envs.step(row)

    return STEPS * NUM_ENVS / seconds(run)


def naive_speed(observation: ObservationKind) -> float:
    """Board-steps per second of the reference in plain Python, one board after another, without ends of episodes."""
    levels = generate_levels(NUM_ENVS)
    boards = [ReferenceSokoban(levels.text(index)) for index in range(NUM_ENVS)]
    steps = STEPS // 200
    actions = np.random.default_rng(0).integers(0, 5, (steps, NUM_ENVS)).tolist()
    sprites = observation_sprites(observation)

    def observe(board: ReferenceSokoban) -> np.ndarray:
        planes = board.planes()
        if observation == "tiles":
            return planes
        squares = sprites[planes.argmax(axis=0)]  # [H, W, C, P, P]
        return np.block([list(row) for row in squares])

    def run() -> None:
        for row in actions:
            for board, action in zip(boards, row):
                board.step(action)
            np.stack([observe(board) for board in boards])

    return steps * NUM_ENVS / seconds(run)


def generator_speed(size: int, boxes: int) -> float:
    """Levels per second."""
    count = 1000
    return count / seconds(lambda: generate_levels(count, size, boxes))


def main() -> None:
    kinds: tuple[ObservationKind, ...] = ("tiles", "rgb")
    print(f"Sokoban, {NUM_ENVS} boards of 10x10 with 4 boxes, board-steps per second")
    for kind in kinds:
        naive = naive_speed(kind)
        print(f"{kind:5}  plain Python                     {naive:12,.0f}")
        for generated in (False, True):
            for copy in (False, True):
                speed = native_speed(kind, generated, copy)
                source = "generated" if generated else "level set"
                print(f"{kind:5}  native, {source}, copy={copy!s:5}    {speed:12,.0f}   {speed / naive:6,.0f} x")
    print("Generator, levels per second")
    for size, boxes in ((7, 1), (8, 2), (10, 4), (20, 8)):
        print(f"{size}x{size}, boxes: {boxes}  {generator_speed(size, boxes):12,.0f}")


if __name__ == "__main__":
    main()
