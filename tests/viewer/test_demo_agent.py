"""The agent that is shipped, and how a run becomes one."""

from __future__ import annotations

import json

import pytest

from tests.viewer.runs_support import PRESET, small_settings
from thinker.errors import UserError
from thinker.runs.build import build_run
from thinker.runs.settings import settings_from_dict
from thinker.viewer import demo_agent
from thinker.viewer.play import record_run
from thinker.world_model import LearnedValuesSimulatorSpec, SimulatorSpec


def test_an_exported_agent_plays_as_the_run_does(tmp_path):
    run = build_run(small_settings(seed=3), device="cpu")
    size = demo_agent.export_demo(run, tmp_path, preset=PRESET, metrics={"eval/solved": 0.5})
    assert size == pytest.approx((tmp_path / demo_agent.WEIGHTS).stat().st_size, rel=0.1)
    assert size < demo_agent.LARGEST_BYTES
    metrics = demo_agent.demo_metrics(tmp_path)
    assert metrics["eval/solved"] == 0.5
    assert metrics["command"].startswith(f"thinker train {PRESET}")
    assert "--seed 3" in metrics["command"]
    assert record_run(demo_agent.load_demo(tmp_path, device="cpu"), episodes=2) == record_run(run, episodes=2)


@pytest.mark.parametrize("model", [SimulatorSpec(), LearnedValuesSimulatorSpec(replay_capacity=2_000)])
def test_agents_with_other_models_can_be_exported(tmp_path, model):
    run = build_run(small_settings(model=model), device="cpu")
    demo_agent.export_demo(run, tmp_path, preset=PRESET)
    assert record_run(demo_agent.load_demo(tmp_path, device="cpu"), episodes=1) == record_run(run, episodes=1)


def test_an_agent_too_large_to_ship_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(demo_agent, "LARGEST_BYTES", 1000)
    with pytest.raises(UserError, match="may be shipped"):
        demo_agent.export_demo(build_run(small_settings(), device="cpu"), tmp_path, preset=PRESET)
    assert not any(tmp_path.iterdir())


def test_weights_that_do_not_fit_are_told(tmp_path):
    demo_agent.export_demo(build_run(small_settings(), device="cpu"), tmp_path, preset=PRESET)
    run = build_run(small_settings(model=SimulatorSpec()), device="cpu")
    other = tmp_path / "other"
    demo_agent.export_demo(run, other, preset=PRESET)
    (other / demo_agent.WEIGHTS).rename(tmp_path / demo_agent.WEIGHTS)
    with pytest.raises(UserError, match="do not fit"):
        demo_agent.load_demo(tmp_path, device="cpu")


def test_the_shipped_agent_is_small_sound_and_trained():
    files = {name: demo_agent.FOLDER / name for name in (demo_agent.WEIGHTS, demo_agent.SETTINGS, demo_agent.METRICS)}
    assert files[demo_agent.WEIGHTS].stat().st_size <= 1.05 * demo_agent.LARGEST_BYTES
    assert demo_agent.demo_metrics()["command"].startswith("thinker train")
    values = json.loads(files[demo_agent.SETTINGS].read_text(encoding="utf-8"))
    assert json.loads(json.dumps(settings_from_dict(values).to_dict())) == values
    recording = record_run(demo_agent.load_demo(device="cpu"), episodes=20)
    assert sum(episode.solved is True for episode in recording.episodes) >= 16
