"""A run's folder is opened again only with the same settings and by one process, and no old run is ever lost."""

import json
import multiprocessing
import os
import shutil
import time

import pytest

from thinker.runs import checkpoint, folder
from thinker.runs.folder import RunFolder, RunFolderError, config_differences, list_runs, write_json

SETTINGS = {"seed": 0, "agent": {"learning_rate": 1e-3, "layers": (1, 2)}, "model": None}
CONFIG = {"preset": "quick", "settings": SETTINGS}


def test_a_new_folder_is_made_and_the_same_settings_open_it_again(tmp_path):
    with RunFolder(tmp_path / "runs", "quick").open(CONFIG) as run:
        assert run.path == tmp_path / "runs" / "quick"
        assert run.checkpoints.is_dir()
        assert run.read_config() == json.loads(json.dumps(CONFIG))
        (run.path / "metrics.jsonl").write_text("kept")
    with RunFolder(tmp_path / "runs", "quick").open(CONFIG) as run:
        assert (run.path / "metrics.jsonl").read_text() == "kept"


def test_making_the_object_touches_nothing(tmp_path):
    RunFolder(tmp_path / "runs", "quick")
    assert not (tmp_path / "runs").exists()


def test_other_settings_are_an_error_that_lists_them_and_says_what_to_do(tmp_path):
    RunFolder(tmp_path, "quick").open(CONFIG).close()
    other = {
        "preset": "raw",
        "settings": {
            "seed": 0,
            "agent": {"learning_rate": 3e-4, "layers": [1, 2], "window": 40},
            "model": {"size": "small"},
        },
    }
    with pytest.raises(RunFolderError) as caught:
        RunFolder(tmp_path, "quick").open(other)
    lines = str(caught.value).splitlines()
    assert "differs in 4 settings (saved -> requested)" in lines[0]
    assert lines[1:-1] == [
        "  agent.learning_rate: 0.001 -> 0.0003",
        "  agent.window: (absent) -> 40",
        "  model: null -> (absent)",
        '  model.size: (absent) -> "small"',
    ]
    assert "--run OTHER" in lines[-1]
    assert "--fresh" in lines[-1]
    RunFolder(tmp_path, "quick").open(CONFIG).close()  # the failed attempt has changed nothing and holds no lock


def test_many_differences_are_cut_short():
    old, new = {str(number): 0 for number in range(50)}, {str(number): 1 for number in range(50)}
    assert len(config_differences(old, new)) == 50
    assert config_differences(old, old) == {}


def test_integers_floats_and_booleans_are_told_apart():
    assert config_differences({"a": 1, "b": True, "c": 1}, {"a": 1.0, "b": 1, "c": 1}) == {
        "a": (1, 1.0),
        "b": (True, 1),
    }


def test_fresh_renames_the_old_run_and_loses_nothing(tmp_path):
    RunFolder(tmp_path, "quick").open(CONFIG, fresh=True).close()
    for seed in (1, 2, 3):
        with RunFolder(tmp_path, "quick").open({**CONFIG, "settings": {"seed": seed}}, fresh=True) as run:
            assert run.read_config()["settings"]["seed"] == seed
            assert not list(run.checkpoints.iterdir())
            checkpoint.save(run.checkpoints, seed, {})
    seeds = {
        path.name: RunFolder(tmp_path, path.name).read_config()["settings"]["seed"] for path in tmp_path.glob("q*")
    }
    assert seeds == {"quick-1": 0, "quick-2": 1, "quick-3": 2, "quick": 3}
    assert checkpoint.load_latest(tmp_path / "quick-3" / "checkpoints") == (2, {})


@pytest.mark.parametrize("name", ["", ".hidden", "a/b", "../up", "-flag", "a b", "a\n"])
def test_names_that_are_no_names_are_refused(tmp_path, name):
    with pytest.raises(RunFolderError, match="cannot name a run"):
        RunFolder(tmp_path, name)


