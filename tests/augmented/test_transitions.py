"""The real transitions of all autoreset modes: what the sink receives, and what the environment shows of them."""

from __future__ import annotations

import copy
from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode

from tests.augmented.reference import ReferenceThinker
from tests.fakes import FakeModel, NativeNextStep, RandomEpisodes, Witness, random_episodes
from thinker.augmented import SingleThinkerEnv, ThinkerEnv, collect, single_vector
from thinker.planners import BasePolicy

SAME_STEP, NEXT_STEP, DISABLED = AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED


def waiting(num_envs: int = 3) -> NativeNextStep:
    return NativeNextStep(random_episodes(num_envs, mode=NEXT_STEP))


class RealRow:
    """One real environment, stepped as in SAME_STEP mode or as a row that waits in its final state for one step."""

    def __init__(self, number: int, waits: bool) -> None:
        self.env, self.waits = RandomEpisodes(number, 2, 0.3), waits
        self.observation, _ = self.env.reset()
        self.is_waiting = False

    def step(self, action: int) -> dict:
        """What the transition of this row must be."""
        before = self.observation
        if self.is_waiting:
            self.is_waiting = False
            self.observation, _ = self.env.reset()
            return {"valid": False}
        self.observation, reward, terminated, truncated, _ = self.env.step(action)
        after = self.observation
        if terminated or truncated:
            if self.waits:
                self.is_waiting = True
            else:
                self.observation, _ = self.env.reset()
        return {
            "valid": True,
            "observation": before,
            "action": action,
            "reward": np.float32(reward),
            "terminated": terminated,
            "truncated": truncated,
            "next_observation": after,
        }


in_all_modes = pytest.mark.parametrize(
    ("make", "waits"),
    [
        (lambda: random_episodes(mode=SAME_STEP), False),
        (lambda: random_episodes(mode=NEXT_STEP), False),
        (lambda: random_episodes(mode=DISABLED), False),
        (waiting, True),
    ],
    ids=["SAME_STEP", "NEXT_STEP", "DISABLED", "NEXT_STEP that waits"],
)


@in_all_modes
def test_transitions_and_real_observations_are_those_of_the_real_environments(make, waits):
    witness = Witness()
    env = ThinkerEnv(make(), FakeModel(2), stage_length=3, sink=witness)
    env.reset()
    rows = [RealRow(number, waits) for number in range(3)]
    random = np.random.default_rng(0)
    ends, kept = 0, []
    for step in range(120):
        before = env.last_transition
        np.testing.assert_array_equal(env.real_observation, [row.observation for row in rows])
        actions = random.integers(0, 2, (3, 2))
        env.step(actions)
        if step % 3 != 2:
            assert env.last_transition is before
            assert len(witness.transitions) == step // 3
            continue
        assert env.last_transition is witness.transitions[-1]
        kept.append(copy.deepcopy(env.last_transition))
        for e, row in enumerate(rows):
            expected = row.step(int(actions[e, 0]))
            ends += bool(expected.get("terminated") or expected.get("truncated"))
            for name, value in expected.items():
                np.testing.assert_array_equal(getattr(env.last_transition, name)[e], value, err_msg=name)
    assert ends > 10
    assert len(witness.transitions) == 40
    for transition, then in zip(witness.transitions, kept):  # whoever keeps them finds them as they were
        for part in fields(then):
            np.testing.assert_array_equal(getattr(transition, part.name), getattr(then, part.name), err_msg=part.name)


@in_all_modes
def test_final_values_are_the_models_values_of_final_observations(make, waits):
    model = FakeModel(2)
    env = ThinkerEnv(make(), model, stage_length=1)
    env.reset()
    ends = 0
    for _ in range(40):
        env.step(np.zeros((3, 2), int))
        told = env.last_transition
        for row in range(3):
            expected = 0.0
            if told.terminated[row] or told.truncated[row]:
                ends += 1
                hidden = model.root_hidden(told.next_observation[row], int(told.action[row]))
                expected = model.describe(hidden, True)["value"]
            assert told.final_value[row] == pytest.approx(expected, abs=1e-6)
    assert ends > 10


def test_a_reset_forgets_the_transition_and_tells_the_sink():
    witness = Witness()
    env = ThinkerEnv(random_episodes(), FakeModel(2), stage_length=1, sink=witness)
    assert env.last_transition is None
    env.reset()
    assert env.last_transition is None
    env.step(np.zeros((3, 2), int))
    assert env.last_transition is not None
    env.reset()
    assert env.last_transition is None
    assert witness.abandoned == 2
    assert len(witness.transitions) == 1


