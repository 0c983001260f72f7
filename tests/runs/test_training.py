"""Whole runs, tiny: they train, stop and go on exactly, and what is evaluated later is what was logged."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from thinker.agents import ActorCriticLearner
from thinker.cli import main
from thinker.runs import checkpoint
from thinker.runs.commands import load_run, speed_report
from thinker.runs.evaluation import evaluate
from thinker.runs.folder import RunFolder
from thinker.runs.loop import Run, annealing_steps
from thinker.runs.presets import PRESETS, preset
from thinker.runs.settings import RunSettings, settings_from_dict
from thinker.runs.training import RecentEpisodes, train

TINY = """
    --real-steps 480 --num-envs 8 --threads 1 --exploration-steps 60 --exploration-length 8
    --log-every 60 --environment.size 5 --environment.max-steps 12
    --search.stage-length 3 --agent.unroll-stages 4 --agent.batch-size 4 --evaluation.levels 12
    --evaluation.num-envs 5 --model.training.warm-up-transitions 100 --model.training.batch-size 8
    --checkpoint-minutes 0
""".split()  # noqa: SIM905 - it is a command line


def tiny(name: str, **changes) -> RunSettings:
    settings = preset(name)
    stage_length = 1 if settings.model.kind == "none" else 3
    training = dataclasses.replace(settings.model.training, warm_up_transitions=100, batch_size=8)
    return dataclasses.replace(
        settings,
        real_steps=480,
        annealing_steps=None,
        num_envs=8,
        exploration_steps=0 if settings.model.kind == "none" else 60,
        exploration_length=8,
        threads=1,
        log_every=60,
        environment=dataclasses.replace(settings.environment, size=5, boxes=1, max_steps=12, levels="generated"),
        search=dataclasses.replace(settings.search, stage_length=stage_length),
        model=dataclasses.replace(settings.model, training=training),
        agent=dataclasses.replace(settings.agent, unroll_stages=4, batch_size=4),
        evaluation=dataclasses.replace(settings.evaluation, levels=12, num_envs=5, source=None, max_steps=None),
        **changes,
    )


def flat(state, prefix=""):
    """All numbers of a nested state as (name, bytes)."""
    if isinstance(state, dict):
        return [item for key in sorted(state) for item in flat(state[key], f"{prefix}/{key}")]
    if isinstance(state, torch.Tensor):
        state = np.ascontiguousarray(state.detach().numpy())
    if isinstance(state, np.ndarray):
        return [(prefix, state.tobytes())]
    return [(prefix, repr(state).encode())]


def weights(state) -> list:
    """What must be bit-identical: all but seconds."""
    return [item for item in flat(state) if "seconds" not in item[0]]


@pytest.mark.parametrize("name", ["sokoban-quick", "sokoban-raw", "sokoban-simulator", "cartpole"])
def test_a_run_that_is_saved_and_loaded_at_any_moment_ends_bit_for_bit_like_an_unbroken_one(name, tmp_path):
    unbroken = Run(tiny(name))
    for _ in range(6):
        unbroken.advance()
    expected = weights(unbroken.state_dict())
    for moment in (1, 4):
        first = Run(tiny(name))
        for _ in range(moment):
            first.advance()
        checkpoint.save(tmp_path / str(moment), first.real_steps, first.state_dict())
        second = Run(tiny(name))
        second.advance()  # whatever it has done before must not matter
        second.load_state_dict(checkpoint.load_latest(tmp_path / str(moment))[1])
        for _ in range(6 - moment):
            second.advance()
        got = weights(second.state_dict())
        assert [name for name, _ in got] == [name for name, _ in expected]
        assert [name for (name, a), (_, b) in zip(got, expected) if a != b] == []


@pytest.mark.slow
def test_a_killed_run_goes_on_and_ends_bit_for_bit_like_an_unbroken_one(tmp_path):
    command = [sys.executable, "-m", "thinker", "train", "sokoban-quick", *TINY, "--root", str(tmp_path), "--run"]
    subprocess.run([*command, "unbroken"], check=True, capture_output=True)
    for seconds in (0.3, 0.6):
        process = subprocess.Popen([*command, "broken"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        folder = tmp_path / "broken" / "checkpoints"
        deadline = time.monotonic() + 120
        while not (folder.exists() and checkpoint.list_checkpoints(folder)):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        time.sleep(seconds)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    subprocess.run([*command, "broken"], check=True, capture_output=True)
    states = [checkpoint.load_latest(tmp_path / name / "checkpoints")[1] for name in ("unbroken", "broken")]
    assert weights(states[0]) == weights(states[1])


def test_evaluating_a_reloaded_run_gives_what_was_logged_and_changes_nothing(tmp_path):
    settings = tiny("sokoban-quick")
    summary = train(settings, tmp_path, "run")
    run = load_run(RunFolder(tmp_path, "run"))
    assert run.settings == settings
    before = weights(run.state_dict())
    result = evaluate(run)
    assert result.metrics() == {name: summary[name] for name in result.metrics()}
    assert result.lengths.min() >= 1
    assert weights(run.state_dict()) == before
    # Every level is the same for every budget: a level solved in one step is one for all.
    base = evaluate(run, policy="base")
    assert (base.stage_length, len(base.solved)) == (1, 12)
    assert evaluate(run, stage_length=7).stage_length == 7
    assert train(settings, tmp_path, "run") == summary


def test_tests_may_last_longer_than_the_episodes_of_training():
    settings = tiny("sokoban-quick")
    run = Run(dataclasses.replace(settings, environment=dataclasses.replace(settings.environment, max_steps=5)))
    for wanted in (None, 9):
        run.settings = dataclasses.replace(
            run.settings, evaluation=dataclasses.replace(run.settings.evaluation, max_steps=wanted)
        )
        lengths = evaluate(run, policy="base").lengths
        assert lengths.max() == (wanted or 5)  # random play does not solve all twelve levels so soon


@pytest.mark.parametrize("threads", [1, 2])
def test_two_runs_with_the_same_seed_are_identical_and_another_seed_is_not(threads):
    states = []
    for seed in (1, 1, 2):
        run = Run(dataclasses.replace(tiny("sokoban-quick", seed=seed), threads=threads))
        for _ in range(4):
            run.advance()
        states.append(weights(run.state_dict()))
    assert states[0] == states[1]
    assert states[0] != states[2]


def test_settings_survive_json_and_every_preset_is_valid():
    import json

    for name in PRESETS:
        settings = preset(name)
        assert settings_from_dict(json.loads(json.dumps(settings.to_dict()))) == settings
    with pytest.raises(ValueError, match="RunSettings has no setting sed"):
        settings_from_dict({"sed": 1})


def test_annealing_may_end_after_the_run_but_not_before():
    quick, long = preset("sokoban-quick"), preset("sokoban")
    assert annealing_steps(quick) == annealing_steps(long) == long.real_steps > quick.real_steps
    rates = []
    for changes in ({}, {"annealing_steps": 960}):
        run = Run(dataclasses.replace(tiny("sokoban-raw"), **changes))
        run.advance()
        rates.append(run.advance()[1]["agent/learning_rate"])
    first = long.agent.learning_rate
    assert rates == pytest.approx([first * (1 - 32 / 480), first * (1 - 32 / 960)])
    with pytest.raises(ValueError, match="annealing_steps is 300000: the learning rates would be 0 from there on"):
        dataclasses.replace(quick, real_steps=300_001)


def test_mistakes_on_the_command_line_are_told_in_one_line(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "sokoban-quik"]) == 1
    assert "did you mean 'sokoban-quick'?" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["train", "sokoban-quick", "--real-stepz", "5"])
    assert "--real-steps" in capsys.readouterr().err
    assert main(["train", "boxoban", "--environment.levels", str(tmp_path / "missing")]) == 1
    assert "missing" in capsys.readouterr().err
    assert main(["eval", "nothing"]) == 1
    assert "nothing" in capsys.readouterr().err
    assert main(["train", "sokoban-quick", *TINY, "--run", "one"]) == 0
    assert main(["train", "sokoban-quick", *TINY, "--run", "one", "--seed", "3"]) == 1
    assert "seed" in capsys.readouterr().err
    assert main(["train", "sokoban-quick", *TINY, "--run", "one", "--seed", "3", "--fresh"]) == 0
    assert main(["eval", "one", "--stage-length", "1,4", "--levels", "6"]) == 0
    assert main(["plot", "one", "--out", "curves.png"]) == 0
    assert Path("curves.png").stat().st_size > 1000
    assert main(["runs"]) == 0
    assert "one" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["sokoban-quick", "sokoban-simulator"])
def test_training_the_model_beside_acting_changes_nothing(name):
    torch.set_num_threads(1)  # two computations of one thread each, as on two cores
    states = []
    for threads in (1, 2):
        run = Run(dataclasses.replace(tiny(name), threads=threads, exploration_steps=0))
        assert (run._beside is not None) == (threads == 2)
        for _ in range(8):
            run.advance()
        assert run.trainer.trained_transitions > 0
        states.append(weights(run.state_dict()))
    assert states[0] == states[1]


def test_a_loss_that_is_not_finite_stops_the_run_and_keeps_the_last_good_checkpoint(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command = ["train", "sokoban-raw", *TINY, "--search.stage-length", "1", "--exploration-steps", "0", "--run", "one"]
    learn = ActorCriticLearner._losses

    def losses_that_break(self, *arguments):
        losses = learn(self, *arguments)
        return {**losses, "value_real": losses["value_real"] * np.nan} if self.updates >= 30 else losses

    monkeypatch.setattr(ActorCriticLearner, "_losses", losses_that_break)
    assert main(command) == 1
    message = capsys.readouterr().err
    assert "'value_real' is nan" in message
    assert "last good checkpoint is kept" in message
    step, state = checkpoint.load_latest(tmp_path / "runs" / "one" / "checkpoints")
    assert 0 < step < 480
    assert all(bool(torch.isfinite(value).all()) for key, value in state["learner"].items() if "network" in key)
    monkeypatch.setattr(ActorCriticLearner, "_losses", learn)  # what was kept can be trained on
    assert main(command) == 0


def test_the_speed_report_names_what_bounds_it(capsys):
    seconds = {"act": 1.0, "agent": 0.5, "wait": 0.5, "model": 2.0}
    report = speed_report("a preset", 1000, seconds, 2.0)
    assert "500 real steps/s" in report
    assert "bound by training the model" in report
    assert "  50% of the time  1,000 µs/real step  acting" in report
    assert "bound by acting" in speed_report("a preset", 1000, {**seconds, "wait": 0.0}, 1.5)


def test_random_play_comes_first_in_short_episodes_that_end_as_truncated():
    run = Run(tiny("sokoban-quick"))
    trainer, stored = run.trainer, []
    store = trainer.store
    trainer.store = lambda transition: (stored.append(transition), store(transition))
    before = [x.clone() for x in run.model.network.parameters()]
    episodes, metrics = run.advance()
    assert (run.real_steps, episodes.real_steps, len(stored)) == (64, 0, 8)
    for transition in stored[:-1]:
        assert not transition.truncated.any()
    last = stored[-1]
    np.testing.assert_array_equal(last.truncated, ~last.terminated)
    for transition in stored:
        np.testing.assert_allclose(transition.policy, 1 / 5)
    assert len({tuple(transition.action) for transition in stored}) > 1
    # 10 times 64 transitions in batches of 8 sequences of 5; none of it counts for the replay ratio
    assert (trainer.extra_transitions, trainer.trained_transitions) == (640, 0)
    assert metrics["replay/trained_transitions"] == 640
    assert any((x != y).any() for x, y in zip(before, run.model.network.parameters()))
    run.advance()
    assert run.real_steps == 64 + 32
    assert run.agent.given.episode_start.shape == (8,)


def test_running_averages_wait_until_as_many_episodes_have_ended_as_there_are_environments():
    recent = RecentEpisodes(3, None)
    recent.add(np.array([10.0, 10.0]), np.array([True, True]))  # only the solved ones are over so soon
    assert recent.metrics() == {}
    recent.add(np.array([-2.0, -2.0]), np.array([False, False]))
    assert recent.metrics() == {"episode/return": 4.0, "episode/solved": 0.5}
    assert RecentEpisodes(3, recent.state_dict()).metrics() == recent.metrics()
