"""Gymnasium's side: autoreset modes, the single view, other libraries."""

from __future__ import annotations

import warnings
from functools import partial

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

import thinker
from tests.fakes import FakeModel, NativeNextStep, RandomEpisodes, Witness, random_episodes
from thinker.augmented import SingleThinkerEnv, ThinkerEnv, single_vector
from thinker.world_model.spec import DualModelSpec
from thinker.world_model.trainer import TrainerSettings

SAME_STEP, NEXT_STEP, DISABLED = AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED


@pytest.mark.parametrize(
    ("kind", "mode"),
    [(SyncVectorEnv, NEXT_STEP), (SyncVectorEnv, DISABLED), (AsyncVectorEnv, NEXT_STEP), (AsyncVectorEnv, SAME_STEP)],
)
def test_all_autoreset_modes_that_gymnasium_offers_give_the_same_steps(kind, mode):
    one = ThinkerEnv(random_episodes(), FakeModel(2), stage_length=3)
    other = ThinkerEnv(random_episodes(mode=mode, kind=kind), FakeModel(2), stage_length=3)
    try:
        for expected, got in zip(one.reset(seed=0)[0].values(), other.reset(seed=0)[0].values()):
            torch.testing.assert_close(got, expected)
        random = np.random.default_rng(0)
        ended = 0
        for _ in range(60):
            actions = random.integers(0, 2, (3, 2))
            expected, got = one.step(actions), other.step(actions)
            for i in (1, 2, 3):
                np.testing.assert_array_equal(got[i], expected[i])
            for key in ("tree", "hidden"):
                torch.testing.assert_close(got[0][key], expected[0][key])
            for row in np.flatnonzero(expected[2] | expected[3]):
                ended += 1
                torch.testing.assert_close(got[4]["final_obs"][row]["tree"], expected[4]["final_obs"][row]["tree"])
                assert got[4]["final_info"]["time"][row] == expected[4]["final_info"]["time"][row]
                assert got[4]["started_at"][row] == expected[4]["started_at"][row]
        assert ended > 5
    finally:
        other.close()


def valid_transitions(witness, row):
    names = ("observation", "action", "reward", "terminated", "truncated", "next_observation")
    return [[getattr(one, name)[row] for name in names] for one in witness.transitions if one.valid[row]]


def test_rows_that_cannot_be_reset_alone_wait_one_stage_and_lose_nothing():
    """Rewards, transitions and returns are those of the other modes; only the end is reported one stage later."""
    told, expected = Witness(), Witness()
    waiting = ThinkerEnv(NativeNextStep(random_episodes(mode=NEXT_STEP)), FakeModel(2), stage_length=2, sink=told)
    plain = ThinkerEnv(random_episodes(), FakeModel(2), stage_length=2, sink=expected)
    waiting.reset(seed=0), plain.reset(seed=0)
    episodes = {"waiting": [[], [], []], "plain": [[], [], []]}
    # Hash the action from the state, so that both see the same actions in the same states.
    for name, env, steps in (("waiting", waiting, 120), ("plain", plain, 80)):
        finals = 0
        for step in range(steps):
            if step % 2 == 0:
                env.step(np.zeros((3, 2), int))
                continue
            action = (env.real_observation.sum(1) % 2).astype(int)
            _, reward, terminated, truncated, info = env.step(np.stack([action, action], 1))
            for row in np.flatnonzero(terminated | truncated):
                finals += 1
                assert info["final_obs"][row] is not None
                episodes[name][row].append((info["episode"]["r"][row], info["episode"]["l"][row]))
        assert finals > 5
    for row in range(3):
        got, want = valid_transitions(told, row), valid_transitions(expected, row)
        number = min(len(got), len(want))
        assert number > 20
        for one, other in zip(got[:number], want[:number]):
            for part, expected_part in zip(one, other):
                np.testing.assert_array_equal(part, expected_part)
        number = min(len(episodes["waiting"][row]), len(episodes["plain"][row]))
        assert number > 1
        np.testing.assert_allclose(episodes["waiting"][row][:number], episodes["plain"][row][:number])


