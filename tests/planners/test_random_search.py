"""Random search against walks with the same draws, one search at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes import FakeModel, KeyEnvs, KeyModel, NoiseModel
from tests.planners.test_exhaustive import Plain, path, roots_of
from thinker.augmented import ThinkerEnv, collect
from thinker.errors import UserError
from thinker.planners.random_search import RandomSearch, RandomSearchSpec


def searched(model, count=3, *, discount=0.9, seed=0, greedy=True, keep_states=False, **options):
    spec, random = RandomSearchSpec(**options), np.random.default_rng(seed)
    root = roots_of(model, count)
    return spec.search(model, root, discount=discount, random=random, greedy=greedy, keep_states=keep_states)


def walk(model: FakeModel, hidden: int, draws: list[int], max_depth: int | None):
    """The sequences reached by walks from the root state ``hidden``: arrivals, and walks as lists of new sequences."""
    visits: dict[tuple[int, ...], int] = {}
    walks: list[list[tuple[int, ...]]] = [[]]
    here: tuple[int, ...] = ()
    for action in draws:
        here = (*here, action)
        if here not in visits:
            walks[-1].append(here)
        visits[here] = visits.get(here, 0) + 1
        if node_at(model, hidden, here)["termination"] > 0.5 or len(here) == max_depth:
            here = ()
            walks.append([])
    return visits, [one for one in walks if one]


def node_at(model: FakeModel, hidden: int, sequence: tuple[int, ...]) -> dict:
    for action in sequence:
        hidden = model.unroll_hidden(hidden, action)
    return model.describe(hidden, is_root=False)


def worth(model: FakeModel, hidden: int, sequence: tuple[int, ...], discount: float) -> float:
    """The return of the rollout to the last node of ``sequence``."""
    nodes = [node_at(model, hidden, sequence[: n + 1]) for n in range(len(sequence))]
    value = 0.0 if nodes[-1]["termination"] > 0.5 else nodes[-1]["value"]
    return sum(discount**i * node["reward"] for i, node in enumerate(nodes)) + discount ** len(nodes) * value


@settings(max_examples=60, deadline=None)
@given(
    num_actions=st.integers(1, 4),
    simulations=st.integers(1, 30),
    max_depth=st.sampled_from([1, 2, 5, None]),
    ends=st.sampled_from([0.0, 0.2, 1.0]),
    count=st.integers(1, 4),
    discount=st.sampled_from([0.0, 0.9, 1.0]),
    seed=st.integers(0, 1000),
)
def test_every_search_is_a_walk_of_uniform_actions(num_actions, simulations, max_depth, ends, count, discount, seed):
    model = FakeModel(num_actions, ends, seed)
    options = {"simulations": simulations, "max_depth": max_depth}
    found = searched(model, count, discount=discount, seed=seed, **options)
    random = np.random.default_rng(seed)
    draws = np.stack([random.integers(num_actions, size=count) for _ in range(simulations)])
    assert found.simulations == simulations
    expanded = sum(size for call, size in model.calls if call == "unroll")
    tree = found.tree
    for b in range(count):
        root = model.root_hidden(np.array([b, 3 * b + 1]), -1)
        visits, walks = walk(model, root, draws[:, b].tolist(), max_depth)
        expanded -= len(visits)
        returns = {sequence: worth(model, root, sequence, discount) for sequence in visits}
        for action in range(num_actions):
            mine = [g for sequence, g in returns.items() if sequence[0] == action]
            assert found.q[b, action] == pytest.approx(max(mine, default=0.0), abs=1e-5)
            assert found.visits[b, action] == visits.get((action,), 0)
        assert found.value[b] == pytest.approx(max(returns.values()), abs=1e-5)
        assert found.visits[b, found.action[b]] > 0
        assert found.q[b, found.action[b]] == pytest.approx(max(returns.values()), abs=1e-5)
        nodes = [path(tree, b, node) for node in range(1, len(visits) + 1)]
        assert nodes == list(visits)  # in the order of their expansion
        assert tree.visits[b, 1 : len(visits) + 1].tolist() == list(visits.values())
        assert tree.visits[b, 0] == 1 + sum(n for sequence, n in visits.items() if len(sequence) == 1)
        assert not tree.visits[b, len(visits) + 1 :].any()
        for node, sequence in enumerate(nodes, 1):
            said = node_at(model, root, sequence)
            assert tree.depth[b, node] == len(sequence)
            assert tree.ended[b, node] == (said["termination"] > 0.5)
            assert tree.reward[b, node] == pytest.approx(said["reward"], abs=1e-6)
            np.testing.assert_allclose(tree.policy[b, node], said["policy"], atol=1e-6)
        shown = [path(tree, b, node) for node in RandomSearchSpec(**options).rollout_ends(tree, b)]
        assert shown == [one[-1] for one in walks]
    assert expanded == 0  # nothing more was asked of the model, and nothing twice


def test_there_is_one_call_of_the_model_for_each_step_of_all_searches():
    model = FakeModel(5, termination_rate=0.0)
    searched(model, 16, simulations=12, max_depth=None)
    assert model.calls == [("root", 16)] + [("unroll", 16)] * 12


def test_imaginary_actions_are_equally_likely():
    found = searched(FakeModel(4, 0.0), 500, simulations=10, max_depth=1)
    share = found.visits.sum(0) / found.visits.sum()
    np.testing.assert_allclose(share, 0.25, atol=0.03)


def test_actions_that_were_not_tried_are_not_taken():
    for seed in range(20):
        found = searched(Plain(), 5, simulations=1, seed=seed, greedy=seed % 2 == 0)
        assert found.visits.sum(1).tolist() == [1] * 5
        assert (found.visits[np.arange(5), found.action] == 1).all()
        np.testing.assert_array_equal(found.policy, found.visits)


def test_states_are_kept_on_request():
    model = NoiseModel((2,))
    assert searched(model, simulations=4).tree.state is None
    tree = searched(model, simulations=4, keep_states=True).tree
    root = roots_of(model, 3)
    np.testing.assert_array_equal(tree.state[:, 0], root.state)
    first = model.unroll(root.hidden, torch.from_numpy(tree.action[:, 1]).long())
    np.testing.assert_array_equal(tree.state[:, 1], first.state.float())
    with pytest.raises(UserError, match="does not predict states"):
        searched(Plain(), simulations=4, keep_states=True)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"simulations": 0}, "simulations is 0; it must be at least 1"),
        ({"simulations": 2.5}, "simulations is 2.5"),
        ({"max_depth": 0}, "max_depth is 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(options, told):
    with pytest.raises(UserError, match=told):
        RandomSearchSpec(**options)


def test_numbers_that_are_not_finite_are_refused():
    class Broken(FakeModel):
        def _output(self, hidden, observation):
            output = super()._output(hidden, observation)
            if observation is None:
                output.reward[1] = float("inf")
            return output

    with pytest.raises(UserError, match=r"unroll\(\) returned NaN or infinity for environment 1"):
        searched(Broken(3, 0.0), 2, simulations=2)


def test_it_acts_and_finds_more_keys_with_more_simulations():
    def mean_reward(simulations: int) -> float:
        env = ThinkerEnv(KeyEnvs(50), KeyModel(), stage_length=1, seed=0)
        actor = RandomSearch(env, simulations=simulations, seed=5)
        actor.begin(*env.reset(seed=0))
        return float(np.mean(collect(env, actor, 10).returns))

    # the key is among n of three equally likely actions with 1 - (2 / 3)^n; otherwise all that was tried is worth 0
    assert mean_reward(1) == pytest.approx(1 / 3, abs=0.08)
    assert mean_reward(2) == pytest.approx(5 / 9, abs=0.08)
    assert mean_reward(20) > 0.99
