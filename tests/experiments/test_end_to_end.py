"""`thinker reproduce` as a user runs it: a whole experiment at tiny scale, killed and continued; and its refusals."""

import dataclasses
import json
import signal
import subprocess
import sys
import time

import pytest

from tests.experiments.made_up import made_up
from thinker.cli import main
from thinker.experiments.catalogue import EXPERIMENTS
from thinker.experiments.costs import estimated_core_minutes
from thinker.experiments.results import load_results


def wait_for(condition, seconds=900):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.slow
def test_an_experiment_that_was_killed_goes_on_and_ends_with_a_page(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")  # tables do not break lines
    root, out = tmp_path / "runs", tmp_path / "pages"
    words = ["reproduce", "thinking-time", "--scale", "tiny", "--jobs", "2", "--root", str(root), "--out", str(out)]
    folder = root / "tiny" / "thinking-time"
    first = subprocess.Popen([sys.executable, "-m", "thinker", *words], stdout=subprocess.DEVNULL)
    try:
        wait_for(lambda: (folder / "trained-0" / "config.json").exists())
    finally:
        first.send_signal(signal.SIGKILL)
        first.wait()

    assert main(words) == 0  # waits for the orphans to save, if they are still there
    printed = capsys.readouterr().out
    assert "trained-1 finished" in printed
    assert "After training, the agent solves more levels than its base policy" in printed
    results = load_results(folder / "result.json")
    assert not results.missing
    assert [run.seed for run in results.runs] == [0, 1]
    run = results.runs[0]
    assert set(run.measurements) == {"agent-k1", "agent-k3", "agent-k5", "base-policy"}
    assert run.frames >= 480
    assert run.provenance["versions"]["torch"]
    assert str(tmp_path) not in json.dumps(json.loads((folder / "result.json").read_text()))

    written = {path: path.stat().st_mtime_ns for path in folder.glob("trained-*/**/*") if path.is_file()}
    assert main(words) == 0  # nothing is done twice
    assert written == {path: path.stat().st_mtime_ns for path in folder.glob("trained-*/**/*") if path.is_file()}

    assert main([*words, "--report"]) == 0
    text = (out / "thinking-time-tiny.md").read_text(encoding="utf-8")
    assert "| trained with K = 3 | base-policy | 2 |" in text
    assert (out / "thinking-time-tiny.png").exists()
    assert main(["eval", "trained-0", "--root", str(folder), "--episodes", "2"]) == 0  # an ordinary run
    assert main(["reproduce", "--list", "--scale", "tiny", "--root", str(root)]) == 0


def line_of(printed, name):
    return next(line for line in printed.splitlines() if f" {name} " in line)


def test_the_list_shows_all_experiments_how_long_they_take_and_that_none_was_run(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    assert main(["reproduce", "--list", "--root", str(tmp_path), "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    for name, experiment in EXPERIMENTS.items():
        assert experiment.paper in line_of(printed, name)
        minutes = estimated_core_minutes(experiment, "laptop")
        takes = "not measured" if minutes is None else f"{minutes:.0f} core-min"
        assert takes in line_of(printed, name)
        assert " no " in line_of(printed, name)


def test_the_list_shows_an_experiment_that_was_run_elsewhere(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    results = dataclasses.replace(made_up({"l5": [0.5, 0.6]}), experiment="depth", missing=())
    results.save(tmp_path / "depth.json")
    assert main(["reproduce", "--list", "--root", str(tmp_path / "none"), "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "yes, 2026-01-01, 2 seeds" in line_of(printed, "depth")
    assert "took 4 core-min" in line_of(printed, "depth")
    assert " no " in line_of(printed, "models")
    dataclasses.replace(results, missing=("l5-2",)).save(tmp_path / "depth.json")
    assert main(["reproduce", "--list", "--root", str(tmp_path / "none"), "--out", str(tmp_path)]) == 0
    assert "2 of 6 runs, 2026-01-01" in line_of(capsys.readouterr().out, "depth")


def test_a_report_of_nothing_hides_no_earlier_results(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    results = dataclasses.replace(made_up({"l5": [0.5, 0.6]}), experiment="depth", missing=())
    results.save(tmp_path / "depth.json")
    root = tmp_path / "runs"
    (root / "laptop" / "depth" / "logs").mkdir(parents=True)  # as if it was stopped at once
    assert main(["reproduce", "depth", "--report", "--root", str(root), "--out", str(tmp_path)]) == 1
    assert "no run of depth at laptop scale is finished yet" in capsys.readouterr().err
    assert main(["reproduce", "--list", "--root", str(root), "--out", str(tmp_path)]) == 0
    assert "yes, 2026-01-01, 2 seeds" in line_of(capsys.readouterr().out, "depth")


def test_at_paper_scale_the_list_says_that_levels_are_missing(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "400")
    assert main(["reproduce", "--list", "--scale", "paper", "--root", str(tmp_path)]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if " depth " in line)
    assert "boxoban" in line


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "which experiment? `thinker reproduce --list` shows them"),
        (["thinking"], "there is no experiment 'thinking'; did you mean 'thinking-time'?"),
        (["depth", "--report"], "there are no runs in"),
        (["depth", "--reuse"], "--reuse: there is no result file"),
        (["depth", "--jobs", "-1"], "--jobs -1: it must be at least 1"),
        (["depth", "--seeds", "0"], "--seeds 0: it must be at least 1"),
        (["depth", "--games", "pong"], "--games pong: depth has no games to choose from; leave the option out"),
        (
            ["atari", "--games", "pong", "breakot"],
            "there is no game 'breakot'; did you mean breakout? games are alien,",
        ),
        (["minatar", "--games", "pong"], "there is no game 'pong'; games are asterix, breakout,"),
    ],
)
def test_what_cannot_be_done_is_said_before_anything_is_trained(words, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", *words]) == 1
    assert message in capsys.readouterr().err
    assert not list(tmp_path.rglob("config.json"))
