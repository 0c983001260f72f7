"""MinAtar and Atari: how well world models predict MinAtar after a little training, and what picture networks cost.

    python -m benchmarks.arcade models --game breakout --model board    # or dual
    python -m benchmarks.arcade costs                                   # CPU time of the networks, of a step
    python -m benchmarks.arcade projection                              # of the paper's 200 million frames

"models" trains on random play and asks for 1 to 5 steps of other random play; a board counts as right only if every
square is. "projection" measures a few steps of the preset atari by phase and calculates what the whole run would take.
All times are CPU time of one thread.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.ray_projection import Phases, measured_phases
from thinker.agents.trajectory import Unroll
from thinker.envs.atari.spec import AtariSpec
from thinker.envs.minatar import MinAtarSpec
from thinker.interfaces import NO_ACTION, RealTransition, WorldModel
from thinker.runs.build import build_model
from thinker.runs.presets import BOARD_TRAINING, SEQUENCE_TRAINING, preset
from thinker.world_model import BoardModelSpec, DualModelSpec
from thinker.world_model.batch import SequenceBatch
from thinker.world_model.build import build_dual
from thinker.world_model.replay import Replay
from thinker.world_model.spec import ModelSpec

STEPS, NUM_ENVS = 5, 32
MODELS: dict[str, ModelSpec] = {
    "board": BoardModelSpec(training=BOARD_TRAINING, replay_capacity=20_000),
    "dual": DualModelSpec(size="tiles", training=SEQUENCE_TRAINING, replay_capacity=20_000),
}
NETWORKS = {
    "paper-stacked": gym.spaces.Box(0, 255, (12, 80, 80), np.uint8),
    "image-small-stacked": gym.spaces.Box(0, 255, (4, 48, 48), np.uint8),
}
FRAMES, ACTION_REPEAT = 200_000_000, 4
"""Of the emulator in the paper's runs, and in a real step."""
GPU, GPU_FLOPS, REACHED = "NVIDIA A100", 19.5e12, 0.3
"""Float32 operations per second without tensor cores, from its data sheet; and the part of them that convolutions are
assumed to reach."""
DAY, GIB = 86_400, 2**30


def random_play(envs: gym.vector.VectorEnv, steps: int, seed: int) -> list[RealTransition]:
    """``steps`` steps of all environments."""
    random, played = np.random.default_rng(seed), []
    num_actions = int(envs.single_action_space.n)  # type: ignore[attr-defined]
    nothing, uniform = np.zeros(NUM_ENVS, np.float32), np.full((NUM_ENVS, num_actions), 1 / num_actions, np.float32)
    observation, _ = envs.reset(seed=seed)
    for _ in range(steps):
        action = random.integers(num_actions, size=NUM_ENVS)
        following, reward, terminated, truncated, info = envs.step(action)
        final = following.copy()
        for e in np.flatnonzero(terminated | truncated):
            final[e] = info["final_obs"][e]
        played.append(
            RealTransition(
                observation=observation,
                action=action,
                policy=uniform,
                root_value=nothing,
                reward=reward.astype(np.float32),
                terminated=terminated,
                truncated=truncated,
                next_observation=final,
                final_value=nothing,
                valid=np.ones(NUM_ENVS, bool),
                random_play=True,
            )
        )
        observation = following
    return played


def exact_boards(model: WorldModel, played: list[RealTransition]) -> np.ndarray:
    """The share [STEPS] of boards that the model predicts exactly, so many steps ahead."""
    right, count = np.zeros(STEPS), np.zeros(STEPS)
    for start in range(0, len(played) - STEPS, STEPS):
        observation = torch.from_numpy(played[start].observation)
        hidden = model.root(observation, torch.full((NUM_ENVS,), NO_ACTION)).hidden
        running = np.ones(NUM_ENVS, bool)
        for depth, step in enumerate(played[start : start + STEPS]):
            node = model.unroll(hidden, torch.from_numpy(step.action))
            hidden = node.hidden
            assert node.state is not None
            same = (node.state.numpy() == step.next_observation).all((1, 2, 3))
            right[depth] += same[running].sum()
            count[depth] += running.sum()
            running &= ~(step.terminated | step.truncated)
    return right / count


