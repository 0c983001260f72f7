"""Errors of the user are one line without a traceback; everything else is a bug and keeps its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

from thinker.cli import main
from thinker.cli.eval import Eval
from thinker.cli.plot import Plot
from thinker.cli.runs import Runs
from thinker.errors import UnsupportedError, UserError


@pytest.mark.parametrize("kind", [UserError, UnsupportedError])
@pytest.mark.parametrize(("command", "arguments"), [(Eval, ["eval", "one"]), (Plot, ["plot", "one"]), (Runs, ["runs"])])
def test_an_error_of_the_user_is_one_line_and_status_1(kind, command, arguments, monkeypatch, capsys):
    def fail(self):
        raise kind("the number is 3; it must be 4")

    monkeypatch.setattr(command, "run", fail)
    assert main(arguments) == 1
    captured = capsys.readouterr()
    assert captured.err == "thinker: the number is 3; it must be 4\n"
    assert captured.out == ""


@pytest.mark.parametrize("kind", [UserError, UnsupportedError])
@pytest.mark.parametrize("name", ["train", "bench"])
def test_so_it_is_for_commands_whose_options_depend_on_a_preset(kind, name, monkeypatch, capsys):
    def fail(*arguments, **options):
        raise kind("the number is 3; it must be 4")

    monkeypatch.setattr(f"thinker.cli.{name}._{name}", fail)
    assert main([name, "cartpole"]) == 1
    assert capsys.readouterr().err == "thinker: the number is 3; it must be 4\n"


@pytest.mark.parametrize("kind", [ValueError, OSError, FileNotFoundError, TypeError, RuntimeError, FloatingPointError])
@pytest.mark.parametrize("name", ["runs", "train"])
def test_any_other_error_keeps_its_traceback(kind, name, monkeypatch):
    def fail(*arguments, **options):
        raise kind("a bug")

    if name == "runs":
        monkeypatch.setattr(Runs, "run", fail)
    else:
        monkeypatch.setattr("thinker.cli.train._train", fail)
    with pytest.raises(kind, match="a bug"):
        main([name])


def test_the_process_ends_with_the_status_and_without_a_traceback(tmp_path):
    for arguments, status in ((["train", "nothing"], 1), (["trian"], 2)):
        done = subprocess.run(
            [sys.executable, "-m", "thinker", *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == status
        assert done.stderr.startswith("thinker: ")
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "sokoban-quik"], "did you mean 'sokoban-quick'?"),
        (["bench", "sokoban-quik"], "did you mean 'sokoban-quick'?"),
        (["train", "boxoban", "--environment.levels", "missing"], "missing"),
        (["train", "gymnasium"], "is not the id of an environment"),
        (["train", "gymnasium", "--environment.id", "CartPol-v1"], "CartPole-v1"),
        (["train", "gymnasium", "--environment.id", "my_pakage:my/Env-v0"], "no module 'my_pakage'"),
        (["train", "gymnasium", "--environment.id", "Pendulum-v1"], "Discrete"),
        (["train", "cartpole", "--environment.options", '{"difficulty": 2}'], "difficulty"),
        (["train", "sokoban-raw", "--search.stage-length", "8"], "stage_length must be 1"),
        (["train", "sokoban-quick", "--search.stage-length", "0"], "stage_length is 0"),
        (["train", "sokoban-quick", "--environment.observation", "rgb"], "boards of 0s and 1s"),
        (["train", "sokoban-quick", "--real-steps", "0"], "real_steps is 0"),
        (["train", "sokoban-quick", "--run", "a/b"], "cannot name a run"),
        (["eval", "nothing"], "there is no run 'nothing'"),
        (["eval", "nothing", "--stage-length", "0"], "--stage-length 0"),
        (["eval", "nothing", "--episodes", "0"], "--episodes 0"),
        (["watch", "nothing"], "there is no run 'nothing'"),
        (["plot", "nothing"], "no run"),
        (["plot", "nothing", "--out", "no/such/folder.png"], "no/such does not exist"),
    ],
)
def test_mistakes_are_told_in_one_line_and_leave_nothing_behind(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith("thinker: ")
    assert captured.err.count("\n") == 1
    assert message in captured.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "sokoban-quick", "--real-stepz", "5"], "--real-steps"),
        (["train", "sokoban-quick", "--real-steps", "five"], "five"),
        (["train", "sokoban-quick", "--device", "tpu"], "tpu"),
        (["train", "cartpole", "--environment.options", "{difficulty: 2}"], "JSON"),
        (["train", "cartpole", "--model.size", "huge"], "huge"),
        (["eval"], "RUN"),
        (["eval", "one", "--who", "human"], "human"),
    ],
)
def test_mistyped_options_are_explained_with_status_2(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
