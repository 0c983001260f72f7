"""Where the levels of training episodes come from: mixes of files and generated levels, symmetric copies; and walls."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence

from thinker.envs.replayable import environments_state, restore_environments
from thinker.envs.sokoban import LevelSet, SokobanEnv, SokobanSpec, SokobanVectorEnv, generate_levels
from thinker.errors import UserError
from thinker.interfaces import BoardStructure

LEVELS = generate_levels(6, 7, 2, seed=1, reverse_moves=(1, 2))
WITHOUT_WALL = LevelSet.parse("#####\n#@$.#\n#   #\n#   #\n# ###")
MIX: dict[str, Any] = {"levels": LEVELS, "generated_share": 0.3, "boxes": (1, 2), "reverse_moves": (1, 2)}
TURNED: dict[str, Any] = {"levels": LEVELS, "augmentation": "symmetries"}
BOTH: dict[str, Any] = {**MIX, **TURNED}


def dealt(envs: SokobanVectorEnv, rounds: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """The first boards [N, H, W] and level numbers [N] of ``rounds`` episodes of each environment."""
    boards, numbers = [], []
    _, info = envs.reset(seed=seed)
    for _ in range(rounds):
        boards.append(envs.snapshot()["boards"])
        numbers.append(info["level"])
        info = envs.step(np.zeros(envs.num_envs, np.int64))[4]  # max_steps=1: every step starts an episode
    return np.concatenate(boards), np.concatenate(numbers)


def images(board: np.ndarray) -> list[bytes]:
    """The eight turned and mirrored images of a board."""
    return [np.rot90(start, turns).tobytes() for start in (board, np.fliplr(board)) for turns in range(4)]


@pytest.mark.parametrize("share", [0.05, 0.3, 1.0])
def test_a_mix_deals_generated_levels_with_their_share_and_names_each_level(share: float) -> None:
    envs = SokobanVectorEnv(100, max_steps=1, **{**MIX, "generated_share": share})
    boards, numbers = dealt(envs, rounds=40)
    known = {board.tobytes(): index for index, board in enumerate(LEVELS.boards)}
    for board, number in zip(boards, numbers.tolist()):
        assert known.get(board.tobytes(), len(LEVELS)) == min(number, len(LEVELS))
    generated = numbers >= len(LEVELS)
    deviation = (share * (1 - share) / len(numbers)) ** 0.5
    assert abs(generated.mean() - share) <= 4 * deviation
    assert set(LevelSet(boards[generated]).boxes.tolist()) == {1, 2}
    assert len({board.tobytes() for board in boards[generated]}) > 0.99 * generated.sum()
    if share < 1:
        counts = Counter(numbers[~generated].tolist())
        assert set(counts) == set(range(len(LEVELS)))
        assert min(counts.values()) > 0.7 * max(counts.values())
    assert envs.levels is LEVELS


def test_the_source_of_a_level_does_not_depend_on_which_level_it_would_be() -> None:
    _, numbers = dealt(SokobanVectorEnv(200, max_steps=1, **{**MIX, "generated_share": 0.5}), rounds=40)
    _, pure = dealt(SokobanVectorEnv(200, max_steps=1, levels=LEVELS), rounds=40)
    generated = numbers >= len(LEVELS)
    np.testing.assert_array_equal(numbers[~generated], pure[~generated])
    for level in range(len(LEVELS)):
        assert abs(generated[pure == level].mean() - 0.5) < 0.06
    earlier, later = generated[:-200], generated[200:]
    assert abs(np.corrcoef(earlier, later)[0, 1]) < 0.05


def test_symmetric_copies_are_images_of_the_levels_and_all_eight_occur_equally_often() -> None:
    boards, numbers = dealt(SokobanVectorEnv(100, max_steps=1, **TURNED), rounds=40)
    found: Counter[tuple[int, int]] = Counter()
    for board, number in zip(boards, numbers.tolist()):
        found[number, images(LEVELS.boards[number]).index(board.tobytes())] += 1
    assert len(found) == 8 * len(LEVELS)
    expected = len(boards) / len(found)
    assert all(abs(count - expected) < 4.5 * expected**0.5 for count in found.values())
    pure, same = dealt(SokobanVectorEnv(100, max_steps=1, levels=LEVELS), rounds=40)
    np.testing.assert_array_equal(numbers, same)  # only turned: the order of the levels stays
    assert (pure != boards).any()


@pytest.mark.parametrize("options", [MIX, TURNED, BOTH, {"size": 7, "boxes": (1, 3), "augmentation": "symmetries"}])
def test_every_feed_is_a_function_of_the_seed_and_resumes_exactly(options: dict[str, Any]) -> None:
    envs, again, fresh = (SokobanVectorEnv(9, max_steps=3, **options) for _ in range(3))
    random = np.random.default_rng(0)
    assert data_equivalence(envs.reset(seed=4), again.reset(seed=4), exact=True)
    for actions in random.integers(0, 5, (40, 9)):
        assert data_equivalence(envs.step(actions), again.step(actions), exact=True)
    restore_environments(fresh, environments_state(envs))
    for actions in random.integers(0, 5, (40, 9)):
        assert data_equivalence(envs.step(actions), fresh.step(actions), exact=True)
    single = SokobanEnv(max_steps=3, **options)
    np.testing.assert_array_equal(single.reset(seed=7)[0], again.reset(seed=4)[0][3])


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    for seed, name in enumerate(("train", "valid", "test")):
        (tmp_path / name).mkdir()
        generate_levels(12, 6, 2, seed).save(tmp_path / name / "000.txt")
    return tmp_path


def test_a_spec_mixes_and_turns_training_levels_and_leaves_held_out_levels_alone(folders: Path) -> None:
    spec = SokobanSpec(
        size=6, boxes=(1, 2), levels=str(folders / "train"), generated_share=0.5, augmentation="symmetries", max_steps=1
    )
    spec.check()
    boards, numbers = dealt(spec.build(50), rounds=10)
    training = LevelSet.load(folders / "train")
    assert 0.35 < (numbers >= 12).mean() < 0.65
    seen = {board.tobytes() for board in boards[numbers < 12]}
    assert seen <= {image for board in training.boards for image in images(board)}
    assert len(seen) > 2 * len(training)
    for split, name in (("validation", "valid"), ("test", "test")):
        held_out, _ = dealt(spec.held_out(split, 12, 12), rounds=1)  # type: ignore[arg-type]
        np.testing.assert_array_equal(held_out, LevelSet.load(folders / name).boards)
        chosen, _ = dealt(spec.chosen_episode("5", split, 2), rounds=1)  # type: ignore[arg-type]
        np.testing.assert_array_equal(chosen, held_out[[5, 5]])


def test_generated_held_out_levels_are_never_turned_and_have_the_range_of_boxes() -> None:
    spec = SokobanSpec(boxes=(1, 3), augmentation="symmetries")
    spec.check()
    levels = spec.held_out("test", 4, 60).levels
    assert levels is not None
    np.testing.assert_array_equal(levels.boards, generate_levels(60, 7, (1, 3), 20_231_216, (1, 2)).boards)
    assert set(levels.boxes.tolist()) == {1, 2, 3}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"generated_share": 0.5}, r"size=\(7, 7\) was requested, but the levels are \(6, 6\); use their size"),
        ({"generated_share": -0.1, "size": 6}, "expected a probability from 0 to 1"),
        ({"generated_share": 0.5, "size": 6, "boxes": 8}, "8 boxes do not fit a 6x6 board"),
        ({"generated_share": 0.5, "levels": "generated"}, "has no effect with levels=.generated."),
        ({"augmentation": "flip"}, "augmentation='flip' is unknown"),
    ],
)
def test_a_spec_that_cannot_be_mixed_or_turned_is_refused(options: dict[str, Any], message: str, folders: Path) -> None:
    with pytest.raises(UserError, match=message):
        SokobanSpec(**{"levels": str(folders / "train"), **options}).check()


WALL = (1, 0, 0, 0, 0, 0, 0)


@pytest.mark.parametrize("make", [SokobanEnv, SokobanVectorEnv])
def test_the_structure_of_the_board_is_declared_for_tiles(make: Any) -> None:
    turned, mirrored, player = (0, 3, 4, 2, 1), (0, 1, 2, 4, 3), (5, 6)
    assert make().metadata["board"] == BoardStructure(WALL, turned, mirrored, player)
    assert make(size=(6, 7)).metadata["board"] == BoardStructure(WALL, None, mirrored, player)
    assert make(levels=LEVELS, order="sequential").metadata["board"] == BoardStructure(WALL, turned, mirrored, player)
    assert make(levels=WITHOUT_WALL).metadata["board"] == BoardStructure(None, turned, mirrored, player)
    mixed = make(levels=WITHOUT_WALL, generated_share=0.9, boxes=1)
    assert mixed.metadata["board"] == BoardStructure(None, turned, mirrored, player)
    assert "board" not in make(observation="rgb").metadata


def test_the_declared_planes_mark_the_players_one_square() -> None:
    envs = SokobanVectorEnv(50, size=5, boxes=1, max_steps=8)
    random, planes = np.random.default_rng(0), list(envs.metadata["board"].player_planes)
    observation, _ = envs.reset(seed=0)
    for _ in range(20):
        assert (observation[:, planes].sum((1, 2, 3)) == 1).all()
        observation = envs.step(random.integers(0, 5, 50))[0]


def test_held_out_boards_have_walls_around_them_if_training_boards_have(folders: Path, tmp_path: Path) -> None:
    open_file = tmp_path / "open.txt"
    WITHOUT_WALL.save(open_file)
    with pytest.raises(UserError, match=r"test_levels .*open\.txt: the outermost squares are not all walls"):
        SokobanSpec(size=5, test_levels=str(open_file)).check()
    with pytest.raises(UserError, match=r"episode .*: the outermost squares are not all walls"):
        SokobanSpec(size=5).chosen_episode(f"{open_file}:0", "test", 1)
    copies = {name: str(tmp_path / f"{name}.txt") for name in ("levels", "validation_levels", "test_levels")}
    for path in copies.values():
        WITHOUT_WALL.save(path)
    SokobanSpec(**copies).check()  # type: ignore[arg-type]
