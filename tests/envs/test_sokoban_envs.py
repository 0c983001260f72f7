"""The two Gymnasium environments of Sokoban: checkers, seeding, autoreset, snapshots, evaluation mode, bad input."""

import functools
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import error
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import DictInfoToList

import thinker.envs  # noqa: F401  (registers the environments)
from thinker.envs.replayable import ReplayableEnvs
from thinker.envs.sokoban import LevelSet, SokobanEnv, SokobanVectorEnv, generate_levels
from thinker.envs.sokoban.solver import solve

EASY: dict[str, Any] = {"size": 5, "boxes": 1, "reverse_moves": (1, 1), "max_steps": 9}
"""Settings with which random play soon meets both ends of an episode: solved, and out of steps."""
ONE_PUSH = LevelSet.parse("######\n#@$. #\n######")
SQUARE = LevelSet.parse("#####\n#@$.#\n#  ##\n#   #\n#####")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("observation", ["tiles", "rgb"])
@pytest.mark.parametrize("render_mode", ["rgb_array", "ansi"])
def test_gymnasium_checkers_pass(observation: str, render_mode: str) -> None:
    env = gymnasium.make("thinker/Sokoban-v0", observation=observation, render_mode=render_mode)
    check_env(env.unwrapped)
    env.reset(seed=0)
    env.step(env.action_space.sample())  # once more through Gymnasium's passive checker


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_make_vec_gives_the_native_environment_and_declares_its_autoreset_mode(mode: AutoresetMode) -> None:
    envs = gymnasium.make_vec("thinker/Sokoban-v0", num_envs=3, size=(6, 7), boxes=2, autoreset_mode=mode)
    assert isinstance(envs, SokobanVectorEnv)
    assert envs.metadata["autoreset_mode"] is envs.autoreset_mode is mode
    observations, _ = envs.reset(seed=0)
    assert observations in envs.observation_space
    assert envs.single_observation_space == gymnasium.spaces.Box(0, 1, (7, 6, 7), np.uint8)
    envs.action_space.seed(0)
    assert envs.step(envs.action_space.sample())[0] in envs.observation_space


def test_the_default_is_ten_by_ten_with_four_boxes_same_step_and_80_by_80_pixels() -> None:
    envs = gymnasium.make_vec("thinker/Sokoban-v0", num_envs=2, observation="rgb")
    assert isinstance(envs, SokobanVectorEnv)
    envs.reset(seed=0)
    assert envs.autoreset_mode is AutoresetMode.SAME_STEP
    assert envs.single_observation_space == gymnasium.spaces.Box(0, 255, (3, 80, 80), np.uint8)
    assert ((envs.snapshot()["boards"] == 3) | (envs.snapshot()["boards"] == 4)).sum() == 2 * 4


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("levels", ["generated", "set"])
def test_every_autoreset_mode_equals_gymnasiums_own_vector_environment(mode: AutoresetMode, levels: str) -> None:
    settings: dict[str, Any] = EASY
    if levels == "set":
        level_set = generate_levels(7, size=5, boxes=1, reverse_moves=(1, 1))
        settings = {"levels": level_set, "max_steps": 9}
    count = 5
    native = SokobanVectorEnv(count, autoreset_mode=mode, **settings)
    gymnasiums = SyncVectorEnv([lambda: SokobanEnv(**settings)] * count, autoreset_mode=mode)
    assert data_equivalence(native.reset(seed=7), gymnasiums.reset(seed=7))
    random = np.random.default_rng(0)
    ends = np.zeros(2, int)
    for _ in range(150):
        actions = random.integers(0, 5, count)
        found, expected = native.step(actions), gymnasiums.step(actions)
        if mode is AutoresetMode.SAME_STEP:  # the one difference: `solved` is about the step, as in the other modes
            np.testing.assert_array_equal(found[4]["solved"], expected[2])
            expected[4]["solved"] = found[4]["solved"]
        for one, other in zip(found[:4], expected[:4]):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)
        assert found[4].keys() == expected[4].keys()
        assert data_equivalence(found[4], expected[4], exact=True)
        ended = found[2] | found[3]
        ends += (found[2].sum(), found[3].sum())
        if mode is AutoresetMode.DISABLED and ended.any():
            again = native.reset(options={"reset_mask": ended})
            assert data_equivalence(again, gymnasiums.reset(options={"reset_mask": ended}), exact=True)
    assert ends.min() > 5
    assert data_equivalence(native.reset(), gymnasiums.reset(), exact=True)  # without a seed the generators go on


