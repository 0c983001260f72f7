"""Whole runs, tiny: they train to their end, stop when asked, and keep what was good when something goes wrong."""

from __future__ import annotations

import dataclasses
import os
import signal
import warnings

import numpy as np
import pytest
import torch

from tests.runs.support import advance, differences, engine, tiny
from thinker.agents import ActorCriticLearner
from thinker.errors import UserError
from thinker.runs import checkpoint
from thinker.runs.engines.local import LocalEngine
from thinker.runs.folder import RunFolder, list_runs
from thinker.runs.load import load_run
from thinker.runs.metrics import read_metrics
from thinker.runs.presets import preset
from thinker.runs.train import InterruptedRunError, RecentEpisodes, train


def last_state(root, name):
    return checkpoint.load_latest(root / name / "checkpoints")[1]


def test_a_run_leaves_its_settings_metrics_checkpoint_and_summary_and_is_reported_again(tmp_path):
    settings = tiny("sokoban-raw")
    summary = train(settings, tmp_path, "run", preset="sokoban-raw")
    assert summary["real_steps"] == 480
    assert 0 <= summary["eval/solved_interval"][0] <= summary["eval/solved"] <= summary["eval/solved_interval"][1] <= 1
    assert {"eval/return", "eval/length", "episode/return", "episode/solved", "training_minutes"} <= summary.keys()
    folder = RunFolder(tmp_path, "run")
    assert folder.read_config()["preset"] == "sokoban-raw"
    assert folder.read_summary() == summary
    lines = read_metrics(folder.path)
    steps = [line["step"] for line in lines]
    assert steps == sorted(steps)
    assert steps[-1] == 480
    assert {"eval/return", "eval/solved"} <= lines[-1].keys()
    assert {"loss/value_real", "agent/learning_rate", "speed/real_steps_per_second"} <= lines[0].keys()
    assert [(run.name, run.status, run.step) for run in list_runs(tmp_path)] == [("run", "finished", 480)]
    before = {path: path.stat().st_mtime_ns for path in folder.path.rglob("*") if path.is_file()}
    assert train(settings, tmp_path, "run", preset="sokoban-raw") == summary
    assert before == {path: path.stat().st_mtime_ns for path in before}, "a finished run is only reported"


def test_a_run_that_is_asked_to_stop_saves_and_ends_like_an_unbroken_one(tmp_path, monkeypatch):
    settings = tiny("sokoban-quick", checkpoint_minutes=100.0, real_steps=320)
    settings = dataclasses.replace(settings, evaluation=dataclasses.replace(settings.evaluation, every=100))
    unbroken = train(settings, tmp_path, "unbroken")
    asked = {160: signal.SIGINT, 256: signal.SIGTERM}
    go_on = LocalEngine.advance

    def advance_and_be_stopped(self):
        if self.run.real_steps in asked:
            os.kill(os.getpid(), asked.pop(self.run.real_steps))
        return go_on(self)

    monkeypatch.setattr(LocalEngine, "advance", advance_and_be_stopped)
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    for stopped_at in (192, 288):
        with pytest.raises(InterruptedRunError, match=f"stopped at {stopped_at} real steps and saved; run the same"):
            train(settings, tmp_path, "broken")
        assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers
    assert [path.name for path in checkpoint.list_checkpoints(tmp_path / "broken" / "checkpoints")] == [
        "000001-step-192",
        "000002-step-288",
    ]
    broken = train(settings, tmp_path, "broken")

    def without_clocks(values):
        return {k: v for k, v in values.items() if not k.startswith(("speed/", "time/", "training_minutes", "minutes"))}

    assert without_clocks(broken) == without_clocks(unbroken)
    assert differences(last_state(tmp_path, "broken"), last_state(tmp_path, "unbroken")) == []
    one, other = ([*map(without_clocks, read_metrics(tmp_path / name))] for name in ("broken", "unbroken"))
    assert one == other
    assert sum("eval/return" in line for line in one) == 3  # after 100 and 200 steps, and at the end


def test_other_settings_do_not_continue_a_run(tmp_path):
    train(tiny("sokoban-raw"), tmp_path, "run")
    with pytest.raises(UserError, match=r"differs in 1 setting[\s\S]*seed: 0 -> 3[\s\S]*--fresh"):
        train(tiny("sokoban-raw", seed=3), tmp_path, "run")
    train(tiny("sokoban-raw", seed=3), tmp_path, "run", fresh=True)
    assert {run.name for run in list_runs(tmp_path)} == {"run", "run-1"}
    assert load_run(RunFolder(tmp_path, "run")).settings.seed == 3
    assert load_run(RunFolder(tmp_path, "run-1")).settings.seed == 0


def test_what_is_wrong_with_the_settings_shows_before_there_is_a_folder(tmp_path):
    settings = tiny("cartpole")
    environment = dataclasses.replace(settings.environment, id="CartPol-v1")
    with pytest.raises(UserError, match="CartPole-v1"):
        train(dataclasses.replace(settings, environment=environment), tmp_path / "runs", "run")
    assert not (tmp_path / "runs").exists()


