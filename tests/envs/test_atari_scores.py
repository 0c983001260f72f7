"""Human-normalised scores come from the table of atarihns."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from thinker.envs.atari.scores import aggregate, benchmark_games, human_normalised
from thinker.envs.atari.spec import AtariSpec
from thinker.errors import UserError


def test_without_the_package_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "atarihns.constants", None)
    with pytest.raises(UserError, match=r"need the package atarihns .*thinker\[atari\]"):
        benchmark_games()


def test_aggregates_by_hand():
    got = aggregate([8.0, 1.0, 2.0, 3.0, 100.0, 0.0, 4.0, -5.0, 2.0])
    assert got == {"median": 2.0, "mean": pytest.approx(115 / 9), "interquartile_mean": pytest.approx(12 / 5)}
    assert aggregate([7.0]) == {"median": 7.0, "mean": 7.0, "interquartile_mean": 7.0}
    with pytest.raises(UserError, match="no scores"):
        aggregate([])


atarihns = pytest.importorskip("atarihns", reason="the extra thinker[atari] is not installed")
pytest.importorskip("ale_py", reason="the extra thinker[atari] is not installed")


def test_all_57_games_are_known_to_the_emulator():
    assert len(benchmark_games()) == 57
    assert {"pong", "montezuma_revenge", "up_n_down", "jamesbond"} <= set(benchmark_games())


def test_random_play_is_0_and_a_human_1():
    for game, name in (("pong", "Pong-v5"), ("up_n_down", "UpNDown-v5")):
        assert human_normalised(game, atarihns.get_random_score(name)) == 0
        assert human_normalised(game, atarihns.get_human_score(name)) == 1
        assert human_normalised(game, 1234.5) == pytest.approx(atarihns.calculate_hns(name, 1234.5))


def test_evaluations_have_the_score_where_it_is_known():
    returns = np.array([atarihns.get_human_score("Breakout-v5")] * 2)
    assert AtariSpec(game="breakout").scores(returns) == {"human_normalised": pytest.approx(1.0)}
    assert AtariSpec(game="tetris").scores(returns) == {}
    with pytest.raises(UserError, match="tetris is not one of the 57 games"):
        human_normalised("tetris", 3.0)
