"""Gumbel MuZero's search: against the reference, and its parts by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.planners import reference
from tests.planners.tables import TableModel
from tests.planners.test_mcts import Uniform, roots
from thinker.errors import UserError
from thinker.planners import GumbelMCTSSpec, search
from thinker.planners.gumbel import considered_visits


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    batch=st.integers(1, 4),
    num_actions=st.integers(1, 7),
    simulations=st.integers(1, 40),
    considered_actions=st.sampled_from([1, 2, 3, 16]),
    max_depth=st.none() | st.integers(1, 4),
    states=st.sampled_from([2, 10, 200]),
    end_rate=st.sampled_from([0.0, 0.2, 0.7, 1.0]),
    discount=st.sampled_from([0.0, 0.5, 0.97, 1.0]),
    gumbel_scale=st.sampled_from([0.0, 1.0]),
    value_scale=st.sampled_from([0.1, 1.0]),
)
def test_every_tree_is_that_of_the_reference(
    seed, batch, num_actions, simulations, considered_actions, max_depth, states, end_rate, discount, gumbel_scale,
    value_scale,
):  # fmt: skip
    model = TableModel(seed, batch=batch, num_actions=num_actions, states=states, end_rate=end_rate)
    spec = GumbelMCTSSpec(
        simulations=simulations,
        max_depth=max_depth,
        considered_actions=considered_actions,
        gumbel_scale=gumbel_scale,
        value_scale=value_scale,
    )
    result = spec.search(model, roots(model), discount=discount, random=np.random.default_rng(seed))
    noise = gumbel_scale * np.random.default_rng(seed).gumbel(size=(batch, num_actions))
    for row, observation in enumerate(model.observation()):
        expected, action = reference.gumbel(model, observation, spec, discount=discount, noise=noise[row])
        reference.assert_same_tree(result, row, expected)
        improved = expected.improved(expected.root, value_scale, spec.visit_offset)
        np.testing.assert_allclose(result.policy[row], improved, atol=1e-5)
        assert result.action[row] == action


@pytest.mark.parametrize(
    ("num_actions", "simulations", "schedule"),
    [
        (1, 4, [0, 1, 2, 3]),
        (2, 5, [0, 0, 1, 1, 2]),
        (4, 16, [0] * 4 + [1] * 4 + [2, 2, 3, 3, 4, 4, 5, 5]),
        (5, 3, [0, 0, 0]),
        (5, 13, [0] * 5 + [1, 1, 2, 2, 3, 3, 4, 4]),
    ],
)
def test_sequential_halving_by_hand(num_actions, simulations, schedule):
    assert considered_visits(num_actions, simulations) == schedule


@given(num_actions=st.integers(1, 40), simulations=st.integers(1, 300))
def test_sequential_halving_never_asks_for_visits_that_no_action_has(num_actions, simulations):
    visits = [0] * num_actions
    for wanted in considered_visits(num_actions, simulations):
        visits[visits.index(wanted)] += 1


def test_the_greedy_search_has_no_noise():
    model = TableModel(4, batch=30, num_actions=5)
    spec = GumbelMCTSSpec(simulations=12)
    first, second = (search(model, model.observation(), spec, discount=0.9, seed=s, greedy=True) for s in (0, 1))
    np.testing.assert_array_equal(first.visits, second.visits)
    np.testing.assert_array_equal(first.action, second.action)
    noisy = [search(model, model.observation(), spec, discount=0.9, seed=s).action for s in (0, 1)]
    assert (noisy[0] != noisy[1]).any()


def test_where_all_actions_are_alike_noise_chooses_each_as_often():
    model = Uniform(batch=2000, num_actions=4)
    result = search(model, model.observation(), GumbelMCTSSpec(simulations=4), discount=0.9)
    np.testing.assert_allclose(np.bincount(result.action, minlength=4) / 2000, 0.25, atol=0.05)
    np.testing.assert_allclose(result.policy, 0.25, atol=1e-6)


def test_an_action_that_the_policy_excludes_gets_a_probability_of_zero_and_no_error():
    model = TableModel(5, batch=10, num_actions=3)
    model.policy[:] = [0.0, 0.25, 0.75]
    result = search(model, model.observation(), GumbelMCTSSpec(simulations=20), discount=0.9)
    assert np.isfinite(result.policy).all()
    np.testing.assert_allclose(result.policy[:, 0], 0, atol=1e-12)
    assert (result.action != 0).all()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"simulations": 0}, "simulations is 0; it must be at least 1"),
        ({"considered_actions": 0}, "considered_actions is 0; it must be at least 1"),
        ({"max_depth": -1}, "max_depth is -1; it must be an integer of at least 1, or None"),
        ({"gumbel_scale": -1.0}, "gumbel_scale is -1.0; it must be at least 0"),
        ({"value_scale": float("inf")}, "value_scale is inf; it must be at least 0"),
        ({"visit_offset": -1.0}, "visit_offset is -1.0; it must be at least 0"),
    ],
    ids=str,
)
def test_wrong_settings_are_refused(wrong, message):
    with pytest.raises(UserError, match=message):
        GumbelMCTSSpec(**wrong)
