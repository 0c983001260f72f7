"""How near the LSTM-attention network is to the time of its matrix products.

    python -m benchmarks.recurrent            # both sizes
    python -m benchmarks.recurrent --quick    # a few steps only

The bound is the time of the same products, forwards and backwards, each over all steps at once, as if no step had to
wait for the one before. They are computed in the same process, in turns with the network. Best of several repetitions.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch

from benchmarks.model import best_times
from thinker.nn.lstm_attention import LSTMAttention
from thinker.runs import machine

SIZES = ((65, 64, 8), (401, 16, 20), (1, 64, 8), (1, 16, 20))  # steps, rows, stage length


def products(network: LSTMAttention, rows: int) -> tuple[Callable[[], None], Callable[[], None]]:
    """The network's products over ``rows`` rows: forwards, and forwards and backwards."""
    names = ("input_weight", "below_weight", "recurrent_weight", "attended_weight")
    weights = [one.detach() for name in names for one in getattr(network, name)]
    x = torch.randn(rows, network.width)
    gradients = [torch.randn(rows, weight.shape[1]) for weight in weights]

    def forward() -> None:
        for weight in weights:
            torch.mm(x, weight)

    def both() -> None:
        forward()
        for weight, gradient in zip(weights, gradients):
            torch.mm(gradient, weight.T)
            torch.mm(x.T, gradient)

    return forward, both


def line(steps: int, rows: int, stage_length: int, seconds: float) -> str:
    torch.manual_seed(0)
    network = LSTMAttention(window=2 * stage_length)
    x = torch.randn(steps, rows, network.width, requires_grad=True)
    start, memory = torch.rand(steps, rows) < 0.02, network.initial_memory(rows)

    def forward() -> None:
        with torch.no_grad():
            network(x, start, memory)

    def both() -> None:
        network.zero_grad()
        network(x, start, memory)[0].sum().backward()

    with torch.no_grad():
        bounds = products(network, steps * rows)
    times = best_times([forward, bounds[0], both, bounds[1]], seconds)
    whole, bound, whole_both, bound_both = (1000 * time for time in times)
    return (
        f"{steps:>5} {rows:>5} {stage_length:>5} {whole:>9.2f} {bound:>9.2f} {whole / bound:>6.2f}"
        f" {whole_both:>9.2f} {bound_both:>9.2f} {whole_both / bound_both:>6.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few steps only")
    parser.add_argument("--threads", type=int, default=1, help="threads for PyTorch (default 1)")
    parser.add_argument("--seconds", type=float, default=10.0, help="time for each line")
    options = parser.parse_args()
    machine.prepare(options.threads)
    print("                   forward [ms]              forward and backward [ms]")
    print("steps  rows     K   network     bound  ratio   network     bound  ratio")
    for steps, rows, stage_length in SIZES:
        steps, seconds = (min(steps, 9), 0.2) if options.quick else (steps, options.seconds)
        print(line(steps, rows, stage_length, seconds), flush=True)


if __name__ == "__main__":
    main()
