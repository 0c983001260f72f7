"""The targets of sampled sequences, against a slow reference and against arithmetic done by hand."""

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.world_model.replay_reference import NUM_ACTIONS, RandomStreams, expected_sequence, observation_space
from thinker.interfaces import NO_ACTION, RealTransition
from thinker.world_model import replay as replay_module
from thinker.world_model.batch import SequenceBatch
from thinker.world_model.replay import Replay

MASKS = ("state_mask", "reward_mask", "termination_mask", "value_mask", "policy_mask")


def check_batch(batch: SequenceBatch, streams: RandomStreams, replay: Replay) -> None:
    number, row = np.divmod(batch.index, streams.num_envs)
    for n in range(len(batch.index)):
        stream, lengths = streams.streams[row[n]], (replay.unroll_length, replay.return_length)
        expected = expected_sequence(stream, number[n], *lengths, replay.discount)
        for name, value in expected.items():
            actual = getattr(batch, name)[n].numpy()
            if name == "action":
                known = value >= 0
                np.testing.assert_array_equal(actual[known], value[known])
                assert ((actual >= 0) & (actual < NUM_ACTIONS)).all()
            else:
                np.testing.assert_allclose(actual, value, rtol=1e-5, atol=1e-6, err_msg=f"{name} of sequence {n}")


@settings(deadline=None, max_examples=150)
@given(data=st.data(), seed=st.integers(0, 2**32 - 1))
def test_sequences_are_those_of_the_slow_reference(data, seed):
    unroll_length = data.draw(st.integers(1, 4), "unroll_length")
    num_envs = data.draw(st.integers(1, 4), "num_envs")
    return_length = data.draw(st.none() | st.integers(unroll_length + 1, 12), "return_length")
    span = 2 * unroll_length if return_length is None else return_length
    length = data.draw(st.integers(span + 1, 25), "length")
    frame_stack = data.draw(st.integers(1, 3), "frame_stack")
    spare = data.draw(st.sampled_from([0, 2**20]), "spare frame bytes")
    discount = data.draw(st.sampled_from([0.0, 0.9, 1.0]), "discount")
    abandon_probability = data.draw(st.sampled_from([0.0, 0.05]), "abandon_probability")
    streams = RandomStreams(
        num_envs,
        seed,
        frame_stack,
        end_probability=data.draw(st.sampled_from([0.0, 0.05, 0.3, 1.0]), "end_probability"),
        wait_probability=data.draw(st.sampled_from([0.0, 0.3]), "wait_probability"),
        random_play_probability=data.draw(st.sampled_from([0.0, 0.3]), "random_play_probability"),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replay_module, "SPARE_FRAME_BYTES", spare)
        replay = Replay(
            num_envs * length + num_envs - 1,  # what does not divide is left out
            num_envs=num_envs,
            observation_space=observation_space(frame_stack),
            num_actions=NUM_ACTIONS,
            discount=discount,
            unroll_length=unroll_length,
            return_length=return_length,
            frame_stack=frame_stack,
        )
    assert replay.capacity == num_envs * length
    assert replay.return_length == span
    num_frames = replay.state_dict()["layout"]["frames_per_env"]
    if spare:
        assert num_frames >= length * (frame_stack + 1)  # so that the capacity holds even for one-step episodes
    for step in range(data.draw(st.integers(1, 90), "num_steps")):
        replay.add(streams.next_transition())
        if streams.generator.random() < abandon_probability:
            row = int(streams.generator.integers(num_envs))
            streams.abandon(row)
            replay.abandon_episodes(np.array([row]))
        if step % 20 == 19 and len(replay):
            check_batch(replay.sample(min(8, len(replay)), 0.4), streams, replay)

    sampleable = streams.sampleable(length, num_frames, span)
    assert len(replay) == len(sampleable)
    if sampleable:
        # Nothing has been updated: all priorities are equal, and a batch of all draws each start once.
        batch = replay.sample(len(replay), 0.4)
        number, row = np.divmod(batch.index, num_envs)
        drawn = set(zip(row.tolist(), number.tolist()))
        assert drawn <= sampleable
        assert len(drawn) >= len(sampleable) - 1  # rounding may shift a boundary
        np.testing.assert_allclose(batch.weight.numpy(), 1.0, rtol=1e-5)
        check_batch(batch, streams, replay)


def single_stream(
    rewards: list[float], terminated: bool = False, truncated: bool = False, random_play: bool = False
) -> SequenceBatch:
    """One environment that counts its steps, root values 100 + t, final value 50, discount 0.5; sequence from t = 1."""
    replay = Replay(
        50, num_envs=1, observation_space=Box(0, 99, (1,), np.uint8), num_actions=2, discount=0.5, unroll_length=2
    )
    for t, reward in enumerate(rewards):
        last = t == len(rewards) - 1
        replay.add(
            RealTransition(
                observation=np.array([[t]], np.uint8),
                action=np.array([t % 2]),
                policy=None,
                root_value=np.array([100.0 + t], np.float32),
                reward=np.array([reward], np.float32),
                terminated=np.array([terminated and last]),
                truncated=np.array([truncated and last]),
                next_observation=np.array([[t + 1]], np.uint8),
                final_value=np.array([50.0 if last else 0.0], np.float32),
                valid=np.array([True]),
                random_play=random_play,
            )
        )
    for _ in range(100):
        batch = replay.sample(1, 1.0)
        if batch.index[0] == 1:
            return batch
    raise AssertionError("the sequence from t = 1 was never drawn")


