"""`ThinkerEnv.search_tree`: read-only, live, and with the states that were asked for.

That its numbers are right is shown in `test_against_reference`.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tests.fakes import FakeModel, random_episodes
from thinker.augmented import NO_NODE, ROOT, ThinkerEnv
from thinker.errors import UserError
from thinker.interfaces import NO_ACTION

ARRAYS = (
    *("size", "parent", "children", "action", "reward", "value", "policy", "terminated", "visits", "max_return"),
    *("current", "depth", "path_reward", "was_reset"),
)
FORWARD, BACK = np.array([[0, 0]] * 3), np.array([[1, 1]] * 3)


def make_env(model=None, **options):
    env = ThinkerEnv(random_episodes(end_rate=0.0), model or FakeModel(2, 0.0), stage_length=5, **options)
    env.reset()
    return env


def test_arrays_are_read_only():
    env = make_env()
    env.step(FORWARD)
    tree = env.search_tree()
    for name in ARRAYS:
        with pytest.raises(ValueError, match="read-only"):
            getattr(tree, name)[...] = 0


def test_what_is_computed_is_the_callers_own():
    tree = make_env().search_tree()
    for name in ("mean_return", "reached", "position"):
        before = getattr(tree, name).copy()
        getattr(tree, name)[...] = 77
        np.testing.assert_array_equal(getattr(tree, name), before)


def test_a_new_tree_is_a_bare_root():
    tree = make_env().search_tree()
    assert tree.size.tolist() == [1, 1, 1]
    assert (tree.children[:, ROOT] == NO_NODE).all()
    assert (tree.parent[:, ROOT] == NO_NODE).all()
    assert (tree.action[:, ROOT] == NO_ACTION).all()
    assert tree.reached[:, ROOT].all()
    assert tree.position.tolist() == [ROOT] * 3


def test_the_view_follows_the_search():
    env = make_env()
    tree = env.search_tree()
    env.step(FORWARD)
    assert tree.size.tolist() == [2, 2, 2]
    assert tree.children[:, ROOT, 0].tolist() == tree.current.tolist() == tree.position.tolist() == [1, 1, 1]
    env.step(BACK)
    assert tree.current.tolist() == [2, 2, 2]
    assert tree.was_reset.all()
    assert tree.position.tolist() == [ROOT] * 3


def test_carried_nodes_are_not_reached_until_they_are_visited_again():
    env = make_env()
    for actions in (FORWARD, FORWARD, FORWARD, FORWARD, FORWARD):
        env.step(actions)  # four imaginary steps, and the real one into the first node
    tree = env.search_tree()
    first = tree.children[0, ROOT, 0]
    assert tree.size[0] == 4
    assert tree.reached[0, :4].tolist() == [True, False, False, False]
    env.step(FORWARD)
    assert tree.current[0] == first
    assert tree.reached[0, :4].tolist() == [True, True, False, False]


def test_the_state_of_the_root_is_the_real_one_whether_or_not_states_are_kept():
    for keep_states in (True, False):
        env = make_env(keep_states=keep_states)
        for _ in range(10):
            for row in range(3):
                np.testing.assert_array_equal(env.search_tree().state(row, ROOT), env.real_observation[row])
            env.step(FORWARD)


def test_the_state_of_the_root_is_a_copy():
    env = make_env()
    env.search_tree().state(0, ROOT)[:] = 77
    assert (env.search_tree().state(0, ROOT) != 77).all()


@pytest.mark.parametrize("options", [{"keep_states": True}, {"observe": ("predicted_state",)}], ids=str)
def test_predicted_states_are_those_of_the_model(options):
    model = FakeModel(2, 0.0)
    env = make_env(model, **options)
    env.step(FORWARD)
    env.step(FORWARD)
    tree = env.search_tree()
    for row in range(3):
        hidden = model.root_hidden(env.real_observation[row], NO_ACTION)
        for node in (1, 2):
            hidden = model.unroll_hidden(hidden, 0)
            np.testing.assert_allclose(tree.state(row, node), model.describe(hidden, False)["state"], rtol=1e-6)


def test_below_a_predicted_end_the_state_is_zero():
    env = make_env(FakeModel(2, termination_rate=1.0), keep_states=True)
    env.step(FORWARD)
    env.step(FORWARD)
    tree = env.search_tree()
    assert (tree.state(0, 1) != 0).all()
    assert (tree.state(0, 2) == 0).all()


def test_carried_nodes_have_no_state_until_they_are_reached():
    env = make_env(keep_states=True)
    for _ in range(5):
        env.step(FORWARD)
    tree = env.search_tree()
    assert [tree.state(0, node) is None for node in range(tree.size[0])] == [False, True, True, True]
    env.step(FORWARD)
    assert [tree.state(0, node) is None for node in range(tree.size[0])] == [False, False, True, True]


def test_without_keep_states_only_the_root_has_one():
    env = make_env()
    env.step(FORWARD)
    assert env.search_tree().state(0, 1) is None


class Stateless(FakeModel):
    """Predicts no states, and does not repeat the real one either."""

    def _output(self, hidden, observation):
        return dataclasses.replace(super()._output(hidden, observation), state=None)


def test_a_model_without_states_leaves_the_nodes_without():
    env = make_env(Stateless(2, 0.0), keep_states=True)
    env.step(FORWARD)
    np.testing.assert_array_equal(env.search_tree().state(0, ROOT), env.real_observation[0])
    assert env.search_tree().state(0, 1) is None


def test_a_model_that_stops_to_predict_states_is_an_error():
    class Forgetful(FakeModel):
        def unroll(self, hidden, action):
            return dataclasses.replace(super().unroll(hidden, action), state=None)

    env = make_env(Forgetful(2, 0.0), keep_states=True)
    with pytest.raises(UserError, match="keep_states is set"):
        env.step(FORWARD)
