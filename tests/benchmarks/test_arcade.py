"""`python -m benchmarks.arcade projection`: what follows from the measured phases."""

import pytest
import torch

from benchmarks import arcade
from benchmarks.ray_projection import Phases
from thinker.agents.network import AgentInput
from thinker.agents.trajectory import Unroll


def test_a_projection_is_the_sum_of_the_phases_times_the_real_steps_of_200_million_frames():
    lines = "\n".join(arcade.projection(Phases(act=0.3, agent=0.1, model=0.6), flops=60e9))
    assert "acting               300.0 ms a real step,  30%" in lines
    assert "1.00 real steps/s, 4.00 frames/s" in lines
    assert "PROJECTION, not a measurement: 200,000,000 frames are 50,000,000 real steps" in lines
    assert f"{5e7 / 86_400 / 365:.1f} core-years" in lines
    assert "this core does 100 GFLOP/s" in lines
    speedup = 0.3 * 19.5e12 / 100e9
    assert f"as fast as {speedup:.0f} cores:" in lines
    assert f"{5e7 / 86_400 / speedup:.0f} GPU-days" in lines


def test_the_memory_of_nested_tensors_is_counted_once_each():
    given = {"a": torch.zeros(3), "b": [torch.zeros(2, dtype=torch.int64), None], "c": 5}
    assert arcade._nbytes(given) == pytest.approx(3 * 4 + 2 * 8)


def unroll(steps, num_envs):
    def zeros(rows, *shape):
        return torch.zeros(rows, num_envs, *shape)

    given = AgentInput({"hidden": zeros(steps + 1, 50)}, *(zeros(steps + 1) for _ in range(4)))
    per_step = (zeros(steps) for _ in range(7))
    return Unroll(given, zeros(steps + 1), *per_step, memory={"cell": torch.zeros(num_envs, 1_000)})


def test_the_memory_of_an_unroll_is_projected_from_a_smaller_one():
    exact = arcade._nbytes(unroll(40, 6))
    assert arcade.unroll_bytes(unroll(4, 2), num_envs=6, steps=40) == pytest.approx(exact, rel=0.04)
    assert arcade.unroll_bytes(unroll(40, 6), num_envs=6, steps=40) == exact
