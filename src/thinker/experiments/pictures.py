"""Parts of the pictures of experiments: learning curves, solve rates, solve rates by K; all with 95 % intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, PercentFormatter

from thinker.experiments.statistics import Aggregate, Interval, aggregate, curve_band, estimate
from thinker.runs.metrics import STEP
from thinker.runs.plot import color, on_common_grid

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from thinker.experiments.results import Results

XAxis = Literal["step", "core_minutes"]
_X_LABELS = {STEP: "frames (real steps)", "core_minutes": "core-minutes of training"}
_POINTS = 100


def write_picture(draw: Callable[[Results, Figure], None], results: Results, path: Path) -> None:
    """Let an experiment draw its results, and write a PNG file."""
    figure = Figure(figsize=(10, 4), layout="constrained")
    FigureCanvasAgg(figure)
    draw(results, figure)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120, format="png")


def curves_and_bars(results: Results, figure: Figure) -> None:
    """Learning curves by frames and by core-minutes, and solve rates on test episodes: the picture of most."""
    left, middle, right = figure.subplots(1, 3, width_ratios=(3, 3, 2))
    learning_curves(left, results, "step")
    learning_curves(middle, results, "core_minutes")
    solve_rates(right, results)
    right.set_xticks([])  # the legend has their names
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=9)


def learning_curves(axis: Axes, results: Results, x: XAxis) -> None:
    """Running averages of the solve rate in training: mean over seeds, 95 % interval as a band."""
    _curves(axis, results, x, "solved")
    axis.set_xlabel(_X_LABELS[x])
    axis.set_ylabel("training episodes solved")
    _rates(axis)


def return_curves(axis: Axes, results: Results, game: str) -> None:
    """The same of the return in training on one game, by frames."""
    _curves(axis, results, "step", "return", game)
    style(axis)


def _curves(axis: Axes, results: Results, x: XAxis, column: str, game: str | None = None) -> None:
    for number, (variant, label) in enumerate(results.labels.items()):
        curves = []
        for run in results.of(variant, game):
            if x in run.curve and run.curve.get(column):
                curves.append((np.array(run.curve[x], np.float64), np.array(run.curve[column])))
        if not curves:
            continue
        grid, values = on_common_grid(curves)
        if not len(grid):
            continue
        thin = np.unique(np.linspace(0, len(grid) - 1, _POINTS).astype(int))
        band(axis, grid[thin], curve_band(values[:, thin]), number, label)
    if x == STEP:
        axis.xaxis.set_major_formatter(EngFormatter(sep=""))


def band(
    axis: Axes, grid: np.ndarray, curve: tuple[np.ndarray, np.ndarray, np.ndarray], number: int, label: str
) -> None:
    """A curve over ``grid`` [points] with its interval, in the colour of a variant."""
    middle, low, high = curve
    axis.plot(grid, middle, color=color(number), linewidth=1.8, label=label)
    axis.fill_between(grid, low, high, color=color(number), alpha=0.18, linewidth=0)


def solve_rates(axis: Axes, results: Results, key: str = "agent") -> None:
    """Solve rates on test episodes as points with intervals, one for each variant; small points are single seeds."""
    samples = [(label, results.measured(variant, key, "solved")) for variant, label in results.labels.items()]
    points(axis, samples)
    axis.set_ylabel("test episodes solved")
    _rates(axis)


def points(axis: Axes, samples: Sequence[tuple[str, np.ndarray]]) -> None:
    """The mean of each sample [runs] with its interval, and every run as a small point."""
    for number, (_, values) in enumerate(samples):
        if len(values):
            middle = interval_of(values)
            axis.plot([number] * len(values), values, ".", color=color(number), alpha=0.5)
            axis.errorbar(number, middle.estimate, yerr=bars([middle]), fmt="o", color=color(number), capsize=3)
    axis.set_xticks(range(len(samples)), [label for label, _ in samples], rotation=60, ha="right", fontsize=8)
    axis.set_xlim(-0.6, len(samples) - 0.4)


def interval_of(values: np.ndarray, by: Aggregate = "interquartile mean") -> Interval:
    """The aggregate of values [runs] or [runs, games] with its interval; a single run has none."""
    return Interval(*[estimate(values, by)] * 3) if len(values) == 1 else aggregate(values, by)


def by_stage_length(axis: Axes, results: Results, variant: str, keys: dict[int, str], base_policy: str) -> None:
    """Solve rates on test episodes by K, and that of the base policy as a line."""
    samples = {k: results.measured(variant, key, "solved") for k, key in keys.items()}
    samples = {k: values for k, values in samples.items() if len(values)}
    if samples:
        places = [interval_of(values) for values in samples.values()]
        axis.errorbar(
            list(samples), [one.estimate for one in places], yerr=bars(places), fmt="o-", color=color(0), capsize=3
        )
        axis.set_xscale("log")
        axis.set_xticks(list(samples), [str(k) for k in samples])
        axis.minorticks_off()
    base = results.measured(variant, base_policy, "solved")
    if len(base):
        middle = interval_of(base)
        axis.axhline(middle.estimate, color=color(1), linestyle="--", label="base policy, no search")
        axis.axhspan(middle.low, middle.high, color=color(1), alpha=0.15, linewidth=0)
        axis.legend(frameon=False, loc="lower right")
    axis.set_xlabel("K at test time")
    axis.set_ylabel("test episodes solved")
    _rates(axis)


def bars(intervals: Sequence[Interval]) -> np.ndarray:
    """Lengths [2, n] of error bars below and above."""
    low = [max(0.0, one.estimate - one.low) for one in intervals]
    return np.array([low, [max(0.0, one.high - one.estimate) for one in intervals]])


def _rates(axis: Axes) -> None:
    axis.set_ylim(-0.02, 1.02)
    axis.yaxis.set_major_formatter(PercentFormatter(1.0))
    style(axis)


def style(axis: Axes) -> None:
    """A light grid, no frame."""
    axis.grid(color="0.9", linewidth=0.8)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)
