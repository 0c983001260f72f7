"""The statistics of stages against slow, obvious versions and against numbers worked out by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.experiments.support import random_stages
from thinker.experiments.behaviour import statistics


def slow_rank_shares(statistic: np.ndarray, weight: np.ndarray) -> list[float]:
    """Over all orders of the actions that put no lower number before a higher one, with unknown ones at the end."""
    shares = np.zeros(statistic.shape[1])
    for row, weights in zip(statistic, weight):
        value = [-np.inf if np.isnan(number) else number for number in row]
        orders = [
            order
            for order in itertools.permutations(range(len(value)))
            if all(value[a] >= value[b] for a, b in itertools.pairwise(order))
        ]
        for order in orders:
            shares += weights[list(order)] / len(orders) / len(statistic)
    return shares.tolist()


@pytest.mark.parametrize("seed", range(5))
def test_ranks_are_shared_by_equal_actions_and_unknown_ones_come_last(seed):
    random = np.random.default_rng(seed)
    statistic = random.integers(0, 3, (30, 4)).astype(float)
    statistic[random.random((30, 4)) < 0.2] = np.nan
    weight = random.dirichlet(np.ones(4), 30)
    shares = statistics.rank_shares(statistic, weight)
    np.testing.assert_allclose(shares, slow_rank_shares(statistic, weight))
    assert shares.sum() == pytest.approx(1)


def slow_expansion_lengths(stages) -> tuple[list[int], int]:
    lengths, cut_off = [], 0
    steps = stages.depth.shape[1]
    for s in range(len(stages)):
        length, running = 0, False
        for k in range(steps):
            running = True
            length += int(stages.new[s, k])
            at_limit = stages.depth[s, k] >= stages.max_depth
            if at_limit or (stages.reset[s, k] and k < steps - 1):
                lengths.append(length)
                length, running = 0, False
        cut_off += running
    return lengths, cut_off


@pytest.mark.parametrize("seed", range(5))
def test_expansion_lengths_count_the_new_nodes_of_every_rollout_that_ended(seed):
    stages = random_stages(seed)
    lengths, cut_off = statistics.expansion_lengths(stages)
    expected, expected_cut_off = slow_expansion_lengths(stages)
    assert sorted(lengths.tolist()) == sorted(expected)
    assert cut_off == expected_cut_off


def test_the_choice_to_reset_counts_only_where_it_has_an_effect():
    depth = np.array([[1, 2, 1, 2]])
    stages = random_stages(stages=1, steps=4, max_depth=2, depth=depth)
    assert stages.forced.tolist() == [[False, True, False, True]]
    assert stages.free.tolist() == [[True, False, True, False]]
    assert random_stages(stages=1, steps=4, max_depth=3, depth=depth).free.tolist() == [[True, True, True, False]]


def test_the_standard_error_of_a_mean_is_the_textbook_one_if_every_environment_has_one_stage():
    stages = random_stages(stages=12, environment=np.arange(12) * 3)
    values = stages.rivals["UCB"]
    error = statistics.standard_error(stages, lambda some: float(some.rivals["UCB"].mean()))
    assert error == pytest.approx(values.std(ddof=1) / np.sqrt(12))


def test_copies_of_an_environments_stages_do_not_make_a_number_more_certain():
    stages = random_stages(stages=12, environment=np.arange(12))
    twice = stages.select(np.tile(np.arange(12), 2))

    def mean(some) -> float:
        return float(some.rivals["UCB"].mean())

    assert statistics.standard_error(twice, mean) == pytest.approx(statistics.standard_error(stages, mean))


def test_one_environment_says_nothing_about_certainty():
    stages = random_stages(environment=np.zeros(40, np.int64))
    assert np.isnan(statistics.standard_error(stages, lambda some: float(some.td_error.mean())))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(st.floats(-100, 100), max_size=20), min_size=1, max_size=3))
def test_bins_are_equal_cover_everything_and_have_an_edge_at_zero(lists):
    samples = [np.array(numbers, float) for numbers in lists]
    edges = statistics.bins(samples, count=10, left_out=(0.0, 0.0))
    widths = np.diff(edges)
    assert len(edges) == 11
    assert (widths > 0).all()
    np.testing.assert_allclose(widths, widths[0], rtol=1e-6)
    joined = np.concatenate(samples)
    slack = 1e-9 * (1 + abs(edges).max())
    assert (joined >= edges[0] - slack).all()
    assert (joined <= edges[-1] + slack).all()
    if len(joined) and joined.min() < 0 < joined.max() and np.ptp(joined) > 1e-6:
        assert abs(edges).min() < slack


def test_a_density_integrates_to_the_share_inside_its_edges():
    sample = np.array([-5.0, 0.1, 0.2, 0.7])
    np.testing.assert_allclose(statistics.density(sample, np.array([0.0, 0.5, 1.0])), [1.0, 0.5])
    assert statistics.density(np.zeros(0), np.array([0.0, 1.0])).tolist() == [0.0]


def test_shares_by_quantile_are_those_of_the_sorted_values():
    value = np.array([3.0, -1.0, 2.0, 0.0, 5.0, 4.0])
    event = np.array([True, True, False, True, False, False])
    means, shares = statistics.share_by_quantile(value, event, count=3)
    assert means.tolist() == [-0.5, 2.5, 4.5]
    assert shares.tolist() == [1.0, 0.5, 0.0]
    assert len(statistics.share_by_quantile(value[:2], event[:2], count=20)[0]) == 2


def test_real_actions_of_mcts_follow_visits_and_temperature():
    visits = np.array([[2, 1, 0], [3, 3, 6]])
    np.testing.assert_allclose(statistics.visit_policy(visits, 1.0), [[2 / 3, 1 / 3, 0], [0.25, 0.25, 0.5]])
    np.testing.assert_allclose(statistics.visit_policy(visits, 0.25)[0], [16 / 17, 1 / 17, 0])


def test_the_budget_of_equal_scores_is_interpolated_over_its_logarithm():
    assert statistics.crossing([5, 10, 20], [0.1, 0.3, 0.5], 0.4) == pytest.approx(10 * 2**0.5)
    assert statistics.crossing([5, 10, 20], [0.1, 0.3, 0.5], 0.5) == pytest.approx(20)
    assert statistics.crossing([5, 10, 20], [0.1, 0.3, 0.5], 0.05) == 5
    assert statistics.crossing([5, 10, 20], [0.1, 0.3, 0.5], 0.6) is None
    assert statistics.crossing([5, 10, 20], [0.1, 0.5, 0.3], 0.3) == pytest.approx(5 * 2**0.5)
