"""`python -m benchmarks.planners`: without mctx it prints our columns and says why; the share outside of a model."""

from __future__ import annotations

import re
import sys

import pytest

from benchmarks import planners as benchmark
from tests.runs.support import tiny
from thinker import planners
from thinker.runs.build import build_run


def test_without_mctx_only_our_speed_is_printed_and_why(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "jax", None)  # as if it were not installed
    benchmark.main(
        ["--envs", "1", "3", "--simulations", "4", "--seconds", "0", "--models", "free", "--real-steps", "0"]
    )
    first, *_, one, three = capsys.readouterr().out.splitlines()
    assert re.match("without mctx: .*jax", first)
    assert "'.[mctx]'" in first
    assert re.fullmatch(r"free +1 +[\d,]+", one)
    assert re.fullmatch(r"free +3 +[\d,]+", three)


@pytest.mark.parametrize("planner", list(benchmark.SPECS))
def test_the_share_outside_of_the_model_is_one(planner):
    run = build_run(tiny("sokoban-quick"), device="cpu")
    share, speed = benchmark.share_outside(run, benchmark.SPECS[planner](3), num_envs=2, real_steps=2)
    assert 0 < share < 1
    assert speed > 0


def test_both_models_of_the_benchmark_are_searched_without_errors():
    for weights in benchmark.MODELS.values():
        roots = benchmark.np.zeros((2, weights.width), benchmark.np.float32)
        model = benchmark.TorchModel(weights, 2)
        result = planners.search(model, roots, planners.MCTSSpec(simulations=60), discount=benchmark.DISCOUNT)
        assert result.visits.sum() == 120
