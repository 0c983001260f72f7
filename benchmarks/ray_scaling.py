"""Frames per second of the Ray engine with one worker and with more, where acting dominates.

    python -m benchmarks.ray_scaling                      # CartPole with a delay of 5 ms at every step, V-trace
    python -m benchmarks.ray_scaling --objective ppo      # the same, but workers wait while the agent learns
    python -m benchmarks.ray_scaling sokoban-simulator    # a preset
    python -m benchmarks.ray_scaling --learning           # learning curves of sokoban-quick: local engine and Ray

Frames are real steps, time is the clock's: waiting counts, so nothing else may run on the machine. The numbers of
workers take turns, and the best of their rounds are compared. An unroll of a worker takes the seconds that it computes
and those that it sleeps or waits for a core; the last column is what it computes. ``--learning`` trains three seeds
with either engine to the same number of frames (a stopped command continues) and compares their solve rates on
validation levels.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from pathlib import Path

import numpy as np

from benchmarks.slow_cartpole import ID
from benchmarks.tables import at, curve
from thinker.envs.gymnasium import GymnasiumSpec
from thinker.runs.engines.engine import EngineSpec
from thinker.runs.engines.local import LocalSpec
from thinker.runs.engines.ray.spec import RaySpec
from thinker.runs.presets import preset
from thinker.runs.settings import RunSettings
from thinker.runs.train import train
from thinker.world_model.spec import LearnedSpec

DELAY = 0.005


def slow_cartpole(delay: float) -> RunSettings:
    """The preset `cartpole` with the delay."""
    environment = GymnasiumSpec(id=ID, options={"delay": delay})
    return dataclasses.replace(preset("cartpole"), environment=environment)


def without_warm_up(settings: RunSettings) -> RunSettings:
    """Train the agent and the model at their full rates from the start, for as long as needed."""
    settings = dataclasses.replace(settings, exploration_steps=0, real_steps=10**9, annealing_steps=None, device="cpu")
    if isinstance(settings.model, LearnedSpec):
        training = dataclasses.replace(settings.model.training, warm_up_transitions=0)
        settings = dataclasses.replace(settings, model=dataclasses.replace(settings.model, training=training))
    return settings


def frames_per_second(settings: RunSettings, workers: int, seconds: float) -> tuple[float, dict[str, float], float]:
    """Frames per second, the share of each phase, and the seconds that a worker computes for an unroll."""
    spec = RaySpec(workers=workers)
    engine = spec.start(spec.build_run(settings))
    try:
        for _ in range(3):  # until everything is compiled
            engine.advance()
        run = engine.run
        before, start = run.real_steps, time.perf_counter()
        run.seconds = dict.fromkeys(run.seconds, 0.0)
        computed = []
        while (passed := time.perf_counter() - start) < seconds:
            computed.append(engine.advance()[1]["ray/unroll_core_seconds"])
        shares = {name: spent / passed for name, spent in run.seconds.items()}
        return (run.real_steps - before) / passed, shares, float(np.mean(computed))
    finally:
        engine.close()


def learning_by(objective: str, settings: RunSettings) -> RunSettings:
    agent = dataclasses.replace(settings.agent, objective=objective)  # type: ignore[type-var]
    return dataclasses.replace(settings, agent=agent)


def scaling(settings: RunSettings, workers: list[int], seconds: float, rounds: int) -> None:
    best: dict[int, float] = {}
    print("workers  frames/s  acting  agent  waiting for the model  core-seconds of an unroll")
    for _ in range(rounds):
        for count in workers:
            speed, shares, computed = frames_per_second(settings, count, seconds)
            best[count] = max(speed, best.get(count, 0.0))
            row = f"{shares['act']:>6.0%}  {shares['agent']:>5.0%}  {shares['wait']:>21.0%}"
            print(f"{count:>7}  {speed:>8,.1f}  {row}  {computed:>25.2f}", flush=True)
    for count in workers[1:]:
        ratio = best[count] / best[workers[0]]
        print(f"{count} workers are {ratio:.2f} times as fast as {workers[0]} (best of {rounds} each)")


def learning(root: Path, seeds: int, steps: int | None) -> None:
    """Train and print the solve rates of both engines, their difference and its standard error."""
    settings = preset("sokoban-quick")
    every = 20_000
    settings = dataclasses.replace(
        settings,
        threads=1,
        real_steps=steps or settings.real_steps,
        evaluation=dataclasses.replace(settings.evaluation, every=every),
    )
    engines: dict[str, EngineSpec] = {"local": LocalSpec(), "ray": RaySpec(workers=2)}
    for seed in range(seeds):
        for name, engine in engines.items():
            train(dataclasses.replace(settings, seed=seed), root, f"{name}-{seed}", engine=engine)
    print(f"frames   {'local: mean (seeds)':<40} {'ray, 2 workers':<40} difference, standard error")
    for step in range(every, settings.real_steps + 1, every):
        rates = {}
        for name in engines:
            points = [at(curve(root / f"{name}-{seed}", "eval/solved"), step) for seed in range(seeds)]
            rates[name] = np.array([point[0] for point in points if point is not None])
        cells = [f"{rate.mean():.3f}  ({', '.join(f'{one:.3f}' for one in rate)})" for rate in rates.values()]
        local, ray = rates["local"], rates["ray"]
        error = np.sqrt(local.var(ddof=1) / len(local) + ray.var(ddof=1) / len(ray)) if seeds > 1 else np.nan
        print(f"{step:>7,}  {cells[0]:<40} {cells[1]:<40} {ray.mean() - local.mean():+.3f}, {error:.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("preset", nargs="?", help="default: CartPole with a delay")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--seconds", type=float, default=20.0, help="of each measurement (default 20)")
    parser.add_argument("--rounds", type=int, default=2, help="measurements of each number of workers (default 2)")
    parser.add_argument("--delay", type=float, default=DELAY, help="of a step of CartPole, in seconds (default 0.005)")
    parser.add_argument("--objective", choices=("v-trace", "ppo"), default="v-trace", help="default: v-trace")
    parser.add_argument("--learning", action="store_true", help="compare learning curves instead")
    parser.add_argument("--seeds", type=int, default=3, help="of the learning curves (default 3)")
    parser.add_argument("--real-steps", type=int, help="of the learning curves (default: the preset's)")
    parser.add_argument("--root", type=Path, default=Path("runs") / "ray-scaling", help="of the learning curves")
    options = parser.parse_args()
    if options.learning:
        learning(options.root, options.seeds, options.real_steps)
        return
    chosen = preset(options.preset) if options.preset else slow_cartpole(options.delay)
    chosen = learning_by(options.objective, without_warm_up(chosen))
    scaling(chosen, options.workers, options.seconds, options.rounds)


if __name__ == "__main__":
    main()
