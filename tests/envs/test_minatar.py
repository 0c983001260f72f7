"""MinAtar: the package's own games, saved and restored exactly, played by seeds, and searched with a perfect model."""

from __future__ import annotations

import sys

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env

from thinker.augmented import ThinkerEnv
from thinker.envs.minatar import ACTION_NAMES, MinAtarEnv, MinAtarSpec
from thinker.envs.replayable import environments_state, restore_environments
from thinker.errors import UserError
from thinker.interfaces import NO_ACTION
from thinker.runs import checkpoint
from thinker.viewer.frames import FrameStore
from thinker.world_model.simulator import simulator

GAMES = ["asterix", "breakout", "freeway", "seaquest", "space_invaders"]


def test_without_the_package_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "minatar", None)
    with pytest.raises(UserError, match=r"need the package minatar .*thinker\[minatar\]"):
        MinAtarSpec().check()


def test_wrong_options_are_refused_with_what_would_do():
    with pytest.raises(UserError, match=r"game is 'brekout'; did you mean breakout\? expected one of asterix, "):
        MinAtarEnv("brekout")
    with pytest.raises(UserError, match="actions is 'few'; expected one of minimal, all"):
        MinAtarEnv(actions="few")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="sticky_action_probability is 2; expected 0 to 1"):
        MinAtarEnv(sticky_action_probability=2)
    with pytest.raises(UserError, match="max_steps is 0; expected at least 1"):
        MinAtarEnv(max_steps=0)


minatar = pytest.importorskip("minatar", reason="the extra thinker[minatar] is not installed")


@pytest.mark.parametrize("game", GAMES)
def test_the_games_are_those_of_the_package(game):
    env = MinAtarEnv(game, actions="all", sticky_action_probability=0.2)
    theirs = minatar.Environment(game, 0.2)
    observation, _ = env.reset(seed=7)
    theirs.seed(int(np.random.Generator(np.random.PCG64(7)).integers(2**32)))
    random = np.random.default_rng(0)
    theirs.reset()
    for _ in range(200):
        expected = theirs.state().transpose(2, 0, 1)
        assert observation.dtype == np.uint8
        assert np.array_equal(observation, expected)
        assert observation[0].sum() == 1  # the player's plane
        action = int(random.integers(6))
        observation, reward, terminated, truncated, _ = env.step(action)
        assert (reward, terminated, truncated) == (*theirs.act(action), False)
        if terminated:
            observation, _ = env.reset()
            theirs.reset()
            theirs.last_action = 0


def test_minimal_actions_have_their_names():
    env = MinAtarEnv("freeway")
    assert env.action_space.n == 3
    assert env.metadata["action_names"] == ("no-op", "up", "down")
    assert MinAtarEnv("freeway", actions="all").metadata["action_names"] == ACTION_NAMES


def test_it_is_a_registered_gymnasium_environment():
    env = gym.make("thinker/MinAtar-v0", game="asterix", max_steps=9)
    check_env(env.unwrapped, skip_render_check=True)
    env.reset(seed=0)
    ends = [env.step(0)[3] for _ in range(9)]
    assert ends == [False] * 8 + [True]


@pytest.mark.parametrize("game", GAMES)
def test_a_saved_state_continues_exactly(game, tmp_path):
    envs, random = MinAtarSpec(game=game).build(3), np.random.default_rng(0)
    envs.reset(seed=1)
    actions = random.integers(envs.single_action_space.n, size=(60, 3))
    for one in actions[:30]:
        envs.step(one)
    checkpoint.save(tmp_path, 0, environments_state(envs))
    expected = [envs.step(one) for one in actions[30:]]
    other = MinAtarSpec(game=game).build(3)
    restore_environments(other, checkpoint.load(checkpoint.list_checkpoints(tmp_path)[0])[1])
    for one, before in zip(actions[30:], expected):
        after = other.step(one)
        for left, right in zip(after[:4], before[:4]):
            assert np.array_equal(left, right)


