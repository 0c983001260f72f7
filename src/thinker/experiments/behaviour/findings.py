"""What appendix F says about trained agents: each claim with the numbers of a run and a sentence made from them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from thinker.experiments.behaviour import statistics
from thinker.experiments.behaviour.stages import Stages
from thinker.runs.evaluate import Evaluation

Verdict = Literal["as in the paper", "unlike the paper", "no clear difference"]
AGENT, UCB, RANDOM = "agent", "UCB", "random search"
TEMPERATURES = (0.25, 1.0)
"""At which MuZero would choose real actions from the agent's visits."""
TAIL = 0.99
"""Quantile of the maximum TD errors of UCB that begins the tail."""
CLEAR = 2.0
"""Standard errors from which on a difference is called one."""


@dataclass(frozen=True)
class Finding:
    """One figure: what the paper saw, what this run shows, and all numbers that are drawn."""

    name: str  # of the file
    title: str
    paper: str
    here: str
    lead: float  # what the verdict looks at; positive if it is as in the paper, nan if it could not be measured
    standard_error: float  # of the lead
    numbers: dict[str, Any]  # for JSON

    @property
    def verdict(self) -> Verdict:
        """Whether the lead differs from 0 by more than chance."""
        if not abs(self.lead) > CLEAR * self.standard_error:
            return "no clear difference"
        return "as in the paper" if self.lead > 0 else "unlike the paper"


def reset_td_error(stages: Stages) -> Finding:
    """The TD error of the rollout where the agent resets and where it does not."""
    error, reset = stages.td_error[stages.free], stages.reset[stages.free]
    difference, uncertainty = _estimate(stages, _reset_difference)
    groups, shares = statistics.share_by_quantile(error, reset)
    edges = statistics.bins([error[reset], error[~reset]])
    means = [_mean(error[reset]), _mean(error[~reset])]
    lead = _estimated(difference, uncertainty, "+.2f")
    here = (
        f"The TD error is {means[0]:.2f} on average where the agent resets and {means[1]:.2f} where it does not "
        f"(difference {lead}), and the agent resets after {_share(shares[0])} of the worst twentieth of its steps, "
        f"{_share(shares[-1])} of the best and {_share(_mean(reset))} of all."
        if math.isfinite(difference)
        else f"Nothing to compare: the agent resets on {int(reset.sum())} of the {len(error)} steps where it may."
    )
    return Finding(
        "reset-td-error",
        "TD error of the rollout on resetting and not resetting",
        "The TD error is lower where agents reset than where they do not, and after the poorest rollouts a reset is "
        "likely.",
        here,
        -difference,
        uncertainty,
        {
            "edges": edges,
            "density": {
                "reset": statistics.density(error[reset], edges),
                "no reset": statistics.density(error[~reset], edges),
            },
            "steps": {"reset": int(reset.sum()), "no reset": int((~reset).sum())},
            "mean": {"reset": means[0], "no reset": means[1]},
            "quantiles": {"reset": _quantiles(error[reset]), "no reset": _quantiles(error[~reset])},
            "difference": difference,
            "standard_error": uncertainty,
            "reset_share": {"td_error": groups, "share": shares, "all": _mean(reset)},
        },
    )


def reset_depth(stages: Stages) -> Finding:
    """How often the agent resets, by depth, and after a step to a new node."""
    limit = stages.max_depth
    free = stages.free
    at = [stages.reset[free & (stages.depth == depth)] for depth in range(1, limit)]
    leaf, uncertainty = _estimate(stages, _reset_at_new_nodes)
    ends = stages.forced | (free & stages.reset)
    depths, forced = stages.depth[ends], _mean(stages.forced[ends])
    by_depth = ", ".join(f"{_share(_mean(reset))} at depth {depth}" for depth, reset in enumerate(at, 1) if len(reset))
    here = (
        f"After a step to a new node, where MCTS would always reset, the agent resets "
        f"{_estimated(leaf, uncertainty, '.0%')} of the time; by depth it resets after {by_depth}, and "
        f"{_share(forced)} of its rollouts go on to the limit of {limit}."
        if math.isfinite(leaf)
        else f"There is nothing to choose at new nodes: the depth limit is {limit}, and a stage has "
        f"{stages.depth.shape[1]} imaginary steps."
    )
    return Finding(
        "reset-depth",
        "Share of resets by depth",
        "Agents do not reset at every new node, as MCTS does: they keep to a plan unless it turns out poor or reaches "
        "the depth limit.",
        here,
        0.5 - leaf,
        uncertainty,
        {
            "max_depth": limit,
            "depth": list(range(1, limit)),
            "steps": [len(reset) for reset in at],
            "share": [_mean(reset) for reset in at],
            "share_at_new_nodes": leaf,
            "standard_error": uncertainty,
            "rollout_depth": {"mean": _mean(depths), "share_at_limit": forced},
            "rollouts_by_depth": np.bincount(depths, minlength=limit + 1)[1 : limit + 1],
        },
    )


