"""Episode statistics: returns and lengths in real steps, and whether an episode was a success."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics

from tests.fakes import FakeModel, NativeNextStep, RandomEpisodes, fraction, random_episodes
from thinker.augmented import SingleThinkerEnv, ThinkerEnv, single_vector

SAME_STEP, NEXT_STEP, DISABLED = AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED


def succeeds(number: int, time: int) -> bool:
    return fraction(number, time, 73) < 0.5


class Telling(RandomEpisodes):
    """Tells at the end of an episode whether it was a success."""

    entry = "is_success"

    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        if terminated or truncated:
            info[self.entry] = succeeds(self.number, self.time)
        return observation, reward, terminated, truncated, info


class TellingByAnotherName(Telling):
    metadata = {"success": "solved"}
    entry = "solved"


class TellingAlways(Telling):
    """Tells on every step; what it says in the middle of an episode means nothing."""

    def step(self, action):
        *step, info = super().step(action)
        return *step, {self.entry: True, **info}


TELLING = (Telling, TellingByAnotherName, TellingAlways)


def telling_envs(kind, mode, num_envs=3):
    return SyncVectorEnv([partial(kind, n, 2, 0.3) for n in range(num_envs)], autoreset_mode=mode)


@pytest.mark.parametrize("kind", TELLING)
@pytest.mark.parametrize("stage_length", [1, 3])
@pytest.mark.parametrize("mode", [SAME_STEP, NEXT_STEP, DISABLED], ids=lambda mode: mode.name)
def test_success_is_what_the_environment_tells_when_an_episode_ends(kind, stage_length, mode):
    env = ThinkerEnv(telling_envs(kind, mode), FakeModel(2), stage_length=stage_length)
    env.reset()
    random, seen = np.random.default_rng(0), []
    for _ in range(30 * stage_length):
        _, _, terminated, truncated, info = env.step(random.integers(0, 2, (3, 2)))
        ended = terminated | truncated
        assert ("episode" in info) == ended.any()
        if ended.any():
            times = env.last_transition.next_observation[:, 1]
            expected = [ended[row] and succeeds(row, int(times[row])) for row in range(3)]
            assert info["episode"]["success"].tolist() == expected
            assert info["episode"]["success"].dtype == bool
            seen += np.array(expected)[ended].tolist()
    assert 5 < sum(seen) < len(seen) - 5


@pytest.mark.parametrize("kind", TELLING)
def test_a_row_that_waits_is_reported_with_its_success_one_stage_later(kind):
    env = ThinkerEnv(NativeNextStep(telling_envs(kind, NEXT_STEP)), FakeModel(2), stage_length=2)
    env.reset()
    waiting: dict[int, bool] = {}  # row: success
    seen = []
    for step in range(120):
        _, _, terminated, truncated, info = env.step(np.zeros((3, 2), int))
        ended = terminated | truncated
        if step % 2 == 0:
            assert not ended.any()
            continue
        assert set(np.flatnonzero(ended)) == set(waiting)
        if ended.any():
            assert info["episode"]["success"].tolist() == [waiting.get(row, False) for row in range(3)]
            seen += waiting.values()
        told = env.last_transition
        now = np.flatnonzero(told.terminated | told.truncated)
        waiting = {int(row): succeeds(row, int(told.next_observation[row, 1])) for row in now}
    assert 5 < sum(seen) < len(seen) - 5


def test_success_of_the_single_view():
    vector = ThinkerEnv(
        single_vector(Telling(0, 2, 0.3)), FakeModel(2), stage_length=2, output="numpy", autoreset=False
    )
    env = SingleThinkerEnv(vector)
    seen = []
    for _ in range(20):
        env.reset()
        ended = False
        while not ended:
            _, _, terminated, truncated, info = env.step(np.array([0, 0]))
            ended = terminated or truncated
        time = int(vector.last_transition.next_observation[0, 1])
        assert info["episode"]["success"] == succeeds(0, time)
        seen.append(info["episode"]["success"])
    assert 2 < sum(seen) < 18


@pytest.mark.parametrize("mode", [SAME_STEP, NEXT_STEP, DISABLED], ids=lambda mode: mode.name)
@pytest.mark.parametrize(
    "make",
    [
        random_episodes,
        # The metadata names another entry than the one that is there.
        lambda mode: telling_envs(type("Misnamed", (Telling,), {"metadata": {"success": "solved"}}), mode),
    ],
    ids=["says nothing", "says something else"],
)
def test_success_is_absent_where_the_environment_does_not_tell(make, mode):
    env = ThinkerEnv(make(mode=mode), FakeModel(2), stage_length=1)
    env.reset()
    ends = 0
    for _ in range(20):
        *_, info = env.step(np.zeros((3, 2), int))
        if "episode" in info:
            ends += 1
            assert set(info["episode"]) == {"r", "l", "t"}
    assert ends > 5


def test_success_goes_on_exactly_from_a_saved_state():
    """A row that waits when the state is saved is reported by the environment that loads it."""

    def played(save_at):
        inner = telling_envs(Telling, NEXT_STEP)
        env = ThinkerEnv(NativeNextStep(inner), FakeModel(2), stage_length=1)
        env.reset()
        told = []
        for step in range(30):
            if step == save_at:
                state = env.state_dict()
                env = ThinkerEnv(NativeNextStep(telling_envs(Telling, NEXT_STEP)), FakeModel(2), stage_length=1)
                env.load_state_dict(state)
                env.envs._inner = inner  # the real environments are the caller's to restore
            *_, info = env.step(np.zeros((3, 2), int))
            told.append(info["episode"]["success"].tolist() if "episode" in info else None)
        return told

    unbroken = played(None)
    for save_at in range(2, 12):
        assert played(save_at) == unbroken


def wrapped_and_plain(make):
    """Statistics of all ended episodes by row, with Gymnasium's wrapper below and without."""
    found = []
    for wrap in (RecordEpisodeStatistics, lambda envs: envs):
        env = ThinkerEnv(wrap(make()), FakeModel(2), stage_length=1)
        env.reset()
        episodes = [[], [], []]
        for _ in range(60):
            _, _, terminated, truncated, info = env.step(np.zeros((3, 2), int))
            for row in np.flatnonzero(terminated | truncated):
                episode = info["episode"]
                episodes[row].append([float(episode[name][row]) for name in ("r", "l", "success")])
        assert sum(map(len, episodes)) > 20
        found.append(episodes)
    return found


def test_statistics_are_those_of_a_wrapper_and_success_is_added():
    wrapped, plain = wrapped_and_plain(lambda: telling_envs(Telling, SAME_STEP))
    for row in range(3):
        np.testing.assert_allclose(wrapped[row], plain[row], atol=1e-6)


def test_statistics_of_a_wrapper_are_right_where_rows_wait():
    wrapped, plain = wrapped_and_plain(lambda: NativeNextStep(telling_envs(Telling, NEXT_STEP)))
    for row in range(3):
        np.testing.assert_allclose(wrapped[row], plain[row], atol=1e-6)
