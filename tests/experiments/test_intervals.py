"""Intervals over seeds: rliable's, checked against all possible resamples."""

import itertools
import sys

import numpy as np
import pytest

from thinker.errors import UserError
from thinker.experiments import statistics

A, B = np.array([0.2, 0.5, 0.6]), np.array([0.1, 0.3, 0.35])


def all_means(values):
    return np.array([np.mean(one) for one in itertools.product(values, repeat=len(values))])


def test_the_interval_of_a_mean_is_that_of_all_resamples():
    interval = statistics.aggregate(A)
    assert interval.estimate == pytest.approx(A.mean())
    low, high = np.percentile(all_means(A), [2.5, 97.5], method="inverted_cdf")
    assert interval.low == pytest.approx(low, abs=0.04)
    assert interval.high == pytest.approx(high, abs=0.04)


def test_a_difference_resamples_both_sides_independently():
    interval = statistics.difference(A, B)
    assert interval.estimate == pytest.approx(A.mean() - B.mean())
    differences = all_means(A)[:, None] - all_means(B)[None]
    low, high = np.percentile(differences, [2.5, 97.5], method="inverted_cdf")
    assert interval.low == pytest.approx(low, abs=0.04)
    assert interval.high == pytest.approx(high, abs=0.04)


def test_a_ratio_is_that_of_the_means():
    assert statistics.ratio(A, B).estimate == pytest.approx(A.mean() / B.mean())


def test_the_probability_of_improvement_counts_pairs(monkeypatch):
    monkeypatch.setattr(statistics, "RESAMPLES", 50)
    pairs = [a > b for a, b in itertools.product(A, B)]
    assert statistics.probability_of_improvement(A, B).estimate == pytest.approx(np.mean(pairs))
    assert statistics.probability_of_improvement(A + 1, B)[:] == (1.0, 1.0, 1.0)


def test_several_tasks_are_aggregated_by_their_interquartile_mean():
    scores = np.array([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0], [6.0, 100.0]])
    assert statistics.aggregate(scores).estimate == pytest.approx(np.mean([2, 3, 4, 5]))


def test_bands_of_curves_are_those_of_their_points():
    curves = np.stack([A, B, A - B], 1)  # [runs, points]
    mean, low, high = statistics.curve_band(curves)
    np.testing.assert_allclose(mean, curves.mean(0))
    assert low[0] == pytest.approx(np.percentile(all_means(A), 2.5, method="inverted_cdf"), abs=0.04)
    assert high[1] == pytest.approx(np.percentile(all_means(B), 97.5, method="inverted_cdf"), abs=0.04)


def test_intervals_are_reproducible_and_leave_the_global_generator_alone():
    np.random.seed(3)  # noqa: NPY002
    expected = np.random.random(4)  # noqa: NPY002
    np.random.seed(3)  # noqa: NPY002
    assert statistics.aggregate(A) == statistics.aggregate(A)
    np.testing.assert_array_equal(np.random.random(4), expected)  # noqa: NPY002


def test_without_rliable_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "rliable", None)
    with pytest.raises(UserError, match=r'pip install "thinker\[reproduce\]"'):
        statistics.check_installed()
