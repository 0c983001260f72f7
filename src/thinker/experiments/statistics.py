"""Intervals over seeds, by rliable (Agarwal et al. 2021): stratified bootstrap and probability of improvement.

Scores are arrays [runs, tasks]; an experiment on one environment has one task. Several tasks are aggregated by their
interquartile mean, a single task by its mean. Intervals are percentile intervals of 95 %.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from thinker.errors import UserError

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


def aggregate(scores: np.ndarray) -> Interval:
    """The aggregate of scores [runs, tasks]: interquartile mean of several tasks, mean of one."""
    return _interval(_aggregate, _checked(scores))


def difference(first: np.ndarray, second: np.ndarray) -> Interval:
    """The aggregate of ``first`` minus that of ``second``, [runs, tasks] with the same tasks; runs are independent."""
    return _interval(lambda x, y: _aggregate(x) - _aggregate(y), _checked(first), _checked(second))


def ratio(first: np.ndarray, second: np.ndarray) -> Interval:
    """The aggregate of ``first`` divided by that of ``second``."""
    return _interval(lambda x, y: _aggregate(x) / _aggregate(y), _checked(first), _checked(second))


def probability_of_improvement(first: np.ndarray, second: np.ndarray) -> Interval:
    """The probability that a run of ``first`` has a higher score than a run of ``second`` on the same task."""
    _, metrics = _rliable()
    return _interval(metrics.probability_of_improvement, _checked(first), _checked(second))


def curve_band(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean and 95 % interval of curves [runs, points] at every point: three arrays [points]."""
    library, _ = _rliable()
    with _reproducible():
        mean, band = library.get_interval_estimates(
            {"curves": values[:, None, :]}, lambda scores: scores.mean((0, 1)), reps=RESAMPLES
        )
    return mean["curves"], band["curves"][0], band["curves"][1]


def _aggregate(scores: np.ndarray) -> Any:
    _, metrics = _rliable()
    return metrics.aggregate_mean(scores) if scores.shape[1] == 1 else metrics.aggregate_iqm(scores)


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
