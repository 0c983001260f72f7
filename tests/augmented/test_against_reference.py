"""Every output of ThinkerEnv against the slow reference, over sizes, depths, discounts, episode ends and batch rows."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.augmented.reference import FakeModel, RandomEpisodes, ReferenceThinker

from thinker import ThinkerEnv

KEYS = ("tree", "hidden", "root_hidden", "real_state", "predicted_state")
MODES = (AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED)


def check_row(row: int, observation: dict, expected: dict) -> None:
    for key in KEYS:
        # Hidden states are whole numbers up to 2^31 shown as float32, hence the relative tolerance.
        np.testing.assert_allclose(
            np.asarray(observation[key][row], np.float64),
            expected[key],
            rtol=1e-5,
            atol=2e-5,
            err_msg=f"{key} of {row}",
        )


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
    env = ThinkerEnv(envs, model, observe=KEYS, output=output, **options)
    rows = [
        ReferenceThinker(make_env(number), FakeModel(num_actions, termination_rate), **options)
        for number in range(num_envs)
    ]

    observation, info = env.reset()
    for row, reference in enumerate(rows):
        expected = reference.reset()
        check_row(row, observation, expected)
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
    envs = SyncVectorEnv([partial(RandomEpisodes, n, 2, 0.1) for n in range(3)], autoreset_mode=AutoresetMode.SAME_STEP)
    env = ThinkerEnv(envs, models[0], observe=KEYS, **options)
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
