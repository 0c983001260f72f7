"""Jobs as processes: several at a time, failures reported, finished ones never repeated, stopped ones continued.

The processes only pretend to train, so these tests take a second; test_end_to_end.py trains.
"""

import dataclasses
import io
import json
import os
import signal
import sys
import threading
import time

import pytest
from rich.console import Console

from tests.experiments.made_up import finish, small_experiment
from thinker.errors import UserError
from thinker.experiments import display, job, runner
from thinker.experiments.display import Display
from thinker.experiments.results import gather
from thinker.experiments.runner import JobStatus, run_experiment
from thinker.runs.engines.local import LocalSpec
from thinker.runs.engines.ray.spec import RaySpec
from thinker.runs.engines.specs import engine_from_dict
from thinker.runs.folder import RunFolder

PRETEND = """
import json, os, sys, time
folder, name, behaviour, template = sys.argv[1:]
with open(os.path.join(os.path.dirname(folder), "calls.txt"), "a") as calls:
    calls.write(f"start {name} threads={os.environ['OMP_NUM_THREADS']}\\n")
if behaviour == "fail":
    print("lots of words")
    print("error: the model diverged")
    sys.exit(1)
if behaviour == "crash":
    raise RuntimeError("something unforeseen")
if behaviour == "slow":
    time.sleep(60)
time.sleep(0.15)
for path, text in json.loads(template).items():
    path = os.path.join(folder, path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(text)
with open(os.path.join(os.path.dirname(folder), "calls.txt"), "a") as calls:
    calls.write(f"end {name}\\n")
"""


@pytest.fixture
def pretend(monkeypatch, tmp_path):
    """Makes jobs do what ``behaviours`` says, by their names."""
    monkeypatch.setattr(runner, "_POLL", 0.02)
    behaviours: dict[str, str] = {}

    def command(experiment, scale, job, folder, engine):
        template = tmp_path / "templates" / job.name
        finish(template, job.settings.to_dict())
        texts = {str(path.relative_to(template)): path.read_text() for path in template.rglob("*") if path.is_file()}
        behaviour = behaviours.get(job.name, "work")
        return [sys.executable, "-c", PRETEND, str(folder), job.name, behaviour, json.dumps(texts)]

    monkeypatch.setattr(runner, "command", command)
    return behaviours


def calls(root):
    return (root / "tiny" / "small" / "calls.txt").read_text().splitlines()


@pytest.mark.parametrize("engine", [LocalSpec(), RaySpec(workers=3, address="auto", max_staleness=2)])
def test_jobs_are_told_which_engine_to_use(engine, tmp_path):
    experiment = small_experiment("a")
    words = job.command(experiment, "tiny", experiment.jobs("tiny", 1)[0], tmp_path, engine)
    assert engine_from_dict(json.loads(words[-1])) == engine


@pytest.mark.parametrize("jobs", [1, 2])
def test_as_many_jobs_run_at_a_time_as_asked_for(pretend, tmp_path, jobs, monkeypatch):
    monkeypatch.setattr(runner, "cores", lambda: 4)
    assert run_experiment(small_experiment("a", "b"), "tiny", tmp_path, jobs=jobs) == []
    running = most = 0
    for line in calls(tmp_path):
        running += 1 if line.startswith("start") else -1
        most = max(most, running)
        assert line.startswith("end") or line.endswith(f"threads={4 // jobs}")
    assert most == jobs


def test_finished_runs_are_not_repeated_and_missing_ones_are_made(pretend, tmp_path):
    experiment = small_experiment("a", "b")
    finish(tmp_path / "tiny" / "small" / "a-0", experiment.jobs("tiny")[0].settings.to_dict())
    run_experiment(experiment, "tiny", tmp_path)
    assert [line for line in calls(tmp_path) if line.startswith("end")] == ["end b-0", "end a-1", "end b-1"]
    run_experiment(experiment, "tiny", tmp_path)
    assert len(calls(tmp_path)) == 6


