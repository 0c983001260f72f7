"""Options that several commands share: the folder of all runs, devices, output files, settings of a preset."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

import tyro

if TYPE_CHECKING:
    from thinker.runs.settings import RunSettings

RUNS = Path("runs")
"""The folder of all runs, unless another one is given."""
DeviceOption = Literal["auto", "cpu", "cuda", "mps"]
Options = TypeVar("Options")


def with_settings(
    command: str, arguments: Sequence[str], default: Options, work: Callable[[str, Options, RunSettings], None]
) -> None:
    """Call ``work`` with a preset's name, ``default`` and the preset's settings, both overridden by ``arguments``.

    The first argument is the name of the preset. It determines the available options: those of its types of
    environment, model and agent.
    """
    from thinker.runs.presets import DEFAULT_PRESET, PRESETS, preset
    from thinker.runs.settings import RunSettings

    words = list(arguments)
    name = words.pop(0) if words and not words[0].startswith("-") else DEFAULT_PRESET
    settings = preset(name)
    presets = "\n".join(f"  {known:<18} {function.__doc__}" for known, function in PRESETS.items())

    def run(
        options: Annotated[type(default), tyro.conf.arg(name="")] = default,  # type: ignore[valid-type]
        settings: Annotated[RunSettings, tyro.conf.arg(name="")] = settings,
    ) -> None:
        work(name, options, settings)

    run.__annotations__ = {
        "options": Annotated[type(default), tyro.conf.arg(name="")],
        "settings": Annotated[RunSettings, tyro.conf.arg(name="")],
    }
    description = f"{type(default).__doc__}\n\n{name}: {PRESETS[name].__doc__}\n\nPresets:\n{presets}"
    tyro.cli(run, args=words, prog=f"thinker {command} {name}", description=description)


def writable_file(path: Path, option: str) -> Path:
    """``path``; raises an error if no file can be written there. Its folder must exist."""
    from thinker.errors import UserError

    folder = path.parent
    if not folder.is_dir():
        raise UserError(f"{option} {path}: the folder {folder} does not exist; create it, or choose another path")
    if path.is_dir():
        raise UserError(f"{option} {path}: this is a folder; give the name of a file")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise UserError(f"{option} {path}: no permission to write there; choose another path")
    return path
