"""Mean and maximum as one operation, compared with PyTorch's."""

from __future__ import annotations

import pytest
import torch

from thinker.nn.pooling import mean_and_max


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_values_and_gradients_are_those_of_mean_and_amax_with_ties_too(dtype):
    torch.manual_seed(0)
    x = torch.randint(0, 4, (7, 5, 3)).to(dtype)  # many positions share the maximum
    x[0] = 0.0
    expected, mine = x.clone().requires_grad_(), x.clone().requires_grad_()
    gradient = torch.randn(7, 6, dtype=dtype)
    slow = torch.cat((expected.mean(1), expected.amax(1)), 1)
    slow.backward(gradient)
    pooled = mean_and_max(mine)
    pooled.backward(gradient)
    assert torch.equal(pooled, slow)
    torch.testing.assert_close(mine.grad, expected.grad, rtol=1e-6, atol=1e-7)
    assert torch.equal(mean_and_max(x), slow)


def test_planes_keep_their_memory_format_in_the_gradient():
    planes = torch.randn(2, 4, 3, 3).to(memory_format=torch.channels_last).requires_grad_()
    mean_and_max(planes.permute(0, 2, 3, 1).flatten(1, 2)).sum().backward()
    assert planes.grad.is_contiguous(memory_format=torch.channels_last)
