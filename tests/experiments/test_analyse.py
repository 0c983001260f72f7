"""`thinker analyse`: the report of small runs that were never trained, its files, its repeatability, and its errors."""

from __future__ import annotations

import base64
import dataclasses
import html
import json
import re
from pathlib import Path

import pytest
import tyro

from tests.runs.support import tiny
from thinker.cli.analyse import Analyse
from thinker.errors import UserError
from thinker.experiments import behaviour
from thinker.experiments.behaviour.analysis import depth_limits
from thinker.experiments.behaviour.report import numbers
from thinker.runs import checkpoint
from thinker.runs.build import build_run
from thinker.runs.folder import RunFolder
from thinker.runs.load import load_run
from thinker.runs.settings import RunSettings

FIGURES = (
    "reset-td-error", "reset-depth", "expansion-length", "max-td-error", "max-td-error-log", "real-actions", "mcts",
)  # fmt: skip
SMALL = ("--stages", 70, "--episodes", 5, "--budgets", 2, 4)


def save(root: Path, name: str, settings: RunSettings) -> None:
    with RunFolder(root, name).open({"preset": name, "settings": settings.to_dict()}) as folder:
        checkpoint.save(folder.checkpoints, 0, build_run(settings, device="cpu").state_dict())


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    """A folder with runs that were saved, but never trained."""
    root = tmp_path_factory.mktemp("runs")
    board = tiny("sokoban-quick")
    save(root, "board", board)
    save(root, "hasty", dataclasses.replace(board, search=dataclasses.replace(board.search, stage_length=1)))
    save(root, "raw", tiny("sokoban-raw"))
    save(root, "mcts", tiny("sokoban-muzero"))
    environment = {"environment": dataclasses.replace(tiny("cartpole").environment, max_steps=12)}
    save(root, "pole", tiny("cartpole", **environment))
    return root


def analyse(root: Path, *words: object) -> None:
    tyro.cli(Analyse, args=[str(word) for word in (*words, "--root", root, "--device", "cpu")]).run()


@pytest.fixture(scope="module")
def board(root, tmp_path_factory) -> Path:
    """The report on the run "board"."""
    out = tmp_path_factory.mktemp("reports") / "board"
    analyse(root, "board", *SMALL, "--out", out)
    return out


def test_the_page_has_every_figure_with_its_sentences_and_needs_nothing_else(board):
    page = (board / "report.html").read_text(encoding="utf-8")
    written = json.loads((board / "numbers.json").read_text(encoding="utf-8"))
    assert tuple(written["figures"]) == FIGURES
    pictures = re.findall(r'<img src="data:image/png;base64,([^"]+)"', page)
    assert [base64.b64decode(picture) for picture in pictures] == [
        (board / f"{name}.png").read_bytes() for name in FIGURES
    ]
    for figure in written["figures"].values():
        for sentence in (figure["paper"], figure["here"], figure["verdict"]):
            assert html.escape(sentence) in page
        assert "nan" not in figure["here"]
    assert not re.search(r'https?:|<script|<link|url\(|src="(?!data:)', page)
    assert sorted(path.name for path in board.iterdir()) == sorted(
        ["report.html", "numbers.json", *(f"{name}.png" for name in FIGURES)]
    )


def test_the_numbers_say_what_was_played(board):
    written = json.loads((board / "numbers.json").read_text(encoding="utf-8"))
    assert written["settings"]["stages"] == 70
    assert written["settings"]["split"] == "test"
    figures = written["figures"]
    assert figures["mcts"]["episodes"] == 5
    assert figures["mcts"]["measure"] == "solve rate"
    assert list(figures["mcts"]["mcts"]) == ["2", "4"]
    assert sum(figures["reset-td-error"]["steps"].values()) + figures["reset-depth"]["rollouts_by_depth"][-1] <= 70 * 2
    assert list(figures["expansion-length"]["share"]) == ["1", "2"]
    for shares in figures["real-actions"]["share_by_rank"].values():
        assert all(sum(share) == pytest.approx(1, abs=1e-4) for share in shares.values())


def test_the_same_seed_gives_the_same_numbers_and_another_seed_others(root, board):
    run = load_run(RunFolder(root, "board"), device="cpu")

    def with_seed(seed: int) -> dict:
        small = {"name": "board", "stages": 70, "episodes": 5, "budgets": (2, 4), "split": "test", "seed": seed}
        return numbers(behaviour.analyse(run, **small, start_task=lambda *_: lambda _: None))

    default = run.settings.evaluation.seed
    assert with_seed(default) == json.loads((board / "numbers.json").read_text(encoding="utf-8"))
    assert with_seed(1)["figures"] != with_seed(default)["figures"]


def test_an_environment_that_reports_no_success_is_compared_by_returns(root, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    analyse(root, "pole", "--stages", 40, "--episodes", 3, "--budgets", 3, "--split", "validation")
    written = json.loads(Path("pole-analysis/numbers.json").read_text(encoding="utf-8"))
    assert written["figures"]["mcts"]["measure"] == "return"
    printed = capsys.readouterr().out
    assert written["figures"]["real-actions"]["here"] in printed
    assert printed.endswith(f"wrote {Path('pole-analysis/report.html')}\n")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["raw"], "does not plan by imaginary steps"),
        (["mcts"], "does not plan by imaginary steps"),
        (["hasty"], "stage length of 1"),
        (["board", "--stages", "0"], "--stages 0: it must be at least 1"),
        (["board", "--episodes", "0"], "--episodes 0: it must be at least 1"),
        (["board", "--budgets", "5", "0"], "--budgets 0: MCTS needs at least 1"),
        (["board", "--out", "no-such-folder/report"], "no-such-folder does not exist"),
        (["board", "--out", "file"], "this is a file"),
        (["bord"], "did you mean board"),
    ],
)
def test_mistakes_are_errors_of_the_user(root, tmp_path, monkeypatch, words, told):
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    with pytest.raises(UserError, match=told):
        analyse(root, *words)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("stage_length", "max_depth", "extra", "expected"),
    [
        (20, 5, (), {2: 2, 5: 5, 10: 10}),
        (8, 5, (), {2: 2, 5: 5, 7: 10}),
        (6, None, (), {2: 2, 5: None}),
        (2, 5, (), {1: 5}),
        (20, 5, ("action_sequence",), {5: 5}),
    ],
)
def test_expansion_lengths_are_measured_at_half_and_double_the_depth_limit(stage_length, max_depth, extra, expected):
    settings = tiny("sokoban-quick")
    search = dataclasses.replace(settings.search, stage_length=stage_length, max_depth=max_depth, extra=extra)
    assert depth_limits(build_run(dataclasses.replace(settings, search=search), device="cpu")) == expected
