"""`thinker` alone: what there is, fast, and what to do about a mistyped command."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import thinker
from thinker.cli import COMMANDS, main

NAMES = (
    "train",
    "eval",
    "watch",
    "demo",
    "analyse",
    "plot",
    "improve",
    "reproduce",
    "runs",
    "bench",
    "levels",
)


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_the_overview_lists_all_commands(arguments, capsys):
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    assert tuple(COMMANDS) == NAMES
    for name, command in COMMANDS.items():
        assert f"  {name:<9} {command.summary}" in printed.splitlines()


@pytest.mark.parametrize(("mistyped", "meant"), [("trian", "train"), ("evaluate", "eval"), ("wach", "watch")])
def test_a_mistyped_command_is_guessed_and_all_are_listed(mistyped, meant, capsys):
    assert main([mistyped, "--seed", "3"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert f"there is no command {mistyped!r}; did you mean {meant!r}?" in captured.err
    assert all(f"  {name} " in captured.err for name in NAMES)


def test_a_command_like_no_other_lists_all(capsys):
    assert main(["xyzzy"]) == 2
    captured = capsys.readouterr().err
    assert "there is no command 'xyzzy'\n" in captured
    assert all(f"  {name} " in captured for name in NAMES)


def test_the_version_is_told(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"thinker {thinker.__version__}\n"


@pytest.mark.parametrize("name", NAMES)
def test_every_command_explains_itself(name, capsys):
    with pytest.raises(SystemExit) as ended:
        main([name, "--help"])
    assert ended.value.code == 0
    assert f"usage: thinker {name}" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["--help"], [], ["--version"], ["trian"]])
def test_the_overview_imports_nothing_heavy(arguments):
    code = f"""
import json, sys
from thinker.cli import main
main({arguments!r})
print(json.dumps([name for name in ("torch", "numba", "matplotlib", "tensorboard") if name in sys.modules]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.splitlines()[-1]) == []
