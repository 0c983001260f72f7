"""The LSTM-attention network against the paper's equations, and its forgetting at the ends of episodes."""

import math
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.func import functional_call

from thinker.errors import UserError
from thinker.nn import recurrence
from thinker.nn.lstm_attention import CURRENT_STEP_BIAS, FORGET_BIAS, LSTMAttention
from thinker.nn.recurrence import GATES, Weights

WIDTH, HEADS, WINDOW, CELLS = 8, 2, 4, 3


def as_if_learned(network):
    """Random parameters: zeros and ones would hide mistakes."""
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return network


@pytest.fixture
def network():
    torch.manual_seed(0)
    return as_if_learned(LSTMAttention(WIDTH, HEADS, WINDOW, CELLS))


def slow_network(network, x, start=None, memory=None):
    """Appendix C for one environment, [T, width], one cell, head and step after another; ``memory`` is its row."""
    heads, depth, window = network.heads, network.width // network.heads, network.window
    cells = [Weights(*one) for one in zip(*(getattr(network, name) for name in Weights._fields))]
    hidden = [torch.zeros_like(x[0]) for _ in cells]
    cell = [torch.zeros_like(x[0]) for _ in cells]
    past = [[[] for _ in range(heads)] for _ in cells]  # (key, value) of every step so far
    if memory is not None:
        hidden, cell = list(memory["hidden"]), list(memory["cell"])
        for n, h in ((n, h) for n in range(len(cells)) for h in range(heads)):
            for step in range(window - int(memory["steps"]), window):
                part = slice(h * depth, (h + 1) * depth)
                past[n][h].append((memory["keys"][n, part, step], memory["values"][n, step, part]))
    outputs = []
    for t, x_t in enumerate(x):
        if start is not None and start[t]:
            hidden, cell = [[torch.zeros_like(x_t) for _ in cells] for _ in range(2)]
            past = [[[] for _ in range(heads)] for _ in cells]
        below = hidden[-1]
        for n, weights in enumerate(cells):
            # W on stack([x, h_below])
            rows = (torch.cat((x_t, below)) @ torch.cat((weights.input_weight, weights.below_weight))).chunk(8)
            recurrent = (hidden[n] @ weights.recurrent_weight + weights.gate_bias).chunk(5)
            gates = {name: rows[i] + recurrent[i] for i, name in enumerate(GATES)}
            candidate = torch.tanh(gates.pop("candidate"))
            gates = {name: torch.sigmoid(gate) for name, gate in gates.items()}
            by_head = []
            for h in range(heads):
                query, key, value = (rows[part][h * depth : (h + 1) * depth] for part in (5, 6, 7))
                past[n][h] = [*past[n][h], (key, value)][-window:]
                first = window - len(past[n][h])
                scores = [
                    (k + weights.position_key[h, first + j]) @ query / math.sqrt(depth)
                    + weights.position_bias[h, first + j]
                    for j, (k, _) in enumerate(past[n][h])
                ]
                p = torch.softmax(torch.stack(scores), 0)
                by_head.append(sum(p[j] * v for j, (_, v) in enumerate(past[n][h])))
            attended = torch.cat(by_head) @ weights.attended_weight + weights.attended_bias
            attention = torch.nn.functional.layer_norm(
                attended + x_t, x_t.shape, weights.norm_weight, weights.norm_bias
            )
            cell[n] = (
                gates["forget"] * cell[n]
                + gates["input_cell"] * candidate
                + gates["input_attention"] * torch.tanh(attention)
            )
            hidden[n] = gates["output"] * torch.tanh(cell[n])
            below = hidden[n]
        outputs.append(below)
    return torch.stack(outputs)


def run(network, x, start, memory=None):
    return network(x, start, network.initial_memory(x.shape[1]) if memory is None else memory)


def starts(time, batch, *at):
    start = torch.zeros(time, batch, dtype=torch.bool)
    start[0] = True
    for t, b in at:
        start[t, b] = True
    return start


