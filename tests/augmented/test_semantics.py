"""What the paper says of the augmented MDP, on small examples worked out by hand."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import thinker
from tests.fakes import FakeModel, RandomEpisodes, random_episodes
from thinker.augmented import REAL, ThinkerEnv
from thinker.envs.sokoban import LevelSet
from thinker.interfaces import NodeOutput

A, B = 0, 1


def make_env(model=None, num_envs=1, end_rate=0.0, num_actions=2, **options):
    envs = random_episodes(num_envs, end_rate, num_actions=num_actions)
    return ThinkerEnv(envs, model or FakeModel(num_actions, 0.0), **options)


class LetterModel:
    """Names nodes by the path to them; a node's value is its number in order of first arrival."""

    num_actions = 2
    hidden_shape = (1,)

    def __init__(self):
        self.paths = [""]
        self.values = {"": 0.0, "a": 1.0, "ab": 2.0, "b": 3.0, "aa": 4.0}

    def _output(self, paths):
        first = len(self.paths)
        self.paths += paths
        zeros = torch.zeros(len(paths))
        return NodeOutput(
            hidden=torch.arange(first, first + len(paths))[:, None],
            value=torch.tensor([self.values[path] for path in paths]),
            policy=torch.full((len(paths), 2), 0.5),
            reward=zeros,
            termination=zeros,
            state=None,
        )

    def root(self, observation, last_action):
        return self._output([""] * len(observation))

    def unroll(self, hidden, action):
        return self._output([self.paths[h] + "ab"[a] for h, a in zip(hidden[:, 0].tolist(), action.tolist())])


class EndingModel:
    """One action; every node is worth 9 until `ends` is set, then the next one ends the episode with a reward of 10."""

    num_actions = 1
    hidden_shape = (1,)
    ends = False

    def root(self, observation, last_action):
        return self._output(len(observation), 0.0, 0.0)

    def unroll(self, hidden, action):
        return self._output(len(hidden), 10.0 * self.ends, float(self.ends))

    def _output(self, count, reward, termination):
        number = torch.ones(count)
        return NodeOutput(number[:, None], 9 * number, number[:, None], reward * number, termination * number, None)


def test_nothing_carried_counts_below_a_node_that_is_now_predicted_to_end_the_episode():
    model = EndingModel()
    env = make_env(model, num_actions=1, stage_length=4, max_depth=None, discount=0.9)
    forward = np.array([[A, 0]])
    env.reset()
    for _ in range(4):  # a chain of three nodes, the first of which becomes the root
        obs, *_ = env.step(forward)
    assert env.decode(obs["tree"])["root_child_visits"][0] == 1 / 4  # carried
    model.ends = True
    obs, *_ = env.step(forward)
    parts = env.decode(obs["tree"])
    # r = 10 and nothing after it; the nodes carried below were worth 10 + 0.9^2 * 9 and more
    assert parts["max_return"][0] == pytest.approx(9.0)
    assert parts["root_child_max_return"][0] == pytest.approx(10.0)
    assert parts["current_child_visits"][0] == 0
    assert parts["root_child_visits"][0] == 2 / 4

    for _ in range(3):  # below it, the model is not asked; then the ended node becomes the root
        obs, *_ = env.step(forward)
    parts = env.decode(obs["tree"])
    assert parts["root_child_visits"][0] == 1 / 4  # reached in this stage, not the one dropped
    assert parts["root_child_max_return"][0] == pytest.approx(0.0)
    assert parts["max_return"][0] == pytest.approx(0.9 * 9)


