"""The `thinker` command: one file per subcommand, imported only when it is called."""

from __future__ import annotations

import dataclasses
import difflib
import importlib
import os
import sys
from collections.abc import Sequence
from typing import NamedTuple


class Command(NamedTuple):
    """The location of a subcommand: a dataclass with a ``run`` method, or a function that takes the arguments."""

    module: str
    attribute: str
    summary: str


COMMANDS = {
    "train": Command("thinker.cli.train", "train_command", "train an agent, or resume its training"),
    "eval": Command("thinker.cli.eval", "Eval", "evaluate a trained agent with more or less time to think"),
    "watch": Command("thinker.cli.watch", "Watch", "show the plans of a trained agent, as a page or a video"),
    "demo": Command("thinker.cli.demo", "Demo", "show the plans of an agent that comes with the package"),
    "analyse": Command("thinker.cli.analyse", "Analyse", "report what a trained agent learned about planning"),
    "plot": Command("thinker.cli.plot", "Plot", "draw learning curves"),
    "improve": Command("thinker.cli.improve", "Improve", "compare learned and handcrafted searches, as in appendix H"),
    "reproduce": Command("thinker.cli.reproduce", "Reproduce", "run an experiment of the paper, a figure or a table"),
    "runs": Command("thinker.cli.runs", "Runs", "list the training runs"),
    "bench": Command("thinker.cli.bench", "bench_command", "measure how fast a preset trains on this machine"),
    "levels": Command("thinker.envs.sokoban.commands", "Levels", "generate, show and measure Sokoban levels"),
}
HELP = ("-h", "--help")
PLUGIN = "--plugin"


def overview() -> str:
    """The output of `thinker --help`."""
    lines = [
        "usage: thinker [--plugin MODULE] COMMAND [OPTIONS]",
        "",
        "Reinforcement-learning agents that learn to plan.",
        "",
        *(f"  {name:<9} {command.summary}" for name, command in COMMANDS.items()),
        "",
        "thinker COMMAND --help explains a command. Start with: thinker demo, or thinker train",
        "--plugin imports a module, also from the current folder, that adds types and presets of your own.",
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status. User errors are printed without a traceback."""
    try:
        status = _main(list(sys.argv[1:] if arguments is None else arguments))
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has gone, as in `thinker train --help | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left to flush goes nowhere
        return 1
    return status


def _main(words: list[str]) -> int:
    while words and words[0] == PLUGIN:
        if len(words) < 2:
            print(f"thinker: {PLUGIN} needs the name of a module", file=sys.stderr)
            return 2
        if not _import_plugin(words[1]):
            return 1
        words = words[2:]
    if not words or words[0] in HELP:
        print(overview())
        return 0
    if words[0] == "--version":
        from thinker import __version__

        print(f"thinker {__version__}")
        return 0
    if words[0] not in COMMANDS:
        near = difflib.get_close_matches(words[0], COMMANDS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        print(f"thinker: there is no command {words[0]!r}{hint}\n\n{overview()}", file=sys.stderr)
        return 2
    return _run(words[0], words[1:])


def _import_plugin(module: str) -> bool:
    """Import a module that registers types or presets; the current folder is searched, too."""
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.split(".")[0]:
            raise
        print(f"thinker: {PLUGIN} {module}: there is no such module, also not in {os.getcwd()}", file=sys.stderr)
        return False
    return True


def _run(name: str, arguments: list[str]) -> int:
    from thinker.errors import UserError

    command = COMMANDS[name]
    try:
        entry = getattr(importlib.import_module(command.module), command.attribute)
        if not dataclasses.is_dataclass(entry):
            entry(arguments)
            return 0
        import tyro

        config = (tyro.conf.OmitSubcommandPrefixes, tyro.conf.OmitArgPrefixes)
        tyro.cli(entry, args=arguments, prog=f"thinker {name}", config=config).run()
    except UserError as error:
        print(f"thinker: {error}", file=sys.stderr)
        return 1
    return 0
