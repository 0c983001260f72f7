"""Tests of an agent on levels it has never seen, identical for every thinking budget (the paper's section 5.1)."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from gymnasium.vector import VectorEnv

from thinker.agents import Agent
from thinker.augmented import ThinkerEnv
from thinker.envs.sokoban import LevelSet, generate_levels
from thinker.runs.loop import Run, make_environments
from thinker.runs.settings import SOKOBAN, RunSettings

Policy = Literal["agent", "base"]


@dataclass(frozen=True)
class Evaluation:
    """What happened on each held-out level, in the levels' order."""

    policy: Policy
    stage_length: int
    solved: np.ndarray  # [levels] bool; all False where the environment does not tell
    returns: np.ndarray  # [levels] float64
    lengths: np.ndarray  # [levels] int64, real steps

    @property
    def solve_rate(self) -> float:
        return float(self.solved.mean())

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % Wilson interval of the solve rate."""
        count, rate, z = len(self.solved), self.solve_rate, 1.959964
        centre = (rate + z * z / (2 * count)) / (1 + z * z / count)
        half = z / (1 + z * z / count) * np.sqrt(rate * (1 - rate) / count + z * z / (4 * count * count))
        return float(centre - half), float(centre + half)

    def metrics(self) -> dict[str, float]:
        return {
            "eval/solved": self.solve_rate,
            "eval/return": float(self.returns.mean()),
            "eval/length": float(self.lengths.mean()),
        }


def held_out_levels(settings: RunSettings, count: int) -> LevelSet:
    """The first ``count`` levels of the test set of this run's kind of levels."""
    source = settings.evaluation.source
    if source is not None:
        return LevelSet(LevelSet.load(source).boards[:count])
    environment = settings.environment
    seed, moves = settings.evaluation.seed, environment.reverse_moves
    return generate_levels(count, environment.size, environment.boxes, seed, moves)


def environments_for_levels(settings: RunSettings, num_envs: int, levels: LevelSet) -> VectorEnv:
    """Environments that play ``levels`` in their order, with as many real steps for each as tests have."""
    environment = dataclasses.replace(settings.environment, levels="given")  # size and boxes come from the levels
    settings = dataclasses.replace(settings, environment=environment)
    max_steps = settings.evaluation.max_steps or environment.max_steps
    return make_environments(settings, num_envs, levels=levels, order="sequential", max_steps=max_steps)


def evaluate(
    run: Run,
    *,
    policy: Policy = "agent",
    stage_length: int | None = None,
    levels: int | None = None,
    greedy: bool = False,
) -> Evaluation:
    """Play each held-out level once. Nothing of the run is changed: not its environments, memory or generators."""
    settings = run.settings
    count = settings.evaluation.levels if levels is None else levels
    stage_length = 1 if policy == "base" else stage_length or settings.search.stage_length
    num_envs = min(settings.evaluation.num_envs, count)
    if settings.environment.id == SOKOBAN:
        envs = environments_for_levels(settings, num_envs, held_out_levels(settings, count))
    else:
        count = num_envs
        envs = make_environments(settings, num_envs)
    env = run.wrap(envs, stage_length, settings.evaluation.seed)
    play = _BasePolicy(env, settings.evaluation.seed) if policy == "base" else None
    agent = Agent(run.network, env, seed=settings.evaluation.seed, greedy=greedy) if play is None else None

    solved, returns, lengths = np.zeros(count, bool), np.zeros(count), np.zeros(count, np.int64)
    done = np.zeros(count, bool)
    observation, info = env.reset()
    if agent is not None:
        agent.begin(observation, info)
    level = _levels_of(info, num_envs)
    while not done.all():
        if agent is not None:
            decision = agent.act()
            step = env.step(decision.actions)
            agent.observe(decision, *step)
        else:
            assert play is not None
            step = env.step(play.act(observation))
        observation, _, terminated, truncated, info = step
        for e in np.flatnonzero(terminated | truncated):
            index = level[e]
            if not done[index]:
                done[index] = True
                returns[index], lengths[index] = info["episode"]["r"][e], info["episode"]["l"][e]
                solved[index] = bool(info["solved"][e]) if "solved" in info else False
        if info["step_kind"][0] == 0:
            level = _levels_of(info, num_envs)
    env.close()
    return Evaluation(policy, stage_length, solved, returns, lengths)


class _BasePolicy:
    """Acts by the base policy alone: no search."""

    def __init__(self, env: ThinkerEnv, seed: int) -> None:
        if "tree" not in env.observe:
            raise ValueError("the base policy is read from the tree representation; add 'tree' to search.observe")
        self._decode = env.decode
        self._generator = torch.Generator().manual_seed(seed)

    def act(self, observation: dict[str, torch.Tensor]) -> torch.Tensor:
        policy = self._decode(observation["tree"])["root_policy"]
        action = torch.multinomial(policy, 1, generator=self._generator)
        return torch.cat((action, torch.zeros_like(action)), 1)


def _levels_of(info: dict, num_envs: int) -> np.ndarray:
    return np.array(info["level"]) if "level" in info else np.arange(num_envs)