def test_figure_3_of_the_paper_step_by_step():
    """K = 6, L = 2, two actions; the third imaginary step is a forced reset."""
    model = LetterModel()
    env = make_env(model, stage_length=6, max_depth=2, discount=1.0)
    obs, info = env.reset()
    # (imaginary action, reset), the node reached, its depth, whether a reset follows, nodes asked of the model so far
    story = [
        ((A, 1), "a", 1, True, 1),  # chosen reset
        ((A, 0), "a", 1, False, 1),  # the same node again: no new one
        ((B, 0), "ab", 2, True, 2),  # forced reset: the depth has reached L
        ((B, 1), "b", 1, True, 3),
        ((A, 0), "a", 1, False, 3),
    ]
    for step, (action, path, depth, reset, asked) in enumerate(story, start=2):
        obs, reward, terminated, _, info = env.step(np.array([action]))
        seen = env.decode(obs["tree"])
        assert model.paths[int(obs["hidden"][0, 0])] == path
        assert info["depth"][0] == depth
        assert seen["reset"][0] == reset
        assert seen["step"][0].argmax() == step - 1
        assert seen["current_value"][0] == model.values[path]
        assert sum(path != "" for path in model.paths) == asked
        assert reward[0] == 0
        assert not terminated[0]
    assert info["next_is_real"][0]
    assert seen["root_child_visits"][0].tolist() == pytest.approx([3 / 6, 1 / 6])
    assert seen["root_child_max_return"][0].tolist() == [2.0, 3.0]
    assert seen["root_child_mean_return"][0].tolist() == [1.5, 3.0]
    assert seen["current_child_visits"][0].tolist() == pytest.approx([0, 1 / 6])

    # The real action a: its child becomes the root, with its subtree, and b's is dropped.
    obs, _, _, _, info = env.step(np.array([[A, 0]]))
    seen = env.decode(obs["tree"])
    assert info["step_kind"][0] == REAL
    assert seen["root_action"][0].tolist() == [1, 0]
    assert seen["root_child_visits"][0].tolist() == pytest.approx([0, 1 / 6])
    assert seen["root_child_max_return"][0].tolist() == [0, 2.0]


def sokoban(level: str, **options):
    board = LevelSet.parse(level)
    return thinker.make(
        "thinker/Sokoban-v0",
        num_envs=1,
        model="simulator",
        env_options={"levels": board, "order": "sequential"},
        seed=0,
        **options,
    )


def breadth_first_actions(env: ThinkerEnv, depth: int) -> list[int]:
    """Search all action sequences by imaginary actions, shortest first, until one imagines the level solved.

    The way of appendix I.2: walk from the root without a reset, then reset on the last action of the sequence. All the
    search knows is what the augmented state shows; sequences that lead to a state seen before are not continued.
    """
    frontier: list[list[int]] = [[]]
    known = set()
    for _ in range(depth):
        next_frontier = []
        for prefix in frontier:
            for action in range(env.num_actions):
                sequence = [*prefix, action]
                for place, imagined in enumerate(sequence):
                    reset = int(place == len(sequence) - 1)
                    observation, *_ = env.step(np.array([[imagined, reset]]))
                if env.decode(observation["tree"])["current_reward"][0] > 5:
                    return sequence
                state = observation["predicted_state"].numpy().tobytes()
                if state not in known:
                    known.add(state)
                    next_frontier.append(sequence)
        frontier = next_frontier
    raise AssertionError("not found")


ONE_PUSH = """\
#####
#@$.#
#   #
#   #
#####
"""
FIVE_STEPS = """\
######
#.   #
# $ @#
#    #
######
"""  # two steps left, the second a push; around the corner; one push up


@pytest.mark.parametrize(("level", "length"), [(ONE_PUSH, 1), (FIVE_STEPS, 5)])
def test_breadth_first_search_through_imaginary_actions_finds_the_shortest_solution(level, length):
    env = sokoban(level, stage_length=5000, max_depth=length, observe=("tree", "predicted_state"))
    env.reset()
    plan = breadth_first_actions(env, length)
    assert len(plan) == length

    # Played for real, the plan solves the level.
    env = sokoban(level, stage_length=1, observe=("tree",))
    env.reset()
    for place, action in enumerate(plan):
        _, _, terminated, _, info = env.step(np.array([[action, 0]]))
        assert terminated[0] == (place == length - 1)
    assert info["final_info"]["solved"][0]


@settings(max_examples=20, deadline=None)
@given(stage_length=st.integers(1, 6), discount=st.sampled_from([0.5, 0.9, 1.0]), seed=st.integers(0, 1000))
def test_returns_of_the_augmented_mdp_are_those_of_the_real_one(stage_length, discount, seed):
    random = np.random.default_rng(seed)
    real_actions = random.integers(0, 2, 40)
    real = RandomEpisodes(0, 2, 0.1)
    real.reset()
    expected, expected_discounted = 0.0, 0.0
    for time, action in enumerate(real_actions):
        _, reward, terminated, truncated, _ = real.step(int(action))
        expected += reward
        expected_discounted += discount ** (time + 1) * reward
        if terminated or truncated:
            break

    env = make_env(end_rate=0.1, stage_length=stage_length, discount=discount)
    env.reset()
    total, discounted, steps = 0.0, 0.0, 0
    for action in real_actions:
        for _ in range(stage_length - 1):
            _, reward, *_ = env.step(random.integers(0, 2, (1, 2)))
            steps += 1
            assert reward[0] == 0
        _, reward, terminated, truncated, info = env.step(np.array([[action, 0]]))
        steps += 1
        total += reward[0]
        discounted += env.augmented_discount**steps * reward[0]
        if terminated[0] or truncated[0]:
            assert info["episode"]["r"][0] == pytest.approx(total)
            assert info["episode"]["l"][0] == steps // stage_length
            break
    assert total == pytest.approx(expected)
    assert discounted == pytest.approx(expected_discounted)