def some_memory(network, batch):
    """As after any steps."""
    memory = {
        key: torch.randn_like(x) if x.is_floating_point() else x for key, x in network.initial_memory(batch).items()
    }
    return {**memory, "steps": torch.randint(network.window, (batch,))}


@torch.no_grad()
def test_outputs_are_those_of_the_papers_equations(network):
    x = torch.randn(11, 3, WIDTH)
    actual, _ = run(network, x, starts(11, 3))
    for b in range(3):
        torch.testing.assert_close(actual[:, b], slow_network(network, x[:, b]))


@given(data=st.data(), seed=st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_outputs_and_gradients_are_those_of_the_papers_equations_for_all_sizes(data, seed):
    size = st.integers(1, 3)
    heads, depth, cells, batch = (data.draw(size) for _ in range(4))
    window, time, rows_of_a_chunk = (data.draw(st.integers(1, largest)) for largest in (6, 9, 12))
    torch.manual_seed(seed)
    network = as_if_learned(LSTMAttention(heads * depth, heads, window, cells).double())
    x = torch.randn(time, batch, network.width, dtype=torch.float64, requires_grad=True)
    start, memory = torch.rand(time, batch) < 0.2, some_memory(network, batch)
    by_output = torch.randn(x.shape, dtype=torch.float64)

    with mock.patch.object(recurrence, "ROWS_OF_A_CHUNK", rows_of_a_chunk):
        actual, _ = network(x, start, memory)
        gradients = torch.autograd.grad(actual, (x, *network.parameters()), by_output)
    rows = [{key: value[b] for key, value in memory.items()} for b in range(batch)]
    expected = torch.stack([slow_network(network, x[:, b], start[:, b], rows[b]) for b in range(batch)], 1)
    torch.testing.assert_close(actual, expected)
    of_expected = torch.autograd.grad(expected, (x, *network.parameters()), by_output, materialize_grads=True)
    for gradient, expected_gradient in zip(gradients, of_expected):
        torch.testing.assert_close(gradient, expected_gradient)


@pytest.mark.parametrize(("window", "rows_of_a_chunk"), [(3, 4), (7, 512), (1, 512)])
def test_gradients_are_those_of_finite_differences(window, rows_of_a_chunk):
    torch.manual_seed(0)
    network = as_if_learned(LSTMAttention(4, 2, window, 2).double())
    x = torch.randn(5, 2, 4, dtype=torch.float64, requires_grad=True)
    start, memory = starts(5, 2, (2, 1))[1:], some_memory(network, 2)
    names, parameters = zip(*network.named_parameters())

    def outputs(x, *parameters):
        return functional_call(network, dict(zip(names, parameters)), (x, start, memory))[0]

    with mock.patch.object(recurrence, "ROWS_OF_A_CHUNK", rows_of_a_chunk):
        assert torch.autograd.gradcheck(outputs, (x[1:].detach().requires_grad_(), *parameters))


@torch.no_grad()
def test_nothing_is_remembered_of_the_episode_before(network):
    x = torch.randn(12, 3, WIDTH)
    actual, _ = run(network, x, starts(12, 3, (5, 1), (2, 2), (7, 2), (8, 2)))
    torch.testing.assert_close(actual[:, 0], slow_network(network, x[:, 0]))
    torch.testing.assert_close(actual[5:, 1], slow_network(network, x[5:, 1]))
    for first, last in ((0, 2), (2, 7), (7, 8), (8, 12)):
        torch.testing.assert_close(actual[first:last, 2], slow_network(network, x[first:last, 2]))


@torch.no_grad()
@pytest.mark.parametrize("pieces", [[1] * 9, [4, 5], [2, 6, 1]])
@pytest.mark.parametrize("window", [1, 2, WINDOW, 12])
def test_steps_in_pieces_are_the_same_as_all_at_once(window, pieces):
    torch.manual_seed(1)
    network = as_if_learned(LSTMAttention(WIDTH, HEADS, window, CELLS))
    x, start = torch.randn(9, 4, WIDTH), starts(9, 4, (3, 0), (6, 2))
    together, final = run(network, x, start)
    memory = network.initial_memory(4)
    parts = []
    for x_part, start_part in zip(x.split(pieces), start.split(pieces)):
        output, memory = run(network, x_part, start_part, memory)
        parts.append(output)
    torch.testing.assert_close(torch.cat(parts), together)
    assert final.keys() == memory.keys()
    for key in ("hidden", "cell", "steps"):
        torch.testing.assert_close(final[key], memory[key])
    seen = min(window, 9)
    torch.testing.assert_close(final["keys"][..., -seen:], memory["keys"][..., -seen:])
    torch.testing.assert_close(final["values"][:, :, -seen:], memory["values"][:, :, -seen:])


@pytest.mark.parametrize("batch", [1, 3])
def test_the_memory_given_is_not_changed_and_carries_no_gradient(network, batch):
    memory = some_memory(network, batch)
    before = {key: value.clone() for key, value in memory.items()}
    for time in (1, 7):
        x = torch.randn(time, batch, WIDTH, requires_grad=True)
        output, new = run(network, x, torch.zeros(time, batch, dtype=torch.bool), memory)
        output.sum().backward()
        assert not any(value.requires_grad for value in new.values())
        for key, value in memory.items():
            assert torch.equal(value, before[key])


@torch.no_grad()
def test_rows_of_memory_can_be_taken_one_by_one(network):
    _, memory = run(network, torch.randn(6, 5, WIDTH), starts(6, 5, (4, 2)))
    x, start = torch.randn(3, 5, WIDTH), torch.zeros(3, 5, dtype=torch.bool)
    expected, _ = run(network, x, start, memory)
    rows = torch.tensor([3, 0, 2])
    actual, _ = run(network, x[:, rows], start[:, rows], {key: value[rows] for key, value in memory.items()})
    torch.testing.assert_close(actual, expected[:, rows])


def test_two_runs_and_two_passes_backwards_are_the_same_to_the_bit(network):
    x, start, memory = torch.randn(9, 4, WIDTH), starts(9, 4, (3, 0)), some_memory(network, 4)

    def gradients(output, **options):
        return torch.autograd.grad(output.square().sum(), tuple(network.parameters()), **options)

    first, _ = run(network, x, start, memory)
    expected = gradients(first, retain_graph=True)
    second, _ = run(network, x, start, memory)
    assert torch.equal(first, second)
    for again in (gradients(first), gradients(second)):
        assert all(torch.equal(*pair) for pair in zip(again, expected))


def test_no_gradient_crosses_the_start_of_an_episode(network):
    x = torch.randn(8, 2, WIDTH, requires_grad=True)
    output, _ = run(network, x, starts(8, 2, (4, 0)))
    output[4:].sum().backward()
    assert (x.grad[:4, 0] == 0).all()
    assert (x.grad[:4, 1] != 0).any()


def test_positions_begin_as_the_paper_says():
    network = LSTMAttention(window=10)
    assert (network.position_key == 0).all()
    assert network.position_key.shape == (3, 8, 10, 16)
    assert (network.position_bias[..., :-1] == 0).all()
    assert (network.position_bias[..., -1] == CURRENT_STEP_BIAS).all()


def test_cells_begin_by_remembering():
    bias = dict(zip(GATES, LSTMAttention().gate_bias.unflatten(1, (len(GATES), 128)).unbind(1)))
    bound = 1 / math.sqrt(128)
    for name, values in bias.items():
        middle = FORGET_BIAS if name == "forget" else 0
        assert ((values - middle).abs() <= bound).all()
        assert values.std() > bound / 2


@pytest.mark.parametrize(("arguments", "message"), [((10, 4), "multiple"), ((8, 4, 0), "window")])
def test_impossible_sizes_are_named(arguments, message):
    with pytest.raises(UserError, match=message):
        LSTMAttention(*arguments)
