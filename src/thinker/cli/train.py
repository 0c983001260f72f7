"""`thinker train`: train an agent, or resume its training."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from thinker.cli.options import RUNS, with_settings

if TYPE_CHECKING:
    from thinker.runs.settings import RunSettings


@dataclass(frozen=True)
class TrainOptions:
    """Train an agent with the settings of a preset. The same command again resumes the run exactly where it was."""

    run: str | None = None
    """The run's name, and that of its folder; default: the preset's name."""
    root: Path = RUNS
    """The folder of all runs."""
    fresh: bool = False
    """Start over. An old run of this name is renamed, not deleted."""


def train_command(arguments: Sequence[str]) -> None:
    """`thinker train [PRESET] [--run NAME] [--any.setting value]`."""
    with_settings("train", arguments, TrainOptions(), _train)


def _train(preset_name: str, options: TrainOptions, settings: RunSettings) -> None:
    from thinker.runs.train import train

    name = options.run or preset_name
    summary = train(settings, options.root, name, preset=preset_name, fresh=options.fresh)
    print(f"finished: {options.root / name}")
    print(json.dumps(summary, indent=2))
