"""Reading, checking and writing levels."""

from pathlib import Path

import numpy as np
import pytest

from thinker.envs.sokoban import LevelError, LevelSet, SokobanEnv, generate_levels

BOXOBAN = Path(__file__).parents[3] / "shared" / "boxoban"
needs_boxoban = pytest.mark.skipif(not BOXOBAN.is_dir(), reason="the Boxoban levels are not at ../shared/boxoban")
GOOD = "#####\n#@$.#\n#####"


@needs_boxoban
@pytest.mark.parametrize(
    ("folder", "count"),
    [
        ("hard", 3332),
        ("medium/train", 2000),
        ("medium/valid", 2000),
        ("unfiltered/test", 1000),
        ("unfiltered/train", 40000),
        ("unfiltered/valid", 2000),
        ("", 50332),  # all of it; the licence that lies there is not a level file
    ],
)
def test_all_boxoban_levels_load_with_their_counts(folder: str, count: int) -> None:
    levels = LevelSet.load(BOXOBAN / folder)
    assert len(levels) == count
    assert levels.size == (10, 10)
    assert (levels.boxes == 4).all()
    assert levels.walled


@needs_boxoban
def test_a_boxoban_file_reads_as_it_is_written_and_writes_as_it_is_read(tmp_path: Path) -> None:
    source = BOXOBAN / "unfiltered" / "train" / "000.txt"
    levels = LevelSet.load(source)
    assert levels.text(0).split("\n") == source.read_text().split("\n")[1:11]
    levels.save(tmp_path / "copy.txt")
    np.testing.assert_array_equal(LevelSet.load(tmp_path / "copy.txt").boards, levels.boards)
    assert (tmp_path / "copy.txt").read_text().split() == source.read_text().split()


def test_a_list_of_files_and_folders_loads_in_order_and_folders_by_name(tmp_path: Path) -> None:
    levels = generate_levels(6, size=5, boxes=1, seed=2)
    (tmp_path / "folder" / "deeper").mkdir(parents=True)
    for index, name in enumerate(["folder/b.txt", "folder/a.txt", "folder/deeper/c.txt", "single.txt"]):
        LevelSet(levels.boards[index : index + 1]).save(tmp_path / name)
    (tmp_path / "folder" / "README.txt").write_text("not levels")
    (tmp_path / "folder" / "notes.md").write_text("not levels")
    loaded = LevelSet.load([tmp_path / "single.txt", tmp_path / "folder"])
    np.testing.assert_array_equal(loaded.boards, levels.boards[[3, 1, 0, 2]])


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("; 0\n#####\n# $.#\n#####\n", 2, "no player"),
        ("; 0\n#####\n#@$.#\n#####\n\n; 1\n#####\n#@$+#\n#####\n", 7, "2 players"),
        ("#####\n#@$ #\n#####\n", 1, "1 box but 0 targets"),
        ("######\n#@$..#\n######\n", 1, "1 box but 2 targets"),
        ("#####\n#@$x#\n#####\n", 2, "unknown character 'x' in column 4"),
        ("#####\n#@$.#\n####\n", 3, "ragged rows: this row has 4 squares, the level's first row has 5"),
        ("#####\n#@  #\n#####\n", 1, r"no box \('\$'\)"),
        ("#####\n#@* #\n#####\n", 1, "already solved"),
        (GOOD + "\n\n######\n#@$. #\n######\n", 5, "this board is 3x6, but the first one .line 1. is 3x5"),
        ("; 0\n\n; 1\n" + GOOD, 1, "no board follows this header"),
        (GOOD + "\n\n; 1\n", 5, "no board follows this header"),
        ("\n", 1, "no levels found"),
        ("", 1, "no levels found"),
    ],
)
def test_a_bad_level_file_is_an_error_with_file_line_and_reason(
    tmp_path: Path, text: str, line: int, reason: str
) -> None:
    path = tmp_path / "levels.txt"
    path.write_text(text)
    with pytest.raises(LevelError, match=rf"levels\.txt:{line}: {reason}"):
        LevelSet.load(path)


def test_windows_line_ends_are_read(tmp_path: Path) -> None:
    (tmp_path / "levels.txt").write_bytes(GOOD.replace("\n", "\r\n").encode())
    assert LevelSet.load(tmp_path / "levels.txt").text(0) == GOOD


def test_missing_empty_or_mixed_sources_are_errors(tmp_path: Path) -> None:
    with pytest.raises(LevelError, match="nowhere: no such file or folder"):
        LevelSet.load(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(LevelError, match="empty: the folder contains no level files"):
        LevelSet.load(tmp_path / "empty")
    with pytest.raises(LevelError, match="the list of level paths is empty"):
        LevelSet.load([])
    generate_levels(1, size=5, boxes=1).save(tmp_path / "five.txt")
    generate_levels(1, size=6, boxes=1).save(tmp_path / "six.txt")
    with pytest.raises(LevelError, match=r"six\.txt: boards are 6x6, but those of .*five\.txt are 5x5"):
        LevelSet.load([tmp_path / "five.txt", tmp_path / "six.txt"])


@pytest.mark.parametrize(
    ("boards", "reason"),
    [
        (np.zeros((1, 3, 3), np.int64), "dtype int64"),
        (np.zeros((0, 3, 3), np.uint8), "at least one level"),
        (np.full((1, 3, 3), 9, np.uint8), "level 0: unknown tile code 9"),
    ],
)
def test_a_level_set_of_bad_arrays_is_an_error(boards: np.ndarray, reason: str) -> None:
    with pytest.raises(LevelError, match=reason):
        LevelSet(boards)


def test_a_level_set_cannot_be_changed_by_its_maker_or_its_user() -> None:
    boards = generate_levels(1, size=5, boxes=1).boards.copy()
    levels = LevelSet(boards)
    boards[:] = 0
    assert levels.boxes.tolist() == [1]
    with pytest.raises(ValueError, match="read-only"):
        levels.boards[0, 0, 0] = 1


def test_outside_of_the_board_is_wall() -> None:
    env = SokobanEnv(levels=LevelSet.parse("@$.\n   "), render_mode="ansi")
    env.reset(seed=0)
    for action in (1, 3):  # up and left: off the board
        env.step(action)
    assert env.render() == "@$.\n   "
    assert env.step(4)[2]


def test_a_byte_order_mark_is_passed_over_and_utf_16_is_named():
    level = "#####\n#@$.#\n#####\n"
    assert np.array_equal(LevelSet.parse(b"\xef\xbb\xbf" + level.encode()).boards, LevelSet.parse(level).boards)
    with pytest.raises(LevelError, match="UTF-16"):
        LevelSet.parse(level.encode("utf-16"))


def test_messages_count_in_plain_english():
    with pytest.raises(LevelError, match=r"1 box but 2 targets"):
        LevelSet.parse("######\n#@$..#\n######\n")
    with pytest.raises(LevelError, match=r"2 boxes but 1 target;"):
        LevelSet.parse("######\n#@$$.#\n######\n")
