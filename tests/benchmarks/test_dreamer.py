"""`python -m benchmarks.dreamer` without sheeprl: its environments, its evaluation, and what it says."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import dreamer
from thinker.envs.sokoban.solver import Solutions
from thinker.envs.sokoban.spec import SokobanSpec
from thinker.errors import UserError

SPEC = SokobanSpec(size=6, boxes=1, max_steps=20, held_out_max_steps=30, observation="rgb")


def test_pictures_have_a_black_frame_around_the_same_pixels() -> None:
    pixels = np.random.default_rng(0).integers(1, 256, (2, 3, 56, 48)).astype(np.uint8)
    picture = dreamer.as_picture(pixels)
    assert picture.shape == (2, 3, 64, 64)
    np.testing.assert_array_equal(picture[:, :, 4:60, 8:56], pixels)
    assert (picture > 0).sum() == pixels.size
    with pytest.raises(UserError, match="larger than 64x64"):
        dreamer.as_picture(np.zeros((3, 80, 80), np.uint8))


def test_a_training_board_is_an_environment_and_tells_whether_episodes_were_solved() -> None:
    ended: list[bool] = []
    board = dreamer.SokobanPictures(SPEC, ended.append)
    assert board.observation_space.contains(board.reset(seed=0)[0])
    steps, over = 0, False
    while not over:
        picture, _, terminated, truncated, _ = board.step(np.int64(0))
        assert board.observation_space.contains(picture)
        steps, over = steps + 1, terminated or truncated
    assert (steps, ended) == (20, [False])


@pytest.mark.parametrize("plays", ["solutions", "nothing"])
def test_the_levels_are_played_once_each_and_in_order(plays: str) -> None:
    """By a solver, which needs as many steps as the shortest solutions, and by one who only waits."""
    envs = SPEC.held_out("validation", 4, 10)
    solutions = Solutions(0.97)
    fresh: list[int] = []

    def act(pictures: np.ndarray, begun: np.ndarray) -> np.ndarray:
        assert pictures.shape == (4, 3, 64, 64)
        fresh.extend(begun)
        boards = envs.snapshot()["boards"]
        best: np.ndarray = solutions.best_actions(boards) if plays == "solutions" else np.zeros(4, np.int64)
        return best

    found = dreamer.play_in_order(envs, 10, act)
    if plays == "nothing":
        assert found == pytest.approx({"eval/solved": 0, "eval/return": -0.3, "eval/length": 30})
    else:
        levels = SPEC.held_out("validation", 10, 10)
        levels.reset()
        lengths = solutions.steps(levels.snapshot()["boards"])
        assert found["eval/solved"] == 1
        assert found["eval/length"] == pytest.approx(lengths.mean())
        assert found["eval/return"] == pytest.approx(11 - 0.01 * lengths.mean(), abs=0.02)
    assert len(fresh) >= 10


def test_without_sheeprl_it_says_where_to_read_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sheeprl.cli", None)
    with pytest.raises(UserError, match=r"sheeprl is needed.*benchmarks/dreamer.py"):
        dreamer.main(["--root", str(tmp_path)])
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / dreamer.METRICS).touch()
    with pytest.raises(UserError, match="already a run"):
        dreamer.main(["--root", str(tmp_path), "--run", "old"])