def test_runs_that_are_known_from_a_result_file_are_not_repeated_unless_their_settings_differ(pretend, tmp_path):
    experiment = small_experiment("a", "b")
    run_experiment(experiment, "tiny", tmp_path / "before")
    known = gather(experiment, "tiny", tmp_path / "before")
    runs = [
        dataclasses.replace(known.runs[0], validation={"solved": 0.125}),  # a-0
        dataclasses.replace(known.runs[1], settings_hash="another"),  # b-0
        dataclasses.replace(known.runs[2], measurements={}),  # a-1
    ]
    known = dataclasses.replace(known, runs=tuple(runs))
    run_experiment(experiment, "tiny", tmp_path / "now", known=known)
    assert [line for line in calls(tmp_path / "now") if line.startswith("end")] == ["end b-0", "end a-1", "end b-1"]
    results = gather(experiment, "tiny", tmp_path / "now", known=[known])
    assert not results.missing
    assert [(run.variant, run.seed) for run in results.runs] == [("a", 0), ("b", 0), ("a", 1), ("b", 1)]
    assert [run.validation["solved"] for run in results.runs] == [0.125, 0.5, 0.5, 0.5]
    assert gather(experiment, "tiny", tmp_path / "now").missing == ("a-0",)


def test_a_failed_run_is_reported_with_its_error_and_log_and_the_others_go_on(pretend, tmp_path, capsys):
    pretend.update({"a-0": "fail", "b-0": "crash"})
    failed = run_experiment(small_experiment("a", "b"), "tiny", tmp_path)
    assert [one.job.name for one in failed] == ["a-0", "b-0"]
    assert failed[0].error() == "error: the model diverged"
    assert "something unforeseen" in failed[1].error()
    assert failed[0].log.read_text().startswith("lots of words")
    printed = capsys.readouterr().out
    assert "a-0 failed: error: the model diverged (log: " in printed
    assert "b-1 finished" in printed
    pretend.clear()
    assert run_experiment(small_experiment("a", "b"), "tiny", tmp_path) == []


def test_a_run_that_another_process_trains_is_waited_for(pretend, tmp_path):
    experiment = small_experiment("a", seeds=1)
    (job,) = experiment.jobs("tiny")
    folder = tmp_path / "tiny" / "small"
    lock = RunFolder(folder, "a-0").open({"settings": job.settings.to_dict()})
    status = JobStatus(job, folder / "a-0", tmp_path / "log", state="elsewhere")
    work = runner._Runner(experiment, "tiny", [status], 1, LocalSpec())
    work._collect()
    assert status.state == "elsewhere"
    lock.close()
    work._collect()
    assert status.state == "waiting"
    status.state = "elsewhere"
    finish(folder / "a-0", job.settings.to_dict())
    work._collect()
    assert status.state == "finished"


def test_a_signal_stops_all_jobs_and_says_how_to_continue(pretend, tmp_path):
    pretend.update({"a-0": "slow", "b-0": "slow"})

    def interrupt():
        while not (tmp_path / "tiny" / "small" / "calls.txt").exists() or len(calls(tmp_path)) < 2:
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(UserError, match="Run the same command again to continue"):
        run_experiment(small_experiment("a", "b"), "tiny", tmp_path, jobs=2)
    assert signal.getsignal(signal.SIGINT) is before
    assert len(calls(tmp_path)) == 2


def test_less_than_one_job_at_a_time_is_an_error(tmp_path):
    with pytest.raises(UserError, match="--jobs 0: it must be at least 1"):
        run_experiment(small_experiment("a"), "tiny", tmp_path, jobs=0)


def statuses(tmp_path):
    """One finished, one half trained for 100 seconds, one waiting."""
    done, half, waiting = (
        JobStatus(job, tmp_path, tmp_path) for job in small_experiment("a", "b", "c").jobs("tiny", 1)
    )
    done.state, done.step, done.measured, done.solved, done.seconds = "finished", 100, 1, 0.75, 200.0
    half.state, half.step, half.started = "running", 50, time.monotonic() - 100
    half.process = object()
    return [done, half, waiting]


def test_the_time_left_follows_from_the_speed(tmp_path):
    all_of_them = statuses(tmp_path)
    assert display.job_seconds_left(all_of_them[1]) == pytest.approx(100, abs=1)
    assert display.seconds_left(all_of_them, jobs=1) == pytest.approx(2 * 150, abs=2)
    assert display.seconds_left(all_of_them, jobs=2) == pytest.approx(150, abs=2)
    assert [display.progress(one) for one in all_of_them] == pytest.approx([1.0, 0.45, 0.0])
    assert display.seconds_left(all_of_them[2:], jobs=1) is None


def test_the_live_table_shows_every_run(tmp_path):
    console = Console(file=io.StringIO(), force_terminal=True, width=120)
    with Display("small · tiny", statuses(tmp_path), 1, console=console) as shown:
        shown.update()
        console.print(shown.table())
    printed = console.file.getvalue()
    assert "1 of 3 runs finished, about 5:00 left" in printed
    for part in ("a-0", "b-0", "c-0", "50 of 100", "0.75", "45%"):
        assert part in printed
