"""The replay: priorities, weights, what stays valid, bad input, exact state. Its targets are in test_targets.py."""

import copy

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, MultiBinary

from tests.world_model.replay_reference import NUM_ACTIONS, RandomStreams, assert_plain, observation_space, transition
from thinker.errors import UnsupportedError, UserError
from thinker.world_model.replay import FIRST_PRIORITY, PRIORITY_FLOOR, Replay


def make_replay(num_envs: int = 2, length: int = 20, frame_stack: int = 1, **changes) -> Replay:
    arguments = {
        "num_envs": num_envs,
        "observation_space": observation_space(frame_stack),
        "num_actions": NUM_ACTIONS,
        "discount": 0.9,
        "unroll_length": 2,
        "frame_stack": frame_stack,
        **changes,
    }
    return Replay(num_envs * length, **arguments)


def filled_replay(steps: int = 50, *, random_play: float = 0.0, **changes) -> tuple[Replay, RandomStreams]:
    replay = make_replay(**changes)
    streams = RandomStreams(
        replay.num_envs, seed=0, frame_stack=replay.frame_stack, random_play_probability=random_play
    )
    for _ in range(steps):
        replay.add(streams.next_transition())
    return replay, streams


def leaves(replay: Replay) -> np.ndarray:
    """The priorities of all transitions, 0 where they cannot be sampled."""
    return replay.state_dict()["tree"]["leaves"]


def test_frequencies_and_weights_follow_the_priorities():
    replay, _ = filled_replay()
    everything = np.unique(np.concatenate([replay.sample(len(replay), 0.4).index for _ in range(20)]))
    assert len(everything) == len(replay)
    error = np.random.default_rng(0).exponential(size=len(everything))
    error[0] = 0.0
    replay.update_priorities(everything, torch.from_numpy(error))
    powered = np.maximum(error, PRIORITY_FLOOR) ** 0.6
    expected = powered / powered.sum()
    counts, batches, batch_size = np.zeros(len(everything)), 1000, 16
    for _ in range(batches):
        batch = replay.sample(batch_size, 0.7)
        position = np.searchsorted(everything, batch.index)
        np.add.at(counts, position, 1)
        weight = (1 / (len(everything) * expected[position])) ** 0.7
        np.testing.assert_allclose(batch.weight.numpy(), weight, rtol=1e-5)
    total = batches * batch_size
    assert (np.abs(counts - total * expected) < 4 * np.sqrt(total * expected) + 2).all()


def test_new_transitions_have_the_largest_priority_in_the_buffer():
    replay = make_replay(num_envs=1)
    streams = RandomStreams(1, seed=0, end_probability=1.0)
    replay.add(streams.next_transition())
    assert leaves(replay)[0] == FIRST_PRIORITY
    replay.update_priorities(np.array([0]), np.array([32.0]))
    replay.add(streams.next_transition())
    assert leaves(replay)[1] == pytest.approx(32.0**0.6)
    replay.update_priorities(np.array([0, 1]), np.array([0.5, 0.25]))
    replay.add(streams.next_transition())
    assert leaves(replay)[2] == pytest.approx(0.5**0.6)  # not the largest there ever was


def test_a_transition_is_sampleable_once_the_one_twice_the_unroll_length_later_is_stored():
    replay = make_replay(num_envs=1)
    streams = RandomStreams(1, seed=0, end_probability=0.0)
    for added in range(1, 30):
        replay.add(streams.next_transition())
        assert len(replay) == min(max(added - 4, 0), 20 - 4)


def test_priority_updates_of_overwritten_transitions_are_ignored():
    replay, streams = filled_replay(num_envs=1, length=12)
    old = replay.sample(len(replay), 0.4).index
    for _ in range(4):
        replay.add(streams.next_transition())
    before = leaves(replay).copy()
    number = old // replay.num_envs
    gone = number < len(streams.streams[0]) - 12
    assert gone.any()
    assert not gone.all()
    replay.update_priorities(old[gone], np.full(gone.sum(), 7.0))
    np.testing.assert_array_equal(leaves(replay), before)
    replay.update_priorities(old, np.full(len(old), 7.0))
    assert (leaves(replay) != before).sum() == len(np.unique(old[~gone]))


def test_random_play_keeps_its_priority_because_its_values_are_not_trained():
    replay, streams = filled_replay(random_play=0.5)
    index = np.unique(replay.sample(len(replay), 0.4).index)
    number, row = np.divmod(index, replay.num_envs)
    random = np.array([streams.streams[e][n].random_play for e, n in zip(row, number)])
    assert 0 < random.sum() < len(random)
    replay.update_priorities(index, np.full(len(index), 32.0))
    priority = leaves(replay).reshape(replay.num_envs, -1)[row, number % 20]
    np.testing.assert_allclose(priority, np.where(random, FIRST_PRIORITY, 32.0**0.6))


