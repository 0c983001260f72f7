"""Atari: frames as Gymnasium's wrappers make them, lives and games, scores, and exact states."""

from __future__ import annotations

import sys

import gymnasium as gym
import numpy as np
import pytest
import torch

from thinker.augmented import ThinkerEnv
from thinker.envs.atari import env as module
from thinker.envs.atari.env import AtariEnv, game_names, rom_name
from thinker.envs.atari.screen import overlaps, shrink
from thinker.envs.atari.spec import AtariSpec
from thinker.envs.replayable import environments_state, restore_environments
from thinker.errors import UserError
from thinker.interfaces import NO_ACTION
from thinker.runs import checkpoint
from thinker.world_model.no_model import NoModel
from thinker.world_model.simulator import simulator


def test_without_the_package_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "ale_py", None)
    with pytest.raises(UserError, match=r"need the package ale-py .*thinker\[atari\]"):
        AtariSpec().check()


@pytest.mark.parametrize(("height", "width", "size"), [(210, 160, 80), (210, 160, 48), (250, 160, 160), (7, 5, 3)])
def test_shrinking_is_the_average_over_areas_of_the_maximum_of_two_screens(height, width, size):
    random = np.random.default_rng(0)
    screens = random.integers(0, 256, (2, height, width, 3), np.uint8)
    frame = np.empty((3, size, size), np.uint8)
    shrink(screens, overlaps(height, size), overlaps(width, size), frame)

    lines = screens.max(0).astype(np.float64)  # every pixel is repeated, so that areas are whole pixels
    tall = lines.repeat(size, 0).reshape(size, height, width, 3).mean(1)
    small = tall.repeat(size, 1).reshape(size, size, width, 3).mean(2)
    assert np.abs(frame - small.transpose(2, 0, 1)).max() <= 0.501


ale_py = pytest.importorskip("ale_py", reason="the extra thinker[atari] is not installed")


def play(env, actions):
    """The results of steps, each followed by a reset where an episode ended."""
    results = []
    for action in actions:
        results.append(env.step(int(action)))
        if results[-1][2] or results[-1][3]:
            env.reset()
    return results


def same(left, right):
    return np.array_equal(left[0], right[0]) and left[1:] == right[1:]


# --------------------------------------------------------------------------------------------------------- frames


@pytest.mark.parametrize(("game", "gym_id", "colours"), [("pong", "Pong", "rgb"), ("ms_pacman", "MsPacman", "gray")])
def test_observations_are_those_of_gymnasiums_wrappers(game, gym_id, colours):
    pytest.importorskip("cv2", reason="Gymnasium's wrappers need opencv-python")
    gym.register_envs(ale_py)
    theirs = gym.make(f"ALE/{gym_id}-v5", frameskip=1, repeat_action_probability=0.0)
    theirs = gym.wrappers.AtariPreprocessing(
        theirs, noop_max=30, frame_skip=4, screen_size=80, grayscale_obs=colours == "gray"
    )
    theirs = gym.wrappers.FrameStackObservation(theirs, 4)  # padded with the first frame
    ours = AtariEnv(game, colours=colours, life_loss="continues", rewards="raw", fire="never", size=80)

    def as_ours(stack):
        stack = stack[..., None] if colours == "gray" else stack
        return stack.transpose(0, 3, 1, 2).reshape(ours.observation_space.shape)

    expected, _ = theirs.reset(seed=3)
    observation, _ = ours.reset(seed=3)
    random, different = np.random.default_rng(0), 0
    for number in range(150):
        difference = np.abs(observation.astype(int) - as_ours(expected))
        assert difference.max() <= 1, number  # of rounding
        different += (difference > 0).mean()
        action = int(random.integers(ours.action_space.n))
        expected, reward, terminated, *_ = theirs.step(action)
        observation, own_reward, own_terminated, *_ = ours.step(action)
        assert (own_reward, own_terminated) == (reward, terminated)
        assert not terminated
    assert different / 150 < 1e-3


def test_the_stack_starts_with_the_first_frame_and_its_newest_frame_is_the_last():
    env = AtariEnv("pong", size=32, colours="gray", frame_stack=3)
    first, _ = env.reset(seed=0)
    assert first.shape == (3, 32, 32)
    assert np.array_equal(first[0], first[2])
    for _ in range(20):
        second = env.step(2)[0]
        assert np.array_equal(second[:2], first[1:])
        first = second
    assert not np.array_equal(first[1], first[2])


