"""Plots learning curves of training runs: several seeds of the same settings as mean, band and thin lines."""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter, PercentFormatter

from thinker.errors import UserError
from thinker.runs.folder import RunFolder
from thinker.runs.metrics import MINUTES, STEP, read_metrics

XAxis = Literal["steps", "minutes"]
DEFAULT_METRICS = ("episode/solved", "episode/return")
"""Drawn if they were recorded: not every environment reports whether an episode was solved."""

_AXES = {"steps": (STEP, "real steps"), "minutes": (MINUTES, "minutes of training")}
_COLORS = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#56b4e9",
    "#e69f00",
    "#000000",
    "#999999",
    "#882255",
    "#999933",
)  # colour-blind safe
_RATES = ("solved", "rate", "share", "accuracy")  # metrics with these suffixes are fractions of 1

_SEED = re.compile(r"[-_.]?(seed|s)?[-_.=]?\d+$")  # suffix of run names that differ only in their seed

Curve = tuple[np.ndarray, np.ndarray]  # x [N] increasing, y [N]


def plot_runs(
    folders: Sequence[Path] | Mapping[str, Sequence[Path]],
    out: Path,
    x: XAxis = "steps",
    metrics: Sequence[str] | None = None,
) -> Path:
    """Draw one panel for each metric and one colour for each group of runs, and write ``out``, a PNG.

    Args:
        folders: the folders of the runs. Runs that differ only in their ``seed`` are one group; or pass a mapping from
            labels to groups.
        out: the file to write; its folder is created.
        x: the x-axis.
        metrics: names as in ``metrics.jsonl``; default: those of `DEFAULT_METRICS` that were recorded. A metric that no
            run has is an error; one that only some runs have is drawn for these, and its panel says so.
    """
    if x not in get_args(XAxis):
        raise UserError(f"x={x!r}; expected one of {get_args(XAxis)}")
    groups = dict(folders) if isinstance(folders, Mapping) else _groups_by_seed(folders)
    if not groups or (metrics is not None and not metrics):
        raise UserError("nothing to plot: give at least one run and one metric")
    lines = {label: [_read(folder) for folder in members] for label, members in groups.items()}
    metrics = _recorded_defaults(lines) if metrics is None else metrics
    _check_metrics(metrics, lines)

    columns = len(metrics) if len(metrics) <= 3 else math.ceil(math.sqrt(len(metrics)))
    rows = math.ceil(len(metrics) / columns)
    figure = Figure(figsize=(5.2 * columns, 3.7 * rows + 0.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False)
    for axis, metric in zip(axes.flat, metrics):
        _draw_panel(axis, metric, x, lines)
    for axis in axes.flat[len(metrics) :]:
        axis.set_visible(False)
    figure.legend(
        [Line2D([], [], color=color(number), linewidth=2.2) for number in range(len(lines))],
        [label if len(runs) == 1 else f"{label} (mean ± s.d. of {len(runs)} runs)" for label, runs in lines.items()],
        loc="outside lower center",
        ncols=columns,
        frameon=False,
    )
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=150, format="png")
    return out


def _draw_panel(axis: Axes, metric: str, x: XAxis, lines: Mapping[str, list[list[dict[str, Any]]]]) -> None:
    field, x_label = _AXES[x]
    missing = []
    for number, (label, runs) in enumerate(lines.items()):
        shade = color(number)
        curves = [curve for curve in (_curve(run, field, metric) for run in runs) if len(curve[0])]
        if not curves:
            missing.append(label)
        elif len(curves) == 1:
            axis.plot(*curves[0], color=shade, linewidth=1.8, marker=_marker(curves[0]))
        else:
            for curve in curves:
                axis.plot(*curve, color=shade, linewidth=0.7, alpha=0.45)
            grid, values = on_common_grid(curves)
            mean, spread = values.mean(0), values.std(0, ddof=1)
            axis.fill_between(grid, mean - spread, mean + spread, color=shade, alpha=0.18, linewidth=0)
            axis.plot(grid, mean, color=shade, linewidth=2.2, marker=_marker((grid, mean)))
    if missing:
        axis.text(0.98, 0.98, f"not recorded: {', '.join(missing)}", transform=axis.transAxes, ha="right", va="top")
    axis.set_title(metric, fontsize=11, fontweight="bold", loc="left")
    axis.set_xlabel(x_label)
    if x == "steps":
        axis.xaxis.set_major_formatter(EngFormatter(sep=""))
    axis.set_xlim(left=0)
    if metric.endswith(_RATES):
        axis.set_ylim(-0.02, 1.02)
        axis.yaxis.set_major_formatter(PercentFormatter(1.0))
    axis.grid(color="0.9", linewidth=0.8)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)


