"""Draws the figures of appendix F from the numbers of a `Finding`, and from nothing else."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator, PercentFormatter

from thinker.experiments.behaviour.findings import Finding

BLUE, ORANGE, GREEN, PURPLE, GREY = "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#999999"  # colour-blind safe
MOST_RANKS = 6
"""Ranks that are drawn; environments with more actions have the rest in one bar."""
Numbers = Mapping[str, Any]


def png(finding: Finding) -> bytes:
    """The figure of ``finding`` as a PNG."""
    draw, width, height, panels = _FIGURES[finding.name]
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, panels, squeeze=False)[0]
    draw(list(axes), finding.numbers)
    for axis in axes:
        axis.grid(color="0.9", linewidth=0.8)
        axis.set_axisbelow(True)
        axis.spines[["top", "right"]].set_visible(False)
    file = io.BytesIO()
    # Without the version of matplotlib the same numbers give the same bytes everywhere.
    figure.savefig(file, dpi=150, format="png", metadata={"Software": None})
    return file.getvalue()


def _reset_td_error(axes: list[Axes], numbers: Numbers) -> None:
    left, right = axes
    _densities(left, numbers, {"reset": ORANGE, "no reset": BLUE})
    left.set_xlabel("TD error of the rollout")
    left.set_ylabel("probability density")
    left.legend(frameon=False)
    share = numbers["reset_share"]
    right.plot(share["td_error"], share["share"], color=ORANGE, marker="o", markersize=4)
    right.axhline(share["all"], color=GREY, linestyle="--", linewidth=1, label="all steps")
    right.legend(frameon=False)
    right.set_xlabel("TD error of the rollout (each point: a twentieth of the steps)")
    right.set_ylabel("share of resets")
    _percent(right)


def _reset_depth(axes: list[Axes], numbers: Numbers) -> None:
    left, right = axes
    depths, limit = np.array(numbers["depth"], int), numbers["max_depth"]
    shares = np.nan_to_num(np.array(numbers["share"], float))
    left.bar(depths, shares, color=ORANGE, width=0.7, label="chosen")
    left.bar(limit, 1, color="white", edgecolor=GREY, hatch="///", width=0.7, label="forced at the depth limit")
    for depth, share, steps in zip(depths, shares, numbers["steps"]):
        left.annotate(
            f"{share:.0%}" if steps else "no steps",
            (depth, share),
            (0, 2),
            textcoords="offset points",
            ha="center",
            fontsize=8,
        )
    left.set_xlabel("depth of the node reached")
    left.set_ylabel("share of resets")
    left.set_ylim(0, 1.18)
    left.legend(frameon=False, loc="upper left")
    left.yaxis.set_major_locator(FixedLocator([0, 0.25, 0.5, 0.75, 1]))
    left.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    counts = np.array(numbers["rollouts_by_depth"], float)
    right.bar(np.arange(1, limit + 1), counts / max(1.0, counts.sum()), color=BLUE, width=0.7)
    right.set_xlabel("depth at which a rollout ends")
    right.set_ylabel("share of rollouts")
    right.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    for axis in axes:
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))


def _expansion_length(axes: list[Axes], numbers: Numbers) -> None:
    (axis,) = axes
    lengths, shares = np.array(numbers["length"]), numbers["share"]
    colours = [GREEN, ORANGE, BLUE, PURPLE]
    width = 0.8 / len(shares)
    for number, (limit, share) in enumerate(shares.items()):
        own = " (as trained)" if int(limit) == numbers["max_depth"] else ""
        label = f"L = {limit}{own}, mean {numbers['mean'][limit]:.2f}"
        axis.bar(
            lengths + (number - (len(shares) - 1) / 2) * width, share, width, color=colours[number % 4], label=label
        )
    axis.axvline(1, color="black", linestyle=":", linewidth=1.5, label="MCTS: always 1")
    axis.set_xlabel("expansion length: steps beyond the last expanded node")
    axis.set_ylabel("share of rollouts")
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axis.legend(frameon=False)


_SEARCH_COLOURS = {"agent": ORANGE, "UCB": BLUE, "random search": GREEN}


def _max_td_error(axes: list[Axes], numbers: Numbers) -> None:
    (axis,) = axes
    _densities(axis, numbers, _SEARCH_COLOURS)
    for name, colour in _SEARCH_COLOURS.items():
        axis.axvline(numbers["mean"][name], color=colour, linestyle="--", linewidth=1)
    axis.set_xlabel("maximum TD error in a stage (dashed: means)")
    axis.set_ylabel("probability density")
    axis.legend(frameon=False)


def _max_td_error_log(axes: list[Axes], numbers: Numbers) -> None:
    (axis,) = axes
    _densities(axis, numbers, _SEARCH_COLOURS, filled=False)
    axis.axvline(numbers["tail_begins_at"], color=GREY, linestyle="--", linewidth=1, label="99 % quantile of UCB")
    axis.set_yscale("log")
    axis.set_xlabel("maximum TD error in a stage")
    axis.set_ylabel("probability density (log)")
    axis.legend(frameon=False)


def _real_actions(axes: list[Axes], numbers: Numbers) -> None:
    colours = [ORANGE, BLUE, "#56b4e9", GREY]
    for axis, (by, shares) in zip(axes, numbers["share_by_rank"].items()):
        width = 0.84 / len(shares)
        ranks = len(next(iter(shares.values())))
        drawn = min(ranks, MOST_RANKS)
        for number, (who, share) in enumerate(shares.items()):
            heights = np.append(share[: drawn - 1], np.sum(share[drawn - 1 :]))
            axis.bar(
                np.arange(drawn) + (number - (len(shares) - 1) / 2) * width,
                heights,
                width,
                color=colours[number],
                label=who,
            )
        labels = [f"{rank + 1}." for rank in range(drawn)]
        if ranks > drawn:
            labels[-1] += " or lower"
        axis.set_xticks(np.arange(drawn), labels)
        axis.set_xlabel(f"rank by {by}")
        _percent(axis)
    axes[0].set_ylabel("share of real actions")
    axes[-1].legend(frameon=False, loc="upper right")


def _mcts(axes: list[Axes], numbers: Numbers) -> None:
    (axis,) = axes
    budgets = np.array([int(budget) for budget in numbers["mcts"]])
    means = np.array([point["mean"] for point in numbers["mcts"].values()])
    low, high = np.array([point["interval"] for point in numbers["mcts"].values()], float).T
    axis.errorbar(budgets, means, (means - low, high - means), color=BLUE, marker="o", capsize=3, label="MCTS")
    lines = {
        f"agent, K = {numbers['stage_length']}": ("agent", ORANGE),
        "base policy, no search": ("base_policy", GREY),
    }
    for label, (who, colour) in lines.items():
        axis.axhline(numbers[who]["mean"], color=colour, label=label)
        axis.axhspan(*numbers[who]["interval"], color=colour, alpha=0.15, linewidth=0)
    equal = numbers["mcts_equals_agent_at"]
    if equal is not None:
        axis.axvline(equal, color=ORANGE, linestyle="--", linewidth=1, label=f"MCTS equals the agent: {equal:.0f}")
    axis.set_xscale("log", base=2)
    axis.set_xlim(budgets[0] / 1.2, budgets[-1] * 1.2)
    axis.xaxis.set_major_locator(FixedLocator(budgets.tolist()))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.set_xticklabels([str(budget) for budget in budgets])
    axis.set_xlabel("simulations of MCTS per real step")
    axis.set_ylabel(f"{numbers['measure']}, 95 % intervals")
    axis.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.01, 1))


def _densities(axis: Axes, numbers: Numbers, colours: Mapping[str, str], *, filled: bool = True) -> None:
    for name, colour in colours.items():
        density, edges = np.array(numbers["density"][name], float), numbers["edges"]
        if filled:
            axis.stairs(density, edges, color=colour, alpha=0.2, fill=True)
        axis.stairs(density, edges, color=colour, linewidth=1.5, label=name, baseline=None)


def _percent(axis: Axes) -> None:
    axis.set_ylim(-0.02, 1.02)
    axis.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))


Draw = Callable[[list[Axes], Numbers], None]
_FIGURES: dict[str, tuple[Draw, float, float, int]] = {  # how to draw, inches, panels
    "reset-td-error": (_reset_td_error, 10, 3.8, 2),
    "reset-depth": (_reset_depth, 10, 3.8, 2),
    "expansion-length": (_expansion_length, 7.5, 3.8, 1),
    "max-td-error": (_max_td_error, 7.5, 3.8, 1),
    "max-td-error-log": (_max_td_error_log, 7.5, 3.8, 1),
    "real-actions": (_real_actions, 12, 3.8, 3),
    "mcts": (_mcts, 9.5, 4.2, 1),
}
