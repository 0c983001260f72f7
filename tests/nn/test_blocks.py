"""The blocks of the networks: what the action adds to a layer, and how weights begin."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from thinker.interfaces import NO_ACTION
from thinker.nn.blocks import ActionLayer, Layers, OutputLayer, initialise, one_hot_action, residual_blocks

NUM_ACTIONS = 3


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("spatial", [(1, 1), (2, 3), (6, 5)])
def test_action_layer_is_a_convolution_over_tiled_one_hot_planes(stride: int, spatial: tuple[int, int]) -> None:
    torch.manual_seed(0)
    layer = ActionLayer(4, 7, NUM_ACTIONS, spatial, stride=stride)
    x = torch.randn(5, 4, *spatial).contiguous(memory_format=torch.channels_last)
    action = torch.tensor([0, 1, 2, NO_ACTION, 1])
    planes = torch.zeros(5, NUM_ACTIONS, *spatial)
    for row, taken in enumerate(action.tolist()):
        if taken != NO_ACTION:
            planes[row, taken] = 1
    assert isinstance(layer.layer, nn.Conv2d)
    weight = torch.cat((layer.layer.weight, layer.action_weight), 1)
    expected = F.conv2d(torch.cat((x, planes), 1), weight, layer.layer.bias, stride=stride, padding=1).relu()
    torch.testing.assert_close(layer(x, one_hot_action(action, NUM_ACTIONS)), expected)
    layer.keep_table()
    with torch.no_grad():
        torch.testing.assert_close(layer(x, one_hot_action(action, NUM_ACTIONS)), expected)


def test_action_layer_is_a_linear_layer_over_the_concatenated_one_hot_action() -> None:
    torch.manual_seed(0)
    layer = ActionLayer(4, 7, NUM_ACTIONS, None)
    x, action = torch.randn(5, 4), one_hot_action(torch.tensor([0, 1, 2, NO_ACTION, 1]), NUM_ACTIONS)
    assert isinstance(layer.layer, nn.Linear)
    weight = torch.cat((layer.layer.weight, layer.action_weight), 1)
    expected = F.linear(torch.cat((x, action), 1), weight, layer.layer.bias).relu()
    torch.testing.assert_close(layer(x, action), expected)


def test_initialised_layers_keep_the_size_of_what_goes_through_them() -> None:
    torch.manual_seed(0)
    board = Layers(32, (6, 6), NUM_ACTIONS)
    network = nn.Sequential(*(layer for _ in range(6) for layer in (board.layer(32, 32), nn.ReLU())))
    x = torch.randn(16, 32, 6, 6).relu()
    shrunk = network(x).square().mean() / x.square().mean()
    initialise(network)
    kept = network(x).square().mean() / x.square().mean()
    assert shrunk < 0.01
    assert 0.2 < kept < 2


def test_initialised_blocks_begin_near_their_shortcut_and_zero_layers_stay_zero() -> None:
    torch.manual_seed(0)
    blocks, output = residual_blocks(Layers(16, None, NUM_ACTIONS), 16, 2), OutputLayer(16, 4)
    initialise(nn.ModuleList((blocks, output, nn.Linear(16, 16, bias=False))))
    x = torch.randn(64, 16)
    assert 0 < (blocks(x) - x).square().mean() < 0.5 * x.square().mean()
    assert not output(x).any()
