"""The whole analysis of a run: plays the stages, evaluates MCTS by its budget, and collects the findings."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from thinker.envs.spec import Split
from thinker.errors import UserError
from thinker.experiments.behaviour import findings
from thinker.experiments.behaviour.findings import Finding
from thinker.experiments.behaviour.rivals import RandomRival, UCBRival
from thinker.experiments.behaviour.stages import Rival, check_plans, collect_stages, depth_limit
from thinker.planners import MCTSSpec, PlannerSpec
from thinker.runs.evaluate import Evaluation, evaluate_run
from thinker.runs.run import Run, Who

StartTask = Callable[[str, int, str], Callable[[int], object]]
"""(what is done next, how much of it there is, its unit) -> a function to call with how much is done."""


@dataclass(frozen=True)
class Analysis:
    """What an agent learned."""

    settings: dict[str, Any]  # of the run and of the analysis
    findings: tuple[Finding, ...]  # one for each figure


def depth_limits(run: Run) -> dict[int, int | None]:
    """The depth limits L at which expansion lengths are measured -> ``max_depth``: that of the run, half and double.

    None is larger than K - 1. Only the run's own if the agent's input has a place for every action of a rollout, and so
    depends on L.
    """
    stage_length, own = run.search.stage_length, _own_limit(run)
    limits: dict[int, int | None] = {}
    if "action_sequence" not in run.search.extra:
        limits = {depth_limit(limit, stage_length): limit for limit in (max(1, own // 2), 2 * own)}
    return dict(sorted({**limits, own: run.search.max_depth}.items()))


def _own_limit(run: Run) -> int:
    return depth_limit(run.search.max_depth, run.search.stage_length)


def number_of_tasks(run: Run, budgets: Sequence[int]) -> int:
    """How often `analyse` starts a task."""
    return len(depth_limits(run)) + 2 + len(set(budgets))


def analyse(
    run: Run,
    *,
    name: str,
    stages: int,
    episodes: int,
    budgets: Sequence[int],
    split: Split,
    seed: int,
    start_task: StartTask,
) -> Analysis:
    """Analyse the behaviour of the agent of ``run``, which is not changed. The same arguments give the same result.

    Args:
        run: a run whose agent plans.
        name: of the run, for the report.
        stages: stages of real play to look at, for each depth limit.
        episodes: held-out episodes for the evaluations; the stages are of these, too.
        budgets: simulations of MCTS.
        split: the set of held-out episodes.
        seed: of the actors and searches.
        start_task: called when a new part of the work begins, to show progress.
    """
    check_plans(run)
    if not budgets or min(budgets) < 1:
        raise UserError(f"budgets are {list(budgets)}; give at least one, and none below 1")
    own, by_limit = _own_limit(run), {}
    for limit, max_depth in depth_limits(run).items():
        rivals: dict[str, Rival] = {}
        if limit == own:
            rivals = {findings.UCB: UCBRival(seed), findings.RANDOM: RandomRival(seed)}
        by_limit[limit] = collect_stages(
            run,
            stages=stages,
            episodes=episodes,
            split=split,
            seed=seed,
            search=dataclasses.replace(run.search, max_depth=max_depth),
            rivals=rivals,
            on_stages=start_task(f"stages, L = {limit}", stages, "stages"),
        )

    def evaluated(who: Who | PlannerSpec, described: str) -> Evaluation:
        done = start_task(described, episodes, "episodes")
        return evaluate_run(run, who, split=split, episodes=episodes, seed=seed, on_episodes=done)

    agent = evaluated("agent", f"agent, K = {run.search.stage_length}")
    base_policy = evaluated("base-policy", "base policy")
    mcts = {
        budget: evaluated(MCTSSpec(simulations=budget), f"MCTS, {budget} simulations")
        for budget in sorted(set(budgets))
    }
    played = by_limit[own]
    return Analysis(
        {
            "run": name,
            "environment": run.settings.environment.name,
            "trained_for_real_steps": run.real_steps,
            "stage_length_K": run.search.stage_length,
            "max_depth_L": run.search.max_depth,
            "discount": run.search.discount,
            "stages": stages,
            "episodes": episodes,
            "split": split,
            "budgets_of_MCTS": sorted(set(budgets)),
            "seed": seed,
        },
        (
            findings.reset_td_error(played),
            findings.reset_depth(played),
            findings.expansion_length(by_limit, own),
            findings.max_td_error(played),
            findings.max_td_error_tail(played),
            findings.real_actions(played),
            findings.mcts_curve(agent, base_policy, mcts),
        ),
    )