def test_a_step_is_so_many_frames_of_the_emulator():
    for repeat in (1, 3):
        env = AtariEnv("pong", action_repeat=repeat, max_no_ops=0, fire="never", max_frames=7 * repeat, size=16)
        env.reset(seed=0)
        ends = [env.step(0)[2:4] for _ in range(7)]
        assert ends == [(False, False)] * 6 + [(False, True)]


# -------------------------------------------------------------------------------------------------- games and lives


def test_a_lost_life_ends_the_episode_but_not_the_game():
    env, random = AtariEnv("breakout", size=16), np.random.default_rng(0)
    _, info = env.reset(seed=0)
    lives = [info["lives"]]
    while len(lives) < 6:
        _, _, terminated, truncated, info = env.step(int(random.integers(4)))
        assert not truncated
        if terminated:
            assert info["game_continues"] == (lives[-1] > 1)
            lives.append(env.reset()[1]["lives"])
        else:
            assert info["lives"] == lives[-1]
    assert lives == [5, 4, 3, 2, 1, 5]  # and a new game


def test_with_a_seed_or_in_the_middle_of_an_episode_a_reset_starts_a_new_game():
    env = AtariEnv("breakout", size=16)
    start, _ = env.reset(seed=4)
    for seed in (4, None):
        env.reset(seed=4)
        while not (result := env.step(0))[2]:
            pass
        assert result[4]["game_continues"]
        observation, info = env.reset(seed=seed)
        assert info["lives"] == (4 if seed is None else 5)
        if seed is not None:
            assert np.array_equal(observation, start)
    env.step(0)
    assert env.reset()[1]["lives"] == 5


def test_life_loss_can_continue_the_episode():
    env = AtariEnv("breakout", size=16, life_loss="continues", fire="never")
    env.reset(seed=0)
    lives = set()
    for number in range(1000):
        _, _, terminated, _, info = env.step(1 if number % 4 == 0 else 0)
        assert not info["game_continues"]
        lives.add(info["lives"])
        if terminated:
            break
    assert terminated
    assert lives == {0, 1, 2, 3, 4, 5}


def test_rewards_are_clipped_for_learning_and_reported_raw():
    clipped = AtariEnv("space_invaders", size=16, fire="never")
    raw = AtariEnv("space_invaders", size=16, fire="never", rewards="raw")
    clipped.reset(seed=0)
    raw.reset(seed=0)
    actions = np.random.default_rng(0).integers(6, size=300)
    pairs = list(zip(play(clipped, actions), play(raw, actions)))
    assert max(right[1] for _, right in pairs) > 1
    for left, right in pairs:
        assert left[1] == np.clip(right[1], -1, 1)
        assert left[4]["raw_reward"] == right[1] == right[4]["raw_reward"]


def test_statistics_are_raw_scores_of_whole_games_in_training_and_on_held_out_games():
    spec = AtariSpec(game="breakout", size=16, colours="gray", max_frames=3_000)
    for envs in (spec.build(2), spec.held_out("test", 2, 4)):
        env = ThinkerEnv(envs, NoModel(4, torch.device("cpu")), stage_length=1, observe=("real_state",))
        env.reset(seed=0)
        score, length, lives_lost, games = np.zeros(2), np.zeros(2, int), 0, 0
        random = np.random.default_rng(1)
        while games < 3:
            actions = np.stack((random.integers(4, size=2), np.zeros(2, int)), 1)
            _, _, terminated, truncated, info = env.step(actions)
            for e in range(2):
                final = info["final_info"] if (terminated | truncated)[e] else info
                score[e] += final["raw_reward"][e]
                length[e] += 1
                if (terminated | truncated)[e] and final["game_continues"][e]:
                    lives_lost += 1
                    assert not info["_episode"][e]
                elif (terminated | truncated)[e]:
                    games += 1
                    assert info["_episode"][e]
                    assert info["episode"]["r"][e] == score[e]
                    assert info["episode"]["l"][e] == length[e]
                    score[e] = length[e] = 0
        assert lives_lost >= 4
        assert score.sum() + 3 > 0


def test_new_games_start_with_different_numbers_of_no_ops_that_depend_on_the_seed_alone():
    env = AtariEnv("breakout", size=16, fire="never")
    starts = [env.reset(seed=seed)[0].tobytes() for seed in range(3)]
    play(env, np.random.default_rng(0).integers(4, size=50))
    frames = set()
    for seed in range(40):
        observation, _ = env.reset(seed=seed)
        frames.add(env._ale.getEpisodeFrameNumber())
        if seed < 3:
            assert observation.tobytes() == starts[seed]
    assert min(frames) >= 1
    assert 30 >= max(frames) > 20
    assert len(frames) > 15


