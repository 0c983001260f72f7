"""`python -m benchmarks.imitation`: targets come from the solver, and networks learn them."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import imitation
from thinker.envs.sokoban import engine
from thinker.envs.sokoban.solver import solve
from thinker.envs.sokoban.spec import SokobanSpec
from thinker.envs.sokoban.vector_env import SokobanVectorEnv
from thinker.errors import UserError


def test_targets_start_a_shortest_solution() -> None:
    spec = SokobanSpec(size=6, boxes=1, max_steps=20)
    observations, optimal = next(imitation.batches(spec, 12, 0.9, seed=3))
    assert len(observations) == len(optimal) > 0
    envs = SokobanVectorEnv(12, size=6, boxes=1, reverse_moves=spec.reverse_moves, max_steps=20)
    envs.reset(seed=3)
    generator = np.random.default_rng(3)
    for _ in range(imitation.STEPS_BETWEEN):
        seen, *_ = envs.step(generator.integers(engine.NUM_ACTIONS, size=12))
    solutions = [solve(board) for board in envs.snapshot()["boards"]]
    solvable = [index for index, one in enumerate(solutions) if len(one.actions)]
    np.testing.assert_array_equal(observations, seen[solvable])
    for index, row in zip(solvable, optimal):
        assert row[solutions[index].actions[0]]


def test_a_network_learns_to_imitate(capsys: pytest.CaptureFixture[str]) -> None:
    imitation.main(["sokoban-vin", "--updates", "32", "--batch-size", "64"])
    rows = [line.strip("|").split("|") for line in capsys.readouterr().out.splitlines()[2:]]
    assert len(rows) == imitation.ROWS
    assert float(rows[-1][3]) < float(rows[0][3])  # the loss


def test_agents_that_see_more_than_boards_are_refused() -> None:
    with pytest.raises(UserError, match="sees nothing but boards"):
        imitation.main(["sokoban-quick"])
