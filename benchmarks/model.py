"""How much of the time of unrolling and training a world model goes into its convolutions.

    python -m benchmarks.model            # full table
    python -m benchmarks.model --quick    # two rows, a few seconds

Each line compares the model with nothing but its convolutions and linear layers: the same layers with the same weights
on inputs of the same shapes, in the same process, one after another. The share is their time over the model's; 100 %
would be a model whose other work is free. Best of several repetitions, alternating.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor, nn

from thinker.runs import machine
from thinker.world_model import TrainerSettings
from thinker.world_model.acting import ActingCopy, ActingModel
from thinker.world_model.batch import SequenceBatch
from thinker.world_model.build import build_dual
from thinker.world_model.losses import model_losses
from thinker.world_model.network import LearnedModel

NUM_ACTIONS = 5
SPACES = {
    "tiles 7x7": gym.spaces.Box(0, 1, (7, 7, 7), np.uint8),
    "tiles 10x10": gym.spaces.Box(0, 1, (7, 10, 10), np.uint8),
    "paper": gym.spaces.Box(0, 255, (3, 80, 80), np.uint8),
}
LAYERS = (nn.Conv2d, nn.ConvTranspose2d, nn.Linear)


def best_times(calls: list[Callable[[], object]], seconds: float) -> list[float]:
    """The shortest time of each call, taken in turns so that all see the same disturbances."""
    # On one thread the processor's time is the time; it does not count what other programs take.
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    best = [float("inf")] * len(calls)
    for call in calls:
        call()
    end = time.perf_counter() + seconds
    rounds = 0
    while rounds < 3 or time.perf_counter() < end:
        for which, call in enumerate(calls):
            start = clock()
            call()
            best[which] = min(best[which], clock() - start)
        rounds += 1
    return best


class RecordedLayers:
    """Every call of a convolution or linear layer during one run of ``run``, to be repeated without the rest."""

    def __init__(self, network: nn.Module, run: Callable[[], object]) -> None:
        self.calls: list[tuple[nn.Module, Tensor, Tensor | None]] = []  # layer, input, gradient of the output

        def record(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            gradient = torch.randn_like(output) if output.requires_grad else None
            self.calls.append((layer, inputs[0].detach().clone().requires_grad_(inputs[0].requires_grad), gradient))

        handles = [m.register_forward_hook(record) for m in network.modules() if isinstance(m, LAYERS)]
        run()
        for handle in handles:
            handle.remove()

    def forward(self) -> None:
        with torch.no_grad():
            for layer, x, _ in self.calls:
                layer(x)

    def forward_and_backward(self) -> None:
        for layer, x, gradient in self.calls:
            output = layer(x)
            if gradient is not None:
                wanted = [x] if x.requires_grad else []
                wanted += [parameter for parameter in layer.parameters() if parameter.requires_grad]
                torch.autograd.grad(output, wanted, gradient)


def random_batch(space: gym.spaces.Box, num_sequences: int, unroll_length: int) -> SequenceBatch:
    random = np.random.default_rng(0)
    n, length = num_sequences, unroll_length
    observation = random.integers(0, int(space.high.max()) + 1, (n, length + 1, *space.shape)).astype(np.uint8)
    return SequenceBatch(
        observation=torch.from_numpy(observation),
        last_action=torch.zeros(n, dtype=torch.int64),
        action=torch.from_numpy(random.integers(0, NUM_ACTIONS, (n, length))),
        reward=torch.zeros(n, length),
        termination=torch.zeros(n, length),
        value_target=torch.ones(n, length + 1),
        policy_target=torch.full((n, length + 1, NUM_ACTIONS), 1 / NUM_ACTIONS),
        state_mask=torch.ones(n, length),
        reward_mask=torch.ones(n, length),
        termination_mask=torch.ones(n, length),
        value_mask=torch.ones(n, length + 1),
        policy_mask=torch.ones(n, length + 1),
        weight=torch.ones(n),
        index=np.arange(n),
    )


def unroll_line(name: str, model: LearnedModel, space: gym.spaces.Box, batch_size: int, seconds: float) -> str:
    observation = random_batch(space, batch_size, 1).observation[:, 0]
    action = torch.arange(batch_size) % NUM_ACTIONS
    copies = ActingCopy(model, "float32"), ActingCopy(model, "bfloat16")
    exact, coarse = (ActingModel(copy, predict_states=False) for copy in copies)
    hidden = exact.root(observation, action).hidden
    bare = RecordedLayers(copies[0].network, lambda: exact.unroll(hidden, action))
    calls: list[Callable[[], object]] = [
        lambda: exact.unroll(hidden, action),
        bare.forward,
        lambda: coarse.unroll(hidden, action),
    ]
    whole, layers, half = best_times(calls, seconds)
    return (
        f"{name:<14} unroll  {batch_size:>5} {batch_size / whole:>11,.0f} {layers / whole:>7.0%}"
        f" {whole / half:>9.2f}x  (auto: {ActingCopy(model).precision})"
    )


def training_line(name: str, model: LearnedModel, space: gym.spaces.Box, batch_size: int, seconds: float) -> str:
    batch = random_batch(space, batch_size, unroll_length=5)
    scales = TrainerSettings().loss_scales

    def train() -> None:
        for parameter in model.parameters():
            parameter.grad = None
        model_losses(model.predict(batch), batch, scales).total.backward()

    bare = RecordedLayers(model, train)
    whole, layers = best_times([train, bare.forward_and_backward], seconds)
    return f"{name:<14} train   {batch_size:>5} {batch_size * 5 / whole:>11,.0f} {layers / whole:>7.0%}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small batches of the smallest board only")
    parser.add_argument("--threads", type=int, default=1, help="threads for PyTorch (default 1)")
    parser.add_argument("--seconds", type=float, default=3.0, help="time for each line")
    options = parser.parse_args()
    machine.prepare(options.threads)
    print("                      batch  per second   share  bfloat16 against float32")
    for name, space in SPACES.items():
        if options.quick and name != "tiles 7x7":
            continue
        model = build_dual(space, NUM_ACTIONS)
        for batch_size in (16,) if options.quick else (16, 64, 256):
            print(unroll_line(name, model, space, batch_size, 0.2 if options.quick else options.seconds), flush=True)
        for batch_size in (16,) if options.quick else (16,) if name == "paper" else (16, 128):
            print(training_line(name, model, space, batch_size, 0.2 if options.quick else options.seconds), flush=True)


if __name__ == "__main__":
    main()