def expansion_length(by_limit: Mapping[int, Stages], own: int) -> Finding:
    """The steps beyond the last expanded node, at different depth limits L; ``own`` is that of the run."""
    lengths = {limit: statistics.expansion_lengths(stages) for limit, stages in by_limit.items()}
    longest = max((int(found.max(initial=1)) for found, _ in lengths.values()), default=1)
    mean, uncertainty = _estimate(by_limit[own], lambda stages: _mean(statistics.expansion_lengths(stages)[0]))
    others = [f"{_mean(found):.2f} at L = {limit}" for limit, (found, _) in lengths.items() if limit != own]
    here = (
        f"At its depth limit of {own} the agent takes {_estimated(mean, uncertainty)} steps beyond the last expanded "
        f"node on average, and more than one in {_share(_mean(lengths[own][0] > 1))} of its rollouts"
        + (f"; with another limit than in training it takes {', '.join(others)}." if others else ".")
    )
    return Finding(
        "expansion-length",
        "Expansion length at different depth limits L",
        "Expansion lengths are generally longer than the one step of MCTS, and agents trained with L = 10 search much "
        "deeper than those with L = 5.",
        here,
        mean - 1,
        uncertainty,
        {
            "max_depth": own,
            "length": list(range(longest + 1)),
            "share": {
                str(limit): np.bincount(found, minlength=longest + 1) / max(1, len(found))
                for limit, (found, _) in lengths.items()
            },
            "mean": {str(limit): _mean(found) for limit, (found, _) in lengths.items()},
            "standard_error": uncertainty,
            "rollouts": {str(limit): len(found) for limit, (found, _) in lengths.items()},
            "cut_off_by_the_end_of_a_stage": {str(limit): cut for limit, (_, cut) in lengths.items()},
        },
    )


def max_td_error(stages: Stages) -> Finding:
    """The maximum TD error collected in a stage by the agent and by its rivals from the same roots."""
    found = _searches(stages)
    difference, uncertainty = _estimate(stages, _advantage)
    edges = statistics.bins(list(found.values()))
    means = ", ".join(f"{value.mean():.3f} by {_who(name)}" for name, value in found.items())
    here = (
        f"The maximum TD error of a stage is {means} on average; the agent's minus UCB's is "
        f"{_estimated(difference, uncertainty, '+.3f')}, and the agent's is higher in "
        f"{_share(_mean(found[AGENT] > found[UCB]))} of the stages, lower in "
        f"{_share(_mean(found[AGENT] < found[UCB]))}."
    )
    return Finding(
        "max-td-error",
        "Maximum TD error collected in a stage",
        "With the same number of imaginary steps in the same model, the agent's distribution reaches slightly further "
        "to the right than those of UCB and random search.",
        here,
        difference,
        uncertainty,
        {
            "edges": edges,
            "density": {name: statistics.density(value, edges) for name, value in found.items()},
            "mean": {name: float(value.mean()) for name, value in found.items()},
            "quantiles": {name: _quantiles(value) for name, value in found.items()},
            "agent_minus_ucb": difference,
            "standard_error": uncertainty,
            "stages_where_the_agent_is": {
                "higher": _mean(found[AGENT] > found[UCB]),
                "equal": _mean(found[AGENT] == found[UCB]),
                "lower": _mean(found[AGENT] < found[UCB]),
            },
        },
    )


