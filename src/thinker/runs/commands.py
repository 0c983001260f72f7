"""`thinker train | eval | plot | bench | runs`: training runs from the command line."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console
from rich.table import Table

from thinker.runs import checkpoint
from thinker.runs.evaluation import Policy, evaluate
from thinker.runs.folder import RunFolder, list_runs
from thinker.runs.loop import Run, prepare_machine
from thinker.runs.plot import plot_runs
from thinker.runs.presets import PRESETS, preset
from thinker.runs.settings import RunSettings, settings_from_dict
from thinker.runs.training import train

DEFAULT_PRESET = "sokoban-quick"
ROOT = Path("runs")


@dataclass(frozen=True)
class RunOptions:
    """Where a run is kept."""

    run: str | None = None
    """The run's name, and that of its folder; default: the preset's name."""
    root: Path = ROOT
    """The folder of all runs."""
    fresh: bool = False
    """Start anew. An old run of this name is renamed, not deleted."""


def train_command(arguments: Sequence[str]) -> None:
    """`thinker train [PRESET] [--run NAME] [--any.setting value]`."""
    arguments = list(arguments)
    name = arguments.pop(0) if arguments and not arguments[0].startswith("-") else DEFAULT_PRESET
    default = preset(name)

    def run(
        options: Annotated[RunOptions, tyro.conf.arg(name="")] = RunOptions(),  # noqa: B008 - frozen
        settings: Annotated[RunSettings, tyro.conf.arg(name="")] = default,
    ) -> None:
        summary = train(settings, options.root, options.run or name, fresh=options.fresh)
        print(f"finished: {options.root / (options.run or name)}")
        print(json.dumps(summary, indent=2))

    tyro.cli(
        run,
        args=arguments,
        prog=f"thinker train {name}",
        description=f"{PRESETS[name].__doc__} Presets: {', '.join(PRESETS)}. The same command again resumes the run.",
    )


@dataclass(frozen=True)
class Eval:
    """Test a trained agent on held-out levels, the same ones for every line."""

    run_name: tyro.conf.Positional[str]
    """The run."""
    stage_length: str = ""
    """Stage lengths K, separated by commas; default: the one it was trained with."""
    policy: str = "agent,base"
    """Who acts, separated by commas: agent (plans), base (the model's base policy, no search)."""
    levels: int = 1000
    """How many held-out levels."""
    greedy: bool = False
    """Take the likeliest action instead of drawing one."""
    root: Path = ROOT
    """The folder of all runs."""

    def run(self) -> None:
        run = load_run(RunFolder(self.root, self.run_name))
        table = Table("policy", "K", "solved", "95 % interval", "return", "real steps", title=self.run_name)
        trained_with = run.settings.search.stage_length
        lengths = [int(k) for k in self.stage_length.split(",")] if self.stage_length else [trained_with]
        budgets: list[tuple[Policy, int]] = []
        for name in self.policy.split(","):
            if name == "agent":
                budgets += [("agent", k) for k in lengths]
            elif name == "base":
                budgets += [("base", 1)] if run.model is not None else []
            else:
                raise ValueError(f"--policy {name}: choose among agent, base")
        for policy, k in budgets:
            result = evaluate(run, policy=policy, stage_length=k, levels=self.levels, greedy=self.greedy)
            low, high = result.interval
            table.add_row(
                policy, str(result.stage_length), f"{result.solve_rate:.3f}", f"{low:.3f} to {high:.3f}",
                f"{result.returns.mean():.2f}", f"{result.lengths.mean():.1f}",
            )  # fmt: skip
        Console().print(table)


@dataclass(frozen=True)
class Plot:
    """Draw learning curves of runs into a PNG file. Seeds of the same settings are drawn as one."""

    runs: tyro.conf.Positional[tuple[str, ...]]
    """The runs."""
    out: Path = Path("curves.png")
    """The file to write."""
    x: Literal["steps", "minutes"] = "steps"
    """Against real steps or minutes."""
    metrics: tuple[str, ...] = ("episode/solved", "episode/return")
    """What to draw."""
    root: Path = ROOT
    """The folder of all runs."""

    def run(self) -> None:
        plot_runs([self.root / name for name in self.runs], self.out, x=self.x, metrics=self.metrics)
        print(f"wrote {self.out}")


@dataclass(frozen=True)
class Bench:
    """How fast a preset trains on this machine, and what takes the time. Nothing is saved."""

    preset_name: tyro.conf.Positional[str] = DEFAULT_PRESET
    """The preset."""
    seconds: float = 30.0
    """How long to measure, after the first unrolls."""
    threads: int = 0
    """Threads; 0: as many as there are cores."""

    def run(self) -> None:
        settings = preset(self.preset_name)
        training = dataclasses.replace(settings.model.training, warm_up_transitions=0)
        model = dataclasses.replace(settings.model, training=training)
        settings = dataclasses.replace(settings, model=model, threads=self.threads, exploration_steps=0)
        prepare_machine(settings)
        run = Run(settings)
        for _ in range(3):  # until everything is compiled and the model is trained at its full rate
            run.advance()
        steps_before = run.real_steps
        run.seconds = dict.fromkeys(run.seconds, 0.0)
        while run.wall_seconds < self.seconds:
            run.advance()
        print(speed_report(self.preset_name, run.real_steps - steps_before, run.seconds, run.wall_seconds))


def speed_report(name: str, real_steps: int, seconds: dict[str, float], wall_seconds: float) -> str:
    """Real steps per second and the share of each phase, for people."""
    meaning = {
        "act": "acting: agent, world model and tree",
        "agent": "training the agent",
        "wait": "waiting for the model's training",
        "model": "training the model, beside all of these",
    }
    lines = [f"{name}: {real_steps / wall_seconds:,.0f} real steps/s"]
    for phase, spent in seconds.items():
        each = 1e6 * spent / real_steps
        lines.append(f"  {spent / wall_seconds:>4.0%} of the time {each:>6,.0f} µs/real step  {meaning[phase]}")
    bound = "training the model" if seconds["wait"] > 0.05 * wall_seconds else "acting and training the agent"
    return "\n".join([*lines, f"  bound by {bound}"])


@dataclass(frozen=True)
class Runs:
    """List the runs."""

    root: Path = ROOT
    """The folder of all runs."""

    def run(self) -> None:
        table = Table("run", "preset", "status", "real steps", "solved on held-out levels")
        for info in list_runs(self.root):
            solved = (info.summary or {}).get("eval/solved")
            table.add_row(
                info.name,
                str(info.config.get("preset", "")) if info.config else "",
                info.status,
                f"{info.step:,}" if info.step is not None else "",
                f"{solved:.3f}" if solved is not None else "",
            )
        Console().print(table)


def load_run(folder: RunFolder) -> Run:
    """The run as it was at its last checkpoint, ready to act."""
    settings = settings_from_dict(folder.read_config())
    prepare_machine(settings)
    saved = checkpoint.load_latest(folder.checkpoints)
    if saved is None:
        raise FileNotFoundError(f"{folder.path} has no checkpoint yet; let `thinker train` run a little longer")
    run = Run(settings)
    run.load_state_dict(saved[1])
    return run


def train_from(arguments: Sequence[str] | None) -> bool:
    """Handle ``thinker train ...``, whose settings depend on the preset named; False for other commands."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given or given[0] != "train":
        return False
    train_command(given[1:])
    return True