def test_held_out_games_are_the_same_whatever_was_played_before():
    spec = AtariSpec(game="breakout", size=16)
    envs = spec.held_out("validation", 2, 4)
    first, _ = envs.reset(seed=5)
    games = []
    while len(games) < 2:
        observation, _, _, _, info = envs.step(np.full(2, 1))
        for e in np.flatnonzero(info.get("_final_obs", ())):
            if not info["final_info"]["game_continues"][e]:
                games.append((e, observation[e]))
    again, _ = envs.reset()
    assert np.array_equal(first, again)
    env = spec.make_env()
    for e, start in games:
        assert np.array_equal(env.reset(seed=1_000_000_002 + int(e))[0], start)


# ------------------------------------------------------------------------------------------------------ exact states


@pytest.mark.parametrize("options", [{}, {"sticky_action_probability": 0.5, "colours": "gray"}])
def test_a_saved_state_continues_exactly(options, tmp_path):
    spec = AtariSpec(game="breakout", size=32, **options)
    envs, actions = spec.build(2), np.random.default_rng(0).integers(4, size=(140, 2))
    envs.reset(seed=1)
    for one in actions[:50]:
        envs.step(one)
    checkpoint.save(tmp_path, 0, environments_state(envs))
    expected = [envs.step(one) for one in actions[50:]]
    other = spec.build(2)
    restore_environments(other, checkpoint.load(checkpoint.list_checkpoints(tmp_path)[0])[1])
    for one, before in zip(actions[50:], expected):
        after = other.step(one)
        for left, right in zip(after[:4], before[:4]):
            assert np.array_equal(left, right)
    assert sum(step[2].sum() for step in expected) > 2  # lives were lost on the way


def test_the_simulator_predicts_exactly():
    envs = AtariSpec(game="breakout", size=16, sticky_action_probability=0.25).build(2)
    observation, _ = envs.reset(seed=0)
    model = simulator(envs)
    node = model.root(torch.from_numpy(observation), torch.full((2,), NO_ACTION))
    for action in (1, 2, 2, 3, 0):
        node = model.unroll(node.hidden, torch.full((2,), action))
        observation, reward, terminated, _, _ = envs.step(np.full(2, action))
        assert np.array_equal(node.state, observation)
        assert node.reward.tolist() == reward.tolist()
        assert node.termination.tolist() == terminated.tolist()


def test_a_snapshot_of_another_game_or_size_is_refused():
    env = AtariEnv("pong", size=16)
    env.reset(seed=0)
    for other in (AtariEnv("breakout", size=16), AtariEnv("pong", size=20)):
        with pytest.raises(UserError, match=r"this is a snapshot of pong with frames of shape \(4, 3, 16, 16\)"):
            other.restore(env.snapshot())


# -------------------------------------------------------------------------------------------------- names and errors


def test_games_are_known_by_many_spellings_and_wrong_names_get_the_nearest():
    for spelling in ("ms_pacman", "MsPacman", "ms-pacman", "ALE/MsPacman-v5", "Ms Pacman"):
        assert rom_name(spelling) == "ms_pacman"
    with pytest.raises(UserError, match=r"there is no Atari game 'brakeout'; did you mean breakout"):
        AtariSpec(game="brakeout").check()
    with pytest.raises(UserError, match="there is no Atari game 'xyzzy'; games are adventure, "):
        AtariSpec(game="xyzzy").check()
    assert "pong" in game_names()


def test_a_missing_rom_is_told(monkeypatch, tmp_path):
    monkeypatch.setenv("ALE_ROMS_DIR", str(tmp_path))
    module._rom.cache_clear()
    with pytest.raises(UserError, match=r"the ROM of pong cannot be read .*ALE_ROMS_DIR"):
        AtariEnv("pong")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 15}, "size is 15; observations can be 16 to 160 pixels high and wide"),
        ({"size": 161}, "size is 161"),
        ({"colours": "blue"}, "colours is 'blue'; expected one of 'rgb', 'gray'"),
        ({"frame_stack": 0}, "frame_stack is 0; expected at least 1"),
        ({"action_repeat": 0}, "action_repeat is 0"),
        ({"max_no_ops": -1}, "max_no_ops is -1; expected at least 0"),
        ({"sticky_action_probability": -1}, "sticky_action_probability is -1; expected 0 to 1"),
        ({"life_loss": "hurts"}, "life_loss is 'hurts'; expected one of 'ends-episode', 'continues'"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(UserError, match=message):
        AtariSpec(game="pong", **options).check()


def test_the_screen_can_be_rendered():
    env = gym.make("thinker/Atari-v0", game="pong", render_mode="rgb_array", size=16)
    env.reset(seed=0)
    assert env.render().shape == (210, 160, 3)
