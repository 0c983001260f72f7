"""How well a learned world model predicts Sokoban, against the transitions it has seen, on levels it has not.

    python -m benchmarks.model_quality --size 7 --boxes 1 --model dual --state-loss feature --transitions 200000

Random play on generated levels trains the model; at each line it is asked to imagine 1 to 5 steps of random play on
held-out levels. A board counts as right only if every square is. The base policy and values learn along, as always. The
settings are `board_settings`, for the board model those of its presets during random play.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch

import thinker.envs  # noqa: F401 - registers the environments
from thinker.augmented import ThinkerEnv
from thinker.interfaces import NO_ACTION, WorldModel
from thinker.runs.presets import BOARD_TRAINING
from thinker.world_model import BoardModelSpec, DualModelSpec, ModelContext, SingleModelSpec
from thinker.world_model.trainer import board_settings

STEPS = 5
HELD_OUT_SEED = 1_000_000_007


def held_out_play(env_options: dict[str, Any], num_envs: int = 256, windows: int = 40) -> list[dict[str, np.ndarray]]:
    """Random play on levels of seeds far from the training ones, in windows of STEPS steps."""
    envs = gym.make_vec("thinker/Sokoban-v0", num_envs, **env_options)
    random = np.random.default_rng(HELD_OUT_SEED)
    observation, _ = envs.reset(seed=HELD_OUT_SEED)
    played = []
    for _ in range(windows):
        window: dict[str, list[np.ndarray]] = {key: [] for key in ("action", "reward", "ended", "alive", "intact")}
        window["state"] = [observation.copy()]
        intact = np.ones(num_envs, bool)
        for _ in range(STEPS):
            actions = random.integers(0, 5, num_envs)
            observation, reward, terminated, truncated, _ = envs.step(actions)
            window["action"].append(actions)
            window["reward"].append(np.where(intact, reward, 0.0))
            window["ended"].append(intact & terminated)
            window["alive"].append(intact.copy())  # the episode had not ended before this step
            intact = intact & ~terminated & ~truncated
            window["intact"].append(intact.copy())  # nor on it, so that the next state belongs to the episode
            window["state"].append(observation.copy())
        played.append({key: np.stack(values) for key, values in window.items()})
    return played


def measure(model: WorldModel, played: list[dict[str, np.ndarray]]) -> dict[str, float]:
    """Exact boards at 1 and at STEPS steps, reward error, and how the model tells the solving steps from the others."""
    right = np.zeros(STEPS)
    boards = np.zeros(STEPS)
    reward_error, alive_steps, missed, solving, false_alarms, others = 0.0, 0, 0, 0, 0, 0
    for window in played:
        start = torch.from_numpy(window["state"][0])
        output = model.root(start, torch.full((len(start),), NO_ACTION))
        for step in range(STEPS):
            output = model.unroll(output.hidden, torch.from_numpy(window["action"][step]))
            if output.state is None:
                raise ValueError("only models that predict states can be measured; choose another --state-loss")
            intact, alive, ended = window["intact"][step], window["alive"][step], window["ended"][step]
            same = (output.state.numpy() == window["state"][step + 1]).all((1, 2, 3))
            right[step] += same[intact].sum()
            boards[step] += intact.sum()
            reward_error += np.abs(output.reward.numpy() - window["reward"][step])[alive].sum()
            alive_steps += int(alive.sum())
            predicted = output.termination.numpy() > 0.5
            missed += int((~predicted & ended).sum())
            solving += int(ended.sum())
            false_alarms += int((predicted & alive & ~ended).sum())
            others += int((alive & ~ended).sum())
    return {
        "exact_1": float(right[0] / boards[0]),
        f"exact_{STEPS}": float(right[-1] / boards[-1]),
        "reward_error": reward_error / alive_steps,
        "missed_ends": missed / max(solving, 1),
        "false_ends": false_alarms / others,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=7, help="board size (default 7)")
    parser.add_argument("--boxes", type=int, default=1, help="boxes (default 1)")
    parser.add_argument(
        "--reverse-moves",
        type=int,
        nargs=2,
        default=(1, 2),
        help="difficulty (default 1 2: random play solves a fifth)",
    )
    parser.add_argument("--model", choices=("dual", "single", "board"), default="dual")
    parser.add_argument("--state-loss", help="default: that of the model's spec")
    parser.add_argument("--transitions", type=int, default=200_000, help="real transitions (default 200,000)")
    parser.add_argument("--every", type=int, default=25_000, help="transitions between two lines")
    parser.add_argument("--envs", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, help="also append the lines to this file, as JSON")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)

    kinds: dict[str, type[DualModelSpec] | type[SingleModelSpec] | type[BoardModelSpec]] = {
        "dual": DualModelSpec,
        "single": SingleModelSpec,
        "board": BoardModelSpec,
    }
    loss = {} if options.state_loss is None else {"state_loss": options.state_loss}
    every_batch = dataclasses.replace(BOARD_TRAINING, state_reward_interval=1)
    spec = kinds[options.model](training=every_batch if options.model == "board" else board_settings(), **loss)
    env_options = {
        "size": options.size,
        "boxes": options.boxes,
        "max_steps": 60,
        "reverse_moves": tuple(options.reverse_moves),
    }
    envs = gym.make_vec("thinker/Sokoban-v0", options.envs, vectorization_mode="vector_entry_point", **env_options)
    built = spec.build(
        ModelContext(
            envs.single_observation_space,
            envs.single_action_space,
            num_envs=options.envs,
            discount=0.97,
            total_transitions=options.transitions,
            seed=options.seed,
            device=torch.device("cpu"),
            board=envs.metadata["board"],
        )
    )
    model, trainer = built.for_envs(envs, predict_states=True), built.trainer
    env = ThinkerEnv(envs, model, stage_length=1, discount=0.97, sink=trainer, seed=options.seed)
    played = held_out_play(env_options)
    variant = f"{options.model}-{spec.state_loss}"
    print(f"{variant}, {options.size}x{options.size}, {options.boxes} box(es), seed {options.seed}")
    ends = sum(int(window["ended"].sum()) for window in played)
    print(f"held out: {len(played)} x {played[0]['state'].shape[1]} windows of {STEPS} steps, {ends} solving steps")
    print("transitions  exact@1  exact@5  reward error  missed ends  false ends  minutes")
    random = np.random.default_rng(options.seed)
    env.reset()
    start = time.perf_counter()
    next_line = options.every
    while trainer.collected_transitions < options.transitions:
        env.step(np.stack([random.integers(0, 5, options.envs), np.zeros(options.envs, int)], 1))
        if trainer.collected_transitions >= next_line:
            next_line += options.every
            line = measure(model, played)
            minutes = (time.perf_counter() - start) / 60
            seen = trainer.collected_transitions
            print(
                f"{seen:>11,}  {line['exact_1']:>7.2%}  {line['exact_5']:>7.2%}  {line['reward_error']:>12.5f}  "
                f"{line['missed_ends']:>11.2%}  {line['false_ends']:>10.3%}  {minutes:>7.1f}",
                flush=True,
            )
            if options.out:
                with options.out.open("a") as file:
                    record: dict[str, Any] = {**line, "transitions": seen, "minutes": minutes}
                    record |= {"variant": variant, "size": options.size, "boxes": options.boxes}
                    file.write(json.dumps(record | {"seed": options.seed}) + "\n")


if __name__ == "__main__":
    main()
