"""Intervals over seeds, by rliable (Agarwal et al. 2021): stratified bootstrap and probability of improvement.

Scores are arrays [runs, tasks]; an experiment on one environment has one task. Several tasks are aggregated by their
interquartile mean unless another aggregate is chosen, a single task by its mean. Intervals are percentile intervals of
95 %.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import numpy as np

from thinker.errors import UserError

Aggregate = Literal["interquartile mean", "median", "mean"]
"""Of several tasks. The first leaves out the lowest and the highest quarter of all runs on all tasks; the others are
those of the tasks' means."""
RESAMPLES = 2_000
_SEED = 20_231_210


class Interval(NamedTuple):
    """An estimate with its 95 % interval."""

    estimate: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.estimate:.3f} ({self.low:.3f} to {self.high:.3f})"


def check_installed() -> None:
    """Raise an error if rliable cannot be used."""
    _rliable()


def aggregate(scores: np.ndarray, by: Aggregate = "interquartile mean") -> Interval:
    """The aggregate of scores [runs, tasks]; the mean of a single task."""
    return _interval(lambda x: _aggregate(x, by), _checked(scores))


def estimate(scores: np.ndarray, by: Aggregate = "interquartile mean") -> float:
    """The same without its interval."""
    return float(_aggregate(_checked(scores), by))


def difference(first: np.ndarray, second: np.ndarray, by: Aggregate = "interquartile mean") -> Interval:
    """The aggregate of ``first`` minus that of ``second``, [runs, tasks] with the same tasks; runs are independent."""
    return _interval(lambda x, y: _aggregate(x, by) - _aggregate(y, by), _checked(first), _checked(second))


def paired_difference(first: np.ndarray, second: np.ndarray, by: Aggregate = "interquartile mean") -> Interval:
    """The same for two scores of the same runs, which are resampled together."""
    first, second = _checked(first), _checked(second)
    runs = np.arange(len(first))[:, None].repeat(
        first.shape[1], 1
    )  # these are resampled: rliable would separate scores
    tasks = np.arange(first.shape[1])

    def function(drawn: np.ndarray) -> Any:
        return _aggregate(first[drawn, tasks], by) - _aggregate(second[drawn, tasks], by)

    return _interval(function, runs)


def ratio(first: np.ndarray, second: np.ndarray, by: Aggregate = "interquartile mean") -> Interval:
    """The aggregate of ``first`` divided by that of ``second``."""
    return _interval(lambda x, y: _aggregate(x, by) / _aggregate(y, by), _checked(first), _checked(second))


def probability_of_improvement(first: np.ndarray, second: np.ndarray) -> Interval:
    """The probability that a run of ``first`` has a higher score than a run of ``second`` on the same task."""
    _, metrics = _rliable()
    return _interval(metrics.probability_of_improvement, _checked(first), _checked(second))


def curve_band(values: np.ndarray, by: Aggregate = "interquartile mean") -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The mean of curves [runs, points], or the aggregate of curves [runs, tasks, points], and its 95 % interval at
    every point: three arrays [points]. A single run has no interval."""
    library, _ = _rliable()
    curves = values[:, None, :] if values.ndim == 2 else values

    def at_every_point(scores: np.ndarray) -> np.ndarray:
        if scores.shape[1] == 1:
            return np.asarray(scores.mean((0, 1)))
        return np.array([_aggregate(scores[..., point], by) for point in range(scores.shape[2])])

    if len(curves) == 1:
        return (at_every_point(curves),) * 3
    with _reproducible():
        middle, band = library.get_interval_estimates({"curves": curves}, at_every_point, reps=RESAMPLES)
    return middle["curves"], band["curves"][0], band["curves"][1]


def _aggregate(scores: np.ndarray, by: Aggregate) -> Any:
    _, metrics = _rliable()
    if by == "median":
        return metrics.aggregate_median(scores)
    return metrics.aggregate_mean(scores) if by == "mean" or scores.shape[1] == 1 else metrics.aggregate_iqm(scores)


def _interval(function: Callable[..., Any], *scores: np.ndarray) -> Interval:
    library, _ = _rliable()
    given = scores[0] if len(scores) == 1 else scores
    with _reproducible():
        estimate, interval = library.get_interval_estimates(
            {"scores": given}, lambda *resampled: np.array([function(*resampled)]), reps=RESAMPLES
        )
    low, high = interval["scores"][:, 0]
    return Interval(float(estimate["scores"][0]), float(low), float(high))


def _checked(scores: np.ndarray) -> np.ndarray:
    scores = np.asarray(scores, np.float64)
    if scores.ndim == 1:
        scores = scores[:, None]
    if scores.ndim != 2 or not scores.size:
        raise ValueError(f"scores must be an array [runs, tasks], not of shape {scores.shape}")
    return scores


@contextmanager
def _reproducible() -> Iterator[None]:
    """rliable resamples with NumPy's global generator: seed it here, and restore it afterwards."""
    before = np.random.get_state()  # noqa: NPY002
    np.random.seed(_SEED)  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(before)  # noqa: NPY002


def _rliable() -> tuple[Any, Any]:
    try:
        from rliable import library, metrics
    except ImportError as error:
        raise UserError(
            f"intervals are computed by rliable, which cannot be imported ({error}); install it: "
            f'pip install "thinker[reproduce]"'
        ) from error
    return library, metrics
