"""Sokoban as the environment of a run: held-out levels are always the same ones, and never trained on."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from thinker.envs.replayable import environments_state, restore_environments
from thinker.envs.sokoban import LevelSet, SokobanSpec, SokobanVectorEnv, generate_levels
from thinker.envs.spec import EnvironmentSpec, Split
from thinker.errors import UserError

SPLITS: tuple[Split, ...] = ("validation", "test")


def first_boards(envs: SokobanVectorEnv, count: int, seed: int = 0) -> list[bytes]:
    """The first observation of held-out episodes 0 .. count - 1, while playing at random."""
    random = np.random.default_rng(seed)
    observation, _ = envs.reset()
    found = {e: observation[e].tobytes() for e in range(envs.num_envs)}
    played = np.arange(envs.num_envs)
    while len([episode for episode in found if episode < count]) < count:
        observation, _, terminated, truncated, _ = envs.step(random.integers(0, 5, envs.num_envs))
        for e in np.flatnonzero(terminated | truncated).tolist():
            played[e] += envs.num_envs
            found[int(played[e])] = observation[e].tobytes()
    return [found[episode] for episode in range(count)]


def planes(levels: LevelSet) -> list[bytes]:
    return [np.ascontiguousarray(np.moveaxis(np.eye(7, dtype=np.uint8)[b], 2, 0)).tobytes() for b in levels.boards]


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    for seed, name in enumerate(("train", "valid", "test")):
        (tmp_path / name).mkdir()
        generate_levels(12, 6, 1, seed).save(tmp_path / name / "000.txt")
    return tmp_path


def test_training_environments_are_those_of_the_options() -> None:
    spec = SokobanSpec(size=6, boxes=2, reverse_moves=(1, 3), observation="rgb", max_steps=17)
    envs = spec.build(5)
    same = SokobanVectorEnv(5, size=6, boxes=2, reverse_moves=(1, 3), observation="rgb", max_steps=17)
    np.testing.assert_array_equal(envs.reset(seed=4)[0], same.reset(seed=4)[0])
    for _ in range(40):
        actions = np.random.default_rng(0).integers(0, 5, 5)
        for left, right in zip(envs.step(actions)[:4], same.step(actions)[:4]):
            np.testing.assert_array_equal(left, right)
    state = environments_state(envs)
    restore_environments(spec.build(5), state)
    assert isinstance(spec, EnvironmentSpec)
    assert spec.name == "thinker/Sokoban-v0"
    spec.check()


def test_training_levels_of_a_file_are_used(folders: Path) -> None:
    envs = SokobanSpec(levels=str(folders / "train")).build(3)  # size and boxes are those of the file
    assert envs.levels is not None
    np.testing.assert_array_equal(envs.levels.boards, LevelSet.load(folders / "train").boards)


def test_validation_levels_are_those_of_a_fixed_seed_and_begin_with_the_same_ones() -> None:
    spec = SokobanSpec()
    levels = spec.held_out("validation", 4, 9).levels
    assert levels is not None
    np.testing.assert_array_equal(levels.boards, generate_levels(9, 7, 1, 20_231_210, (1, 2)).boards)
    more = spec.held_out("validation", 16, 50).levels
    assert more is not None
    np.testing.assert_array_equal(levels.boards, more.boards[:9])


def test_training_validation_and_test_levels_are_disjoint() -> None:
    spec = SokobanSpec(max_steps=1)
    training = set()
    for seed in (0, 1, 20_231_210):
        envs = spec.build(500)
        training |= {board.tobytes() for board in envs.reset(seed=seed)[0]}
        training |= {board.tobytes() for board in envs.step(np.zeros(500, np.int64))[0]}
    validation, test = (set(first_boards(spec.held_out(split, 50, 300), 300)) for split in SPLITS)
    assert len(validation) == len(test) == 300
    assert not validation & test
    assert not training & (validation | test)


@pytest.mark.parametrize("num_envs", [1, 3, 7, 10])
def test_episodes_are_the_same_whoever_acts_and_environment_e_plays_every_num_envs_th(num_envs: int) -> None:
    spec = SokobanSpec(size=6, max_steps=5)
    levels = spec.held_out("test", num_envs, 7).levels
    assert levels is not None
    assert len(levels) == 7
    for seed in (0, 1):
        envs = spec.held_out("test", num_envs, 7)
        for _ in range(2):  # a reset begins again
            assert first_boards(envs, 7, seed) == planes(levels)


def test_held_out_episodes_end_after_their_own_number_of_steps() -> None:
    assert SokobanSpec(max_steps=30).held_out("test", 1, 1).max_steps == 30
    assert SokobanSpec(max_steps=30, held_out_max_steps=60).held_out("test", 1, 1).max_steps == 60
    assert SokobanSpec(max_steps=30, held_out_max_steps=60).chosen_episode("3", "test", 1).max_steps == 60
    assert SokobanSpec(max_steps=30, held_out_max_steps=60).build(1).max_steps == 30


def test_held_out_levels_lie_beside_a_folder_called_train(folders: Path) -> None:
    spec = SokobanSpec(levels=str(folders / "train"))
    spec.check()
    for split, name in zip(SPLITS, ("valid", "test")):
        levels = LevelSet.load(folders / name)
        found = spec.held_out(split, 2, 12).levels
        assert found is not None
        np.testing.assert_array_equal(found.boards, levels.boards)
        assert first_boards(spec.chosen_episode("11", split, 2), 2) == planes(levels)[-1:] * 2
    with pytest.raises(UserError, match=r"13 test levels were requested, but there are only 12 in .*test; request"):
        spec.held_out("test", 2, 13)


def test_given_held_out_levels_are_used_for_generated_ones_too(folders: Path) -> None:
    spec = SokobanSpec(size=6, test_levels=str(folders / "test"))
    spec.check()
    assert len(spec.held_out("test", 2, 12).reset()[0]) == 2
    with pytest.raises(UserError, match="only 12"):
        spec.held_out("test", 2, 100)
    spec.held_out("validation", 2, 100)


def test_a_chosen_episode_is_that_one_in_every_environment(folders: Path) -> None:
    spec = SokobanSpec(size=6)
    for split in SPLITS:
        expected = first_boards(spec.held_out(split, 1, 9), 9)
        assert first_boards(spec.chosen_episode("8", split, 3), 3) == [expected[8]] * 3
    file = folders / "valid" / "000.txt"
    assert first_boards(spec.chosen_episode(f"{file}:2", "test", 2), 2) == [planes(LevelSet.load(file))[2]] * 2


def test_chosen_episodes_that_do_not_exist_are_errors_at_once(folders: Path) -> None:
    spec = SokobanSpec(size=6)
    start = time.perf_counter()
    for episode in ("100000", "9" * 30, "9" * 10_000, "-1", "two", ""):
        with pytest.raises(UserError, match="is not the number of a test level, nor FILE:INDEX; expected 0 to 99999"):
            spec.chosen_episode(episode, "test", 1)
    spec.chosen_episode("99999", "test", 1)
    assert time.perf_counter() - start < 5
    with pytest.raises(UserError, match=r"'12' is not the number of a level in .*000\.txt; expected 0 to 11"):
        spec.chosen_episode(f"{folders / 'test' / '000.txt'}:12", "test", 1)
    with pytest.raises(UserError, match="nowhere: no such file or folder"):
        spec.chosen_episode("nowhere:3", "test", 1)
    with pytest.raises(UserError, match="the boards are 6x6, but those of training are 7x7"):
        SokobanSpec().chosen_episode(f"{folders / 'test'}:1", "test", 1)
    with pytest.raises(UserError, match="100001 test levels were requested, but there are only 100000"):
        spec.held_out("test", 1, 100_001)
    for num_envs, count in ((0, 3), (3, 0)):
        with pytest.raises(UserError, match="at least one of each"):
            spec.held_out("test", num_envs, count)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 4}, "size 4x4"),
        ({"boxes": 0}, "boxes=0"),
        ({"size": 5, "boxes": 8}, "8 boxes do not fit"),
        ({"reverse_moves": (3, 2)}, "is not a range"),
        ({"max_steps": 0}, "max_steps is 0; expected at least 1"),
        ({"held_out_max_steps": -1}, "held_out_max_steps is -1; expected at least 1"),
        ({"observation": "pixels"}, "observation='pixels' is unknown"),
        ({"levels": "nowhere"}, "nowhere: no such file or folder"),
        ({"levels": "{folders}/train/000.txt"}, "no validation levels next to it; set validation_levels"),
        (
            {"levels": "{folders}/train/000.txt", "validation_levels": "{folders}/valid"},
            "no test levels next to it; set test_levels",
        ),
        ({"levels": "{folders}/train", "test_levels": "nowhere"}, "nowhere: no such file"),
        ({"levels": "{folders}/train", "test_levels": "{folders}/train"}, "is used for test_levels and for levels"),
        ({"levels": "{folders}/train", "validation_levels": "{folders}/test"}, "for test_levels and for validation"),
        ({"test_levels": "{folders}/test"}, "the boards are 6x6, but those of training are 7x7"),
    ],
)
def test_what_cannot_be_trained_or_tested_is_refused_before_a_run(
    options: dict[str, Any], message: str, folders: Path
) -> None:
    given = {k: v.format(folders=folders) if isinstance(v, str) else v for k, v in options.items()}
    with pytest.raises(UserError, match=message):
        SokobanSpec(**given).check()


def test_training_on_files_without_held_out_ones_is_refused(folders: Path) -> None:
    (folders / "test" / "000.txt").unlink()
    (folders / "test").rmdir()
    with pytest.raises(UserError, match=r"no test levels next to it; set test_levels .* or put them in a folder"):
        SokobanSpec(levels=str(folders / "train")).check()
