"""`thinker train`: trains an agent, or resumes its training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from thinker.cli.engine import EngineOptions
from thinker.cli.options import RUNS, with_settings

if TYPE_CHECKING:
    from thinker.runs.settings import RunSettings


@dataclass(frozen=True, kw_only=True)
class TrainOptions(EngineOptions):
    """Train an agent with the settings of a preset. Run the same command again to resume exactly where it stopped."""

    run: str | None = None
    """Name of the run and its folder; default: the preset's name."""
    root: Path = RUNS
    """The folder of all runs."""
    fresh: bool = False
    """Start over. An old run of this name is renamed, not deleted."""
    wandb: bool = False
    """Also log to Weights & Biases; needs thinker[wandb]."""


def train_command(arguments: Sequence[str]) -> None:
    """`thinker train [PRESET] [--run NAME] [--any.setting value]`."""
    with_settings("train", arguments, TrainOptions(), _train)


def _train(preset_name: str, options: TrainOptions, settings: RunSettings) -> None:
    from thinker.runs.train import train

    name = options.run or preset_name
    loggers = []
    if options.wandb:
        from thinker.runs.wandb_logger import WandbLogger, check_installed

        check_installed()
        loggers.append(lambda folder: WandbLogger(name, folder, settings.to_dict()))
    summary = train(
        settings,
        options.root,
        name,
        preset=preset_name,
        fresh=options.fresh,
        loggers=loggers,
        engine=options.engine_spec(),
    )
    _report(name, options.root, summary, searches=settings.agent.acts_in() == "augmented")


def _report(name: str, root: Path, summary: dict[str, Any], *, searches: bool) -> None:
    """Print a short table and the next commands to try."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{name} is finished", show_header=False)
    if "eval/solved" in summary:
        low, high = summary["eval/solved_interval"]
        solved = f"{summary['eval/solved']:.1%} (95 % interval {low:.1%} to {high:.1%})"
        table.add_row("validation episodes solved", solved)
    table.add_row("mean return of validation episodes", f"{summary['eval/return']:.2f}")
    table.add_row("real steps", f"{summary['real_steps']:,}")
    table.add_row("minutes of training", f"{summary['training_minutes']:.1f}")
    table.add_row("real steps per second", f"{summary['speed/real_steps_per_second']:,.0f}")
    console = Console()
    console.print(table)
    where = "" if root == RUNS else f" --root {root}"
    print("Next:")
    if searches:
        print(f"  thinker eval {name} --stage-length 1 2 5 10 20{where}   # evaluate with less and more time to think")
        print(f"  thinker watch {name} --open{where}   # show its plans")
    else:
        print(f"  thinker eval {name}{where}   # evaluate it on held-out episodes")
    print(f"  thinker plot {name}{where}   # learning curves")
