"""`thinker levels` on the command line."""

from pathlib import Path

import numpy as np
import pytest

from thinker.cli import main
from thinker.envs.sokoban import LevelSet, generate_levels


def test_generate_writes_the_levels_of_the_seed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "levels.txt"
    command = ["levels", "generate", "--count", "5", "--size", "7", "--boxes", "1", "--seed", "3", "--out", str(out)]
    assert main(command) == 0
    assert "wrote 5 levels, 7x7" in capsys.readouterr().out
    np.testing.assert_array_equal(LevelSet.load(out).boards, generate_levels(5, 7, 1, seed=3).boards)
    assert out.read_text().startswith("; 0\n#######\n")
    assert main([*command, "--width", "9", "--reverse-moves", "1", "2"]) == 0
    assert LevelSet.load(out).size == (7, 9)
    assert main(["levels", "generate", "--count", "40", "--size", "7", "--boxes", "1", "3", "--out", str(out)]) == 0
    assert "7x7, boxes: 1 to 3, to " in capsys.readouterr().out
    assert set(LevelSet.load(out).boxes.tolist()) == {1, 2, 3}


def test_show_prints_a_level_and_draws_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    levels = generate_levels(4, 6, 2, seed=0)
    levels.save(tmp_path / "levels.txt")
    picture = tmp_path / "level.png"
    assert main(["levels", "show", str(tmp_path / "levels.txt"), "--index", "3", "--png", str(picture)]) == 0
    assert capsys.readouterr().out == levels.text(3) + "\n"
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_stats_counts_solved_unsolvable_and_given_up_levels_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = ["######\n#@$. #\n#    #\n#    #\n######", "######\n#$ @.#\n#    #\n#    #\n######"]
    rows.append("######\n# @ .#\n# $$ #\n#   .#\n######")
    (tmp_path / "levels.txt").write_text("\n\n".join(rows) + "\n")
    assert main(["levels", "stats", str(tmp_path / "levels.txt"), "--max-states", "40"]) == 0
    lines = dict(
        line.split(maxsplit=1) for line in capsys.readouterr().out.replace("given up", "given_up").splitlines()
    )
    assert lines["levels"] == "3"
    assert lines["size"] == "5x6"
    assert lines["boxes"] == "1 (2 levels), 2 (1 level)"
    assert lines["solved"] == "1"
    assert lines["unsolvable"] == "1"
    assert lines["given_up"].startswith("1 ")
    assert lines["steps"].startswith("1 to 1, mean 1.0")
    assert main(["levels", "stats", str(tmp_path / "levels.txt"), "--sample", "1"]) == 0
    assert "tried        1," in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["generate", "--out", "never.txt", "--size", "5", "--boxes", "8"], "8 boxes do not fit a 5x5 board"),
        (["generate", "--out", "no/such/folder/levels.txt", "--size", "5", "--boxes", "1"], "no/such/folder"),
        (["show", "missing.txt"], "missing.txt: no such file or folder"),
        (["stats", "missing.txt"], "missing.txt: no such file or folder"),
    ],
)
def test_mistakes_are_told_without_a_traceback(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["levels", *arguments]) == 1
    assert message in capsys.readouterr().err


def test_numbers_out_of_range_are_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "levels.txt"
    generate_levels(2, 5, 1).save(path)
    assert main(["levels", "show", str(path), "--index", "2"]) == 1
    assert "2 levels, 0 to 1" in capsys.readouterr().err
    assert main(["levels", "stats", str(path), "--sample", "3"]) == 1
    assert "expected 1 to 2" in capsys.readouterr().err
    assert main(["levels", "stats", str(path), "--max-states", "0"]) == 1
    assert "max_states=0" in capsys.readouterr().err


def test_unknown_options_are_errors() -> None:
    with pytest.raises(SystemExit):
        main(["levels", "generate", "--out", "never.txt", "--boxs", "2"])
