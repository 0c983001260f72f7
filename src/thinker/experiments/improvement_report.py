"""What a comparison of policy improvement shows: intervals, the paper's claims, a table, a figure (appendix H)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from thinker.experiments.policy_improvement import Played
from thinker.runs.folder import write_json

Verdict = Literal["holds", "does not hold", "undecided", "not measured"]
Relation = Literal["near", "above", "below"]

NEAR = 0.1
"""Two returns are near each other if they differ by at most this part of the largest improvement on the base policy."""
RESAMPLES = 2_000
_ORDER: tuple[tuple[str, Relation, str], ...] = (
    ("agent-10", "near", "exhaustive-3"),
    ("agent-10", "near", "mcts-60"),
    ("agent-40", "above", "exhaustive-5"),
)
"""The order of the paper: "similar to a 3-step exhaustive search", "comparable to MCTS that uses 60 model simulations",
"surpasses a 5-step exhaustive search"."""
_SLIGHTLY_WORSE: tuple[str, Relation, str] = ("agent-20", "below", "exhaustive-4")


@dataclass(frozen=True)
class Operator:
    """One line of the comparison: an actor, with the agents of all seeds as one."""

    who: Played
    returns: np.ndarray  # [S, E]  of S seeds and E episodes, which are the same for all operators
    simulations: int  # of the model for each real step; of agents at most
    solved: float | None
    core_seconds: float  # of playing the episodes
    resampled: np.ndarray  # [RESAMPLES]  mean returns of a bootstrap over episodes and seeds

    @property
    def mean(self) -> float:
        return float(self.returns.mean())

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the mean return."""
        return _interval(self.resampled)


@dataclass(frozen=True)
class Statement:
    """A claim of the paper, and whether it holds here."""

    text: str
    verdict: Verdict
    evidence: str  # the numbers behind the verdict


def operators(evaluations: Mapping[str, Mapping[str, Any]]) -> dict[str, Operator]:
    """The operators of ``evaluations`` (see results.json) by name; an agent's name is without its seed.

    The bootstrap draws the same episodes for all operators, so that differences between them are paired.
    """
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for one in evaluations.values():
        groups.setdefault(Played(one["kind"], one["budget"]).name, []).append(one)
    random = np.random.default_rng(0)
    episodes = len(next(iter(evaluations.values()))["returns"])
    weights = random.multinomial(episodes, np.full(episodes, 1 / episodes), RESAMPLES) / episodes  # [RESAMPLES, E]
    found = {}
    for name, members in groups.items():
        returns, count = np.array([one["returns"] for one in members]), len(members)
        seeds = random.multinomial(count, np.full(count, 1 / count), RESAMPLES) / count  # [RESAMPLES, S]
        solved = [one["solved"] for one in members if one["solved"] is not None]
        found[name] = Operator(
            who=Played(members[0]["kind"], members[0]["budget"]),
            returns=returns,
            simulations=members[0]["simulations"],
            solved=float(np.mean(solved)) if solved else None,
            core_seconds=sum(one["core_seconds"] for one in members),
            resampled=(weights @ returns.T * seeds).sum(1),
        )
    return found


def verdict(relation: Relation, low: float, high: float, margin: float) -> Verdict:
    """Whether a difference with the 95 % interval ``low`` .. ``high`` is near 0 (within ``margin``), above or below."""
    if relation == "below":
        low, high = -high, -low
    if relation == "near":
        if -margin <= low and high <= margin:
            return "holds"
        return "does not hold" if low > margin or high < -margin else "undecided"
    if low > 0:
        return "holds"
    return "does not hold" if high <= 0 else "undecided"


def together(verdicts: Sequence[Verdict]) -> Verdict:
    """Whether all of several claims hold."""
    for one in ("does not hold", "undecided", "not measured"):
        if one in verdicts:
            return one
    return "holds" if verdicts else "not measured"


