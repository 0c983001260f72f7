"""`collect`: any actor acts for whole stages, and the episodes that ended are told."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from tests.fakes import FakeModel, RandomEpisodes, Witness, random_episodes
from thinker.augmented import ThinkerEnv, collect
from thinker.errors import UserError
from thinker.interfaces import Decision
from thinker.planners import BasePolicy


class Alternating:
    """A hand-written actor: the first action on imaginary steps, then in turn one and the other; it knows no policy."""

    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs
        self.real_steps = 0
        self.events: list[str] = []

    def begin(self, observation, info):
        self.next_is_real = info["next_is_real"]

    def act(self):
        self.events.append("act")
        action = torch.full((self.num_envs, 2), 0)
        if self.next_is_real.all():
            action[:, 0] = self.real_steps % 2
            self.real_steps += 1
        self.decision = Decision(action)
        return self.decision

    def observe(self, decision, observation, reward, terminated, truncated, info):
        assert decision is self.decision
        assert reward.shape == terminated.shape == truncated.shape == (self.num_envs,)
        assert set(observation) == {"tree", "hidden"}
        self.next_is_real = info["next_is_real"]
        self.events.append("observe")


def told_episodes(witness: Witness) -> list[tuple[float, int]]:
    """Return and length of every episode in the order in which they ended, from the transitions themselves."""
    found, returns, lengths = [], np.zeros(3), np.zeros(3, int)
    for told in witness.transitions:
        returns += told.reward
        lengths += 1
        ended = told.terminated | told.truncated
        found += zip(returns[ended].tolist(), lengths[ended].tolist())
        returns[ended], lengths[ended] = 0, 0
    return found


@pytest.mark.parametrize("stage_length", [1, 4])
@pytest.mark.parametrize("make", [lambda env: BasePolicy(env), lambda env: Alternating(3)], ids=["base", "own"])
def test_any_actor_plays_and_its_episodes_are_told(make, stage_length):
    witness = Witness()
    env = ThinkerEnv(random_episodes(), FakeModel(2), stage_length=stage_length, sink=witness)
    actor = make(env)
    actor.begin(*env.reset())
    parts = [collect(env, actor, stages * stage_length) for stages in (20, 1, 9)]
    assert [part.real_steps for part in parts] == [60, 3, 27]
    assert len(witness.transitions) == 30
    expected = told_episodes(witness)
    assert len(expected) > 10
    np.testing.assert_allclose(
        np.concatenate([part.returns for part in parts]), [one for one, _ in expected], rtol=1e-5
    )
    assert np.concatenate([part.lengths for part in parts]).tolist() == [length for _, length in expected]
    assert all(part.success is None for part in parts)


def test_an_actor_is_asked_and_told_once_per_step_and_its_actions_are_taken():
    witness = Witness()
    env = ThinkerEnv(random_episodes(), FakeModel(2), stage_length=3, sink=witness)
    actor = Alternating(3)
    actor.begin(*env.reset())
    collect(env, actor, 12)
    assert actor.events == ["act", "observe"] * 12
    assert [told.action.tolist() for told in witness.transitions] == [[0] * 3, [1] * 3, [0] * 3, [1] * 3]
    assert all(told.policy is None for told in witness.transitions)


def test_the_policy_of_a_decision_reaches_the_sink():
    witness = Witness()
    env = ThinkerEnv(random_episodes(), FakeModel(2), stage_length=1, sink=witness)
    actor = BasePolicy(env)
    actor.begin(*env.reset())
    for _ in range(10):
        policy = actor.act().policy
        collect(env, actor, 1)
        np.testing.assert_array_equal(witness.transitions[-1].policy, policy.numpy())


@pytest.mark.parametrize("num_steps", [1, 2, 4, 7])
def test_steps_that_are_not_whole_stages_are_refused(num_steps):
    env = ThinkerEnv(random_episodes(), FakeModel(2), stage_length=3)
    actor = Alternating(3)
    actor.begin(*env.reset())
    with pytest.raises(UserError, match=f"{num_steps} steps are not whole stages of 3"):
        collect(env, actor, num_steps)
    assert actor.events == []


def test_nothing_is_told_where_no_episode_ended():
    env = ThinkerEnv(random_episodes(end_rate=0.0), FakeModel(2), stage_length=2)
    actor = Alternating(3)
    actor.begin(*env.reset())
    episodes = collect(env, actor, 6)
    assert episodes.returns.shape == episodes.lengths.shape == (0,)
    assert episodes.success is None
    assert episodes.real_steps == 9


class Solvable(RandomEpisodes):
    """Episodes that end at an odd time are a success; failures are told only if ``tells_failure``."""

    tells_failure = True

    def step(self, action):
        *step, terminated, truncated, info = super().step(action)
        success = self.time % 2 == 1
        if (terminated or truncated) and (success or self.tells_failure):
            info["is_success"] = success
        return *step, terminated, truncated, info


class TellsSuccessOnly(Solvable):
    tells_failure = False


def played_success(kind):
    envs = SyncVectorEnv([partial(kind, n, 2, 0.3) for n in range(3)], autoreset_mode=AutoresetMode.SAME_STEP)
    witness = Witness()
    env = ThinkerEnv(envs, FakeModel(2), stage_length=2, sink=witness)
    actor = Alternating(3)
    actor.begin(*env.reset())
    success = collect(env, actor, 80).success
    expected = [
        bool(told.next_observation[row, 1] % 2 == 1)
        for told in witness.transitions
        for row in np.flatnonzero(told.terminated | told.truncated)
    ]
    assert not expected[0]
    assert 5 < sum(expected) < len(expected) - 5
    return success, expected


def test_success_is_told_of_every_episode():
    success, expected = played_success(Solvable)
    assert success.dtype == bool
    assert success.tolist() == expected


def test_environments_that_tell_only_of_success_have_failed_elsewhere():
    success, expected = played_success(TellsSuccessOnly)
    assert success.tolist() == expected
