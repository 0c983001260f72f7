"""Training, testing, plotting and measuring from the command line, on boards a second large."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runs.support import TINY_QUICK, TINY_RAW
from thinker.cli import main
from thinker.cli.bench import speed_report
from thinker.runs.folder import RunFolder


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    """A folder with the finished runs "quick" and "raw"."""
    root = tmp_path_factory.mktemp("runs")
    assert main(["train", *TINY_QUICK, "--run", "quick", "--root", str(root), "--device", "cpu"]) == 0
    assert main(["train", *TINY_RAW, "--run", "raw", "--root", str(root), "--device", "cpu"]) == 0
    return root


@pytest.fixture
def words(root, capsys, monkeypatch):
    """Runs a command in ``root`` and gives back what it printed."""

    def run(*arguments: object, status: int = 0) -> str:
        monkeypatch.setenv("COLUMNS", "150")
        capsys.readouterr()
        assert main([str(argument) for argument in (*arguments, "--root", root)]) == status
        captured = capsys.readouterr()
        return captured.out if status == 0 else captured.err

    return run


def rows(table: str) -> list[list[str]]:
    """The cells of what rich has printed as a table."""
    cells = [[cell.strip() for cell in re.split("[│┃|]", line)[1:-1]] for line in table.splitlines()]
    return [row for row in cells if row]


def test_training_again_reports_the_finished_run(words):
    command = ("train", *TINY_RAW, "--run", "raw", "--device", "cpu")
    first, again = words(*command), words(*command)
    assert first == again
    assert "raw is finished" in again
    assert "thinker eval raw" in again


def test_the_device_is_part_of_the_settings(words, root):
    assert RunFolder(root, "raw").read_config()["settings"]["device"] == "cpu"
    problem = words("train", *TINY_RAW, "--run", "raw", "--device", "cuda", status=1)
    assert "device" in problem or "not available" in problem


def test_other_settings_are_refused_and_fresh_starts_over(tmp_path, capsys):
    command = ["train", *TINY_RAW, "--run", "one", "--root", str(tmp_path), "--real-steps", "32"]
    assert main(command) == 0
    assert main([*command, "--seed", "3"]) == 1
    assert re.search(r"seed: 0 -> 3", capsys.readouterr().err)
    assert main([*command, "--seed", "3", "--fresh"]) == 0
    assert sorted(path.name for path in tmp_path.glob("one*")) == ["one", "one-1"]


def test_runs_are_listed_with_their_results(words, root):
    table = {row[0]: row for row in rows(words("runs"))}
    summary = json.loads((root / "quick" / "summary.json").read_text())
    assert table["quick"][1:4] == ["sokoban-quick", "finished", "480"]
    assert table["quick"][4:] == [f"{summary['eval/solved']:.3f}", f"{summary['eval/return']:.2f}"]
    assert table["raw"][1] == "sokoban-raw"


def test_an_agent_is_tested_with_more_and_less_time_to_think(words):
    table = rows(words("eval", "quick", "--stage-length", 1, 4, "--episodes", 7, "--device", "cpu"))
    assert table[0] == ["who", "K", "solved", "95 % interval", "return", "real steps"]
    assert [row[:2] for row in table[1:]] == [["agent", "1"], ["agent", "4"], ["base-policy", "1"]]
    for _, _, solved, interval, mean_return, real_steps in table[1:]:
        low, high = map(float, interval.split(" to "))
        assert low <= float(solved) <= high
        assert float(mean_return) <= 11
        assert 1 <= float(real_steps) <= 11


def test_planners_are_evaluated_beside_the_agent(words):
    planners = ("--planner", "mcts", "gumbel", "exhaustive", "random", "--simulations", 2, 5, "--depth", 2)
    table = rows(words("eval", "quick", *planners, "--episodes", 4, "--device", "cpu"))
    assert table[0][:2] == ["who", "K or simulations"]
    budgets = [["mcts", "2"], ["mcts", "5"], ["gumbel", "2"], ["gumbel", "5"], ["exhaustive", "30 (depth 2)"]]
    expected = [["agent", "3"], ["base-policy", "1"], *budgets, ["random", "2"], ["random", "5"]]
    assert [row[:2] for row in table[1:]] == expected


@pytest.mark.parametrize(
    ("run", "options", "told"),
    [
        ("quick", ("--planner", "mcts", "--simulations", 0), "--simulations 0: it must be at least 1"),
        ("quick", ("--planner", "exhaustive", "--depth", 0), "--depth 0: it must be at least 1"),
        ("quick", ("--simulations", 5), "add --planner mcts"),
        ("quick", ("--planner", "exhaustive", "--simulations", 5), "Exhaustive search has a --depth instead"),
        ("quick", ("--planner", "mcts", "--depth", 2), "add --planner exhaustive"),
        ("raw", ("--planner", "mcts"), "this run has no model, so a planner has nothing to search in"),
    ],
    ids=str,
)
def test_planners_without_a_budget_of_theirs_or_a_model_are_refused(words, run, options, told):
    assert told in " ".join(words("eval", run, *options, status=1).split())


def test_a_test_repeats_what_training_has_logged(words, root):
    summary = json.loads((root / "quick" / "summary.json").read_text())
    table = rows(words("eval", "quick", "--split", "validation", "--episodes", 12, "--who", "agent"))
    assert table[1][:3] == ["agent", "3", f"{summary['eval/solved']:.3f}"]
    assert table[1][4:] == [f"{summary['eval/return']:.2f}", f"{summary['eval/length']:.1f}"]


def test_an_agent_without_planning_is_tested_without_it(words):
    table = rows(words("eval", "raw", "--episodes", 5, "--device", "cpu"))
    assert [row[:2] for row in table[1:]] == [["agent", "1"]]
    assert "stage length is 1, not 4" in words("eval", "raw", "--stage-length", 4, status=1)
    problem = words("eval", "raw", "--who", "base-policy", status=1)
    assert "base" in problem


def test_a_device_that_is_not_there_is_refused(words, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert "'cuda' is not available" in words("eval", "raw", "--device", "cuda", status=1)
    assert "'cuda' is not available" in words("train", *TINY_RAW, "--run", "new", "--device", "cuda", status=1)


def test_learning_curves_are_drawn(words, tmp_path):
    for number, options in enumerate([(), ("--x", "minutes"), ("--metrics", "episode/return", "loss/value_real")]):
        out = tmp_path / f"{number}.png"
        assert f"wrote {out}" in words("plot", "quick", "raw", *options, "--out", out)
        assert out.read_bytes().startswith(b"\x89PNG")
    assert "episode/solved" in words("plot", "quick", "--metrics", "episode/solve", "--out", tmp_path / "x", status=1)


def test_similar_names_are_suggested(words):
    assert "did you mean quick?" in words("eval", "quik", status=1)
    assert "quik" in words("plot", "quik", status=1)


@pytest.mark.parametrize("tiny", [TINY_QUICK, TINY_RAW])
def test_speed_is_measured_and_nothing_is_saved(tiny, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["bench", *tiny, "--seconds", "0.2"]) == 0
    printed = capsys.readouterr().out
    assert re.match(rf"{tiny[0]}: [\d,]+ real steps/s\n", printed)
    assert "training the agent" in printed
    assert list(tmp_path.iterdir()) == []


def test_the_speed_report_names_what_bounds_it():
    seconds = {"act": 1.0, "agent": 0.5, "wait": 0.5, "model": 2.0}
    report = speed_report("a preset", 1000, seconds, 2.0)
    assert "500 real steps/s" in report
    assert "bound by training the model" in report
    assert "  50% of the time  1,000 µs/real step  acting" in report
    assert "bound by acting" in speed_report("a preset", 1000, {**seconds, "wait": 0.0}, 1.5)


@pytest.mark.parametrize("arguments", ["--help", "train --help"])
def test_a_reader_that_stops_reading_gets_no_traceback(arguments: str) -> None:
    command = [sys.executable, "-m", "thinker", *arguments.split()]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait() == 1
