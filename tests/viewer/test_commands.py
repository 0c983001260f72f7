"""`thinker watch` and `thinker demo`: their options, files and errors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import tyro

from tests.viewer.runs_support import PRESET, small_settings
from thinker.cli.demo import Demo
from thinker.cli.watch import Watch
from thinker.errors import UserError
from thinker.runs import checkpoint
from thinker.runs.build import build_run
from thinker.runs.folder import RunFolder
from thinker.viewer import Recording, demo_agent
from thinker.viewer.export_demo import ExportDemo


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    """A folder with a run that was saved, but never trained."""
    root = tmp_path_factory.mktemp("runs")
    settings = small_settings()
    with RunFolder(root, "small").open({"preset": PRESET, "settings": settings.to_dict()}) as folder:
        checkpoint.save(folder.checkpoints, 0, build_run(settings, device="cpu").state_dict())
    return root


def watch(root: Path, *words: object) -> None:
    tyro.cli(Watch, args=[str(word) for word in (*words, "--root", root, "--device", "cpu")]).run()


def demo(*words: object) -> None:
    tyro.cli(Demo, args=[str(word) for word in (*words, "--no-open", "--device", "cpu")]).run()


def test_watch_writes_a_page_a_recording_and_a_video(root, tmp_path, capsys):
    page, file, video = (tmp_path / name for name in ("p.html", "r.json", "v.gif"))
    watch(root, "small", "--episodes", 3, "--out", page, "--recording", file, "--video", video)
    assert "<html" in page.read_text(encoding="utf-8")
    recording = Recording.load(file)
    assert [episode.level for episode in recording.episodes] == [0, 1, 2]
    assert recording.title == "Plans of small"
    assert video.stat().st_size > 1000
    printed = capsys.readouterr().out
    assert all(f"wrote {path}" in printed for path in (page, file, video))


def test_watch_hands_its_options_on(root, tmp_path):
    file = tmp_path / "r.json"
    words = ("--episode", 2, "--episodes", 2, "--stage-length", 6, "--who", "base-policy", "--split", "validation")
    watch(root, "small", *words, "--greedy", "--seed", 1, "--out", tmp_path / "p.html", "--recording", file)
    recording = Recording.load(file)
    assert recording.stage_length == 6
    assert [episode.level for episode in recording.episodes] == [2, 2]
    assert all(stage.agent_policy == stage.tree.policy[0] for e in recording.episodes for stage in e.stages)


@pytest.mark.parametrize(
    ("planner", "name", "simulations"),
    [
        (("mcts", "--simulations", 7), "MCTS", 7),
        (("gumbel", "--simulations", 7), "GumbelMCTS", 7),
        (("exhaustive", "--depth", 2), "Exhaustive", 30),
        (("random", "--simulations", 7), "RandomSearch", 7),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_watch_shows_the_searches_of_planners(root, tmp_path, planner, name, simulations):
    file = tmp_path / "r.json"
    watch(root, "small", "--planner", *planner, "--episodes", 1, "--out", tmp_path / "p.html", "--recording", file)
    recording = Recording.load(file)
    assert (recording.planner.name, recording.planner.simulations) == (name, simulations)
    for stage in recording.episodes[0].stages:
        assert len(stage.steps) >= 1
        assert 1 < len(stage.tree.parent) <= simulations + 1
        assert stage.agent_policy is not None


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["small", "--episode", "seven"], "seven"),
        (["small", "--episodes", "0"], "at least 1"),
        (["small", "--stage-length", "0"], "at least 1"),
        (["small", "--video", "film.avi"], ".mp4 or .gif"),
        (["small", "--recording", "no-such-folder/r.json"], "no-such-folder does not exist"),
        (["small", "--recording", "."], "this is a folder"),
        (["small", "--recording", "p.html"], "the same file"),
        (["smal"], "did you mean small"),
        (["small", "--planner", "mcts", "--simulations", "0"], "--simulations 0: it must be at least 1"),
        (["small", "--planner", "mcts", "--who", "base-policy"], "--planner replaces the agent; leave out --who"),
        (["small", "--depth", "2"], "add --planner exhaustive"),
    ],
)
def test_mistakes_are_errors_of_the_user(root, tmp_path, monkeypatch, words, told):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=told):
        watch(root, *words, "--out", "p.html")
    assert not any(tmp_path.iterdir())


def test_files_are_checked_before_anything_is_played(root, tmp_path, monkeypatch):
    monkeypatch.setattr("thinker.runs.load.load_run", lambda *_, **__: pytest.fail("the run was loaded"))
    with pytest.raises(UserError, match="--out"):
        watch(root, "small", "--out", tmp_path)


def test_demo_writes_a_page_or_says_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(demo_agent, "FOLDER", tmp_path)
    page = tmp_path / "demo.html"
    with pytest.raises(UserError, match="comes without its demo agent"):
        demo("--out", page)
    demo_agent.export_demo(build_run(small_settings(), device="cpu"), tmp_path, preset=PRESET)
    demo("--episodes", 1, "--out", page)
    assert f"thinker train {PRESET}" in page.read_text(encoding="utf-8")
    (tmp_path / "weights.safetensors").write_bytes(b"nonsense")
    with pytest.raises(UserError, match="damaged"):
        demo("--out", page)


def test_the_agent_of_a_run_is_exported(root, tmp_path):
    tyro.cli(ExportDemo, args=["small", "--root", str(root), "--folder", str(tmp_path)]).run()
    assert demo_agent.load_demo(tmp_path, device="cpu").settings.seed == small_settings().seed
    assert demo_agent.demo_metrics(tmp_path)["trained_real_steps"] == 0


@pytest.mark.parametrize("module", ["watch", "demo"])
def test_the_commands_import_nothing_heavy(module):
    code = f"import sys, thinker.cli.{module}; sys.exit('thinker.viewer' in sys.modules or 'PIL' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
