"""A whole run on another device: nothing is made on the CPU by accident, and the numbers are those of the CPU."""

import dataclasses

import pytest
import torch

import thinker
from tests.fake_device import fake_cuda
from thinker.envs.sokoban.spec import SokobanSpec
from thinker.runs import checkpoint
from thinker.runs.build import build_run
from thinker.runs.engines.local import LocalEngine
from thinker.runs.evaluate import evaluate_run
from thinker.world_model.spec import LearnedSpec


def small(preset):
    settings = thinker.preset(preset)
    model = settings.model
    if isinstance(model, LearnedSpec):
        batch_size = 40 // model.training.unroll_length
        training = dataclasses.replace(model.training, warm_up_transitions=32, batch_size=batch_size, replay_ratio=2.0)
        model = dataclasses.replace(model, training=training, replay_capacity=1_000, precision="float32")
    environment = settings.environment
    if isinstance(environment, SokobanSpec):
        environment = dataclasses.replace(environment, held_out_max_steps=12)
    return dataclasses.replace(
        settings,
        environment=environment,
        num_envs=4,
        real_steps=96,
        annealing_steps=None,
        exploration_steps=16 if settings.exploration_steps else 0,
        exploration_ratio=1.0,
        model=model,
        agent=dataclasses.replace(settings.agent, unroll_stages=4, batch_size=4, epochs=1),
        evaluation=thinker.EvaluationSettings(episodes=2, num_envs=2),
        threads=1,
    )


def played(preset, device, folder):
    """All weights after some unrolls with a checkpoint between them, and the returns of a test."""
    settings = small(preset)
    run = build_run(settings, device=device)
    engine = LocalEngine(run)
    for _ in range(3):
        engine.advance()
    checkpoint.save(folder / device, run.real_steps, run.state_dict())
    run = build_run(settings, device=device)
    _, state = checkpoint.load_latest(folder / device)
    run.load_state_dict(state)
    engine = LocalEngine(run)
    while not run.finished:
        engine.advance()
    assert run.device.type == device
    weights = {
        f"{part}/{name}": tensor
        for part, network in run.networks().items()
        for name, tensor in network.state_dict().items()
    }
    assert {tensor.device.type for tensor in weights.values()} == {device}
    actors = ("agent",) if preset == "sokoban-raw" else ("agent", "base-policy")
    returns = [evaluate_run(run, who).returns for who in actors]
    return {name: tensor.cpu() for name, tensor in weights.items()}, returns


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["sokoban-quick", "sokoban-raw", "cartpole"])
def test_a_run_on_a_gpu_mixes_no_devices_and_equals_one_on_the_cpu(preset, tmp_path):
    weights, returns = played(preset, "cpu", tmp_path)
    with fake_cuda():
        other_weights, other_returns = played(preset, "cuda", tmp_path)
    assert weights.keys() == other_weights.keys()
    for name, tensor in weights.items():
        assert torch.equal(tensor, other_weights[name]), name
    for one, other in zip(returns, other_returns):
        assert one.tolist() == other.tolist()


@pytest.mark.slow
def test_an_agent_that_imagines_by_itself_mixes_no_devices(tmp_path):
    """Its numbers are not quite the CPU's, where PyTorch computes an LSTM in another way."""
    with fake_cuda():
        weights, _ = played("sokoban-i2a", "cuda", tmp_path)
    assert all(torch.isfinite(tensor).all() for tensor in weights.values() if tensor.is_floating_point())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_a_run_on_a_real_gpu_trains_and_resumes(tmp_path):
    weights, _ = played("cartpole", "cuda", tmp_path)
    assert all(torch.isfinite(tensor).all() for tensor in weights.values() if tensor.is_floating_point())