def test_a_run_without_a_checkpoint_or_of_another_version_cannot_be_loaded(tmp_path):
    settings = tiny("sokoban-raw")
    RunFolder(tmp_path, "new").open({"preset": "sokoban-raw", "settings": settings.to_dict()}).close()
    with pytest.raises(UserError, match="has no checkpoint yet"):
        load_run(RunFolder(tmp_path, "new"))
    RunFolder(tmp_path, "old").open({"preset": "sokoban-raw", "settings": {"levels": 5}}).close()
    with pytest.raises(UserError, match="another version"):
        load_run(RunFolder(tmp_path, "old"))
    (tmp_path / "old" / "config.json").write_text('{"preset": "sokoban-raw", "seed": 0}')
    with pytest.raises(UserError, match="another version"):
        load_run(RunFolder(tmp_path, "old"))


def test_annealing_may_end_after_the_run():
    quick, raw = preset("sokoban-quick"), preset("sokoban-raw")
    assert quick.total_steps == quick.annealing_steps > quick.real_steps
    assert raw.total_steps == raw.real_steps
    rates = []
    for annealing_steps in (None, 960):
        moved = advance(engine(tiny("sokoban-raw", annealing_steps=annealing_steps)), 1)
        rates.append(moved.advance()[1]["agent/learning_rate"])
    first = raw.agent.learning_rate
    assert rates == pytest.approx([first * (1 - 32 / 480), first * (1 - 32 / 960)])


def test_a_loss_that_is_not_finite_stops_the_run_and_keeps_the_last_good_checkpoint(tmp_path, monkeypatch):
    settings = tiny("sokoban-raw")
    losses = ActorCriticLearner._losses

    def losses_that_break(self, *arguments):
        made = losses(self, *arguments)
        return {**made, "value_real": made["value_real"] * np.nan} if self.updates >= 30 else made

    with monkeypatch.context() as patch:
        patch.setattr(ActorCriticLearner, "_losses", losses_that_break)
        with pytest.raises(UserError, match=r"'value_real' is nan[\s\S]*last good checkpoint is kept"):
            train(settings, tmp_path, "run")
    step, state = checkpoint.load_latest(tmp_path / "run" / "checkpoints")
    assert 0 < step < 480
    assert all(bool(torch.isfinite(value).all()) for key, value in state["learner"].items() if "network" in key)
    assert train(settings, tmp_path, "run")["real_steps"] == 480, "what was kept can be trained on"


def test_random_play_comes_first_in_short_episodes_that_end_as_truncated():
    moved = engine(tiny("sokoban-quick"))
    run, stored = moved.run, []
    store = run.trainer.store
    run.trainer.store = lambda transition: (stored.append(transition), store(transition))
    before = [parameter.clone() for parameter in run.networks()["model"].parameters()]
    agent_before = [parameter.clone() for parameter in run.networks()["agent"].parameters()]
    episodes, metrics = moved.advance()
    assert (run.real_steps, episodes.real_steps, len(stored)) == (64, 64, 8)
    assert len(episodes.returns) == 0
    for transition in stored[:-1]:
        assert not transition.truncated.any()
    last = stored[-1]
    np.testing.assert_array_equal(last.truncated, ~last.terminated)
    for transition in stored:
        np.testing.assert_allclose(transition.policy, 1 / 5)
    assert len({tuple(transition.action) for transition in stored}) > 1
    # 10 times 64 transitions in batches of 8 sequences of 5; none of it counts for the replay ratio
    assert (run.trainer.extra_transitions, run.trainer.trained_transitions) == (640, 0)
    assert metrics["replay/trained_transitions"] == 640
    assert {"loss/model_reward", "loss/model_state"} <= metrics.keys()
    assert any((x != y).any() for x, y in zip(before, run.networks()["model"].parameters()))
    assert all((x == y).all() for x, y in zip(agent_before, run.networks()["agent"].parameters()))
    assert run.worker.env.last_transition is None, "the agent begins with new episodes"
    moved.advance()
    assert run.real_steps == 64 + 32
    assert any((x != y).any() for x, y in zip(agent_before, run.networks()["agent"].parameters()))


def test_running_averages_wait_until_as_many_episodes_have_ended_as_there_are_environments():
    recent = RecentEpisodes(3, None)
    recent.add(np.array([10.0, 10.0]), np.array([True, True]))  # only the solved ones are over so soon
    assert recent.metrics() == {}
    recent.add(np.array([-2.0, -2.0]), np.array([False, False]))
    assert recent.metrics() == {"episode/return": 4.0, "episode/solved": 0.5}
    assert RecentEpisodes(3, recent.state_dict()).metrics() == recent.metrics()


def test_running_averages_know_nothing_of_success_where_the_environment_does_not_tell():
    recent = RecentEpisodes(2, None)
    recent.add(np.array([1.0, 3.0]), None)
    assert recent.metrics() == {"episode/return": 2.0}
    assert RecentEpisodes(2, recent.state_dict()).metrics() == {"episode/return": 2.0}


def test_a_run_in_an_environment_that_tells_no_success_reports_none(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        summary = train(tiny("cartpole", real_steps=256), tmp_path, "run")
    assert "eval/return" in summary
    assert not [name for name in summary if "solved" in name]
    assert not [name for line in read_metrics(tmp_path / "run") for name in line if "solved" in name]