def test_a_snapshot_of_another_game_is_refused():
    one, other = MinAtarEnv("breakout"), MinAtarEnv("freeway")
    one.reset(seed=0)
    with pytest.raises(UserError, match="not a snapshot of this game"):
        other.restore(one.snapshot())


@pytest.mark.parametrize("game", ["breakout", "space_invaders"])
def test_the_simulator_predicts_what_happens_even_where_it_is_random(game):
    envs, random = MinAtarSpec(game=game, sticky_action_probability=0.3).build(4), np.random.default_rng(0)
    observation, _ = envs.reset(seed=0)
    model = simulator(envs)
    node = model.root(torch.from_numpy(observation), torch.full((4,), NO_ACTION))
    alive = np.ones(4, bool)
    for _ in range(5):
        actions = random.integers(envs.single_action_space.n, size=4)
        node = model.unroll(node.hidden, torch.from_numpy(actions))
        observation, reward, terminated, _, info = envs.step(actions)
        for e in np.flatnonzero(alive):
            final = info["final_obs"][e] if terminated[e] else observation[e]
            assert np.array_equal(node.state[e], final)
            assert node.reward[e] == reward[e]
            assert node.termination[e] == terminated[e]
        alive &= ~terminated
    assert alive.any()


def test_held_out_episodes_do_not_depend_on_the_number_of_environments():
    spec = MinAtarSpec(game="asterix")
    starts = {}
    for num_envs in (1, 2):
        envs = spec.held_out("test", num_envs, 4)
        observation, _ = envs.reset()
        found = [[one] for one in observation]
        while min(map(len, found)) < 4 // num_envs:
            observation, _, terminated, _, _ = envs.step(np.zeros(num_envs, np.int64))
            for e in np.flatnonzero(terminated):
                found[e].append(observation[e])
        starts[num_envs] = [found[i % num_envs][i // num_envs] for i in range(4)]
    assert np.array_equal(starts[1], starts[2])


def test_with_a_sticky_action_probability_of_1_no_action_is_taken():
    env = MinAtarEnv("breakout", sticky_action_probability=1.0)
    start, _ = env.reset(seed=0)
    later = env.step(1)[0]
    assert np.array_equal(start[0], later[0])  # the paddle


def test_planes_are_drawn_in_their_colours():
    env = MinAtarEnv("breakout")
    observation, _ = env.reset(seed=0)
    colours = env.metadata["plane_colours"]
    names = env.metadata["plane_names"]
    store = FrameStore(env.observation_space, plane_colours=colours, plane_names=names)
    assert store.view.colours == {"paddle": "#f0f0f0", "ball": "#e65541", "trail": "#5f5f6e", "brick": "#ebbe46"}
    assert FrameStore(env.observation_space, plane_colours=colours, plane_names=names[1:]).view.colours is None
    assert (store.view.kind, store.view.height, store.view.width) == ("image", 80, 80)
    picture = np.asarray(store._picture(observation))
    for y, x in [(9, int(observation[0, 9].argmax())), (1, 5), (5, 5)]:  # paddle, brick, nothing
        planes = np.flatnonzero(observation[:, y, x])
        expected = colours[planes[0]] if len(planes) else (0, 0, 0)
        assert np.array_equal(picture[8 * y : 8 * y + 8, 8 * x : 8 * x + 8], np.broadcast_to(expected, (8, 8, 3)))
    wrong = observation.copy()
    wrong[1, 5, 5] = 1
    assert store.error(wrong, observation, observation) == pytest.approx(0.01)


def test_it_can_be_searched():
    envs = MinAtarSpec().build(2)
    env = ThinkerEnv(envs, simulator(envs), stage_length=3, max_depth=2)
    env.reset(seed=0)
    for _ in range(6):
        observation, *_ = env.step(np.zeros((2, 2), np.int64))
    assert observation["hidden"].shape == (2, 4, 10, 10)