@pytest.mark.parametrize("levels", ["generated", "set"])
def test_row_i_plays_the_levels_of_a_single_environment_seeded_with_seed_plus_i(levels: str) -> None:
    settings: dict[str, Any] = (
        {"levels": generate_levels(50, size=6, boxes=1)} if levels == "set" else {"size": 6, "boxes": 1}
    )
    envs = SokobanVectorEnv(4, **settings)
    singles = [SokobanEnv(**settings) for _ in range(4)]
    for seed in (100, None, None, 5):
        observations, info = envs.reset(seed=seed)
        for index, single in enumerate(singles):
            observation, single_info = single.reset(seed=None if seed is None else seed + index)
            np.testing.assert_array_equal(observation, observations[index])
            assert info["level"][index] == single_info["level"]
        assert len({observation.tobytes() for observation in observations}) > 1
    by_list = SokobanVectorEnv(4, **settings).reset(seed=[5, 6, 7, 8])[0]
    np.testing.assert_array_equal(by_list, observations)


def test_unseeded_environments_differ_and_generated_levels_are_counted() -> None:
    first, second = SokobanVectorEnv(2), SokobanVectorEnv(2)
    assert (first.reset()[0] != second.reset()[0]).any()
    assert first.reset()[1]["level"].tolist() == [1, 1]
    assert first.reset(seed=0)[1]["level"].tolist() == [0, 0]


def test_random_order_reaches_every_level_of_a_set_and_names_it() -> None:
    levels = generate_levels(12, size=6, boxes=1)
    envs = SokobanVectorEnv(8, levels=levels, render_mode="ansi")
    envs.reset(seed=0)
    seen: set[int] = set()
    for _ in range(20):
        _, info = envs.reset()
        assert envs.render() == tuple(levels.text(index) for index in info["level"])
        seen |= set(info["level"].tolist())
    assert seen == set(range(12))


def test_returned_arrays_are_copies_unless_asked_otherwise() -> None:
    random = np.random.default_rng(0)
    for copy in (True, False):
        envs = SokobanVectorEnv(6, copy=copy, **EASY)
        envs.reset(seed=0)
        results = [envs.step(random.integers(0, 5, 6)) for _ in range(2)]
        for one, other in zip(results[0][:4], results[1][:4]):
            assert np.shares_memory(one, other) is not copy
        assert np.shares_memory(results[0][4]["level"], results[1][4]["level"]) is not copy


def test_infos_work_with_gymnasiums_list_wrapper() -> None:
    envs = DictInfoToList(SokobanVectorEnv(2, levels=ONE_PUSH))
    envs.reset(seed=0)
    infos = envs.step(np.array([4, 0]))[4]
    assert infos[0]["final_info"]["solved"]
    assert infos[1] == {"solved": False, "level": 0, "boxes_on_target": 0}


def play(envs: SokobanVectorEnv, actions: np.ndarray) -> list[Any]:
    return [envs.step(row) for row in actions]


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
def test_a_snapshot_of_all_boards_repeats_the_future_exactly_even_in_another_environment(mode: AutoresetMode) -> None:
    envs = SokobanVectorEnv(5, autoreset_mode=mode, **EASY)
    envs.reset(seed=1)
    random = np.random.default_rng(1)
    play(envs, random.integers(0, 5, (13, 5)))
    snapshot = envs.snapshot()
    actions = random.integers(0, 5, (60, 5))
    future = play(envs, actions)
    envs.restore(snapshot)
    assert data_equivalence(play(envs, actions), future, exact=True)
    fresh = SokobanVectorEnv(5, autoreset_mode=mode, **EASY)
    fresh.restore(snapshot)
    assert data_equivalence(play(fresh, actions), future, exact=True)
    assert all(isinstance(array, np.ndarray) and array.dtype != object for array in snapshot.values())


def test_a_snapshot_of_some_boards_leaves_the_others_alone_and_can_be_put_elsewhere() -> None:
    envs = SokobanVectorEnv(4, copy=True, **EASY)
    envs.reset(seed=2)
    random = np.random.default_rng(2)
    play(envs, random.integers(0, 5, (4, 4)))
    before = envs.snapshot()
    some = envs.snapshot([2, 0])
    play(envs, random.integers(0, 5, (3, 4)))
    changed = envs.snapshot()
    envs.restore(some, [2, 1])  # board 2 back, board 0 copied onto board 1
    for name, array in envs.snapshot().items():
        np.testing.assert_array_equal(array[2], before[name][2])
        np.testing.assert_array_equal(array[1], before[name][0])
        np.testing.assert_array_equal(array[[0, 3]], changed[name][[0, 3]])