def test_gymnasiums_native_cart_pole_works():
    env = thinker.make("CartPole-v1", num_envs=4, vectorization="native", stage_length=2, seed=0)
    env.reset()
    random = np.random.default_rng(0)
    lengths = []
    for _ in range(400):
        *_, info = env.step(random.integers(0, 2, (4, 2)))
        if "episode" in info:
            lengths += info["episode"]["l"][info["_episode"]].tolist()
            assert info["episode"]["r"][info["_episode"]].tolist() == lengths[-info["_episode"].sum() :]
    assert len(lengths) > 10


TRAINED = DualModelSpec(training=TrainerSettings(warm_up_transitions=40, batch_size=4))


def test_a_learned_model_survives_a_reset_in_the_middle_of_episodes():
    env = thinker.make("CartPole-v1", num_envs=4, stage_length=2, seed=0, model=TRAINED)
    random = np.random.default_rng(0)
    for _ in range(3):
        env.reset()
        for _ in range(60):
            env.step(random.integers(0, 2, (4, 2)))
    assert env.sink.collected_transitions == 3 * 30 * 4
    assert env.sink.trained_transitions > 0


def test_actions_with_an_offset_reach_the_environment():
    class Offset(RandomEpisodes):
        def __init__(self, number):
            super().__init__(number, 3, 0.0)
            self.action_space = spaces.Discrete(3, start=5)

        def step(self, action):
            assert self.action_space.contains(action)
            return self._observation(), float(action), False, False, {}

    env = ThinkerEnv(SyncVectorEnv([partial(Offset, 0)], autoreset_mode=SAME_STEP), FakeModel(3), stage_length=1)
    env.reset()
    assert env.step(np.array([[2, 0]]))[1][0] == 7


def test_single_view_passes_gymnasiums_checker():
    for env_id, options in [("CartPole-v1", {}), ("thinker/Sokoban-v0", {"size": 5, "boxes": 1})]:
        env = thinker.make(env_id, num_envs=None, model="simulator", stage_length=4, env_options=options, seed=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that boxes are unbounded, and that the environment has no spec
            check_env(env)


def test_single_view_equals_the_vector_environment_and_shows_the_final_observation():
    model = FakeModel(2)
    vector = ThinkerEnv(random_episodes(1), model, stage_length=3, output="numpy")
    inner = ThinkerEnv(single_vector(RandomEpisodes(0, 2, 0.3)), model, stage_length=3, output="numpy", autoreset=False)
    single = SingleThinkerEnv(inner)
    with pytest.raises(ResetNeeded):
        single.step(np.array([0, 0]))
    many, _ = vector.reset()
    one, info = single.reset()
    random = np.random.default_rng(0)
    ended = 0
    for _ in range(60):
        np.testing.assert_array_equal(one["tree"], many["tree"][0])
        action = random.integers(0, 2, 2)
        many, reward, terminated, truncated, infos = vector.step(action[None])
        one, *rest, info = single.step(action)
        assert rest == [reward[0], terminated[0], truncated[0]]
        assert info["root_value"] == (infos["root_value"][0] if not rest[1] and not rest[2] else info["root_value"])
        if rest[1] or rest[2]:
            ended += 1
            np.testing.assert_array_equal(one["tree"], infos["final_obs"][0]["tree"])
            assert info["episode"]["r"] == infos["episode"]["r"][0]
            with pytest.raises(ResetNeeded):
                single.step(action)
            one, _ = single.reset()
    assert ended > 3


def test_seed_given_to_make_is_used_by_the_first_reset():
    options = dict(num_envs=2, model="simulator", env_options={"size": 6, "boxes": 1}, observe=("real_state",))
    seeded = thinker.make("thinker/Sokoban-v0", seed=7, **options).reset()[0]["real_state"]
    given = thinker.make("thinker/Sokoban-v0", **options).reset(seed=7)[0]["real_state"]
    assert torch.equal(seeded, given)


def test_a_model_learns_even_where_the_caller_has_turned_gradients_off():
    env = thinker.make("CartPole-v1", num_envs=4, stage_length=2, seed=0, model=TRAINED)
    env.reset()
    with torch.no_grad():
        for _ in range(60):
            env.step(np.zeros((4, 2), int))
    assert env.sink.trained_transitions > 0
