"""The planners on the command line: their names and budgets, for `thinker eval` and `thinker watch`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from thinker.planners import PlannerSpec
    from thinker.runs.run import Run

PlannerName = Literal["mcts", "gumbel", "exhaustive", "random"]
"""Monte Carlo tree search (pUCT), the same with Gumbel's choice of actions, exhaustive and random search."""
DEFAULT_SIMULATIONS = 50
DEFAULT_DEPTH = 3


def check_budgets(names: Sequence[PlannerName], simulations: Sequence[int], depths: Sequence[int]) -> None:
    """Raise an error for budgets that are too small, or that no planner of ``names`` takes."""
    from thinker.errors import UserError

    for option, values in (("--simulations", simulations), ("--depth", depths)):
        for value in values:
            if value < 1:
                raise UserError(f"{option} {value}: it must be at least 1")
    if simulations and not set(names) - {"exhaustive"}:
        raise UserError(
            "--simulations is the budget of the planners mcts, gumbel and random, and none of them is chosen; add "
            "--planner mcts. Exhaustive search has a --depth instead"
        )
    if depths and "exhaustive" not in names:
        raise UserError("--depth is that of exhaustive search, which is not chosen; add --planner exhaustive")


def planner_specs(
    run: Run, names: Sequence[PlannerName], simulations: Sequence[int], depths: Sequence[int]
) -> list[tuple[PlannerName, PlannerSpec]]:
    """The planners with each of their budgets; random search returns to the root at the depth limit of ``run``."""
    from thinker.errors import UserError
    from thinker.planners import ExhaustiveSpec, GumbelMCTSSpec, MCTSSpec, RandomSearchSpec
    from thinker.world_model.spec import NoModelSpec

    check_budgets(names, simulations, depths)
    if names and isinstance(run.settings.model, NoModelSpec):
        raise UserError(
            f"--planner {names[0]}: this run has no model, so a planner has nothing to search in; choose a run that "
            f"was trained with a model"
        )
    specs: list[tuple[PlannerName, PlannerSpec]] = []
    for name in names:
        if name == "exhaustive":
            specs += [(name, ExhaustiveSpec(depth=depth)) for depth in depths or (DEFAULT_DEPTH,)]
            continue
        for count in simulations or (DEFAULT_SIMULATIONS,):
            if name == "mcts":
                specs.append((name, MCTSSpec(simulations=count)))
            elif name == "gumbel":
                specs.append((name, GumbelMCTSSpec(simulations=count)))
            else:
                specs.append((name, RandomSearchSpec(simulations=count, max_depth=run.settings.search.max_depth)))
    return specs