def test_real_observations_are_copies():
    env = ThinkerEnv(random_episodes(), FakeModel(2))
    env.reset()
    before = env.real_observation
    env.real_observation[:] = 77
    np.testing.assert_array_equal(env.real_observation, before)


def test_without_a_sink_transitions_are_still_there():
    env = ThinkerEnv(random_episodes(), FakeModel(2), stage_length=1)
    env.reset()
    env.step(np.zeros((3, 2), int))
    assert env.last_transition.valid.all()
    assert env.last_transition.policy is None


@pytest.mark.parametrize("as_tensor", [False, True])
def test_a_root_value_that_is_given_on_a_real_step_replaces_the_mean_return_of_the_root(as_tensor):
    env = ThinkerEnv(random_episodes(), FakeModel(2), stage_length=2)
    _, info = env.reset()
    given = np.array([1.5, -2.0, 0.25])
    passed = torch.tensor(given) if as_tensor else given.copy()
    env.step(np.zeros((3, 2), int), root_value=passed)  # an imaginary step: nothing to replace
    assert env.last_transition is None
    _, _, _, _, after = env.step(np.zeros((3, 2), int), root_value=passed)
    passed[:] = 7.0
    np.testing.assert_array_equal(env.last_transition.root_value, given)
    assert env.last_transition.root_value.dtype == np.float32
    assert (after["root_value"] != given).all(), "it says nothing of the next roots"
    for _ in range(2):
        before, after = after, env.step(np.zeros((3, 2), int))[-1]
    np.testing.assert_array_equal(env.last_transition.root_value, before["root_value"])


def test_collect_passes_on_what_the_decision_says_of_the_roots():
    class Knowing(BasePolicy):
        def act(self):
            return replace(super().act(), root_value=torch.tensor([1.0, 2.0, 3.0]))

    env = ThinkerEnv(random_episodes(), FakeModel(2), stage_length=1)
    actor = Knowing(env)
    actor.begin(*env.reset())
    collect(env, actor, 1)
    assert env.last_transition.root_value.tolist() == [1.0, 2.0, 3.0]
    assert env.last_transition.policy is not None


def test_the_single_view_stays_in_the_final_state_until_it_is_reset():
    vector = ThinkerEnv(
        single_vector(RandomEpisodes(0, 2, 0.3)), FakeModel(2), stage_length=1, output="numpy", autoreset=False
    )
    env = SingleThinkerEnv(vector)
    env.reset()
    ended = False
    while not ended:
        _, _, terminated, truncated, _ = env.step(np.array([0, 0]))
        ended = terminated or truncated
    assert (vector.last_transition.terminated | vector.last_transition.truncated).all()
    np.testing.assert_array_equal(vector.real_observation, vector.last_transition.next_observation)
    env.reset()
    assert vector.last_transition is None
    assert (vector.real_observation[:, 1] > 1).all()


def test_values_and_policies_of_every_transition_are_those_of_the_reference():
    witness = Witness()
    options = dict(stage_length=3, max_depth=2, discount=0.9, carry_tree=True)
    env = ThinkerEnv(random_episodes(), FakeModel(2), sink=witness, **options)
    rows = [ReferenceThinker(RandomEpisodes(n, 2, 0.3), FakeModel(2), **options) for n in range(3)]
    env.reset()
    for reference in rows:
        reference.reset()
    random = np.random.default_rng(0)
    root_values = [None] * 3
    for step in range(90):
        actions = random.integers(0, 2, (3, 2))
        policy = random.dirichlet([1, 1], 3)
        before = [reference.observation for reference in rows]
        env.step(actions, policy=policy)
        results = [reference.step(*pair) for reference, pair in zip(rows, actions)]
        if step % 3 == 2:
            told = witness.transitions[-1]
            assert len(witness.transitions) == step // 3 + 1
            np.testing.assert_allclose(told.policy, policy, rtol=1e-6)
            np.testing.assert_array_equal(told.action, actions[:, 0])
            for row, result in enumerate(results):
                np.testing.assert_array_equal(told.observation[row], before[row])
                assert told.reward[row] == pytest.approx(result["reward"])
                assert told.terminated[row] == result["terminated"]
                assert told.truncated[row] == result["truncated"]
                assert told.root_value[row] == pytest.approx(root_values[row], abs=1e-5)
                final = result["final"]
                assert told.final_value[row] == pytest.approx(final["root_value"] if final else 0, abs=1e-5)
                np.testing.assert_array_equal(
                    told.next_observation[row], final["real_state"] if final else result["real_state"]
                )
        root_values = [result["root_value"] for result in results]
