"""The ConvLSTM stack of DRC against a slow version square by square, and its memory."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from thinker.nn.conv_lstm import ConvLSTM, ConvLSTMCell

CHANNELS, HEIGHT, WIDTH, BATCH = 3, 4, 5, 2


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def reference_tick(cell: ConvLSTMCell, output_gate, encoded, below, hidden, state):
    """One tick of one environment, in float64: planes [channels, H, W] to the new output and cell state."""
    given, bias, recurrent, pooled, boundary, pool = (
        parameter.detach().double().numpy()
        for parameter in (
            cell.given.weight,
            cell.given.bias,
            cell.recurrent,
            cell.pooled,
            cell.boundary,
            cell.pool,
        )
    )
    largest, mean = hidden.max((1, 2)), hidden.mean((1, 2))
    if len(pool) == 2:  # per channel
        injected = pool[0] * largest + pool[1] * mean
    else:
        injected = np.concatenate((largest, mean)) @ pool
    gates = np.zeros((4 * CHANNELS, HEIGHT, WIDTH))
    for row in range(HEIGHT):
        for column in range(WIDTH):
            gate = bias.copy()
            for i in range(3):
                for j in range(3):
                    y, x = row + i - 1, column + j - 1
                    if 0 <= y < HEIGHT and 0 <= x < WIDTH:
                        gate += given[:, :, i, j] @ encoded[:, y, x] + pooled[:, :, i, j] @ injected
                        gate += recurrent[:, :, i, j] @ np.concatenate((below[:, y, x], hidden[:, y, x]))
                    else:
                        gate += boundary[:, 0, i, j]
            gates[:, row, column] = gate
    candidate, out, into, forget = gates.reshape(4, CHANNELS, HEIGHT, WIDTH)
    state = sigmoid(forget) * state + np.tanh(candidate) * sigmoid(into)
    out = np.tanh(out) if output_gate == "tanh" else sigmoid(out)
    return out * np.tanh(state), state


def planes(*leading: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*leading, CHANNELS, HEIGHT, WIDTH, generator=torch.Generator().manual_seed(seed))


def stack(layers: int, ticks: int, **choices) -> ConvLSTM:
    torch.manual_seed(1)
    network = ConvLSTM(CHANNELS, (HEIGHT, WIDTH), layers, ticks, **choices)
    for cell in network.cells:
        torch.nn.init.normal_(cell.given.bias)
    return network


@pytest.mark.parametrize("output_gate", ["tanh", "sigmoid"])
@pytest.mark.parametrize("pooling", ["per-channel", "linear"])
def test_steps_are_those_of_the_slow_version(output_gate, pooling):
    """Two steps of two layers and three ticks: the lowest layer sees the highest one's output of the tick before."""
    network = stack(2, 3, output_gate=output_gate, pooling=pooling)
    encoded = planes(2, BATCH)
    with torch.no_grad():
        outputs, memory = network(
            encoded.flatten(0, 1), torch.zeros(2, BATCH, dtype=torch.bool), network.initial_memory(BATCH)
        )
    for row in range(BATCH):
        hidden, state = np.zeros((2, 2, CHANNELS, HEIGHT, WIDTH))
        for t in range(2):
            for _ in range(3):
                below = hidden[1]
                for layer in range(2):
                    hidden[layer], state[layer] = reference_tick(
                        network.cells[layer],
                        output_gate,
                        encoded[t, row].double().numpy(),
                        below,
                        hidden[layer],
                        state[layer],
                    )
                    below = hidden[layer]
            np.testing.assert_allclose(outputs.view(2, BATCH, *outputs.shape[1:])[t, row], hidden[1], atol=1e-5)
        np.testing.assert_allclose(memory["hidden"][row].permute(0, 3, 1, 2), hidden, atol=1e-5)
        np.testing.assert_allclose(memory["cell"][row].permute(0, 3, 1, 2), state, atol=1e-5)


@pytest.mark.parametrize(("layers", "output_gate"), [(1, "tanh"), (3, "tanh"), (2, "sigmoid")])
@pytest.mark.parametrize("pooling", ["per-channel", "linear"])
def test_gradients_are_those_of_finite_differences(layers, output_gate, pooling):
    """Along a random direction of each parameter and of the input, through ticks, steps and the start of an episode."""
    network = stack(layers, 2, output_gate=output_gate, pooling=pooling).double()
    start = torch.tensor([[False, False], [False, True], [False, False]])
    memory = {name: torch.randn_like(value) for name, value in network.initial_memory(BATCH).items()}
    weights = torch.randn(3 * BATCH, CHANNELS, HEIGHT, WIDTH, dtype=torch.float64)
    at = {"encoded": planes(3 * BATCH).double(), **dict(network.named_parameters())}
    at = {name: value.detach().requires_grad_() for name, value in at.items()}

    def loss(place: dict[str, torch.Tensor]) -> torch.Tensor:
        parameters = {name: value for name, value in place.items() if name != "encoded"}
        outputs, _ = torch.func.functional_call(network, parameters, (place["encoded"], start, memory))
        return (outputs * weights).sum()

    gradients = torch.autograd.grad(loss(at), list(at.values()))
    for (name, value), gradient in zip(at.items(), gradients):
        direction = torch.randn_like(value)
        with torch.no_grad():
            ahead, behind = (loss({**at, name: value + distance * direction}) for distance in (1e-6, -1e-6))
        expected = (gradient * direction).sum()
        torch.testing.assert_close((ahead - behind) / 2e-6, expected, rtol=1e-5, atol=1e-6, msg=lambda m, n=name: n + m)


def test_memory_is_cleared_where_episodes_start_and_carried_over_unrolls():
    """Three steps at once, the second of environment 0 the first of an episode, against steps one by one."""
    network = stack(2, 2)
    encoded = planes(3, BATCH)
    start = torch.tensor([[False, False], [True, False], [False, False]])
    before = {name: torch.randn_like(value) for name, value in network.initial_memory(BATCH).items()}
    given = {name: value.clone() for name, value in before.items()}
    with torch.no_grad():
        outputs, final = network(encoded.flatten(0, 1), start, before)
        memory = given
        for t in range(3):
            empty = network.initial_memory(BATCH)
            memory = {
                name: torch.where(start[t].view(-1, 1, 1, 1, 1), empty[name], value) for name, value in memory.items()
            }
            expected, memory = network(encoded[t], torch.zeros(1, BATCH, dtype=torch.bool), memory)
            torch.testing.assert_close(outputs.unflatten(0, (3, BATCH))[t], expected)
    for name in before:
        torch.testing.assert_close(final[name], memory[name])
        assert torch.equal(before[name], given[name])  # not changed by the call
        assert not final[name].requires_grad


def test_every_layer_and_every_tick_sees_the_input_and_the_whole_board():
    """A change at one corner reaches the other one in a single step, by pool-and-inject."""
    network = stack(1, 2)
    encoded = planes(1, 1)
    changed = encoded.clone()
    changed[..., 0, 0] += 5
    start, memory = torch.zeros(1, 1, dtype=torch.bool), network.initial_memory(1)
    with torch.no_grad():
        one, other = (network(x.flatten(0, 1), start, memory)[0] for x in (encoded, changed))
    assert (one[..., -1, -1] != other[..., -1, -1]).any()