def test_a_folder_of_something_else_is_not_taken_but_one_of_a_killed_start_is(tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.png").write_bytes(b"")
    with pytest.raises(RunFolderError, match=r"no config.json.*--run OTHER"):
        RunFolder(tmp_path, "photos").open(CONFIG)
    (tmp_path / "killed").mkdir()
    (tmp_path / "killed" / ".config.json.tmp").write_text("{")
    RunFolder(tmp_path, "killed").open(CONFIG).close()
    assert RunFolder(tmp_path, "killed").read_config()["preset"] == "quick"


def test_damaged_settings_are_a_clear_error(tmp_path):
    RunFolder(tmp_path, "quick").open(CONFIG).close()
    for text in ("{", "[1]"):
        (tmp_path / "quick" / "config.json").write_text(text)
        with pytest.raises(RunFolderError, match=r"config.json is damaged"):
            RunFolder(tmp_path, "quick").open(CONFIG)


def test_a_run_that_does_not_exist_names_similar_ones(tmp_path):
    with pytest.raises(RunFolderError, match="there are none yet"):
        RunFolder(tmp_path, "quick").read_config()
    RunFolder(tmp_path, "sokoban-quick").open(CONFIG).close()
    with pytest.raises(RunFolderError, match=r"did you mean sokoban-quick\?"):
        RunFolder(tmp_path, "sokoban-quik").read_config()


def test_json_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "summary.json"
    write_json(path, {"old": 1})

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        write_json(path, {"new": 2})
    assert json.loads(path.read_text()) == {"old": 1}


def hold(root, opened):
    with RunFolder(root, "quick").open(CONFIG):
        opened.set()
        time.sleep(60)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_another_process_cannot_open_a_run_until_its_process_is_gone_even_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(folder, "_LOCK_WAIT", 0.001)
    context = multiprocessing.get_context("fork")
    opened = context.Event()
    process = context.Process(target=hold, args=(tmp_path, opened))
    process.start()
    try:
        assert opened.wait(30)
        for fresh in (False, True):
            with pytest.raises(RunFolderError, match=f"'quick' is being trained by process {process.pid}"):
                RunFolder(tmp_path, "quick").open(CONFIG, fresh=fresh)
        assert [run.status for run in list_runs(tmp_path)] == ["running"]
        assert not (tmp_path / "quick-1").exists()
    finally:
        process.kill()
        process.join()
    assert [run.status for run in list_runs(tmp_path)] == ["stopped"]
    RunFolder(tmp_path, "quick").open(CONFIG).close()


def test_one_process_cannot_open_a_run_twice(tmp_path, monkeypatch):
    monkeypatch.setattr(folder, "_LOCK_WAIT", 0.001)
    with RunFolder(tmp_path, "quick").open(CONFIG) as run:
        with pytest.raises(RunFolderError, match=f"process {os.getpid()}"):
            RunFolder(tmp_path, "quick").open(CONFIG)
        with pytest.raises(RunFolderError, match="already open"):
            run.open(CONFIG)
    RunFolder(tmp_path, "quick").open(CONFIG).close()


def test_runs_are_listed_newest_first_with_step_and_status(tmp_path):
    assert list_runs(tmp_path / "absent") == []
    with RunFolder(tmp_path, "done").open(CONFIG) as run:
        checkpoint.save(run.checkpoints, 100, {})
        run.write_summary({"solved": 0.9})
    with RunFolder(tmp_path, "going").open(CONFIG) as run:
        checkpoint.save(run.checkpoints, 7, {})
        now = time.time()
        os.utime(run.config_path, (now + 10, now + 10))
        (tmp_path / "no run").mkdir()
        (tmp_path / "broken").mkdir()
        (tmp_path / "broken" / "config.json").write_text("{")
        runs = {run.name: run for run in list_runs(tmp_path)}
    assert next(iter(runs)) == "going"
    assert {name: (run.status, run.step, run.problem) for name, run in runs.items() if name != "broken"} == {
        "going": ("running", 7, ""),
        "done": ("finished", 100, ""),
    }
    assert runs["done"].summary == {"solved": 0.9}
    assert runs["going"].summary is None
    assert runs["going"].config["preset"] == "quick"
    assert runs["broken"].status == "damaged"
    assert "config.json is damaged" in runs["broken"].problem


def test_a_finished_run_whose_checkpoints_are_gone_or_damaged_is_listed_with_that_problem(tmp_path):
    with RunFolder(tmp_path, "done").open(CONFIG) as run:
        path = checkpoint.save(run.checkpoints, 100, {})
        run.write_summary({"real_steps": 100})
    (path / checkpoint.STATE).write_bytes(b"")
    assert [(run.status, run.step, run.problem) for run in list_runs(tmp_path)] == [
        ("finished", 100, "its checkpoints are damaged")
    ]
    shutil.rmtree(path)
    assert [(run.status, run.step, run.problem) for run in list_runs(tmp_path)] == [
        ("finished", 100, "its checkpoints are missing")
    ]


def test_a_folder_that_cannot_be_written_to_is_an_error_that_says_what_helps(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFolderError, match=r"cannot write to .*file.*--root"):
        RunFolder(tmp_path / "file", "quick").open(CONFIG)
