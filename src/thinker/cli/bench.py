"""`thinker bench`: measures how fast a preset trains on this machine, and where the time goes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from thinker.cli.options import with_settings

if TYPE_CHECKING:
    from thinker.runs.settings import RunSettings


@dataclass(frozen=True)
class BenchOptions:
    """Measure how fast a preset trains on this machine, and where the time goes. Nothing is saved."""

    seconds: float = 30.0
    """Duration of the measurement, after the first unrolls."""


def bench_command(arguments: Sequence[str]) -> None:
    """`thinker bench [PRESET] [--seconds N] [--any.setting value]`."""
    with_settings("bench", arguments, BenchOptions(), _bench)


def _bench(preset_name: str, options: BenchOptions, settings: RunSettings) -> None:
    from thinker.errors import UserError
    from thinker.runs.build import build_run
    from thinker.runs.engines.local import LocalEngine
    from thinker.world_model.spec import LearnedSpec

    if not options.seconds > 0:
        raise UserError(f"--seconds {options.seconds}: it must be greater than 0")
    if isinstance(settings.model, LearnedSpec):  # train the model at its full rate from the start
        training = dataclasses.replace(settings.model.training, warm_up_transitions=0)
        settings = dataclasses.replace(settings, model=dataclasses.replace(settings.model, training=training))
    run = build_run(dataclasses.replace(settings, exploration_steps=0))
    engine = LocalEngine(run)
    engine.wait_for_process()
    for _ in range(3):  # until everything is compiled
        engine.advance()
    steps_before = run.real_steps
    run.seconds = dict.fromkeys(run.seconds, 0.0)
    while run.wall_seconds < options.seconds:
        engine.advance()
    print(speed_report(preset_name, run.real_steps - steps_before, run.seconds, run.wall_seconds))


def speed_report(name: str, real_steps: int, seconds: dict[str, float], wall_seconds: float) -> str:
    """Real steps per second and the share of each phase, as text."""
    meaning = {
        "act": "acting: agent, world model and tree",
        "agent": "training the agent",
        "wait": "waiting for the model's training",
        "model": "training the model, in parallel with the others",
    }
    lines = [f"{name}: {real_steps / wall_seconds:,.0f} real steps/s"]
    for phase, spent in seconds.items():
        each = 1e6 * spent / real_steps
        lines.append(f"  {spent / wall_seconds:>4.0%} of the time {each:>6,.0f} µs/real step  {meaning[phase]}")
    bound = "training the model" if seconds["wait"] > 0.05 * wall_seconds else "acting and training the agent"
    return "\n".join([*lines, f"  bound by {bound}"])
