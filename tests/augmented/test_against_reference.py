"""Every output of ThinkerEnv and its whole search tree against the slow reference, in hypothesis-drawn plays."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.augmented.reference import Node, ReferenceThinker
from tests.fakes import OBSERVE, FakeModel, RandomEpisodes, random_episodes
from thinker.augmented import NO_NODE, ROOT, ThinkerEnv, TreeView

MODES = (AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED)


def check_row(row: int, observation: dict, expected: dict) -> None:
    for key in OBSERVE:
        # Hidden states are whole numbers up to 2^31 shown as float32, hence the relative tolerance.
        np.testing.assert_allclose(
            np.asarray(observation[key][row], np.float64),
            expected[key],
            rtol=1e-5,
            atol=2e-5,
            err_msg=f"{key} of {row}",
        )


def check_tree(row: int, tree: TreeView, reference: ReferenceThinker) -> None:
    """Walk both trees from their roots and compare all that can be seen of every node."""
    numbers = {"reward": tree.reward, "value": tree.value, "terminated": tree.terminated, "visits": tree.visits}

    def check_node(index: int, node: Node) -> None:
        found.append(index)
        for name, array in numbers.items():
            assert array[row, index] == pytest.approx(getattr(node, name), abs=1e-5), name
        returns = node.returns(reference.discount)
        assert tree.mean_return[row, index] == pytest.approx(np.mean(returns), abs=2e-5)
        assert tree.max_return[row, index] == pytest.approx(max(returns), abs=2e-5)
        assert tree.policy[row, index] == pytest.approx(node.policy, abs=1e-6)
        assert tree.action[row, index] == node.action
        assert tree.reached[row, index] == node.fresh
        state = tree.state(row, index)
        if not node.fresh:
            assert state is None
        else:
            np.testing.assert_allclose(state, node.state, rtol=1e-6)
        if node is reference.current:
            assert tree.current[row] == index
        for action, child in enumerate(tree.children[row, index]):
            assert (child != NO_NODE) == (action in node.children)
            if child != NO_NODE:
                assert index < child < tree.size[row]
                assert tree.parent[row, child] == index
                check_node(child, node.children[action])

    found: list[int] = []
    check_node(ROOT, reference.root)
    assert tree.parent[row, ROOT] == NO_NODE
    assert tree.current[row] in found
    assert tree.depth[row] == reference.depth
    assert tree.was_reset[row] == reference.reset_flag
    assert tree.position[row] == (ROOT if reference.reset_flag else tree.current[row])
    path = reference.root.path_to(reference.current)
    rewards = sum(reference.discount**n * node.reward for n, node in enumerate(path))
    assert tree.path_reward[row] == pytest.approx(rewards, abs=1e-5)


@settings(max_examples=60, deadline=None)
@given(
    num_envs=st.integers(1, 4),
    num_actions=st.integers(1, 4),
    stage_length=st.integers(1, 7),
    max_depth=st.none() | st.integers(1, 5),
    discount=st.sampled_from([0.0, 0.5, 0.97, 1.0]),
    carry_tree=st.booleans(),
    end_rate=st.sampled_from([0.0, 0.2, 0.6]),
    termination_rate=st.sampled_from([0.0, 0.3, 0.9]),
    mode=st.sampled_from(MODES),
    output=st.sampled_from(["torch", "numpy"]),
    data=st.data(),
)
def test_every_output_equals_the_reference(
    num_envs, num_actions, stage_length, max_depth, discount, carry_tree, end_rate, termination_rate, mode, output, data
):
    model = FakeModel(num_actions, termination_rate)
    make_env = partial(RandomEpisodes, num_actions=num_actions, end_rate=end_rate)
    options = dict(stage_length=stage_length, max_depth=max_depth, discount=discount, carry_tree=carry_tree)
    envs = SyncVectorEnv([partial(make_env, number) for number in range(num_envs)], autoreset_mode=mode)
    env = ThinkerEnv(envs, model, observe=OBSERVE, output=output, **options)
    rows = [
        ReferenceThinker(make_env(number), FakeModel(num_actions, termination_rate), **options)
        for number in range(num_envs)
    ]

    observation, info = env.reset()
    for row, reference in enumerate(rows):
        expected = reference.reset()
        check_row(row, observation, expected)
        check_tree(row, env.search_tree(), reference)
        assert info["root_value"][row] == pytest.approx(expected["root_value"], abs=1e-5)

    num_steps = 6 * stage_length
    # Few distinct actions, so that nodes are visited again.
    action_lists = data.draw(
        st.lists(
            st.lists(
                st.tuples(st.integers(0, num_actions - 1), st.integers(0, 1)), min_size=num_envs, max_size=num_envs
            ),
            min_size=num_steps,
            max_size=num_steps,
        )
    )
    for pairs in action_lists:
        actions = np.array(pairs)
        given_actions = actions.copy()
        model.calls.clear()
        observation, reward, terminated, truncated, info = env.step(actions)
        np.testing.assert_array_equal(actions, given_actions)
        expected_rows = [reference.step(*pair) for reference, pair in zip(rows, pairs)]

        asked = sum(expected["asked"] for expected in expected_rows)
        assert [count for call, count in model.calls if call == "unroll"] == ([asked] if asked else [])
        assert ("final_obs" in info) == any(expected["final"] for expected in expected_rows)
        for row, expected in enumerate(expected_rows):
            check_row(row, observation, expected)
            check_tree(row, env.search_tree(), rows[row])
            assert reward[row] == pytest.approx(expected["reward"])
            assert (terminated[row], truncated[row]) == (expected["terminated"], expected["truncated"])
            for key in ("planning_reward", "root_value"):
                assert info[key][row] == pytest.approx(expected[key], abs=1e-5), key
            for key in ("depth", "step_kind", "next_is_real"):
                assert info[key][row] == expected[key], key
            if expected["final"] is not None:
                assert info["_final_obs"][row]
                check_row(0, {key: value[None] for key, value in info["final_obs"][row].items()}, expected["final"])
            elif "final_obs" in info:
                assert info["final_obs"][row] is None


@pytest.mark.parametrize("carry_tree", [True, False])
def test_the_tree_follows_a_model_that_changes_between_stages(carry_tree):
    """A carried node keeps what the old model said until it is reached; then the new model is asked, root first."""
    options = dict(stage_length=6, max_depth=3, discount=0.9, carry_tree=carry_tree)
    models = [FakeModel(2, 0.3, version) for version in range(8)]
    env = ThinkerEnv(random_episodes(end_rate=0.1), models[0], observe=OBSERVE, **options)
    rows = [ReferenceThinker(RandomEpisodes(n, 2, 0.1), models[0], **options) for n in range(3)]
    env.reset()
    for reference in rows:
        reference.reset()
    random = np.random.default_rng(0)
    for model in models:
        env.model = model
        for _ in range(options["stage_length"]):
            actions = random.integers(0, 2, (3, 2))
            observation, *_ = env.step(actions)
            for row, reference in enumerate(rows):
                reference.model = model
                check_row(row, observation, reference.step(*actions[row]))
                check_tree(row, env.search_tree(), reference)