def test_value_target_is_the_discounted_rewards_up_to_the_horizon_and_then_the_root_value():
    batch = single_stream([1, 2, 4, 8, 16, 32])
    # t = 1, L = 2: rewards 2, 4, 8, 16 then the root value of t + 4 = 5, which is 105.
    expected = [
        2 + 4 / 2 + 8 / 4 + 16 / 8 + 105 / 16,
        4 + 8 / 2 + 16 / 4 + 105 / 8,
        8 + 16 / 2 + 105 / 4,
    ]
    assert batch.value_target[0].tolist() == expected
    assert batch.observation.tolist() == [[[1], [2], [3]]]
    assert batch.action.tolist() == [[1, 0]]
    assert batch.last_action.tolist() == [0]
    assert batch.policy_target.tolist() == [[[0, 1], [1, 0], [0, 1]]]
    assert batch.termination.tolist() == [[0, 0]]
    for mask in MASKS:
        assert getattr(batch, mask).min() == 1


def test_termination_stops_the_return_and_only_termination_is_trained_after_it():
    batch = single_stream([1, 2], terminated=True)  # t = 1 is the terminal transition
    assert batch.observation[0, :2].tolist() == [[1], [2]]
    assert batch.reward.tolist() == [[2, 0]]
    assert batch.termination.tolist() == [[1, 1]]
    assert batch.value_target.tolist() == [[2, 0, 0]]
    assert batch.value_mask.tolist() == [[1, 1, 0]]  # the terminal state is the last one with a value
    assert batch.reward_mask.tolist() == [[1, 0]]
    assert batch.termination_mask.tolist() == [[1, 1]]
    assert batch.state_mask.tolist() == [[1, 0]]
    assert batch.policy_mask.tolist() == [[1, 0, 0]]


def test_truncation_bootstraps_with_the_final_value_and_masks_what_follows():
    batch = single_stream([1, 2], truncated=True)
    assert batch.observation[0, :2].tolist() == [[1], [2]]
    assert batch.reward.tolist() == [[2, 0]]
    assert batch.termination.tolist() == [[0, 0]]
    assert batch.value_target[0, 0] == 2 + 50 / 2
    assert batch.value_mask.tolist() == [[1, 0, 0]]
    assert batch.reward_mask.tolist() == [[1, 0]]
    assert batch.termination_mask.tolist() == [[1, 0]]
    assert batch.state_mask.tolist() == [[1, 0]]
    assert batch.policy_mask.tolist() == [[1, 0, 0]]


def test_truncation_exactly_at_the_horizon_bootstraps_with_the_final_value():
    batch = single_stream([1, 2, 4, 8, 16], truncated=True)  # s_5 = s_{t+2L} is the final state
    assert batch.value_target[0].tolist() == [2 + 2 + 2 + 2 + 50 / 16, 4 + 4 + 4 + 50 / 8, 8 + 8 + 50 / 4]
    assert batch.value_mask.min() == 1


def test_terminated_and_truncated_at_once_is_a_termination():
    batch = single_stream([1, 2], terminated=True, truncated=True)
    assert batch.value_target.tolist() == [[2, 0, 0]]
    assert batch.termination.tolist() == [[1, 1]]


@pytest.mark.parametrize("rewards", [[1, 2], [1, 2, 4, 8, 16, 32]])
@pytest.mark.parametrize("end", ["terminated", "truncated"])
def test_random_play_teaches_states_rewards_and_terminations_but_no_values_and_policies(rewards, end):
    agents, random = (single_stream(rewards, **{end: True}, random_play=played) for played in (False, True))
    for name, value in vars(random).items():
        if name in ("value_mask", "policy_mask"):
            assert getattr(agents, name)[0, 0] == 1
            assert not value.any()
        else:
            np.testing.assert_array_equal(value, getattr(agents, name))


def test_last_action_is_marked_at_an_episodes_start():
    streams = RandomStreams(1, seed=0, end_probability=1.0)
    replay = Replay(
        11, num_envs=1, observation_space=observation_space(1), num_actions=NUM_ACTIONS, discount=1.0, unroll_length=1
    )
    for _ in range(5):
        replay.add(streams.next_transition())
    assert (replay.sample(5, 0.4).last_action == NO_ACTION).all()


def test_all_actions_are_tried_in_the_absorbing_state():
    streams = RandomStreams(1, seed=0, end_probability=1.0)
    replay = Replay(
        50, num_envs=1, observation_space=observation_space(1), num_actions=NUM_ACTIONS, discount=1.0, unroll_length=5
    )
    for _ in range(40):
        replay.add(streams.next_transition())
    padding = replay.sample(40, 0.4).action[:, 1:]
    assert torch.unique(padding).tolist() == [0, 1, 2]