def max_td_error_tail(stages: Stages) -> Finding:
    """The same on a log scale, for the tail on the right."""
    found = _searches(stages)
    edges = statistics.bins(list(found.values()), count=50, left_out=(0.002, 0.0))
    threshold = float(np.quantile(found[UCB], TAIL))
    shares = {name: _mean(value > threshold) for name, value in found.items()}
    difference, uncertainty = _estimate(stages, _tail_difference)
    listed = ", ".join(f"{_share(share, 2)} of the stages by {_who(name)}" for name, share in shares.items())
    here = (
        f"A maximum TD error above {threshold:.2f}, the {_share(TAIL)} quantile of UCB, occurs in {listed}; the share "
        f"of the agent minus that of UCB is {_estimated(difference, uncertainty, '+.2%')}."
    )
    return Finding(
        "max-td-error-log",
        "Maximum TD error collected in a stage, log scale",
        "The agent's tail on the right is heavier than those of UCB and random search: it more often finds a solution "
        "that the base policy would miss.",
        here,
        difference,
        uncertainty,
        {
            "edges": edges,
            "density": {name: statistics.density(value, edges) for name, value in found.items()},
            "tail_begins_at": threshold,
            "tail_share": shares,
            "agent_minus_ucb": difference,
            "standard_error": uncertainty,
        },
    )


def real_actions(stages: Stages) -> Finding:
    """The rank of the real action by visits, mean return and maximum return, beside other ways to choose it."""
    choices = {"agent": np.eye(stages.visits.shape[1])[stages.action]}
    for temperature in TEMPERATURES:
        choices[f"MCTS, T = {temperature:g}"] = statistics.visit_policy(stages.visits, temperature)
    choices["base policy"] = stages.policy
    shares = {
        by: {who: statistics.rank_shares(statistic, weight) for who, weight in choices.items()}
        for by, statistic in _ranked_by(stages).items()
    }
    first = {by: shares[by]["agent"][0] for by in shares}
    difference, uncertainty = _estimate(stages, _indication_of_max_return)
    mcts = f"MCTS, T = {TEMPERATURES[0]:g}"
    here = (
        f"The agent's real action has the most visits in {_share(first['visits'])} of the stages, the highest mean "
        f"return in {_share(first['mean return'])} and the highest maximum return in "
        f"{_share(first['maximum return'])} (its lead over the better of the other two is "
        f"{_estimated(difference, uncertainty, '+.1%')}); MCTS with T = {TEMPERATURES[0]:g} would take the most "
        f"visited action in {_share(shares['visits'][mcts][0])} and that of the highest maximum return in "
        f"{_share(shares['maximum return'][mcts][0])}."
    )
    return Finding(
        "real-actions",
        "Real actions by rank of visits, mean return and maximum return",
        "Most real actions have the most visits or the highest returns, and the maximum return indicates them best; "
        "MCTS with T = 0.25 takes the most visited action in over 80 % of the stages, but only about half of these "
        "have the highest return.",
        here,
        difference,
        uncertainty,
        {
            "share_by_rank": shares,
            "lead_of_the_maximum_return": difference,
            "standard_error": uncertainty,
            "never_visited": _mean(stages.visits[np.arange(len(stages)), stages.action] == 0),
        },
    )


