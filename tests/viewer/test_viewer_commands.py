"""`thinker watch` and `thinker demo`, videos, and the export of the agent that is shipped."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch
import tyro
from PIL import Image
from viewer_support import sokoban_recording

from thinker import cli
from thinker.envs.sokoban import generate_levels
from thinker.runs import checkpoint
from thinker.runs.folder import RunFolder
from thinker.runs.loop import Run
from thinker.runs.presets import preset
from thinker.runs.settings import RunSettings
from thinker.viewer import Recording, demo_agent, video
from thinker.viewer.play import record_run


def small_settings(**changes: object) -> RunSettings:
    quick = preset("sokoban-quick")
    environment = dataclasses.replace(quick.environment, size=6, max_steps=4)
    model = dataclasses.replace(quick.model, replay_capacity=2_000)
    search = dataclasses.replace(quick.search, stage_length=4)
    return dataclasses.replace(
        quick, num_envs=2, threads=1, environment=environment, model=model, search=search, **changes
    )


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    """A folder with a run that has been saved, and never trained."""
    root = tmp_path_factory.mktemp("runs")
    settings = small_settings()
    with RunFolder(root, "small").open(settings.to_dict()) as folder:
        checkpoint.save(folder.checkpoints, 0, Run(settings).state_dict())
    return root


def run_command(*words: object) -> int:
    return cli.main([str(word) for word in words])


def test_watch_plays_held_out_levels_and_writes_page_and_recording(root, tmp_path, capsys):
    page, file = tmp_path / "p.html", tmp_path / "r.json"
    assert run_command("watch", "small", "--root", root, "--episodes", 3, "--out", page, "--recording", file) == 0
    assert "<html" in page.read_text(encoding="utf-8")
    recording = Recording.load(file)
    assert [episode.level for episode in recording.episodes] == [0, 1, 2]
    assert recording.stage_length == 4
    assert all(step.frame is not None for e in recording.episodes for s in e.stages for step in s.steps)
    assert "wrote" in capsys.readouterr().out


def test_watch_plays_one_level_of_a_file_with_another_stage_length(root, tmp_path):
    levels = generate_levels(3, 6, 1, seed=5)
    levels.save(tmp_path / "levels.txt")
    file = tmp_path / "r.json"
    words = ("--level", f"{tmp_path / 'levels.txt'}:2", "--episodes", 2, "--stage-length", 6)
    assert run_command("watch", "small", "--root", root, *words, "--out", tmp_path / "p.html", "--recording", file) == 0
    recording = Recording.load(file)
    assert recording.stage_length == 6
    board = "".join(map(str, levels.boards[2].ravel()))
    for episode in recording.episodes:
        assert episode.level == 2
        assert recording.frames[episode.stages[0].frame] == board


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["small", "--level", "seven"], "FILE:INDEX"),
        (["small", "--episodes", "0"], "at least 1"),
        (["small", "--video", "film.avi"], ".mp4 or .gif"),
        (["smal"], "did you mean small"),
    ],
)
def test_mistakes_are_told_in_one_line(root, tmp_path, capsys, words, told):
    assert run_command("watch", *words, "--root", root, "--out", tmp_path / "p.html") == 1
    assert told in capsys.readouterr().err


def test_a_level_of_another_size_is_refused(root, tmp_path, capsys):
    generate_levels(1, 8, 1, seed=5).save(tmp_path / "large.txt")
    assert run_command("watch", "small", "--root", root, "--level", f"{tmp_path / 'large.txt'}:0") == 1
    assert "8 x 8" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["simulator", "simulator-learned-values", "dual-no-state", "single-l2", "none"])
def test_runs_with_every_kind_of_model_can_be_watched_and_shipped(tmp_path, kind):
    settings = small_settings()
    model = dataclasses.replace(settings.model, kind=kind)
    search = dataclasses.replace(settings.search, stage_length=1 if kind == "none" else 4)
    run = Run(dataclasses.replace(settings, model=model, search=search))
    recording = record_run(run, episodes=1)
    steps = [step for stage in recording.episodes[0].stages for step in stage.steps]
    assert len(steps) == (search.stage_length - 1) * len(recording.episodes[0].stages)
    if kind == "dual-no-state":
        assert all(step.frame is None for step in steps)  # it predicts no states
    else:
        assert any(step.frame is not None for step in steps) == bool(steps)
    demo_agent.export_demo(run, tmp_path)
    assert record_run(demo_agent.load_demo(tmp_path), episodes=1) == recording


def test_an_exported_agent_plays_as_the_run_does(tmp_path):
    run = Run(small_settings(seed=3))
    size = demo_agent.export_demo(run, tmp_path, {"eval/solved": 0.5})
    assert size == pytest.approx((tmp_path / "weights.safetensors").stat().st_size, rel=0.1)
    assert size < demo_agent.LARGEST_BYTES
    metrics = demo_agent.demo_metrics(tmp_path)
    assert metrics["eval/solved"] == 0.5
    assert metrics["command"].startswith("thinker train sokoban-quick")
    assert "--seed 3" in metrics["command"]
    assert "--environment.max-steps 4" in metrics["command"]
    assert record_run(demo_agent.load_demo(tmp_path), episodes=2) == record_run(run, episodes=2)


def test_the_training_command_leads_to_the_same_settings():
    settings = small_settings(seed=7)
    search = dataclasses.replace(settings.search, carry_tree=False, max_depth=None, observe=("tree",))
    settings = dataclasses.replace(settings, search=search)
    words = demo_agent.training_command(settings).split()
    assert words[:3] == ["thinker", "train", "sokoban-quick"]
    assert tyro.cli(RunSettings, args=words[3:], default=preset("sokoban-quick")) == settings


def test_demo_writes_a_page_or_says_what_is_missing(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(demo_agent.load_demo, "__defaults__", (tmp_path,))
    monkeypatch.setattr(demo_agent.demo_metrics, "__defaults__", (tmp_path,))
    page = tmp_path / "demo.html"
    assert run_command("demo", "--no-open", "--out", page) == 1
    assert "comes without its demo agent" in capsys.readouterr().err
    demo_agent.export_demo(Run(small_settings()), tmp_path)
    assert run_command("demo", "--no-open", "--episodes", 1, "--out", page) == 0
    assert "thinker train sokoban-quick" in page.read_text(encoding="utf-8")
    (tmp_path / "weights.safetensors").write_bytes(b"nonsense")
    assert run_command("demo", "--no-open", "--out", page) == 1
    assert "damaged" in capsys.readouterr().err


def test_an_agent_too_large_to_ship_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(demo_agent, "LARGEST_BYTES", 1000)
    with pytest.raises(ValueError, match="may be shipped"):
        demo_agent.export_demo(Run(small_settings()), tmp_path)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("observation", ["tiles", "rgb"])
def test_a_gif_shows_every_stage(tmp_path, observation):
    recording = sokoban_recording(1, max_steps=6, observation=observation)
    video.write_video(recording, tmp_path / "plan.gif")
    with Image.open(tmp_path / "plan.gif") as gif:
        assert gif.n_frames == len(recording.episodes[0].stages) + 1
        assert len(np.unique(np.asarray(gif.convert("RGB")).reshape(-1, 3), axis=0)) > 10


def test_an_mp4_needs_the_extra_and_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(video.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"thinker\[video\]"):
        video.write_video(sokoban_recording(1, max_steps=2), tmp_path / "plan.mp4")


def test_an_mp4_is_written_where_the_extra_is_installed(tmp_path):
    pytest.importorskip("imageio_ffmpeg", reason="the extra [video] is not installed")
    video.write_video(sokoban_recording(1, max_steps=2), tmp_path / "plan.mp4")
    assert (tmp_path / "plan.mp4").stat().st_size > 2_000


def test_the_shipped_agent_if_there_is_one_is_small_and_sound():
    if not (demo_agent.FOLDER / demo_agent.WEIGHTS).exists():
        pytest.skip("no demo agent is shipped yet (python -m thinker.viewer.export_demo RUN)")
    assert (demo_agent.FOLDER / demo_agent.WEIGHTS).stat().st_size <= 1.05 * demo_agent.LARGEST_BYTES
    assert json.loads((demo_agent.FOLDER / demo_agent.METRICS).read_text())["command"].startswith("thinker train")
    recording = record_run(demo_agent.load_demo(), episodes=1)
    assert recording.episodes[0].stages
    assert torch.get_num_threads() >= 1