def statements(found: Mapping[str, Operator]) -> list[Statement]:
    """The paper's claims; the first is its order as a whole, made of the three that follow it."""
    base = found["base-policy"]
    margin = NEAR * max(abs(one.mean - base.mean) for one in found.values())

    def compare(left: str, relation: Relation, right: str) -> Statement:
        words = {"near": "is near", "above": "is above", "below": "is below"}[relation]
        text = f"{_label(left)} {words} {_label(right)}"
        missing = [name for name in (left, right) if name not in found]
        if missing:
            return Statement(text, "not measured", f"without {' and '.join(map(_label, missing))}")
        low, high = _interval(found[left].resampled - found[right].resampled)
        difference = found[left].mean - found[right].mean
        evidence = f"difference {difference:+.2f}, 95 % interval {low:+.2f} to {high:+.2f}"
        if relation == "near":
            evidence += f"; near: within {margin:.2f}"
        return Statement(text, verdict(relation, low, high, margin), evidence)

    def all_of(text: str, parts: Sequence[Statement]) -> Statement:
        worst = together([part.verdict for part in parts])
        which = "; ".join(f"{part.text}: {part.evidence}" for part in parts if part.verdict == worst)
        count = sum(part.verdict == "holds" for part in parts)
        evidence = f"{count} of {len(parts)}" + ("" if worst == "holds" or not parts else f"; {worst}: {which}")
        return Statement(text, worst, evidence)

    order = [compare(*claim) for claim in _ORDER]
    searching = [name for name, one in found.items() if one.who.budget]
    lengths = sorted(one.who.budget for one in found.values() if one.who.kind == "agent")
    pairs = zip(lengths[1:], lengths)
    return [
        all_of("The paper's order", order),
        *order,
        compare(*_SLIGHTLY_WORSE),
        all_of("Every operator improves on the base policy", [compare(n, "above", "base-policy") for n in searching]),
        all_of("Agents improve more the larger K", [compare(f"agent-{k}", "above", f"agent-{j}") for k, j in pairs]),
        compare("base-policy", "above", "random"),
    ]


def write_report(results: Mapping[str, Any], out: Path) -> list[Statement]:
    """Write results.json, figure.png and report.md to the folder ``out``; returns the statements."""
    found = operators(results["evaluations"])
    claims = statements(found)
    lines = {
        name: {"mean_return": one.mean, "interval": list(one.interval), "simulations": one.simulations,
               "solved": one.solved, "seeds": len(one.returns), "core_seconds": one.core_seconds}
        for name, one in found.items()
    }  # fmt: skip
    near = {"near": NEAR, "resamples": RESAMPLES}
    stated = [vars(claim) for claim in claims]
    write_json(out / "results.json", {**results, "intervals": near, "operators": lines, "statements": stated})
    draw(found, results["curves"], out / "figure.png")
    (out / "report.md").write_text(_markdown(results, found, claims), encoding="utf-8")
    return claims


def draw(found: Mapping[str, Operator], curves: Mapping[str, Mapping[str, list[float]]], out: Path) -> None:
    """The figure: learning curves of the agents beside exhaustive search, and returns by simulations."""
    figure = Figure(figsize=(12, 4.6), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, sharey=True)
    _draw_curves(left, found, curves)
    _draw_budgets(right, found)
    for axis in (left, right):
        axis.axhline(found["base-policy"].mean, color="0.5", linewidth=1, linestyle=":")
        axis.grid(color="0.92", linewidth=0.8)
        axis.set_axisbelow(True)
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(out, dpi=150, format="png")


def _draw_curves(axis: Axes, found: Mapping[str, Operator], curves: Mapping[str, Mapping[str, list[float]]]) -> None:
    lengths = sorted(one.who.budget for one in found.values() if one.who.kind == "agent")
    for number, k in enumerate(lengths):
        members = [curve for name, curve in curves.items() if name.startswith(f"agent-{k}-") and curve["real_steps"]]
        for index, curve in enumerate(members):
            label, color = f"agent, K = {k}" if index == 0 else None, _shade(number, len(lengths))
            axis.plot(curve["real_steps"], curve["return"], color=color, linewidth=1.2, marker=".", label=label)
    for one in found.values():
        if one.who.kind in ("exhaustive", "base-policy"):
            axis.axhline(one.mean, color="#0072b2" if one.who.budget else "0.5", linewidth=0.9, linestyle="--")
            name = f"{one.who.budget}-step exhaustive" if one.who.budget else "base policy"
            x, side = (1, "right") if one.who.budget else (0, "left")
            axis.text(x, one.mean, name, fontsize=7, ha=side, va="bottom", transform=axis.get_yaxis_transform())
    axis.set_title("Agents in training, on validation episodes", fontsize=10, loc="left")
    axis.set_xlabel("real steps")
    axis.set_ylabel("return of an episode")
    axis.xaxis.set_major_formatter(EngFormatter(sep=""))
    axis.set_xlim(left=0)
    if lengths:
        axis.legend(fontsize=8, frameon=False, loc="upper left")