def test_a_single_environment_can_be_restored() -> None:
    env = SokobanEnv()
    env.reset(seed=0)
    env.step(1)
    snapshot = env.snapshot()
    first = [env.step(action) for action in (2, 3, 4, 1)]
    env.restore(snapshot)
    assert data_equivalence([env.step(action) for action in (2, 3, 4, 1)], first, exact=True)


def first_action_of_solution(boards: np.ndarray) -> np.ndarray:
    solutions = [solve(board) for board in boards]
    return np.array([solution.actions[0] if len(solution.actions) else 0 for solution in solutions])


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("num_envs", [1, 3, 7, 10])
def test_evaluation_plays_every_level_once_in_order_and_knows_when_it_is_done(
    mode: AutoresetMode, num_envs: int
) -> None:
    levels = generate_levels(7, size=6, boxes=1, seed=3)
    lengths = np.array([len(solve(board).actions) for board in levels.boards])
    limit = int(np.median(lengths))  # so that some are solved and some are not
    envs = SokobanVectorEnv(num_envs, levels=levels, order="sequential", max_steps=limit, autoreset_mode=mode)
    for seed in (None, 3):  # a reset of all begins anew
        _, info = envs.reset(seed=seed)
        assert info["level"].tolist() == [index if index < 7 else -1 for index in range(num_envs)]
        results: list[tuple[int, int, bool]] = []
        for _ in range(7 * (limit + 1)):
            assert info["evaluating"].any() is not envs.evaluation_done
            idle = ~info["evaluating"]
            observations_before = envs.snapshot()["boards"]
            actions = first_action_of_solution(observations_before)
            actions[idle] = 2
            _, rewards, terminated, truncated, info = envs.step(actions)
            assert not rewards[idle].any()
            assert not (terminated | truncated)[idle].any()
            np.testing.assert_array_equal(envs.snapshot()["boards"][idle], observations_before[idle])
            ended = terminated | truncated
            level = info["final_info"]["level"] if "final_info" in info else info["level"]
            results += [(index, int(level[index]), bool(terminated[index])) for index in np.flatnonzero(ended).tolist()]
            if envs.evaluation_done:
                break
            waiting = ended & info["evaluating"]
            if mode is AutoresetMode.DISABLED and waiting.any():
                envs.reset(options={"reset_mask": waiting})
        assert envs.evaluation_done
        assert sorted(level for _, level, _ in results) == list(range(7))
        assert all(index == level % num_envs for index, level, _ in results)
        for index in range(num_envs):
            played = [level for board, level, _ in results if board == index]
            assert played == sorted(played)
        assert all(solved == (lengths[level] <= limit) for _, level, solved in results)
        assert 0 < sum(solved for *_, solved in results) < 7


def test_a_single_environment_in_evaluation_mode_goes_on_with_every_reset() -> None:
    levels = generate_levels(3, size=6, boxes=1)
    env = SokobanEnv(levels=levels, order="sequential", max_steps=2)
    played = []
    while not env.evaluation_done:
        played.append(env.reset()[1]["level"])
        env.step(0)
        assert env.step(0)[3]
    assert played == [0, 1, 2]
    assert env.step(0)[1:4] == (0.0, False, False)
    assert env.reset()[1] == {"solved": False, "level": 0, "boxes_on_target": 0, "evaluating": True}
    env.reset()
    assert env.reset(seed=1)[1]["level"] == 0