def compare_models(game: str, name: str, collected: int, trained: int, sticky: float) -> None:
    """Print how well a model predicts a game."""
    envs = MinAtarSpec(game=game, sticky_action_probability=sticky).build(NUM_ENVS)  # type: ignore[arg-type]
    device = torch.device("cpu")
    built = build_model(MODELS[name], envs, discount=0.97, total_transitions=None, seed=0, device=device)
    assert built.trainer is not None
    for transition in random_play(envs, collected // NUM_ENVS, seed=1):
        built.trainer.store(transition)
    seconds = timed(lambda: built.trainer.train_more(trained))  # type: ignore[union-attr]
    built.trainer.publish()
    shares = exact_boards(built.for_envs(envs, predict_states=True), random_play(envs, 150, seed=99))
    print(f"{game}, {name}: {seconds:.1f} s of training; exact boards after 1 to {STEPS} steps: {shares.round(2)}")


def costs() -> None:
    """Print what the networks and the environment cost."""
    for name, space in NETWORKS.items():
        network = build_dual(space, 4, size=name)
        count = 4 if name.startswith("paper") else 32
        observation = torch.from_numpy(np.stack([space.sample() for _ in range(count)]))
        action = torch.zeros(count, dtype=torch.int64)
        hidden = network.root(observation, action).hidden
        unrolled = timed(partial(network.unroll, hidden, action), repeat=3) / count
        batch = _batch(space, count, 4)
        trained = timed(partial(_train, network, batch)) / (count * STEPS)
        weights = sum(parameter.numel() for parameter in network.parameters())
        print(
            f"{name} {space.shape}: {weights / 1e6:.2f} million weights, {unrolled * 1e3:.1f} ms for an imagined step, "
            f"{trained * 1e3:.1f} ms for a transition trained on"
        )
    env = AtariSpec(game="breakout").make_env()
    env.reset(seed=0)
    env.step(0)
    print(f"Atari: {timed(lambda: env.step(0), repeat=20) * 1e3:.2f} ms for a real step")


def project(num_envs: int, stages: int, batch_size: int) -> None:
    """Measure the phases of the preset atari, and print what its whole run would take."""
    settings = preset("atari")
    model: Any = settings.model
    agent: Any = settings.agent
    network = build_dual(NETWORKS["paper-stacked"], 4, size="paper-stacked")
    with FlopCounterMode(display=False) as counter:
        _train(network, _batch(NETWORKS["paper-stacked"], 1, 4))
    flops = counter.get_total_flops() / STEPS
    run, experience, phases = measured_phases(settings, num_envs, stages, batch_size)
    sizes = f"{num_envs} environments, {stages} stages, batches of {batch_size} sequences"
    print(f"atari, K = {settings.search.stage_length}: measured on one core, {sizes}")
    print("\n".join(projection(phases, flops * model.training.replay_ratio)))
    replay = Replay(
        model.replay_capacity,  # its pages are never touched, so this takes no memory
        num_envs=settings.num_envs,
        observation_space=NETWORKS["paper-stacked"],
        num_actions=18,
        discount=settings.search.discount,
        frame_stack=4,
    )
    steps = agent.unroll_stages * settings.search.stage_length
    unroll = unroll_bytes(experience.trajectory.read(), settings.num_envs, steps)
    weights = sum(_nbytes(network.state_dict()) for network in run.networks().values())
    print(
        f"memory, from the sizes of its parts at the preset's settings: replay {replay.nbytes / GIB:.1f} GiB, an "
        f"unroll {unroll / GIB:.1f} GiB, weights with gradients, moments and a copy {5 * weights / GIB:.1f} GiB"
    )


def projection(phases: Phases, flops: float) -> list[str]:
    """What follows from the seconds of a real step; ``flops`` are the operations of the model's training for it."""
    parts = {"acting": phases.act, "agent's training": phases.agent, "model's training": phases.model}
    total, steps = sum(parts.values()), FRAMES // ACTION_REPEAT
    core = flops / phases.model
    speedup = REACHED * GPU_FLOPS / core
    gpu = f"if an {GPU} reaches {REACHED:.0%} of the {GPU_FLOPS / 1e12:.1f} TFLOP/s of its data sheet (float32)"
    return [
        *(f"  {name:<17} {1e3 * one:8.1f} ms a real step, {one / total:4.0%}" for name, one in parts.items()),
        f"  together          {1 / total:8.2f} real steps/s, {ACTION_REPEAT / total:.2f} frames/s",
        f"PROJECTION, not a measurement: {FRAMES:,} frames are {steps:,} real steps",
        f"  {total * steps / DAY / 365:.1f} core-years on cores like this one",
        f"  model's training takes {flops / 1e9:.0f} GFLOP a real step; this core does {core / 1e9:.0f} GFLOP/s",
        f"  {gpu}, it is as fast as {speedup:.0f} cores:",
        f"  {total * steps / DAY / speedup:.0f} GPU-days, if nothing waits for the emulator",
    ]


def unroll_bytes(unroll: Unroll, num_envs: int, steps: int) -> float:
    """The memory of an unroll of ``steps`` steps of ``num_envs`` environments, from that of a smaller one.

    The network's memory is kept once in an unroll, inputs of all its steps and of one more.
    """
    measured_steps, measured_envs = unroll.reward.shape[:2]
    memory = _nbytes(unroll.memory)
    inputs = (_nbytes(unroll) - memory) * (steps + 1) / (measured_steps + 1)
    return (memory + inputs) * num_envs / measured_envs


def _nbytes(value: Any) -> int:
    """The memory of all tensors inside of ``value``."""
    if isinstance(value, torch.Tensor):
        return value.nbytes
    if isinstance(value, dict):
        return sum(_nbytes(one) for one in value.values())
    if isinstance(value, (list, tuple)):
        return sum(_nbytes(one) for one in value)
    return sum(_nbytes(one) for one in vars(value).values()) if dataclasses.is_dataclass(value) else 0


def timed(call: Callable[[], Any], repeat: int = 1) -> float:
    """The shortest CPU time of a call, in seconds."""
    best = float("inf")
    for _ in range(repeat):
        start = time.process_time()
        call()
        best = min(best, time.process_time() - start)
    return best


def _train(network: Any, batch: SequenceBatch) -> None:
    predictions = network.predict(batch)
    (predictions.value.sum() + predictions.reward.sum() + predictions.state_error.sum()).backward()


def _batch(space: gym.spaces.Box, count: int, num_actions: int) -> SequenceBatch:
    steps, states = torch.ones(count, STEPS), torch.ones(count, STEPS + 1)
    frames = np.stack([[space.sample() for _ in range(STEPS + 1)] for _ in range(count)])
    return SequenceBatch(
        observation=torch.from_numpy(frames),
        last_action=torch.zeros(count, dtype=torch.int64),
        action=torch.zeros(count, STEPS, dtype=torch.int64),
        reward=steps,
        termination=steps,
        value_target=states,
        policy_target=torch.full((count, STEPS + 1, num_actions), 1 / num_actions),
        state_mask=steps,
        reward_mask=steps,
        termination_mask=steps,
        value_mask=states,
        policy_mask=states,
        weight=torch.ones(count),
        index=np.zeros(count, np.int64),
    )


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("costs")
    whole = commands.add_parser("projection")
    whole.add_argument("--num-envs", type=int, default=8, help="environments (default 8)")
    whole.add_argument("--stages", type=int, default=2, help="stages of an unroll (default 2)")
    whole.add_argument("--batch-size", type=int, default=32, help="sequences of a model's batch (default 32)")
    models = commands.add_parser("models")
    models.add_argument("--game", default="breakout")
    models.add_argument("--model", choices=tuple(MODELS), default="board")
    models.add_argument("--collected", type=int, default=3_200, help="transitions of random play (default 3,200)")
    models.add_argument("--trained", type=int, default=16_000, help="transitions trained on (default 16,000)")
    models.add_argument("--sticky", type=float, default=0.1, help="sticky action probability (default 0.1)")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.command == "costs":
        costs()
    elif given.command == "projection":
        project(given.num_envs, given.stages, given.batch_size)
    else:
        compare_models(given.game, given.model, given.collected, given.trained, given.sticky)


if __name__ == "__main__":
    main()