def _draw_budgets(axis: Axes, found: Mapping[str, Operator]) -> None:
    kinds = {"exhaustive": ("exhaustive search", "#0072b2", "s"), "mcts": ("MCTS", "#009e73", "^"),
             "agent": ("trained agents", "#d55e00", "o")}  # fmt: skip
    for kind, (label, color, marker) in kinds.items():
        chosen = sorted((one for one in found.values() if one.who.kind == kind), key=lambda one: one.simulations)
        if not chosen:
            continue
        x, y = [one.simulations for one in chosen], np.array([one.mean for one in chosen])
        low, high = np.array([one.interval for one in chosen]).T
        bars = (np.maximum(y - low, 0), np.maximum(high - y, 0))
        axis.errorbar(x, y, bars, color=color, marker=marker, markersize=5, linewidth=1.4, capsize=2, label=label)
        for one in chosen:
            name = {"exhaustive": "n", "agent": "K"}.get(kind)
            if name is not None:
                text, where = f"{name} = {one.who.budget}", (one.simulations, one.mean)
                axis.annotate(text, where, textcoords="offset points", xytext=(4, -10), fontsize=7, color=color)
    axis.set_xscale("log")
    axis.set_title("Test episodes, 95 % intervals; dotted: base policy", fontsize=10, loc="left")
    axis.set_xlabel("simulations of the model for each real step (agents: at most K - 1)")
    axis.legend(fontsize=8, frameon=False, loc="upper left")


def _shade(number: int, count: int) -> tuple[float, float, float]:
    """Orange of agents, darker for larger K."""
    light, dark = np.array([0.99, 0.75, 0.5]), np.array([0.55, 0.16, 0.0])
    mixed = light + (dark - light) * (number / max(count - 1, 1))
    return float(mixed[0]), float(mixed[1]), float(mixed[2])


def _markdown(results: Mapping[str, Any], found: Mapping[str, Operator], claims: Sequence[Statement]) -> str:
    settings, memory = results["settings"], results["memory"]
    seeds = len(settings["seeds"])
    lines = [
        "# Policy improvement with a fixed base policy",
        "",
        f"{claims[0].text} (appendix H of the paper): **{claims[0].verdict}**, {claims[0].evidence}.",
        "",
        "![Returns of agents in training, and of all operators by simulations](figure.png)",
        "",
        f"Preset `{settings['preset']}`, {settings['episodes']:,} test episodes for each line, the same for all. The "
        f"base policy was trained for {settings['base_steps']:,} real steps and then frozen. Agents: "
        f"{settings['real_steps']:,} real steps each, {seeds} seed{'s' if seeds != 1 else ''} for each K, the tree as "
        f"their only observation, no limit on depth. Intervals are bootstrapped over episodes and seeds"
        f"{'; with one seed they do not contain the variation between trainings' if seeds == 1 else ''}.",
        "",
        "| the paper's claim | here | numbers |",
        "|---|---|---|",
        *(f"| {claim.text} | {claim.verdict} | {claim.evidence} |" for claim in claims),
        "",
        "| operator | simulations | return | 95 % interval | solved | core-minutes of playing | KiB of a tree |",
        "|---|---|---|---|---|---|---|",
        *(_row(name, one, memory) for name, one in found.items()),
        "",
        "Simulations are those for each real step; agents take at most K - 1, fewer where they visit known nodes.",
        "The memory is that of one environment: of an agent's tree, which is allocated once, or of a planner's search",
        "at its peak, with the batches of the model. All numbers are in results.json.",
    ]
    return "\n".join(lines) + "\n"


def _row(name: str, one: Operator, memory: Mapping[str, float]) -> str:
    low, high = one.interval
    cells = (
        one.who.label,
        str(one.simulations) if one.who.budget else "",
        f"{one.mean:.2f}",
        f"{low:.2f} to {high:.2f}",
        "" if one.solved is None else f"{one.solved:.3f}",
        f"{one.core_seconds / 60:.1f}",
        f"{memory[name]:,.0f}" if name in memory else "",
    )
    return f"| {' | '.join(cells)} |"


def _interval(resampled: np.ndarray) -> tuple[float, float]:
    low, high = np.percentile(resampled, (2.5, 97.5))
    return float(low), float(high)


def _label(name: str) -> str:
    kind, _, budget = name.partition("-") if name != "base-policy" else (name, "", "")
    return Played(kind, int(budget or 0)).label  # type: ignore[arg-type]
