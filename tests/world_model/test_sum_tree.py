"""The sum tree: exact totals, proportional sampling, exact state."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thinker.world_model.sum_tree import SumTree


def filled(priorities: list[float]) -> SumTree:
    tree = SumTree(len(priorities))
    tree.update(np.arange(len(priorities)), np.array(priorities, np.float64))
    return tree


@settings(deadline=None, max_examples=50)
@given(num_leaves=st.integers(1, 70), seed=st.integers(0, 2**32 - 1), updates=st.integers(1, 30))
def test_total_maximum_and_count_are_those_of_the_leaves_after_any_updates(num_leaves, seed, updates):
    generator = np.random.default_rng(seed)
    tree, leaves = SumTree(num_leaves), np.zeros(num_leaves)
    for _ in range(updates):
        index = generator.integers(num_leaves, size=generator.integers(0, 20))
        value = generator.random(len(index)) * 10.0 ** generator.integers(-8, 8, len(index))
        value[generator.random(len(index)) < 0.2] = 0.0
        tree.update(index, value)
        for i, v in zip(index, value):
            leaves[i] = v
    np.testing.assert_array_equal(tree.leaves, leaves)
    assert tree.maximum == leaves.max()
    assert len(tree) == (leaves > 0).sum()
    fresh = filled(list(leaves))  # built in one go: no history
    assert tree.total == fresh.total == pytest.approx(leaves.sum(), rel=1e-12)


def test_total_does_not_drift_over_many_updates():
    generator = np.random.default_rng(0)
    tree = SumTree(1000)
    for _ in range(2000):
        tree.update(generator.integers(1000, size=128), 10.0 ** generator.uniform(-6, 6, 128))
    tree.update(np.arange(1000), np.full(1000, 0.25))
    assert tree.total == 250.0


def test_sampling_frequencies_match_the_priorities():
    priorities = np.array([0.5, 0.0, 3.0, 1e-2, 1.0, 0.0, 7.0, 2.0, 0.3, 0.1, 0.7])
    tree, generator = filled(list(priorities)), np.random.default_rng(1)
    draws = 4000 * 37
    counts = np.zeros(len(priorities))
    for _ in range(4000):
        leaf, probability = tree.sample(37, generator)
        np.add.at(counts, leaf, 1)
        np.testing.assert_allclose(probability, priorities[leaf] / priorities.sum())
    expected = draws * priorities / priorities.sum()
    assert counts[priorities == 0].sum() == 0
    # Stratified counts vary less than independent ones, whose standard deviation is sqrt(expected).
    assert (np.abs(counts - expected) < 4 * np.sqrt(expected) + 1e-9).all()


def test_equal_priorities_and_a_batch_of_all_leaves_draw_each_leaf_once():
    leaf, probability = filled([0.5] * 64).sample(64, np.random.default_rng(0))
    np.testing.assert_array_equal(np.sort(leaf), np.arange(64))
    np.testing.assert_array_equal(probability, 1 / 64)


@pytest.mark.parametrize("position", [0, 5, 6])
def test_a_leaf_without_mass_is_never_drawn_whatever_the_rounding(position):
    priorities = np.zeros(7)
    priorities[position] = 1e-300

    class AlmostOne:
        def random(self, size):
            return np.full(size, np.nextafter(1.0, 0.0))

    leaf, _ = filled(list(priorities)).sample(5, AlmostOne())
    np.testing.assert_array_equal(leaf, position)


def test_bad_updates_are_refused_and_change_nothing():
    tree = filled([1.0, 2.0, 3.0])
    with pytest.raises(IndexError, match="outside"):
        tree.update(np.array([0, 3]), np.array([5.0, 5.0]))
    for bad in (np.nan, np.inf, -1.0):
        with pytest.raises(ValueError, match="finite"):
            tree.update(np.array([0, 1]), np.array([5.0, bad]))
    assert tree.total == 6.0
    with pytest.raises(ValueError, match="positive leaf"):
        SumTree(3).sample(1, np.random.default_rng(0))
    with pytest.raises(ValueError, match="at least 1"):
        SumTree(0)


def test_loaded_tree_goes_on_as_the_saved_one():
    tree = filled([1.0, 0.0, 3.3, 0.1, 5.0])
    state = {name: value.copy() for name, value in tree.state_dict().items()}
    other = filled([9.0] * 5)
    other.load_state_dict(state)
    for each in (tree, other):
        each.update(np.array([2]), np.array([0.7]))
    assert (other.total, other.maximum, len(other)) == (tree.total, tree.maximum, len(tree))
    drawn = [each.sample(9, np.random.default_rng(3))[0] for each in (tree, other)]
    np.testing.assert_array_equal(*drawn)
    with pytest.raises(ValueError, match="cannot load"):
        SumTree(4).load_state_dict(state)
