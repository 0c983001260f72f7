"""The `thinker` command. Each subcommand is a dataclass with a ``run`` method that lives in its own room."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Protocol

import tyro

from thinker.envs.sokoban.commands import Levels
from thinker.envs.sokoban.levels import LevelError
from thinker.runs.checkpoint import CheckpointError
from thinker.runs.commands import Bench, Eval, Plot, Runs, train_from
from thinker.runs.folder import RunFolderError
from thinker.runs.training import InterruptedRunError
from thinker.viewer.commands import Demo, Watch


class Command(Protocol):
    """What a subcommand is: its fields are the arguments, ``run`` does the work."""

    def run(self) -> None: ...


COMMANDS: dict[str, Callable[..., Command]] = {
    "eval": Eval,
    "plot": Plot,
    "bench": Bench,
    "runs": Runs,
    "watch": Watch,
    "demo": Demo,
    "levels": Levels,
}
MISTAKES = (LevelError, OSError, ValueError, RunFolderError, CheckpointError, InterruptedRunError, FloatingPointError)
"""Told in one line; everything else is ours and shows its traceback."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status. Mistakes of the user are told without a traceback."""
    try:
        if train_from(arguments):
            return 0
        command: Command = tyro.extras.subcommand_cli_from_dict(
            COMMANDS,
            prog="thinker",
            description="Reinforcement-learning agents that learn to plan. First of all: thinker train [PRESET] --help",
            args=arguments,
            config=(tyro.conf.OmitSubcommandPrefixes, tyro.conf.OmitArgPrefixes),
        )
        command.run()
    except MISTAKES as mistake:
        print(f"thinker: {mistake}", file=sys.stderr)
        return 1
    return 0
