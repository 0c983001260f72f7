"""`python -m benchmarks.agents`: what counts as a product, and a table with a row for each agent."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn

from benchmarks import agents as benchmark
from thinker.errors import UserError


def test_products_are_the_convolutions_and_matrix_products_forwards_and_backwards() -> None:
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 2))
    products = benchmark.Products()
    with products:
        network(torch.randn(5, 3, 4, 4)).square().sum().backward()
    # Convolution and product; gradients of the product's input and weight; gradient of the convolution
    assert len(products) == 5
    products.prepared()()


def test_prepared_arguments_have_the_recorded_shapes_and_strides() -> None:
    x = torch.randn(1, 3, 1).expand(4, 3, 5).transpose(1, 2)
    made = benchmark._Shape.of(x).tensor()
    assert (made.shape, made.stride()) == (x.shape, x.stride())


@pytest.mark.parametrize("name", ["sokoban-drc", "sokoban-atreec"])
def test_the_table_has_a_row_with_share_and_speed(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    benchmark.main([name, "--size", "5", "--envs", "2", "--seconds", "0"])
    *_, row = capsys.readouterr().out.splitlines()
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[0] == name
    assert re.fullmatch(r"\d+%", cells[4])
    assert all(float(cell.replace(",", "")) > 0 for cell in cells[5:])


def test_presets_without_a_learned_agent_are_refused() -> None:
    with pytest.raises(UserError, match="does not learn"):
        benchmark.measure(benchmark.chosen_settings("sokoban-gumbel", None, 1), 0)
