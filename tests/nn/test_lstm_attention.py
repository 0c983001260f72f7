"""The LSTM-attention network against the paper's equations, and its forgetting at the ends of episodes."""

import math

import pytest
import torch

from thinker.nn.lstm_attention import CURRENT_STEP_BIAS, LSTMAttention

WIDTH, HEADS, WINDOW, CELLS = 8, 2, 4, 3


@pytest.fixture
def network():
    torch.manual_seed(0)
    made = LSTMAttention(WIDTH, HEADS, WINDOW, CELLS)
    for cell in made.cells:  # as if learned: zeros would hide mistakes
        torch.nn.init.normal_(cell.position_key)
        torch.nn.init.normal_(cell.position_bias)
        torch.nn.init.normal_(cell.norm.weight)
    return made


def slow_network(network, x):
    """Appendix C for one episode of one environment, [T, width], one head and one step after another."""
    depth = WIDTH // HEADS
    hidden = [torch.zeros(WIDTH) for _ in range(CELLS)]
    cell = [torch.zeros(WIDTH) for _ in range(CELLS)]
    past = [[[] for _ in range(HEADS)] for _ in range(CELLS)]  # (key, value) of every step so far
    outputs = []
    for x_t in x:
        below = hidden[-1]
        for n, layer in enumerate(network.cells):
            stacked = torch.cat((x_t, below))
            weight = torch.cat((layer.project.weight, layer.below.weight), 1)  # W on stack([x, h_below])
            rows = (weight @ stacked).split(WIDTH)
            recurrent = (layer.recurrent.weight @ hidden[n] + layer.recurrent.bias).split(WIDTH)
            f, i_c, i_a, o = (torch.sigmoid(rows[g] + recurrent[g]) for g in range(4))
            candidate = torch.tanh(rows[4] + recurrent[4])
            heads = []
            for h in range(HEADS):
                query, key, value = (rows[part][h * depth : (h + 1) * depth] for part in (5, 6, 7))
                past[n][h] = [*past[n][h], (key, value)][-WINDOW:]
                first = WINDOW - len(past[n][h])
                scores = [
                    (k + layer.position_key[h, first + j]) @ query / math.sqrt(depth)
                    + layer.position_bias[h, first + j]
                    for j, (k, _) in enumerate(past[n][h])
                ]
                p = torch.softmax(torch.stack(scores), 0)
                heads.append(sum(p[j] * v for j, (_, v) in enumerate(past[n][h])))
            attention = layer.norm(layer.attended(torch.cat(heads)) + x_t)
            cell[n] = f * cell[n] + i_c * candidate + i_a * torch.tanh(attention)
            hidden[n] = o * torch.tanh(cell[n])
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


@torch.no_grad()
def test_outputs_are_those_of_the_papers_equations(network):
    x = torch.randn(11, 3, WIDTH)
    actual, _ = run(network, x, starts(11, 3))
    for b in range(3):
        torch.testing.assert_close(actual[:, b], slow_network(network, x[:, b]))


@torch.no_grad()
def test_nothing_is_remembered_of_the_episode_before(network):
    x = torch.randn(12, 3, WIDTH)
    actual, _ = run(network, x, starts(12, 3, (5, 1), (2, 2), (7, 2), (8, 2)))
    torch.testing.assert_close(actual[:, 0], slow_network(network, x[:, 0]))
    torch.testing.assert_close(actual[5:, 1], slow_network(network, x[5:, 1]))
    for first, last in ((0, 2), (2, 7), (7, 8), (8, 12)):
        torch.testing.assert_close(actual[first:last, 2], slow_network(network, x[first:last, 2]))


@torch.no_grad()
def test_steps_one_by_one_are_the_same_as_all_at_once(network):
    x, start = torch.randn(9, 4, WIDTH), starts(9, 4, (3, 0), (6, 2))
    together, final = run(network, x, start)
    memory = network.initial_memory(4)
    for t in range(9):
        one, memory = run(network, x[t : t + 1], start[t : t + 1], memory)
        torch.testing.assert_close(one[0], together[t])
    assert final.keys() == memory.keys()
    for key in final:
        torch.testing.assert_close(final[key], memory[key])


def test_no_gradient_crosses_the_start_of_an_episode(network):
    x = torch.randn(8, 2, WIDTH, requires_grad=True)
    output, _ = run(network, x, starts(8, 2, (4, 0)))
    output[4:].sum().backward()
    assert (x.grad[:4, 0] == 0).all()
    assert (x.grad[:4, 1] != 0).any()


def test_positions_begin_as_the_paper_says():
    for cell in LSTMAttention().cells:
        assert (cell.position_key == 0).all()
        assert cell.position_key.shape == (8, 40, 16)
        assert (cell.position_bias[:, :-1] == 0).all()
        assert (cell.position_bias[:, -1] == CURRENT_STEP_BIAS).all()