def on_common_grid(curves: Sequence[Curve]) -> tuple[np.ndarray, np.ndarray]:
    """Interpolate curves to a common grid: x [N], in the range that all of them cover, and y [curves, N]."""
    start, end = max(x[0] for x, _ in curves), min(x[-1] for x, _ in curves)
    places = np.unique(np.concatenate([x for x, _ in curves]))
    grid = places[(places >= start) & (places <= end)]
    return grid, np.stack([np.interp(grid, x, y) for x, y in curves])


def _curve(lines: Sequence[Mapping[str, Any]], field: str, metric: str) -> Curve:
    """The x and y values of a run's metric; if several lines have the same x, the last one counts."""
    points = {line[field]: line[metric] for line in lines if math.isfinite(line.get(metric, math.nan))}
    places = sorted(points)
    return np.array(places, np.float64), np.array([points[place] for place in places], np.float64)


def color(number: int) -> str:
    """The colour of the curve of this number; all of them can be told apart by the colour-blind."""
    return _COLORS[number % len(_COLORS)]


def _marker(curve: Curve) -> str | None:
    return "o" if len(curve[0]) == 1 else None  # a single point has no visible line


def _read(folder: Path) -> list[dict[str, Any]]:
    if not folder.is_dir():
        raise UserError(f"there is no run in {folder}")
    lines = read_metrics(folder)
    if not lines:
        raise UserError(f"the run in {folder} has no metrics yet; wait until it has written its first line")
    return lines


def _recorded(lines: Mapping[str, list[list[dict[str, Any]]]]) -> set[str]:
    return {name for runs in lines.values() for run in runs for line in run for name in line} - {STEP}


def _recorded_defaults(lines: Mapping[str, list[list[dict[str, Any]]]]) -> list[str]:
    known = _recorded(lines)
    found = [metric for metric in DEFAULT_METRICS if metric in known]
    if not found:
        raise UserError(f"no episode has ended yet in these runs; there are only {', '.join(sorted(known))}")
    return found


def _check_metrics(metrics: Sequence[str], lines: Mapping[str, list[list[dict[str, Any]]]]) -> None:
    known = _recorded(lines)
    for metric in metrics:
        if metric not in known:
            similar = difflib.get_close_matches(metric, known, n=3) or sorted(known)
            raise UserError(f"no run has recorded the metric {metric!r}; there are {', '.join(similar)}")


def _groups_by_seed(folders: Sequence[Path]) -> dict[str, list[Path]]:
    """Group runs by all settings except the seed; a run without settings is its own group."""
    groups: dict[str, list[Path]] = {}
    for folder in folders:
        run = RunFolder(folder.parent, folder.name)
        settings: dict[str, Any] = run.read_config() if run.config_path.exists() else {"folder": str(folder)}
        settings.get("settings", settings).pop("seed", None)
        groups.setdefault(json.dumps(settings, sort_keys=True), []).append(folder)
    labelled: dict[str, list[Path]] = {}
    for members in groups.values():
        label = _label([folder.name for folder in members])
        while label in labelled:
            label += "'"
        labelled[label] = members
    return labelled


def _label(names: Sequence[str]) -> str:
    """The common part of the names of a group's runs: "quick" for quick, quick-1 and quick-seed2."""
    without_seeds = {_SEED.sub("", name) for name in names}
    return without_seeds.pop() if len(names) > 1 and len(without_seeds) == 1 else names[0]