def test_rendering_gives_pictures_and_text() -> None:
    envs = SokobanVectorEnv(2, levels=ONE_PUSH, render_mode="rgb_array")
    envs.reset(seed=0)
    frames = envs.render()
    assert frames is not None
    assert [frame.shape for frame in frames] == [(96, 192, 3)] * 2
    assert frames[0].dtype == np.uint8
    env = SokobanEnv(levels=ONE_PUSH, render_mode="ansi")
    env.reset(seed=0)
    assert env.render() == "######\n#@$. #\n######"
    env.step(4)
    assert env.render() == "######\n# @* #\n######"
    without = SokobanEnv()
    without.reset()
    assert without.render() is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"size": 4}, "size 4x4"),
        ({"size": 5, "boxes": 8}, "8 boxes do not fit a 5x5 board"),
        ({"boxes": 0}, "boxes=0"),
        ({"reverse_moves": (3, 2)}, "is not a range"),
        ({"max_steps": 0}, "max_steps=0; expected at least 1"),
        ({"observation": "pixels"}, "observation='pixels' is unknown; expected one of .'tiles', 'rgb'."),
        ({"render_mode": "human"}, "render_mode='human' is unknown"),
        ({"order": "shuffled"}, "order='shuffled' is unknown"),
        ({"order": "sequential"}, "needs a level set"),
        ({"levels": "no/such/file.txt"}, "no such file or folder"),
        ({"levels": ONE_PUSH, "size": 10}, r"size=\(10, 10\) was requested, but the levels are \(3, 6\)"),
        ({"levels": ONE_PUSH, "boxes": 4}, r"boxes=4 was requested, but the levels have \[1\]"),
        ({"levels": ONE_PUSH, "reverse_moves": (1, 2)}, "only with generated levels"),
        ({"levels": ONE_PUSH, "boxes": (2, 4)}, r"boxes=\(2, 4\) was requested, but the levels have \[1\]"),
        ({"boxes": (3, 2)}, r"boxes=\(3, 2\) cannot be generated; expected 1 to 8, or a range"),
        ({"size": 5, "boxes": (1, 4)}, "4 boxes do not fit a 5x5 board"),
        ({"generated_share": 0.5}, "generated_share=0.5 has no effect with levels=.generated."),
        ({"levels": ONE_PUSH, "generated_share": 1.5}, "generated_share=1.5; expected a probability from 0 to 1"),
        ({"levels": ONE_PUSH, "generated_share": float("nan")}, "generated_share=nan; expected a probability"),
        ({"levels": ONE_PUSH, "generated_share": 0.5}, "size 3x6 .* cannot be generated"),
        ({"levels": SQUARE, "generated_share": 0.5, "size": 7}, r"size=\(7, 7\) .* the levels are \(5, 5\); use their"),
        (
            {"levels": SQUARE, "generated_share": 0.5, "order": "sequential"},
            "plays a set as it is; omit generated_share",
        ),
        ({"levels": SQUARE, "augmentation": "symmetries", "order": "sequential"}, "plays a set as it is"),
        ({"levels": ONE_PUSH, "augmentation": "symmetries"}, 'needs square boards, but these are 3x6; use "none"'),
        ({"augmentation": "mirror"}, "augmentation='mirror' is unknown; expected one of .'none', 'symmetries'."),
    ],
)
@pytest.mark.parametrize("make", [SokobanEnv, SokobanVectorEnv])
def test_bad_settings_are_errors(make: Callable[..., Any], settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(**settings)


def test_matching_size_and_boxes_are_no_error_and_unknown_settings_are() -> None:
    SokobanEnv(levels=ONE_PUSH, size=(3, 6), boxes=1)
    SokobanEnv(levels=ONE_PUSH, boxes=(1, 4))
    with pytest.raises(ValueError, match="num_envs=0"):
        SokobanVectorEnv(0)
    with pytest.raises(ValueError, match="SameSteps"):
        SokobanVectorEnv(1, autoreset_mode="SameSteps")
    for make in (SokobanEnv, SokobanVectorEnv):
        with pytest.raises(TypeError, match="dificulty"):
            make(dificulty=3)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ([0], r"shape \(1,\) and dtype int64; expected integers of shape \(2,\)"),
        ([[0, 0]], r"shape \(1, 2\)"),
        (3, r"shape \(\)"),
        ([0.0, 1.0], "dtype float64; expected integers"),
        ([True, False], "dtype bool"),
        ([0, 5], "action 5 of board 1 is out of range; expected 0 to 4 .noop, up, down, left, right."),
        ([-1, 0], "action -1 of board 0 is out of range"),
    ],
)
def test_bad_actions_are_errors_and_change_nothing(actions: Any, message: str) -> None:
    envs = SokobanVectorEnv(2)
    envs.reset(seed=0)
    before = envs.snapshot()
    with pytest.raises(error.InvalidAction, match=message):
        envs.step(np.array(actions))
    assert data_equivalence(envs.snapshot(), before, exact=True)


def test_bad_actions_of_the_single_environment_are_errors() -> None:
    env = SokobanEnv()
    env.reset(seed=0)
    for action, message in ((5, "action 5"), ([1], r"shape \(1,\)"), (1.5, "dtype float64")):
        with pytest.raises(error.InvalidAction, match=message):
            env.step(action)  # type: ignore[arg-type]


