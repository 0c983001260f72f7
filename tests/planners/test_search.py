"""`planners.search`: the plain function, what it returns for every planner, and its errors."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from tests.planners.tables import TableModel
from thinker import planners
from thinker.errors import UserError

SPECS = [
    planners.MCTSSpec(simulations=12),
    planners.GumbelMCTSSpec(simulations=12),
    planners.ExhaustiveSpec(depth=2),
    planners.RandomSearchSpec(simulations=12, max_depth=3),
]


def searched(model=None, spec=SPECS[0], *, observation=None, discount=0.9, **options):
    model = TableModel(0, batch=4, num_actions=3) if model is None else model
    observation = model.observation() if observation is None else observation
    return planners.search(model, observation, spec, discount=discount, **options)


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: type(spec).__name__)
@pytest.mark.parametrize("as_tensor", [False, True])
def test_every_planner_returns_numbers_of_the_promised_shapes_and_types(spec, as_tensor):
    model = TableModel(1, batch=4, num_actions=3)
    observation = torch.from_numpy(model.observation()) if as_tensor else model.observation()
    result = planners.search(model, observation, spec, discount=0.9, keep_states=True)
    assert (result.action.shape, result.action.dtype) == ((4,), np.int64)
    for name, dtype in (("policy", np.float32), ("q", np.float32), ("visits", np.int32)):
        assert (getattr(result, name).shape, getattr(result, name).dtype) == ((4, 3), dtype)
    assert (result.value.shape, result.value.dtype) == ((4,), np.float32)
    np.testing.assert_allclose(result.policy.sum(1), 1, rtol=1e-5)
    assert result.simulations == 12
    nodes = result.tree.parent.shape[1]
    for field in dataclasses.fields(result.tree):
        assert getattr(result.tree, field.name).shape[:2] == (4, nodes), field.name
    assert result.tree.state.shape == (4, nodes, 2)
    np.testing.assert_array_equal(result.tree.state[:, 0], model.observation())


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: type(spec).__name__)
def test_the_same_seed_gives_the_same_search_and_a_generator_is_advanced(spec):
    first, second = (searched(spec=spec, seed=5) for _ in range(2))
    np.testing.assert_array_equal(first.action, second.action)
    np.testing.assert_array_equal(first.q, second.q)
    generator = np.random.default_rng(0)
    before = generator.bit_generator.state
    searched(spec=spec, seed=generator)
    assert generator.bit_generator.state != before


@pytest.mark.parametrize("spec", SPECS[:3], ids=lambda spec: type(spec).__name__)  # random walks are drawn together
def test_the_rows_of_a_batch_do_not_know_each_other(spec):
    model = TableModel(2, batch=5, num_actions=3)
    together = searched(model, spec, greedy=True, seed=0)
    for row in range(5):
        alone = searched(model, spec, observation=model.observation()[row : row + 1], greedy=True, seed=0)
        np.testing.assert_array_equal(alone.visits[0], together.visits[row])
        np.testing.assert_array_equal(alone.q[0], together.q[row])


def test_searches_of_different_shapes_one_after_another_do_not_disturb_each_other():
    """The storage of hidden states is used again by the next search."""
    expected = searched(TableModel(3, batch=4, num_actions=3), seed=1)
    for batch, actions, simulations in ((9, 2, 40), (1, 5, 3), (4, 3, 12)):
        searched(TableModel(4, batch=batch, num_actions=actions), planners.MCTSSpec(simulations=simulations))
    again = searched(TableModel(3, batch=4, num_actions=3), seed=1)
    for name in ("visits", "q", "value", "action"):
        np.testing.assert_array_equal(getattr(again, name), getattr(expected, name))


def test_a_model_that_searches_itself_has_memory_of_its_own():
    class Nested(TableModel):
        def unroll(self, hidden, action):
            searched(TableModel(9, batch=4, num_actions=3), planners.MCTSSpec(simulations=3))
            return super().unroll(hidden, action)

    np.testing.assert_array_equal(
        searched(Nested(0, batch=4, num_actions=3)).visits, searched(TableModel(0, batch=4, num_actions=3)).visits
    )


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"spec": "mcts"}, "spec is 'mcts'; it must be a planner's settings, such as MCTSSpec"),
        ({"discount": 1.5}, "discount is 1.5; it must lie between 0 and 1"),
        ({"discount": float("nan")}, "discount is nan; it must lie between 0 and 1"),
        ({"observation": np.zeros(2)}, r"observation is of shape \(2,\); .* For a single one use observation\[None\]"),
        ({"observation": np.zeros((0, 2))}, "batch of at least one observation"),
        ({"last_action": np.zeros(3, int)}, r"integers of shape \(4,\), one per observation; got shape \(3,\)"),
        ({"last_action": np.zeros(4)}, "last_action must be integers"),
        ({"last_action": np.array([0, 1, 2, 3])}, "actions must be 0 to 2, or -1 where an episode has just started"),
        ({"last_action": np.array([0, 1, 2, -2])}, "actions must be 0 to 2, or -1"),
    ],
    ids=str,
)
def test_bad_input_is_refused(options, told):
    with pytest.raises(UserError, match=told):
        searched(**options)


class Broken(TableModel):
    """A model that returns something else in one of its calls."""

    def __init__(self, call: str, **changes) -> None:
        super().__init__(0, batch=4, num_actions=3)
        self._call, self._changes = call, changes

    def _changed(self, call, output):
        if call != self._call:
            return output
        return dataclasses.replace(output, **{name: change(output) for name, change in self._changes.items()})

    def root(self, observation, last_action):
        return self._changed("root", super().root(observation, last_action))

    def unroll(self, hidden, action):
        return self._changed("unroll", super().unroll(hidden, action))


def with_nan(name: str):
    def change(output):
        numbers = getattr(output, name).clone()
        numbers.view(len(numbers), -1)[2, 0] = float("nan")
        return numbers

    return change


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: type(spec).__name__)
@pytest.mark.parametrize("call", ["root", "unroll"])
@pytest.mark.parametrize("name", ["value", "policy", "reward", "termination"])
def test_numbers_of_the_model_that_are_not_finite_are_refused(name, call, spec):
    with pytest.raises(UserError, match=rf"{call}\(\) returned NaN or infinity for environment [0-3]\."):
        searched(Broken(call, **{name: with_nan(name)}), spec)


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: type(spec).__name__)
@pytest.mark.parametrize("call", ["root", "unroll"])
@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"value": lambda o: o.value[:, None]}, "value, reward and termination must be of shape"),
        ({"policy": lambda o: o.policy[:, :2]}, "and policy of shape"),
        ({"reward": lambda o: o.reward[1:]}, "value, reward and termination must be of shape"),
        ({"hidden": lambda o: o.hidden[1:]}, "returned hidden of shape"),
        ({"state": lambda o: o.state[:, :1]}, "returned state of shape"),
    ],
    ids=["value", "policy", "reward", "hidden", "state"],
)
def test_wrong_shapes_from_the_model_are_refused(changes, told, call, spec):
    with pytest.raises(UserError, match=rf"{call}\(\) .*{told}"):
        searched(Broken(call, **changes), spec, keep_states=True)


@pytest.mark.parametrize("spec", SPECS[:2], ids=lambda spec: type(spec).__name__)
@pytest.mark.parametrize("call", ["root", "unroll"])
def test_logits_instead_of_probabilities_are_refused(call, spec):
    with pytest.raises(UserError, match=rf"{call}\(\) returned the policy .* sum to 1, not logits"):
        searched(Broken(call, policy=lambda output: output.policy.log()), spec)


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: type(spec).__name__)
def test_states_can_only_be_kept_if_the_model_predicts_them_always(spec):
    with pytest.raises(UserError, match="does not predict states"):
        searched(Broken("root", state=lambda output: None), spec, keep_states=True)
    with pytest.raises(UserError, match=r"unroll\(\) predicted no states, but its root\(\) did"):
        searched(Broken("unroll", state=lambda output: None), spec, keep_states=True)


@pytest.mark.parametrize("name", ["MCTS", "GumbelMCTS", "ExhaustiveSearch", "RandomSearch", "BasePolicy", "search"])
def test_the_names_of_the_planners_are_public_and_documented(name):
    assert name in planners.__all__
    assert getattr(planners, name).__doc__