def test_priority_updates_that_make_no_sense_are_refused():
    replay, streams = filled_replay()
    index = replay.sample(4, 0.4).index
    with pytest.raises(ValueError, match="diverged"):
        replay.update_priorities(index, torch.tensor([1.0, float("nan"), 1.0, 1.0]))
    with pytest.raises(ValueError, match=r"shape \(3,\)"):
        replay.update_priorities(index, torch.zeros(3))
    with pytest.raises(ValueError, match="never been sampled"):
        replay.update_priorities(np.array([10**6]), torch.zeros(1))
    newest = (len(streams.streams[0]) - 1) * 2
    replay.abandon_episodes()
    before = len(replay)
    replay.update_priorities(np.array([newest]), torch.ones(1))  # abandoned, so it must not come to life
    assert len(replay) == before


@pytest.mark.parametrize(("stack", "dtype"), [(1, np.uint8), (3, np.uint8), (1, np.float32)])
def test_frames_are_kept_once_in_their_own_dtype(stack, dtype):
    space = Box(0, 255, (4 * stack, 10, 10), dtype)
    replay = Replay(200_000, num_envs=8, observation_space=space, num_actions=5, discount=0.97, frame_stack=stack)
    layout = replay.state_dict()["layout"]
    one_each = 200_000 * 400 * np.dtype(dtype).itemsize
    assert one_each < 8 * layout["frames_per_env"] * layout["frame_bytes"] < 1.07 * one_each + 64 * 2**20


def test_a_batch_stays_valid_until_the_next_one():
    replay, streams = filled_replay(num_envs=1, length=8)
    batch = replay.sample(3, 0.4)
    kept = copy.deepcopy(batch)
    for _ in range(30):
        replay.add(streams.next_transition())
    for name, value in vars(kept).items():
        np.testing.assert_array_equal(np.asarray(getattr(batch, name)), np.asarray(value), err_msg=name)


def test_observations_keep_the_type_and_shape_of_the_space():
    space = MultiBinary((2, 3, 3))
    replay = make_replay(num_envs=2, observation_space=space)
    zeros = np.zeros((2, 2, 3, 3), np.int8)
    replay.add(transition(observation=zeros, next_observation=zeros + 1, terminated=np.ones(2, bool)))
    batch = replay.sample(2, 0.4)
    assert batch.observation.dtype == torch.int8
    assert batch.observation.shape == (2, 3, 2, 3, 3)
    with pytest.raises(UserError, match="bounds"):
        replay.add(transition(observation=zeros + 2, next_observation=zeros))


@pytest.mark.parametrize("shape", [(10, 10, 4), (12,)])
def test_truth_values_are_stored_as_they_are(shape):
    replay = make_replay(observation_space=Box(0, 1, shape, bool))
    boards = np.random.default_rng(0).random((2, 2, *shape)) < 0.5
    replay.add(transition(observation=boards[0], next_observation=boards[1], terminated=np.ones(2, bool)))
    batch = replay.sample(2, 0.4)
    assert batch.observation.dtype == torch.bool
    np.testing.assert_array_equal(batch.observation[:, :2].numpy(), boards[:, batch.index % 2].swapaxes(0, 1))
    with pytest.raises(UserError, match="dtype uint8"):
        replay.add(transition(observation=boards[0].view(np.uint8), next_observation=boards[1]))


def test_asking_for_more_than_it_holds_is_an_error():
    replay, _ = filled_replay()
    with pytest.raises(ValueError, match=rf"batch_size={len(replay) + 1}.*holds {len(replay)}"):
        replay.sample(len(replay) + 1, 0.4)
    with pytest.raises(ValueError, match="batch_size=0"):
        replay.sample(0, 0.4)
    with pytest.raises(ValueError, match="holds 0"):
        make_replay().sample(1, 0.4)


SHAPE = observation_space(1).shape
BAD_TRANSITIONS = {
    "observation has shape": {"observation": np.zeros((2, 9), np.int32)},
    "dtype float32": {"next_observation": np.zeros((2, *SHAPE), np.float32)},
    "next_observation contains 10001": {"next_observation": np.full((2, *SHAPE), 10_001, np.int32)},
    "observation contains -10001": {"observation": np.full((2, *SHAPE), -10_001, np.int32)},
    "reward is not finite": {"reward": np.array([0.0, np.nan])},
    "root_value is not finite": {"root_value": np.array([0.0, np.inf])},
    "final_value is not finite": {"final_value": np.array([-np.inf, 0.0])},
    "reward has shape": {"reward": np.zeros(3)},
    "terminated has shape": {"terminated": np.zeros((2, 1), bool)},
    "valid has shape": {"valid": np.ones(2, np.int64)},
    "integers from 0 to 2": {"action": np.array([0, 3])},
    "got float64": {"action": np.zeros(2)},
    "policy has shape": {"policy": np.full((2, 4), 0.25, np.float32)},
    "sum to 1": {"policy": np.array([[1, 0, 0], [0.5, 0.2, 0.2]], np.float32)},
    "probabilities": {"policy": np.array([[1, 0, 0], [np.nan, 1, 0]], np.float32)},
}


@pytest.mark.parametrize("message", BAD_TRANSITIONS)
def test_bad_transitions_are_refused_and_not_stored(message):
    replay = make_replay()
    before = copy.deepcopy(replay.state_dict())
    with pytest.raises(UserError, match=message):
        replay.add(transition(**BAD_TRANSITIONS[message]))
    after = replay.state_dict()
    assert after["transition_count"].tolist() == before["transition_count"].tolist() == [0, 0]
    replay.add(transition())