def mcts_curve(agent: Evaluation, base_policy: Evaluation, by_budget: Mapping[int, Evaluation]) -> Finding:
    """The solve rate, or the return where no success is reported, of MCTS by its simulations, beside the agent's."""
    measure = "return" if agent.success is None else "solve rate"
    curve = {budget: _scores(result) for budget, result in sorted(by_budget.items())}
    own, base = _scores(agent), _scores(base_policy)
    budgets, means = list(curve), [float(scores.mean()) for scores in curve.values()]
    equal = statistics.crossing(budgets, means, float(own.mean()))
    nearest = min(curve, key=lambda budget: abs(math.log(budget / agent.stage_length)))
    paired = own - curve[nearest]
    difference, uncertainty = float(paired.mean()), _standard_error_of_mean(paired)
    if equal is None:
        reached = f"MCTS does not reach the agent's {measure} of {own.mean():.3f} with up to {budgets[-1]} simulations"
    elif equal == budgets[0]:
        reached = f"MCTS reaches the agent's {measure} of {own.mean():.3f} with {budgets[0]} simulations or fewer"
    else:
        reached = f"MCTS reaches the agent's {measure} of {own.mean():.3f} with about {equal:.0f} simulations"
    here = (
        f"{reached}, where the agent takes {agent.stage_length - 1} imaginary steps (K = {agent.stage_length}); with "
        f"{nearest} simulations it has {curve[nearest].mean():.3f}, which is "
        f"{_estimated(-difference, uncertainty, '+.3f')} from the agent, and the base policy without search has "
        f"{base.mean():.3f}."
    )
    return Finding(
        "mcts",
        f"{measure.capitalize()} of MCTS against its budget",
        "MCTS on the agent's model needs 1280 simulations to match the agent at K = 20.",
        here,
        difference,
        uncertainty,
        {
            "measure": measure,
            "episodes": len(own),
            "stage_length": agent.stage_length,
            "agent": _with_interval(agent),
            "base_policy": _with_interval(base_policy),
            "mcts": {str(budget): _with_interval(by_budget[budget]) for budget in budgets},
            "mcts_equals_agent_at": equal,
            "compared_at": nearest,
            "agent_minus_mcts": difference,
            "standard_error": uncertainty,
        },
    )


# ------------------------------------------------------------------------------------- statistics with standard errors


def _estimate(stages: Stages, statistic: Callable[[Stages], float]) -> tuple[float, float]:
    return statistic(stages), statistics.standard_error(stages, statistic)


def _reset_difference(stages: Stages) -> float:
    error, reset = stages.td_error[stages.free], stages.reset[stages.free]
    return _mean(error[reset]) - _mean(error[~reset])


def _reset_at_new_nodes(stages: Stages) -> float:
    return _mean(stages.reset[stages.free & stages.new])


def _searches(stages: Stages) -> dict[str, np.ndarray]:
    return {AGENT: stages.max_td_error, **stages.rivals}


def _advantage(stages: Stages) -> float:
    return float((stages.max_td_error - stages.rivals[UCB]).mean())


def _tail_difference(stages: Stages) -> float:
    threshold = np.quantile(stages.rivals[UCB], TAIL)
    return _mean(stages.max_td_error > threshold) - _mean(stages.rivals[UCB] > threshold)


def _ranked_by(stages: Stages) -> dict[str, np.ndarray]:
    return {
        "visits": stages.visits.astype(np.float64),
        "mean return": stages.mean_return,
        "maximum return": stages.max_return,
    }


def _indication_of_max_return(stages: Stages) -> float:
    chosen = np.eye(stages.visits.shape[1])[stages.action]
    first = {by: float(statistics.rank_shares(values, chosen)[0]) for by, values in _ranked_by(stages).items()}
    return first["maximum return"] - max(first["visits"], first["mean return"])


def _scores(result: Evaluation) -> np.ndarray:
    return result.returns if result.success is None else result.success.astype(np.float64)


def _standard_error_of_mean(values: np.ndarray) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")


def _with_interval(result: Evaluation) -> dict[str, Any]:
    """Mean and 95 % interval."""
    scores = _scores(result)
    mean, half = float(scores.mean()), 1.96 * _standard_error_of_mean(scores)
    return {"mean": mean, "interval": result.success_interval() or (mean - half, mean + half)}


# --------------------------------------------------------------------------------------------------------- sentences


def _mean(values: np.ndarray | Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else float("nan")


def _quantiles(values: np.ndarray) -> dict[str, float]:
    return {
        f"{q:g}": float(np.quantile(values, q)) if len(values) else float("nan") for q in (0.05, 0.25, 0.5, 0.75, 0.95)
    }


def _who(name: str) -> str:
    return "the agent" if name == AGENT else name


def _share(value: float, digits: int = 0) -> str:
    return f"{100 * value:.{digits}f} %"


def _estimated(value: float, uncertainty: float, form: str = ".2f") -> str:
    """The value with its standard error, if that is known; shares in percent if ``form`` ends in %."""
    if form.endswith("%"):
        return f"{_estimated(100 * value, 100 * uncertainty, f'{form[:-1]}f')} %"
    return f"{value:{form}}" + (f" ± {uncertainty:{form.lstrip('+')}}" if math.isfinite(uncertainty) else "")
