"""The `thinker` command. Each subcommand is a dataclass with a ``run`` method that lives in its own room."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Protocol

import tyro

from thinker.envs.sokoban.commands import Levels
from thinker.envs.sokoban.levels import LevelError


class Command(Protocol):
    """What a subcommand is: its fields are the arguments, ``run`` does the work."""

    def run(self) -> None: ...


COMMANDS: dict[str, Callable[..., Command]] = {
    "levels": Levels,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status. Mistakes of the user are told without a traceback."""
    command: Command = tyro.extras.subcommand_cli_from_dict(
        COMMANDS,
        prog="thinker",
        description="Reinforcement-learning agents that learn to plan in a learned world model.",
        args=arguments,
        config=(tyro.conf.OmitSubcommandPrefixes, tyro.conf.OmitArgPrefixes),
    )
    try:
        command.run()
    except (LevelError, OSError) as mistake:
        print(f"thinker: {mistake}", file=sys.stderr)
        return 1
    return 0
