"""Evaluation of an actor on held-out episodes, which are identical for every stage length (section 5.1)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from thinker.augmented import ThinkerEnv
from thinker.envs.spec import Split
from thinker.errors import UserError
from thinker.interfaces import Actor
from thinker.planners import PlannerActor, PlannerSpec
from thinker.runs.run import Run, Who

_MOST_NODES = 65_536
"""In the search trees of all environments together: planners with many simulations play in fewer environments."""


@dataclass(frozen=True)
class Evaluation:
    """The results of the held-out episodes, in the order of the episodes."""

    stage_length: int
    returns: np.ndarray  # [episodes] float64
    lengths: np.ndarray  # [episodes] int64, real steps
    success: np.ndarray | None  # [episodes] bool; None if the environment does not report it
    simulations: int | None = None  # of a planner, for each real step; None for other actors
    scores: dict[str, float] = field(default_factory=dict)  # further results that the environment knows, by name

    def success_interval(self) -> tuple[float, float] | None:
        """The 95 % Wilson interval of the success rate."""
        if self.success is None:
            return None
        count, rate, z = len(self.success), float(self.success.mean()), 1.959964
        centre = (rate + z * z / (2 * count)) / (1 + z * z / count)
        half = z / (1 + z * z / count) * np.sqrt(rate * (1 - rate) / count + z * z / (4 * count * count))
        return float(centre - half), float(centre + half)

    def metrics(self) -> dict[str, float]:
        """Means over the episodes, under the names of metrics.jsonl."""
        solved = {} if self.success is None else {"eval/solved": float(self.success.mean())}
        means = {"eval/return": float(self.returns.mean()), "eval/length": float(self.lengths.mean())}
        return {**solved, **means, **{f"eval/{name}": score for name, score in self.scores.items()}}


def evaluate(
    env: ThinkerEnv, actor: Actor, episodes: int, *, on_episodes: Callable[[int], object] | None = None
) -> Evaluation:
    """Reset ``env`` and let ``actor`` play ``episodes`` episodes.

    Environment e plays the episodes e, e + E, e + 2 E, ..., so that short episodes are not over-represented.
    ``on_episodes`` is called after every step with the number of episodes that have ended.
    """
    returns, lengths = np.zeros(episodes), np.zeros(episodes, np.int64)
    success, reports_success = np.zeros(episodes, bool), False
    playing = np.arange(env.num_envs)  # the episode that each environment is playing
    left = episodes
    actor.begin(*env.reset())
    while left:
        decision = actor.act()
        observation, reward, terminated, truncated, info = env.step(decision.actions)
        actor.observe(decision, observation, reward, terminated, truncated, info)
        for e in np.flatnonzero(info.get("_episode", False)):  # of games: an agent's episode may end before them
            index, playing[e] = playing[e], playing[e] + env.num_envs
            if index < episodes:
                left -= 1
                episode = info["episode"]
                returns[index], lengths[index] = episode["r"][e], episode["l"][e]
                if "success" in episode:
                    reports_success = True
                    success[index] = episode["success"][e]
        if on_episodes is not None:
            on_episodes(episodes - left)
    return Evaluation(env.stage_length, returns, lengths, success if reports_success else None)


def evaluate_run(
    run: Run,
    who: Who | PlannerSpec = "agent",
    *,
    split: Split = "validation",
    stage_length: int | None = None,
    episodes: int | None = None,
    greedy: bool = False,
    seed: int | None = None,
    on_episodes: Callable[[int], object] | None = None,
) -> Evaluation:
    """Evaluate a run on held-out episodes of its environment. The run itself is not changed.

    Args:
        run: the run to evaluate.
        who: the actor: the run's agent, the base policy of its model or random play, which take no imaginary steps, or
            a planner that searches its model.
        split: the held-out episodes: choose settings on "validation", report results on "test".
        stage_length: K; default: as in training. Ignored for the base policy and planners.
        episodes: number of episodes; default: as in the settings.
        greedy: take the most likely actions instead of sampling.
        seed: of the actor; default: as in the settings.
        on_episodes: called after every step with the number of episodes that have ended.
    """
    settings = run.settings.evaluation
    count = settings.episodes if episodes is None else episodes
    if count < 1:
        raise UserError(f"episodes is {count}; it must be at least 1")
    chosen_seed = settings.seed if seed is None else seed
    searching = run.settings.agent if who == "agent" else who
    most_envs = max(1, _MOST_NODES // getattr(searching, "simulations", 1))
    envs = run.settings.environment.held_out(split, min(settings.num_envs, count, most_envs), count)
    try:
        env = run.wrap(envs, stage_length=stage_length if who == "agent" else 1, seed=chosen_seed)
        actor = run.actor(env, who, seed=chosen_seed, greedy=greedy)
        result = evaluate(env, actor, count, on_episodes=on_episodes)
    finally:
        envs.close()
    if isinstance(actor, PlannerActor) and actor.result is not None:
        result = dataclasses.replace(result, simulations=actor.result.simulations)
    return dataclasses.replace(result, scores=run.settings.environment.scores(result.returns))