def test_what_a_waiting_row_holds_is_never_looked_at():
    replay = make_replay()
    replay.add(
        transition(
            valid=np.array([True, False]),
            reward=np.array([1.0, np.nan]),
            action=np.array([1, 99]),
            policy=np.array([[0.5, 0.5, 0.0], [np.nan] * 3], np.float32),
            next_observation=np.stack([np.zeros(SHAPE, np.int32), np.full(SHAPE, 10_001, np.int32)]),
            terminated=np.array([True, False]),
        )
    )
    batch = replay.sample(1, 0.4)
    assert batch.index.tolist() == [0]
    assert batch.reward[0, 0] == 1.0


@pytest.mark.parametrize("bad", [np.nan, np.inf, 5.0])
def test_floats_that_are_not_finite_or_out_of_bounds_are_refused(bad):
    space = Box(np.array([-np.inf, -4.8], np.float32), np.array([np.inf, 4.8], np.float32))
    replay = make_replay(observation_space=space)
    good = np.zeros((2, 2), np.float32)
    wrong = good.copy()
    wrong[1, 1] = bad
    with pytest.raises(UserError, match="next_observation contains"):
        replay.add(transition(observation=good, next_observation=wrong))


def test_an_environment_reset_before_its_episode_ended_must_be_announced():
    replay = make_replay()
    replay.add(transition())
    elsewhere = np.ones((2, *SHAPE), np.int32)
    with pytest.raises(UserError, match=r"row 0.*abandon_episodes"):
        replay.add(transition(observation=elsewhere))
    replay.abandon_episodes(np.array([True, False]))
    with pytest.raises(UserError, match=r"row 1.*abandon_episodes"):
        replay.add(transition(observation=elsewhere))
    replay.abandon_episodes()
    replay.add(transition(observation=elsewhere, terminated=np.ones(2, bool)))
    assert len(replay) == 2  # only the new episodes; the abandoned steps have no targets
    assert (replay.sample(2, 0.4).observation[:, 0] == 1).all()


def test_stacks_that_do_not_shift_are_refused():
    replay = make_replay(frame_stack=2)
    shape = (2, *observation_space(2).shape)
    observation = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    with pytest.raises(UserError, match=r"frame_stack=2.*oldest first"):
        replay.add(transition(observation=observation, next_observation=observation))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"length": 4}, "set capacity to 10 or more"),
        ({"frame_stack": 3, "observation_space": Box(0, 1, (4, 2))}, "frame_stack=3 does not divide"),
        ({"unroll_length": 0}, "unroll_length=0"),
        ({"num_actions": 0}, "num_actions=0"),
        ({"discount": 1.5}, "discount=1.5"),
        ({"priority_exponent": -1.0}, "priority_exponent=-1.0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changes, message):
    with pytest.raises(UserError, match=message):
        make_replay(**changes)


def test_spaces_that_are_not_arrays_are_refused():
    with pytest.raises(UnsupportedError, match="Box or MultiBinary"):
        make_replay(observation_space=Dict({"a": Box(0, 1, (2,))}))


@pytest.mark.parametrize("steps", [3, 7, 61])
@pytest.mark.parametrize("stack", [1, 3])
def test_a_loaded_replay_goes_on_exactly_as_the_saved_one(steps, stack):
    def go_on(replay: Replay, streams: RandomStreams) -> list[np.ndarray]:
        found = []
        for _ in range(40):
            replay.add(streams.next_transition())
            if len(replay) >= 6:
                batch = replay.sample(6, 0.5)
                replay.update_priorities(batch.index, batch.value_target[:, 0])
                found += [np.asarray(value).copy() for value in vars(batch).values()]
        return [*found, leaves(replay).copy()]

    replay, streams = filled_replay(steps, frame_stack=stack, random_play=0.3)
    if len(replay) >= 2:
        replay.update_priorities(replay.sample(2, 0.4).index, torch.tensor([3.0, 0.1]))
    state, later_streams = copy.deepcopy(replay.state_dict()), copy.deepcopy(streams)
    assert_plain(state)
    expected = go_on(replay, streams)
    fresh, _ = filled_replay(13, frame_stack=stack, seed=99)  # whatever was in it must not matter
    fresh.load_state_dict(state)
    for ours, theirs in zip(go_on(fresh, later_streams), expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("changes", [{"num_envs": 3}, {"length": 30}, {"frame_stack": 2}, {"unroll_length": 3}])
def test_a_state_of_another_layout_is_refused(changes):
    state = filled_replay(5)[0].state_dict()
    with pytest.raises(UserError, match="cannot load"):
        make_replay(**changes).load_state_dict(state)


def test_equal_seeds_draw_equal_batches_and_others_do_not():
    drawn = [filled_replay(seed=seed)[0].sample(16, 0.4).index.tolist() for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_returns_that_end_within_a_sequence_are_refused():
    with pytest.raises(UserError, match="return_length=2: must be above unroll_length=2"):
        make_replay(return_length=2)
