"""How much slower a run becomes while another process keeps one core busy.

    python -m benchmarks.beside_other_work sokoban-quick --seconds 20

Both phases of a run are measured, first alone and then beside a busy loop: training the model on random play, and
training the agent and the model while acting.
"""

from __future__ import annotations

import argparse
import dataclasses
import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager

from thinker.runs.build import build_run
from thinker.runs.engines.local import LocalEngine
from thinker.runs.presets import preset
from thinker.runs.settings import RunSettings


def spin() -> None:
    while True:
        pass


@contextmanager
def busy_loop() -> Iterator[None]:
    """One other process that never waits."""
    process = multiprocessing.get_context("spawn").Process(target=spin, daemon=True)
    process.start()
    time.sleep(2.0)
    try:
        yield
    finally:
        process.terminate()
        process.join()


def real_steps_per_second(settings: RunSettings, seconds: float) -> float:
    engine = LocalEngine(build_run(settings))
    engine.wait_for_process()
    for _ in range(2):  # until everything is compiled
        engine.advance()
    run, before = engine.run, engine.run.real_steps
    run.seconds = dict.fromkeys(run.seconds, 0.0)
    while run.wall_seconds < seconds:
        engine.advance()
    return (run.real_steps - before) / run.wall_seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("preset", nargs="?", default="sokoban-quick")
    parser.add_argument("--levels", help="level files, for presets that need them")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each measurement (default 20)")
    options = parser.parse_args()
    settings = preset(options.preset)
    if options.levels:
        environment = dataclasses.replace(settings.environment, levels=options.levels)  # type: ignore[type-var]
        settings = dataclasses.replace(settings, environment=environment)
    model = settings.model
    training = dataclasses.replace(model.training, warm_up_transitions=0)  # type: ignore[attr-defined]
    settings = dataclasses.replace(settings, model=dataclasses.replace(model, training=training))  # type: ignore[type-var]
    phases = {
        "random play": dataclasses.replace(settings, exploration_steps=settings.real_steps - 1),
        "training": dataclasses.replace(settings, exploration_steps=0),
    }
    print("phase        alone  beside a busy loop  slower by")
    for name, changed in phases.items():
        alone = real_steps_per_second(changed, options.seconds)
        with busy_loop():
            beside = real_steps_per_second(changed, options.seconds)
        print(f"{name:<11}  {alone:>5,.0f}  {beside:>18,.0f}  {alone / beside:>9.2f}  (real steps/s)", flush=True)


if __name__ == "__main__":
    main()
