"""How near agents are to the time of their convolutions and matrix products, and how many frames a second they train.

    python -m benchmarks.agents                                  # all agents, 7x7 boards
    python -m benchmarks.agents sokoban-drc --size 10            # one of them, 10x10 boards
    python -m benchmarks.agents --envs 16 --seconds 1            # quickly

For each preset: the time of acting and of one epoch of learning per frame (real step); the time of nothing but the
convolutions and matrix products of that epoch, forwards and backwards, with random numbers of the same shapes and
strides; their share of the epoch's time; their arithmetic; and frames per second of acting and of learning with the
preset's epochs, on one core. "At most" is what the frames per second would be if acting and learning were nothing but
their products. The training of world models is not part of it: see benchmarks/model.py. Processor time on one thread,
all in the same process and in turns, best of several repetitions.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.model import best_times
from thinker.agents.settings import LearnerSettings
from thinker.envs.sokoban.spec import SokobanSpec
from thinker.errors import UserError
from thinker.runs import machine
from thinker.runs.build import build_run
from thinker.runs.presets import preset
from thinker.runs.settings import RunSettings

PRESETS = (
    "sokoban-raw",
    "sokoban-drc",
    "sokoban-resnet",
    "sokoban-vin",
    "sokoban-i2a",
    "sokoban-atreec",
    "sokoban-quick",
)
aten = torch.ops.aten
PRODUCTS = {aten.convolution, aten.convolution_backward, aten.mm, aten.addmm, aten.bmm, aten.baddbmm}
HEADER = (
    "| preset | act µs | learn µs | products µs | share | MFLOP | GFLOP/s | frames/s | at most |\n"
    "|---|---|---|---|---|---|---|---|---|"
)


class _Shape(NamedTuple):
    """A tensor without its numbers."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype

    @staticmethod
    def of(value: Any) -> Any:
        return _Shape(tuple(value.shape), value.stride(), value.dtype) if isinstance(value, Tensor) else value

    def tensor(self) -> Tensor:
        last = sum((size - 1) * stride for size, stride in zip(self.size, self.stride))
        return torch.randn(last + 1).to(self.dtype).as_strided(self.size, self.stride)


class Products(TorchDispatchMode):
    """While it is active, remembers every convolution and matrix product, to be repeated without the rest."""

    def __init__(self) -> None:
        super().__init__()
        self._calls: list[tuple[Any, Any, Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.overloadpacket in PRODUCTS:
            self._calls.append((func, tree_map(_Shape.of, args), tree_map(_Shape.of, kwargs)))
        return func(*args, **kwargs)

    def __len__(self) -> int:
        return len(self._calls)

    def prepared(self) -> Callable[[], None]:
        """A function that repeats them. Arguments of equal shape at the same place are the same tensor."""
        tensors: dict[tuple[str, _Shape], Tensor] = {}

        def filled(place: str, value: Any) -> Any:
            if isinstance(value, _Shape):
                if (place, value) not in tensors:
                    tensors[place, value] = value.tensor()
                return tensors[place, value]
            return value

        calls = [
            (
                func,
                [filled(str(place), one) for place, one in enumerate(args)],
                {name: filled(name, one) for name, one in kwargs.items()},
            )
            for func, args, kwargs in self._calls
        ]

        def run() -> None:
            with torch.no_grad():
                for func, args, kwargs in calls:
                    func(*args, **kwargs)

        return run


class Speed(NamedTuple):
    """What was measured, per frame."""

    act: float  # seconds
    act_products: float  # seconds
    learn: float  # seconds, one epoch
    products: float  # seconds, those of one epoch
    operations: float  # floating-point operations of one epoch
    epochs: int

    def row(self, name: str) -> str:
        frames = 1 / (self.act + self.epochs * self.learn)
        most = 1 / (self.act_products + self.epochs * self.products)
        return (
            f"| {name} | {1e6 * self.act:,.0f} | {1e6 * self.learn:,.0f} | {1e6 * self.products:,.0f} "
            f"| {self.products / self.learn:.0%} | {self.operations / 1e6:,.0f} "
            f"| {self.operations / self.products / 1e9:,.0f} | {frames:,.0f} | {most:,.0f} |"
        )


def measure(settings: RunSettings, seconds: float) -> Speed:
    """Measure a run's agent, after two unrolls."""
    agent = settings.agent
    if not isinstance(agent, LearnerSettings):
        raise UserError(f"{type(agent).__name__} does not learn; choose a preset with a learned agent")
    settings = dataclasses.replace(settings, agent=dataclasses.replace(agent, epochs=1), exploration_steps=0, threads=1)
    run = build_run(settings, device="cpu")
    learner = run.learner
    assert learner is not None
    experience = run.worker.collect(0.0)
    learner.learn(experience.trajectory, 0.0)
    acting, learning = Products(), Products()
    with acting:
        experience = run.worker.collect(0.0)
    with FlopCounterMode(display=False) as counter, learning:
        learner.learn(experience.trajectory, 0.0)
    frames = experience.episodes.real_steps
    calls: list[Callable[[], object]] = [
        lambda: run.worker.collect(0.0),
        acting.prepared(),
        lambda: learner.learn(experience.trajectory, 0.0),
        learning.prepared(),
    ]
    act, act_products, learn, products = (time / frames for time in best_times(calls, seconds))
    return Speed(act, act_products, learn, products, counter.get_total_flops() / frames, agent.epochs)


def chosen_settings(name: str, size: int | None, envs: int | None) -> RunSettings:
    """The settings of a preset with other boards, or another number of environments."""
    settings = preset(name)
    if size is not None:
        if not isinstance(settings.environment, SokobanSpec):
            raise UserError(f"--size is for Sokoban, but {name} plays {settings.environment.name}")
        settings = dataclasses.replace(settings, environment=dataclasses.replace(settings.environment, size=size))
    return settings if envs is None else dataclasses.replace(settings, num_envs=envs)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("presets", nargs="*", default=PRESETS, metavar="PRESET")
    parser.add_argument("--size", type=int, help="height and width of the boards (default: the preset's)")
    parser.add_argument("--envs", type=int, help="environments (default: the preset's)")
    parser.add_argument("--seconds", type=float, default=20.0, help="time for each preset (default 20)")
    options = parser.parse_args(arguments)
    machine.prepare(1)
    print(HEADER)
    for name in options.presets:
        print(measure(chosen_settings(name, options.size, options.envs), options.seconds).row(name), flush=True)


if __name__ == "__main__":
    main()
