"""Exhaustive search against all sequences of actions, tried one by one."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes import FakeModel, KeyEnvs, KeyModel, NoiseModel, random_episodes
from thinker.augmented import ThinkerEnv
from thinker.errors import UserError
from thinker.interfaces import NodeOutput
from thinker.planners.exhaustive import ExhaustiveSearch, ExhaustiveSpec


def roots_of(model, count: int) -> NodeOutput:
    observation = torch.tensor([[row, 3 * row + 1] for row in range(count)], dtype=torch.float32)
    return model.root(observation, torch.full((count,), -1))


def searched(model, count=3, *, discount=0.9, seed=0, greedy=True, keep_states=False, **options):
    spec, random = ExhaustiveSpec(**options), np.random.default_rng(seed)
    root = roots_of(model, count)
    return spec.search(model, root, discount=discount, random=random, greedy=greedy, keep_states=keep_states)


def rollout(model: FakeModel, hidden: int, sequence: tuple[int, ...], discount: float):
    """The return of a sequence of actions from the root state ``hidden``, and the part of it before a predicted end."""
    total = 0.0
    for n, action in enumerate(sequence, 1):
        hidden = model.unroll_hidden(hidden, action)
        node = model.describe(hidden, is_root=False)
        total += discount ** (n - 1) * node["reward"]
        if node["termination"] > 0.5:
            return total, sequence[:n]
    return total + discount ** len(sequence) * node["value"], sequence


@settings(max_examples=60, deadline=None)
@given(
    num_actions=st.integers(1, 4),
    depth=st.integers(1, 4),
    ends=st.sampled_from([0.0, 0.2, 0.6, 1.0]),
    count=st.integers(1, 4),
    discount=st.sampled_from([0.0, 0.9, 1.0]),
    nodes_per_call=st.sampled_from([1, 3, 20, 8192]),
    version=st.integers(0, 1000),
)
def test_the_best_of_all_sequences_is_found(num_actions, depth, ends, count, discount, nodes_per_call, version):
    model = FakeModel(num_actions, ends, version)
    found = searched(model, count, discount=discount, depth=depth, nodes_per_call=nodes_per_call)
    assert found.simulations == sum(num_actions**n for n in range(1, depth + 1))
    expanded = sum(size for call, size in model.calls if call == "unroll")
    assert all(size <= nodes_per_call for call, size in model.calls if call == "unroll")
    for b in range(count):
        root = model.root_hidden(np.array([b, 3 * b + 1]), -1)
        tried = [rollout(model, root, sequence, discount) for sequence in product(range(num_actions), repeat=depth)]
        nodes = {sequence[:n] for _, sequence in tried for n in range(1, len(sequence) + 1)}
        expanded -= len(nodes)
        q = [max(g for g, sequence in tried if sequence[0] == action) for action in range(num_actions)]
        np.testing.assert_allclose(found.q[b], q, atol=1e-5)
        assert found.value[b] == pytest.approx(max(q), abs=1e-5)
        assert found.q[b, found.action[b]] == pytest.approx(max(q), abs=1e-5)
        assert found.visits[b].tolist() == [sum(s[0] == a for s in nodes) for a in range(num_actions)]
        check_tree(model, found.tree, b, root, nodes)
        ends_of = [path(found.tree, b, end) for end in ExhaustiveSpec(depth=depth).rollout_ends(found.tree, b)]
        assert ends_of == sorted({sequence for _, sequence in tried})
    assert expanded == 0  # nothing more was asked of the model, and nothing twice


def path(tree, b: int, node: int) -> tuple[int, ...]:
    actions = []
    while node:
        actions.insert(0, int(tree.action[b, node]))
        node = tree.parent[b, node]
    return tuple(actions)


def check_tree(model, tree, b, root, nodes) -> None:
    exists = [node for node in range(1, tree.parent.shape[1]) if tree.visits[b, node] > 0]
    assert {path(tree, b, node) for node in exists} == nodes
    for node in exists:
        actions, hidden = path(tree, b, node), root
        for action in actions:
            hidden = model.unroll_hidden(hidden, action)
        said = model.describe(hidden, is_root=False)
        ended = said["termination"] > 0.5
        assert tree.depth[b, node] == len(actions)
        assert tree.reward[b, node] == pytest.approx(said["reward"], abs=1e-6)
        assert tree.value[b, node] == pytest.approx(0.0 if ended else said["value"], abs=1e-6)
        assert tree.ended[b, node] == ended
        np.testing.assert_allclose(tree.policy[b, node], said["policy"], atol=1e-6)
        assert tree.visits[b, node] == sum(other[: len(actions)] == actions for other in nodes)
    missing = tree.visits[b] == 0
    assert (tree.parent[b, missing] == -1).all()
    assert (tree.action[b, missing] == -1).all()
    assert tree.parent[b, 0] == tree.action[b, 0] == -1
    assert tree.visits[b, 0] == len(nodes) + 1


@pytest.mark.parametrize(("depth", "simulations"), [(1, 5), (2, 30), (3, 155), (4, 780), (5, 3905)])
def test_the_number_of_simulations_is_that_of_the_paper(depth, simulations):
    assert ExhaustiveSpec(depth=depth).num_simulations(5) == simulations


def test_whole_levels_are_expanded_at_once():
    model = FakeModel(5, termination_rate=0.0)
    searched(model, 4, depth=3)
    assert model.calls == [("root", 4), ("unroll", 20), ("unroll", 100), ("unroll", 500)]


def test_a_sequence_is_worth_its_rewards_and_its_last_value():
    class Counter:
        """The state counts; reward 1 for action 1 below 2; the values are 10 times the count."""

        num_actions = 2

        def root(self, observation, last_action):
            return self._output(torch.zeros(len(observation), 1), torch.zeros(len(observation)))

        def unroll(self, hidden, action):
            return self._output(hidden + action[:, None], action.float() * (hidden[:, 0] < 2))

        def _output(self, hidden, reward):
            policy = torch.full((len(hidden), 2), 0.5)
            return NodeOutput(hidden, 10 * hidden[:, 0], policy, reward, torch.zeros(len(hidden)), None)

    found = searched(Counter(), 1, depth=3, discount=0.5)
    # best: 1, 1, 1 -> 1 + 0.5 * 1 + 0.25 * 0 + 0.125 * 30; first action 0: 0, 1, 1 -> 0.5 + 0.25 + 0.125 * 20
    np.testing.assert_allclose(found.q, [[3.25, 5.25]])
    assert found.action.tolist() == [1]
    assert found.policy.tolist() == [[0.0, 1.0]]


class Plain:
    """Nothing has any worth."""

    num_actions = 4

    def root(self, observation, last_action):
        return self.unroll(torch.zeros(len(observation), 1), None)

    def unroll(self, hidden, action):
        zeros = torch.zeros(len(hidden))
        return NodeOutput(hidden, zeros, torch.full((len(hidden), 4), 0.25), zeros, zeros, None)


def test_equally_good_actions_are_equally_likely_and_the_greedy_one_takes_the_first():
    drawn = searched(Plain(), 2000, depth=1, greedy=False)
    np.testing.assert_allclose(np.bincount(drawn.action) / 2000, 0.25, atol=0.05)
    np.testing.assert_allclose(drawn.policy, 0.25)
    assert not searched(Plain(), 50, depth=1, greedy=True).action.any()


def test_states_are_kept_on_request():
    model = NoiseModel((2,))
    assert searched(model, depth=2).tree.state is None
    tree = searched(model, depth=2, keep_states=True).tree
    root = roots_of(model, 3)
    np.testing.assert_array_equal(tree.state[:, 0], root.state)
    first = model.unroll(root.hidden, torch.tensor([2, 2, 2]))
    np.testing.assert_array_equal(tree.state[:, 3], first.state.float())
    with pytest.raises(UserError, match="does not predict states"):
        searched(Plain(), depth=2, keep_states=True)


def test_too_deep_a_search_says_so():
    with pytest.raises(UserError, match=r"depth 11 with 5 actions takes 61,035,155 simulations.*lower depth"):
        searched(FakeModel(5), 1, depth=11)


@pytest.mark.parametrize("depth", [0, -1, 1.5, True])
def test_depths_that_make_no_sense_are_refused(depth):
    with pytest.raises(UserError, match="depth is"):
        ExhaustiveSpec(depth=depth)


@pytest.mark.parametrize("field", ["value", "policy", "reward", "termination"])
def test_numbers_that_are_not_finite_are_refused(field):
    class Broken(FakeModel):
        def _output(self, hidden, observation):
            output = super()._output(hidden, observation)
            if observation is None and len(hidden) == 18:
                getattr(output, field)[7:9] = float("nan")
            return output

    with pytest.raises(UserError, match=r"unroll\(\) returned NaN or infinity for environment 0"):
        searched(Broken(3, 0.0), 2, depth=2)


def test_wrong_shapes_are_refused():
    class Broken(Plain):
        def unroll(self, hidden, action):
            output = super().unroll(hidden, action)
            return output if action is None else NodeOutput(**{**vars(output), "value": output.value[:-1]})

    with pytest.raises(UserError, match=r"unroll\(\) returned .*'value': \(7,\)"):
        searched(Broken(), 2, depth=1)


def test_it_acts_and_finds_every_key():
    env = ThinkerEnv(KeyEnvs(8), KeyModel(), stage_length=1, seed=0)
    actor = ExhaustiveSearch(env, depth=2)
    actor.begin(*env.reset(seed=0))
    for _ in range(5):
        decision = actor.act()
        outcome = env.step(decision.actions, decision.policy, decision.root_value)
        assert outcome[1].tolist() == [1.0] * 8
        np.testing.assert_allclose(env.last_transition.root_value, 1.0)
        actor.observe(decision, *outcome)


def test_the_actor_takes_the_settings_of_its_spec_and_no_others():
    env = ThinkerEnv(random_episodes(), FakeModel(2), stage_length=1)
    assert ExhaustiveSearch(env, depth=4).spec == ExhaustiveSpec(depth=4)
    with pytest.raises(UserError, match="no setting 'dept'; known are depth"):
        ExhaustiveSearch(env, dept=4)
