"""What more workers would give, calculated from measured times of each part and sizes of messages.

    python -m benchmarks.ray_projection boxoban-paper --levels boxoban/unfiltered/train
    python -m benchmarks.ray_projection atari

Every part is measured alone on one core of this machine, in seconds of computing: acting in ``--num-envs`` environments
for ``--stages`` stages, learning from that unroll, and training the model on a batch of ``--batch-size`` sequences.
Nothing is simulated but the schedule. With W workers of one core each and V-trace, acting, the agent's learner and the
model's trainer work at the same time, so the slowest determines the speed, and the network that connects the machines
is one more of them:

    frames/s = 1 / max(acting / W, agent, model, bytes of a frame / bandwidth)

all per frame, a real step. "x faster" is how many times faster than here the learners compute, as GPUs would; it is an
assumption, no measurement. Waiting for the slowest worker, starting, and evaluations are left out.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from dataclasses import dataclass
from typing import Any

import torch

from thinker.runs.build import build_run
from thinker.runs.presets import preset
from thinker.runs.run import Run
from thinker.runs.settings import RunSettings
from thinker.runs.worker import Experience
from thinker.world_model.spec import LearnedSpec
from thinker.world_model.trainer import ModelTrainer

WORKERS = (1, 8, 32, 128)
SPEEDUPS = (1, 10, 50)
GIGABIT = 1e9 / 8


@dataclass(frozen=True)
class Phases:
    """Seconds of computing for one frame, a real step of one environment."""

    act: float
    agent: float  # to learn from it
    model: float  # to train on it, as often as the replay ratio says


@dataclass(frozen=True)
class Costs:
    """Of one frame, a real step of one environment."""

    act: float  # seconds of a worker
    agent: float  # seconds of the agent's learner
    model: float  # seconds of the model's trainer
    message: float  # bytes from a worker to the learners
    weights: float  # bytes of all weights, which each worker receives once for every unroll
    unroll: int  # frames of a worker's unroll

    def seconds(self, workers: int, speedup: float, bandwidth: float) -> dict[str, float]:
        """Seconds of each part per frame, if it was alone."""
        sent = self.message + self.weights / self.unroll
        return {
            "acting": self.act / workers,
            "agent": self.agent / speedup,
            "model": self.model / speedup,
            "network": sent / bandwidth,
        }


def measure(settings: RunSettings, num_envs: int, stages: int, batch_size: int) -> Costs:
    """Measure all parts on one core, and the messages of Ray's workers."""
    from thinker.runs.engines.ray.message import pack

    run, experience, phases = measured_phases(settings, num_envs, stages, batch_size)
    message = pack(experience.trajectory).nbytes + pack(experience.transitions).nbytes
    weights = sum(pack(network.state_dict()).nbytes for network in run.networks().values())
    unroll = num_envs * settings.agent.unroll_stages  # type: ignore[attr-defined]
    sent = message / experience.episodes.real_steps
    return Costs(phases.act, phases.agent, phases.model, sent, float(weights), unroll)


def measured_phases(
    settings: RunSettings, num_envs: int, stages: int, batch_size: int
) -> tuple[Run, Experience, Phases]:
    """Measure acting and both kinds of training on one core; also returns the run, and what it collected."""
    torch.set_num_threads(1)
    agent: Any = dataclasses.replace(settings.agent, unroll_stages=stages)  # type: ignore[type-var]
    settings = dataclasses.replace(settings, num_envs=num_envs, threads=1, device="cpu", agent=agent)
    if not isinstance(settings.model, LearnedSpec):
        raise SystemExit("choose a preset with a learned model")
    batch_size = min(batch_size, settings.model.training.batch_size)
    training = dataclasses.replace(settings.model.training, warm_up_transitions=0, batch_size=batch_size)
    model = dataclasses.replace(settings.model, training=training, replay_capacity=4_000)
    run = build_run(dataclasses.replace(settings, model=model))
    trainer = run.trainer
    assert isinstance(trainer, ModelTrainer)
    assert run.learner is not None

    experience = run.worker.collect()  # compiles what has to be compiled, and fills the replay
    experience.transitions.deliver(trainer.store, trainer.abandon_episodes)
    while len(trainer.replay) < training.batch_size:
        played = run.worker.explore(0, 2 * (training.return_length or 2 * training.unroll_length) + 2)
        played.transitions.deliver(trainer.store, trainer.abandon_episodes)
        run.worker.restart()
    run.learner.learn(experience.trajectory, 0.0)
    batch = training.batch_size * training.unroll_length
    trainer.train_more(batch)

    start = time.process_time()
    experience = run.worker.collect()
    act = time.process_time() - start
    start = time.process_time()
    run.learner.learn(experience.trajectory, 0.0)
    learn = time.process_time() - start
    start = time.process_time()
    trainer.train_more(batch)
    trained = time.process_time() - start
    frames = experience.episodes.real_steps
    per_frame = training.replay_ratio / batch
    return run, experience, Phases(act / frames, learn / frames, trained * per_frame)


def report(name: str, costs: Costs, gigabits: float) -> None:
    print(f"{name}: measured on one core, for each frame (a real step)")
    print(f"  acting           {1e3 * costs.act:9.1f} ms")
    print(f"  agent's learner  {1e3 * costs.agent:9.1f} ms   one feeds {costs.act / costs.agent:.1f} workers")
    print(f"  model's trainer  {1e3 * costs.model:9.1f} ms   one feeds {costs.act / costs.model:.1f} workers")
    weights = f"weights {costs.weights / 1e6:.1f} MB per unroll of {costs.unroll} frames"
    print(f"  message          {costs.message / 1e3:9.1f} kB   {weights}")
    print(f"calculated, network of {gigabits:g} Gbit/s")
    print("workers  learners x faster  frames/s  bound by   of it busy: acting  agent  model  network")
    for speedup in SPEEDUPS:
        for workers in WORKERS:
            parts = costs.seconds(workers, speedup, gigabits * GIGABIT)
            slowest = max(parts, key=lambda part: parts[part])
            busy = {part: seconds / parts[slowest] for part, seconds in parts.items()}
            print(
                f"{workers:>7}  {speedup:>17}  {1 / parts[slowest]:>8,.1f}  {slowest:<9}  {busy['acting']:>19.0%}  "
                f"{busy['agent']:>5.0%}  {busy['model']:>5.0%}  {busy['network']:>7.1%}"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("preset", nargs="?", default="boxoban-paper")
    parser.add_argument("--levels", help="level files, for presets that need them")
    parser.add_argument("--num-envs", type=int, default=8, help="environments of a worker (default 8)")
    parser.add_argument("--stages", type=int, default=2, help="stages of the measured unroll (default 2)")
    parser.add_argument("--batch-size", type=int, default=32, help="at most, of the model's training (default 32)")
    parser.add_argument("--gigabits", type=float, default=10.0, help="bandwidth of the network (default 10)")
    options = parser.parse_args()
    settings = preset(options.preset)
    if options.levels:
        environment = dataclasses.replace(settings.environment, levels=options.levels)  # type: ignore[type-var]
        settings = dataclasses.replace(settings, environment=environment)
    report(options.preset, measure(settings, options.num_envs, options.stages, options.batch_size), options.gigabits)


if __name__ == "__main__":
    main()
