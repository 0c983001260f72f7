"""Experiments on several games: normalised scores [runs, games], their claims, their picture and their table."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, get_args

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from thinker.experiments.claims import Claim, Quantity, greater
from thinker.experiments.pictures import band, bars, interval_of, return_curves, style
from thinker.experiments.results import Results
from thinker.experiments.statistics import Aggregate, Interval, curve_band, estimate, probability_of_improvement
from thinker.runs.metrics import STEP
from thinker.runs.plot import color, on_common_grid

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Normalise = Callable[[Results, str, np.ndarray], np.ndarray]
"""Scores [N] of returns [N] on a game, which mean the same on every game; none if they cannot be computed."""
AGGREGATES: tuple[Aggregate, ...] = get_args(Aggregate)
_POINTS = 20  # of a curve over all games: the interval of each takes a while
_PANEL = (3.1, 2.7)  # inches


class Column(NamedTuple):
    """Of the table: who played."""

    variant: str
    key: str  # of the measurement
    label: str


def scores(results: Results, variant: str, normalise: Normalise, key: str = "agent") -> np.ndarray:
    """Normalised scores of test episodes: [runs, games], with as many runs as every game has."""
    found = [normalise(results, game, results.measured(variant, key, "return", game)) for game in results.games]
    return _rectangular(found)


def score(variant: str, normalise: Normalise, by: Aggregate, key: str = "agent") -> Quantity:
    """An aggregate over all games of normalised scores."""
    name = f"{by} of {key.replace('-', ' ')} over games"
    return Quantity(variant, name, lambda results, one: scores(results, one, normalise, key), by)


def game_claims(thinker: str, raw: str, normalise: Normalise) -> tuple[Claim, ...]:
    """What the paper claims of Atari, of two variants; and the same of the interquartile mean."""
    claims = []
    for other, key, name in ((raw, "agent", "that of the raw MDP after as many frames"),
                             (thinker, "base-policy", "that of its base policy")):  # fmt: skip
        for by in ("median", "mean", "interquartile mean"):
            prefix = "(not in the paper) " if by == "interquartile mean" else ""
            judge = greater(score(thinker, normalise, by), score(other, normalise, by, key))
            claims.append(Claim(f"{prefix}Thinker's {by} score over games is higher than {name}", judge))
    return tuple(claims)


def draw_games(results: Results, figure: Figure, normalise: Normalise, by: Aggregate, unit: str) -> None:
    """A learning curve for each game, that of the normalised scores of all, and their aggregates after training."""
    panels = len(results.games) + 2
    rows = math.ceil(panels / max(3, math.ceil(math.sqrt(panels))))
    columns = math.ceil(panels / rows)
    figure.set_size_inches(_PANEL[0] * columns, _PANEL[1] * rows + 0.4)
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axis, game in zip(axes, results.games):
        return_curves(axis, results, game)
        axis.set_title(game.replace("_", " "), fontsize=9)
        if not axis.lines:
            axis.set(xticks=[], yticks=[])
            axis.text(0.5, 0.5, "no episode ended\nin training", ha="center", transform=axis.transAxes, fontsize=8)
    _curve_of_all(axes[panels - 2], results, normalise, by, unit)
    _aggregates(axes[panels - 1], results, normalise, unit)
    for axis in axes[panels:]:
        axis.set_visible(False)
    handles, labels = max((axis.get_legend_handles_labels() for axis in axes), key=lambda found: len(found[1]))
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=9)


def games_table(
    results: Results,
    normalise: Normalise,
    columns: Sequence[Column],
    published: Mapping[str, Mapping[str, float | None]] | None = None,
    *,
    reference: Column,
) -> Iterator[str]:
    """A row for each game, then the aggregates of normalised scores.

    ``published`` has scores by column and game, to be shown beside ours. The last rows say how often a run scores
    higher than one of ``reference``, and how long runs took.
    """
    published = published or {}
    yield f"| game | {' | '.join([*published, *(column.label for column in columns)])} |"
    yield "|---" * (1 + len(published) + len(columns)) + "|"
    for game in results.games:
        cells = [_number(values.get(game)) for values in published.values()]
        returns = [results.measured(column.variant, column.key, "return", game) for column in columns]
        yield _row(game, [*cells, *(_spread(interval_of(one)) if len(one) else "" for one in returns)])
    ours = [scores(results, column.variant, normalise, column.key) for column in columns]
    theirs = [_published_scores(results, normalise, values) for values in published.values()]
    for by in AGGREGATES:
        cells = [_number(estimate(one, by)) if one.size else "" for one in theirs]
        yield _row(f"**{by}**", [*cells, *(_spread(interval_of(one, by)) if one.size else "" for one in ours)])
    against = scores(results, reference.variant, normalise, reference.key)
    better = []
    for column, one in zip(columns, ours):
        comparable = column != reference and min(len(one), len(against)) > 1
        better.append(_spread(probability_of_improvement(one, against)) if comparable else "")
    yield _row(f"better than {reference.label}", [*[""] * len(published), *better])
    agents = [results.of(column.variant) if column.key == "agent" else [] for column in columns]
    times = [f"{np.mean([run.core_minutes for run in runs]):.1f}" if runs else "" for runs in agents]
    yield _row("core-minutes of a run", [*[""] * len(published), *times])


def _rectangular(samples: Sequence[np.ndarray]) -> np.ndarray:
    """[runs, games] of samples [runs] for each game, cut to the shortest."""
    count = min(map(len, samples), default=0)
    return np.stack([one[:count] for one in samples], 1) if count else np.zeros((0, len(samples)))


def _published_scores(results: Results, normalise: Normalise, values: Mapping[str, float | None]) -> np.ndarray:
    """[1, games], of the games that have one."""
    known = [(game, value) for game in results.games if (value := values.get(game)) is not None]
    return _rectangular([normalise(results, game, np.array([value])) for game, value in known])


def _curve_of_all(axis: Axes, results: Results, normalise: Normalise, by: Aggregate, unit: str) -> None:
    """The aggregate of normalised running averages by frames, of all games that have any."""
    for number, (variant, label) in enumerate(results.labels.items()):
        curves = []
        for game in results.games:
            runs = [run for run in results.of(variant, game) if run.curve.get("return")]
            normalised = [normalise(results, game, np.array(run.curve["return"], np.float64)) for run in runs]
            usable = [(np.array(run.curve[STEP], np.float64), y) for run, y in zip(runs, normalised) if len(y)]
            if usable:  # training may end before the first episode of a game
                curves.append(usable)
        if not curves:
            continue
        count = min(map(len, curves))
        grid, values = on_common_grid([one for usable in curves for one in usable[:count]])
        if not len(grid):
            continue
        thin = np.unique(np.linspace(0, len(grid) - 1, _POINTS).astype(int))
        stacked = values[:, thin].reshape(len(curves), count, len(thin)).transpose(1, 0, 2)  # [runs, games, points]
        band(axis, grid[thin], curve_band(stacked, by), number, label)
    axis.set_title(f"{by} of these games", fontsize=9)
    axis.set_ylabel(unit, fontsize=8)
    axis.xaxis.set_major_formatter(EngFormatter(sep=""))
    style(axis)


def _aggregates(axis: Axes, results: Results, normalise: Normalise, unit: str) -> None:
    """Aggregates of the scores of test episodes after training."""
    for number, variant in enumerate(results.labels):
        values = scores(results, variant, normalise)
        for place, by in enumerate(AGGREGATES):
            if values.size:
                middle = interval_of(values, by)
                x = place + 0.2 * (number - (len(results.labels) - 1) / 2)
                axis.errorbar(x, middle.estimate, yerr=bars([middle]), fmt="o", color=color(number), capsize=3)
    axis.set_xticks(range(len(AGGREGATES)), AGGREGATES, fontsize=8)
    axis.set_xlim(-0.6, len(AGGREGATES) - 0.4)
    axis.set_title("test episodes after training", fontsize=9)
    axis.set_ylabel(unit, fontsize=8)
    style(axis)


def _row(name: str, cells: Sequence[str]) -> str:
    return f"| {' | '.join([name.replace('_', ' '), *cells])} |"


def _number(value: float | None) -> str:
    if value is None:
        return "n.a."
    return f"{round(value, 2) + 0.0:,.2f}" if abs(value) < 100 else f"{value:,.0f}"  # no -0.00


def _spread(interval: Interval) -> str:
    return f"{_number(interval.estimate)} ({_number(interval.low)} to {_number(interval.high)})"
