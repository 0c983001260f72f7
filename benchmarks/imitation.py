"""How fast the networks of raw agents learn from perfect targets: they imitate a solver.

    python -m benchmarks.imitation                                        # raw, VIN, ATreeC, DRC and ResNet
    python -m benchmarks.imitation sokoban-drc --learning-rate 3e-4 --updates 480

If a network learns this but its agent learns nothing, look at the learner; if it does not learn this either, look at
the network. Boards come from random play on the training levels of the preset, new ones for every update. The target
is the uniform distribution over the actions that start a shortest solution; boards without a solution are left out.
Accuracy is the share of boards on which the most likely action is one of them, averaged over the last updates of each
row.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from thinker.agents import LearnedAgentSpec
from thinker.agents.network import AgentInput, AgentNetwork
from thinker.envs.sokoban import engine
from thinker.envs.sokoban.solver import Solutions
from thinker.envs.sokoban.spec import SokobanSpec
from thinker.envs.sokoban.vector_env import SokobanVectorEnv
from thinker.errors import UserError
from thinker.interfaces import NO_ACTION
from thinker.runs import machine
from thinker.runs.build import build_run
from thinker.runs.presets import preset

PRESETS = ("sokoban-raw", "sokoban-vin", "sokoban-atreec", "sokoban-drc", "sokoban-resnet")
STEPS_BETWEEN = 4
"""Random actions between two batches of boards."""
ROWS = 4
"""Rows of the table for each preset."""


def batches(spec: SokobanSpec, size: int, discount: float, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Observations [N, ...] of random play and their optimal actions, bool [N, A]; without boards that have none."""
    envs = SokobanVectorEnv(
        size, size=spec.size, boxes=spec.boxes, reverse_moves=spec.reverse_moves, max_steps=spec.max_steps
    )
    generator, solutions = np.random.default_rng(seed), Solutions(discount)
    observation, _ = envs.reset(seed=seed)
    while True:
        for _ in range(STEPS_BETWEEN):
            observation, *_ = envs.step(generator.integers(engine.NUM_ACTIONS, size=size))
        optimal = solutions.optimal_actions(envs.snapshot()["boards"])
        solvable = optimal.any(1)
        yield observation[solvable], optimal[solvable]


def log_policy(network: AgentNetwork, observation: np.ndarray) -> Tensor:
    """Log-probabilities [N, A] in first states of episodes."""
    count = len(observation)
    yes = torch.ones(1, count, dtype=torch.bool)
    given = AgentInput(
        {"real_state": torch.from_numpy(observation)[None]},
        episode_start=yes,
        next_is_real=yes,
        last_action=torch.full((1, count, 3), NO_ACTION),
        last_reward=torch.zeros(1, count, len(network.reward_names)),
    )
    output, _ = network(given, network.initial_memory(count))
    return output.logits[0].log_softmax(-1)


def imitate(name: str, learning_rate: float | None, updates: int, size: int, seed: int) -> None:
    """Train the network of a preset and print rows of the table."""
    settings = preset(name)
    run = build_run(settings)
    network = getattr(run.learner, "network", None)
    if not isinstance(settings.environment, SokobanSpec) or network is None or network.observes != ("real_state",):
        raise UserError(f"{name} has no agent that sees nothing but boards of Sokoban; choose one like {PRESETS[0]}")
    agent = settings.agent
    assert isinstance(agent, LearnedAgentSpec)
    rate = learning_rate or agent.learning_rate
    optimiser = torch.optim.Adam(network.parameters(), rate)
    losses, hits = [], []
    began = time.process_time()
    boards = batches(settings.environment, size, settings.search.discount, seed)
    for update in range(1, updates + 1):
        observation, optimal = next(boards)
        target = torch.from_numpy(optimal / optimal.sum(1, keepdims=True)).float()
        predicted = log_policy(network, observation)
        loss = -(target * predicted).sum(1).mean()
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), agent.gradient_norm_clip)
        optimiser.step()
        losses.append(loss.item())
        hits.append(float(optimal[np.arange(len(optimal)), predicted.argmax(1).numpy()].mean()))
        if update % (updates // ROWS) == 0:
            last = slice(-(updates // ROWS) // 2, None)
            seconds = time.process_time() - began
            print(
                f"| {name} | {rate:g} | {update} | {np.mean(losses[last]):.2f} | {np.mean(hits[last]):.2f} "
                f"| {seconds:.0f} |",
                flush=True,
            )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("presets", nargs="*", default=PRESETS)
    parser.add_argument("--learning-rate", type=float, help="default: the preset's")
    parser.add_argument("--updates", type=int, default=240)
    parser.add_argument("--batch-size", type=int, default=320, help="boards; default: as many as the presets' batches")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    if options.updates < ROWS:
        parser.error(f"--updates {options.updates}: at least {ROWS}")
    machine.prepare(1)
    print("| preset | learning rate | updates | loss | accuracy | core-seconds |\n|---|---|---|---|---|---|")
    for name in options.presets:
        imitate(name, options.learning_rate, options.updates, options.batch_size, options.seed)


if __name__ == "__main__":
    main()