def test_calls_at_the_wrong_time_are_errors() -> None:
    cases: list[tuple[Any, Any]] = [(SokobanVectorEnv(1), np.array([0])), (SokobanEnv(), 0)]
    for envs, action in cases:
        step = functools.partial(envs.step, action)
        for call in (step, envs.snapshot, envs.render):
            with pytest.raises(error.ResetNeeded, match=r"call reset\(\) before"):
                call()
        envs.reset(seed=0)
        envs.close()
        envs.close()
        for call in (step, envs.reset, envs.snapshot, envs.render):
            with pytest.raises(error.ClosedEnvironmentError, match="was closed"):
                call()
    env = SokobanEnv(levels=ONE_PUSH)
    env.reset(seed=0)
    env.step(4)
    with pytest.raises(error.ResetNeeded, match=r"boards \[0\] have ended and autoreset is disabled"):
        env.step(0)


def test_bad_resets_are_errors() -> None:
    envs = SokobanVectorEnv(3)
    with pytest.raises(error.ResetNeeded, match="reset all boards once"):
        envs.reset(options={"reset_mask": np.array([True, False, False])})
    for arguments, message in (
        ({"seed": -1}, "seed -1 is negative"),
        ({"seed": [1, 2]}, "2 seeds for 3 boards"),
        ({"options": {"mask": 1}}, r"unknown reset options \['mask'\]"),
        ({"options": {"reset_mask": np.ones(2, bool)}}, r"shape \(3,\) .* got dtype bool, shape \(2,\)"),
        ({"options": {"reset_mask": np.ones(3)}}, "got dtype float64"),
        ({"options": {"reset_mask": np.zeros(3, bool)}}, "at least one True"),
    ):
        with pytest.raises(ValueError, match=message):
            envs.reset(**arguments)
    with pytest.raises(ValueError, match=r"unknown reset options \['level'\]"):
        SokobanEnv().reset(options={"level": 3})


def test_bad_snapshots_are_errors() -> None:
    envs = SokobanVectorEnv(3, size=6, boxes=1)
    other = SokobanVectorEnv(3, size=7, boxes=1)
    other.reset(seed=0)
    with pytest.raises(error.ResetNeeded, match="before restoring only some"):
        envs.restore(other.snapshot([0]), [0])
    envs.reset(seed=0)
    with pytest.raises(ValueError, match=r"snapshot\['boards'\] has shape \(3, 7, 7\).* expected \(3, 6, 6\)"):
        envs.restore(other.snapshot())
    with pytest.raises(ValueError, match=r"shape \(3, 6, 6\).* expected \(2, 6, 6\)"):
        envs.restore(envs.snapshot(), [0, 1])
    with pytest.raises(ValueError, match="not a snapshot of Sokoban"):
        envs.restore({"boards": np.zeros(3)})
    with pytest.raises(IndexError, match=r"indices \[3\] are not all boards; expected 0 .. 2"):
        envs.snapshot([3])


def test_metadata_describe_success_actions_and_pictures_and_belong_to_each_environment_alone() -> None:
    class_metadata = dict(SokobanEnv.metadata)
    made = gymnasium.make("thinker/Sokoban-v0")
    vectors = [SokobanVectorEnv(2), SyncVectorEnv([SokobanEnv] * 2), ReplayableEnvs([SokobanEnv] * 2)]
    for env in (SokobanEnv(), made, *vectors):
        assert env.metadata["success"] == "solved"
        assert list(env.metadata["action_names"]) == ["noop", "up", "down", "left", "right"]
        pictures = env.metadata["tile_pictures"]
        assert (pictures.shape, pictures.dtype) == ((7, 32, 32, 3), np.uint8)
        assert not pictures.flags.writeable
        env.metadata["mine"] = True
    for envs in vectors:
        assert "autoreset_mode" in envs.metadata
    assert "mine" not in SokobanEnv().metadata
    assert "mine" not in SokobanVectorEnv(1).metadata
    assert SokobanEnv.metadata == class_metadata


def test_the_picture_of_a_board_is_made_of_the_tile_pictures() -> None:
    env = SokobanEnv(levels=ONE_PUSH, render_mode="rgb_array")
    observation, _ = env.reset(seed=0)
    pictures = env.metadata["tile_pictures"][observation.argmax(0)]  # [H, W, 32, 32, 3]
    np.testing.assert_array_equal(env.render(), np.concatenate(np.concatenate(pictures, 1), 1))