def test_planning_rewards_of_a_stage_add_up_to_the_gain_in_maximum_return():
    env = make_env(stage_length=8, max_depth=3, discount=0.9)
    obs, info = env.reset()
    random = np.random.default_rng(0)
    for _ in range(5):
        before = env.decode(obs["tree"])["max_return"][0].item()
        gain = 0.0
        for _ in range(7):
            obs, _, _, _, info = env.step(random.integers(0, 2, (1, 2)))
            gain += info["planning_reward"][0]
        assert gain == pytest.approx(env.decode(obs["tree"])["max_return"][0].item() - before, abs=1e-5)
        obs, _, _, _, info = env.step(random.integers(0, 2, (1, 2)))
        assert info["planning_reward"][0] == 0


def test_nothing_is_unrolled_where_all_nodes_are_known():
    model = FakeModel(2, 0.0)
    env = make_env(model, num_envs=3, stage_length=4)
    env.reset()
    env.step(np.array([[0, 1]] * 3))
    model.calls.clear()
    env.step(np.array([[0, 1]] * 3))
    assert model.calls == []
    env.step(np.array([[0, 1], [1, 1], [0, 0]]))
    assert model.calls == [("unroll", 1)]


def test_copied_observations_stay_what_they_were_and_uncopied_ones_do_not():
    for copied in (True, False):
        env = make_env(stage_length=5, copy=copied)
        obs, _ = env.reset()
        before = obs["tree"].clone()
        env.step(np.array([[0, 0]]))
        assert torch.equal(obs["tree"], before) == copied


def test_a_saved_environment_goes_on_exactly_where_it_was():
    def make():
        return thinker.make(
            "thinker/Sokoban-v0",
            num_envs=3,
            stage_length=4,
            model="simulator",
            seed=0,
            env_options={"size": 6, "boxes": 1, "max_steps": 5},
            observe=("tree", "hidden", "predicted_state"),
        )

    random = np.random.default_rng(0)
    first, second = make(), make()
    first.reset()
    for moment in range(1, 40):
        first.step(random.integers(0, (5, 2), (3, 2)))
        if moment % 7 == 0:
            state = copy.deepcopy(first.state_dict())
            second.load_state_dict(state)
            second.envs.restore(first.envs.snapshot())
            snapshot = copy.deepcopy(first.envs.snapshot())
            for _ in range(25):
                actions = random.integers(0, (5, 2), (3, 2))
                one, other = first.step(actions), second.step(actions)
                for key in one[0]:
                    assert torch.equal(one[0][key], other[0][key])
                for i in (1, 2, 3):
                    np.testing.assert_array_equal(one[i], other[i])
                np.testing.assert_array_equal(one[4]["root_value"], other[4]["root_value"])
                np.testing.assert_array_equal(one[4]["planning_reward"], other[4]["planning_reward"])
            first.envs.restore(snapshot)
            first.load_state_dict(state)


def test_refresh_asks_a_changed_model_for_the_roots_again():
    model = FakeModel(2, 0.0)
    env = make_env(model, stage_length=3)
    env.reset()
    for _ in range(3):
        before, *_ = env.step(np.array([[1, 0]]))
    env.model = FakeModel(2, 0.0, version=1)
    after = env.refresh()
    expected = env.model.root_hidden(np.array([0, 2]), 1)
    assert int(after["hidden"][0, 0]) == int(torch.tensor(expected).float())
    assert (
        env.decode(after["tree"])["root_child_visits"].tolist()
        == env.decode(before["tree"])["root_child_visits"].tolist()
    )
    env.step(np.array([[1, 0]]))
    with pytest.raises(RuntimeError, match="only at the start of a stage, not after step 2"):
        env.refresh()
