"""Monte Carlo tree search by pUCT: against the reference, and what its settings mean."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.planners import reference
from tests.planners.tables import TableModel
from thinker.augmented import ROOT
from thinker.errors import UserError
from thinker.interfaces import NO_ACTION
from thinker.planners import MCTSSpec, search
from thinker.planners.mcts import most_visited, sample_by_visits


def roots(model):
    observation = torch.from_numpy(model.observation())
    return model.root(observation, torch.full((len(observation),), NO_ACTION))


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    batch=st.integers(1, 4),
    num_actions=st.integers(1, 6),
    simulations=st.integers(1, 40),
    max_depth=st.none() | st.integers(1, 4),
    states=st.sampled_from([2, 10, 200]),
    end_rate=st.sampled_from([0.0, 0.2, 0.7, 1.0]),
    discount=st.sampled_from([0.0, 0.5, 0.97, 1.0]),
    exploration=st.sampled_from([0.3, 1.25, 4.0]),
    exploration_base=st.sampled_from([5.0, 19652.0]),
    exploring=st.booleans(),
)
def test_every_tree_is_that_of_the_reference(
    seed, batch, num_actions, simulations, max_depth, states, end_rate, discount, exploration, exploration_base,
    exploring,
):  # fmt: skip
    model = TableModel(seed, batch=batch, num_actions=num_actions, states=states, end_rate=end_rate)
    spec = MCTSSpec(
        simulations=simulations,
        max_depth=max_depth,
        exploration=exploration,
        exploration_base=exploration_base,
        tie_noise=0.0,
    )
    random = np.random.default_rng(seed)
    result = spec.search(model, roots(model), discount=discount, random=random, greedy=True, exploring=exploring)
    noise = np.random.default_rng(seed).dirichlet(np.full(num_actions, 0.3), batch)
    for row, observation in enumerate(model.observation()):
        prior = 0.75 * model.policy[row, 0].astype(float) + 0.25 * noise[row] if exploring else None
        expected = reference.mcts(model, observation, spec, discount=discount, prior=prior)
        reference.assert_same_tree(result, row, expected)
        np.testing.assert_allclose(result.policy[row], result.visits[row] / simulations)
        best = max(range(num_actions), key=lambda a: (result.visits[row, a], result.q[row, a]))
        assert result.action[row] == best


def test_only_new_nodes_are_unrolled_and_in_one_call_for_all_searches():
    model = TableModel(3, batch=8, num_actions=2, end_rate=0.5)
    result = search(model, model.observation(), MCTSSpec(simulations=30, max_depth=3), discount=0.9)
    made = (result.tree.visits > 0).sum() - 8
    assert sum(model.rows_unrolled) == made < 8 * 30
    assert len(model.rows_unrolled) <= 30
    assert max(model.rows_unrolled) <= 8
    assert (result.visits.sum(1) == 30).all()
    assert result.tree.depth.max() <= 3


def test_nothing_is_expanded_below_a_predicted_end():
    model = TableModel(0, batch=5, num_actions=3, end_rate=1.0)
    result = search(model, model.observation(), MCTSSpec(simulations=25), discount=0.9)
    assert result.tree.depth.max() == 1
    assert result.tree.ended[:, 1:][result.tree.visits[:, 1:] > 0].all()
    visited = result.visits > 0
    np.testing.assert_allclose(result.q[visited], model.reward[:, 0][visited], rtol=1e-6)


class Uniform(TableModel):
    """All actions look the same."""

    def __init__(self, **options):
        super().__init__(0, **options)
        self.policy[:] = 1 / self.num_actions
        self.value[:] = self.reward[:] = 0
        self.ends[:] = False


def test_equal_scores_are_chosen_at_random_unless_there_is_no_noise():
    model = Uniform(batch=300, num_actions=3)
    first = search(model, model.observation(), MCTSSpec(simulations=1, tie_noise=0.0), discount=0.9)
    assert (first.visits[:, 0] == 1).all()
    drawn = search(model, model.observation(), MCTSSpec(simulations=1), discount=0.9)
    np.testing.assert_allclose(drawn.visits.mean(0), 1 / 3, atol=0.1)


def test_the_tie_noise_does_not_change_searches_without_ties():
    model = TableModel(1, batch=20, num_actions=4)
    noisy, exact = (
        search(model, model.observation(), MCTSSpec(simulations=30, tie_noise=noise), discount=0.9)
        for noise in (1e-7, 0.0)
    )
    np.testing.assert_array_equal(noisy.visits, exact.visits)


def test_exploration_noise_is_dirichlet_and_only_in_training():
    model = Uniform(batch=2000, num_actions=4)
    spec = MCTSSpec(simulations=1, dirichlet_fraction=1.0, dirichlet_alpha=0.3)
    quiet, noisy = (
        spec.search(model, roots(model), discount=0.9, random=np.random.default_rng(0), exploring=exploring)
        for exploring in (False, True)
    )
    assert (quiet.tree.policy[:, ROOT] == 0.25).all()
    # The largest share of the noise wins: every action as often, but not the same in every search.
    np.testing.assert_allclose(noisy.visits.mean(0), 0.25, atol=0.05)
    assert (noisy.tree.policy[:, ROOT] == 0.25).all(), "the tree shows the base policy itself"


@pytest.mark.parametrize("temperature", [0.25, 0.5, 1.0])
def test_actions_are_sampled_by_visits_and_temperature(temperature):
    visits = np.tile([6, 3, 0, 1], (40_000, 1))
    drawn = np.bincount(sample_by_visits(visits, temperature, np.random.default_rng(0)), minlength=4) / len(visits)
    expected = np.array([6.0, 3, 0, 1]) ** (1 / temperature)
    np.testing.assert_allclose(drawn, expected / expected.sum(), atol=0.01)
    assert drawn[2] == 0


def test_sampling_by_very_large_visits_at_a_low_temperature_does_not_overflow():
    visits = np.array([[10_000_000, 9_000_000]])
    assert sample_by_visits(visits, 0.001, np.random.default_rng(0)) == [0]


def test_the_temperature_falls_during_training_and_outside_of_it_the_last_one_holds():
    spec = MCTSSpec(simulations=40, temperatures=(1.0, 0.5, 0.0))
    assert [spec.temperature(x) for x in (0.0, 0.49, 0.5, 0.74, 0.75, 1.0)] == [1.0, 1.0, 0.5, 0.5, 0.0, 0.0]
    model = TableModel(2, batch=200, num_actions=4)

    def share_of_best(**options):
        found = spec.search(model, roots(model), discount=0.9, random=np.random.default_rng(1), **options)
        return (found.action == most_visited(found.visits, found.q)).mean()

    assert share_of_best(exploring=True, progress=0.0) < share_of_best(exploring=True, progress=0.5) < 1
    assert share_of_best(exploring=True, progress=0.9) == 1
    assert share_of_best() == 1
    assert share_of_best(exploring=True, progress=0.0, greedy=True) == 1


def test_the_greedy_choice_is_the_most_visited_action_and_ties_go_to_the_higher_q():
    visits = np.array([[3, 3, 1], [0, 2, 0], [1, 1, 1]])
    q = np.array([[-2.0, -1.0, 9.0], [5.0, 0.0, 5.0], [0.0, 0.0, 0.0]])
    assert most_visited(visits, q).tolist() == [1, 1, 0]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"simulations": 0}, "simulations is 0; it must be at least 1"),
        ({"simulations": 2.5}, "simulations is 2.5; it must be an integer of at least 1"),
        ({"max_depth": 0}, "max_depth is 0; it must be an integer of at least 1, or None"),
        ({"exploration": -1.0}, "exploration is -1.0; it must be at least 0"),
        ({"exploration_base": 0.0}, "exploration_base is 0.0; it must be greater than 0"),
        ({"dirichlet_alpha": 0.0}, "dirichlet_alpha is 0.0; it must be greater than 0"),
        ({"dirichlet_fraction": 1.5}, "dirichlet_fraction is 1.5; it must be between 0 and 1"),
        ({"temperatures": (1.0, 0.5)}, "it must be three numbers of at least 0"),
        ({"temperatures": (1.0, 0.5, -1.0)}, "it must be three numbers of at least 0"),
        ({"tie_noise": float("nan")}, "tie_noise is nan; it must be at least 0"),
        ({"unroll_stages": 0}, "unroll_stages is 0; it must be at least 1"),
    ],
    ids=str,
)
def test_wrong_settings_are_refused(wrong, message):
    with pytest.raises(UserError, match=message.replace("(", r"\(")):
        MCTSSpec(**wrong)
