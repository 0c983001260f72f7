"""The paper's claims as functions of the results: they hold, do not hold, or are undecided, by 95 % intervals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from thinker.experiments.results import Results
from thinker.experiments.statistics import Aggregate, Interval, aggregate, difference, paired_difference, ratio

Judgement = Literal["holds", "does not hold", "undecided"]

MARGIN = 0.05
"""Solve rates that differ by at most this much count as equal."""


@dataclass(frozen=True)
class Verdict:
    """Whether a claim holds, and the numbers that say so."""

    judgement: Judgement
    evidence: str


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, in our words, and how to judge it."""

    sentence: str
    judge: Callable[[Results], Verdict]


@dataclass(frozen=True)
class Quantity:
    """One number for each run of a variant."""

    variant: str
    name: str  # in sentences
    values: Callable[[Results, str], np.ndarray]  # of the results and the variant: [runs], or [runs, games]
    by: Aggregate = "interquartile mean"  # of the games, if there are several

    def of(self, results: Results) -> np.ndarray:
        return self.values(results, self.variant)

    def described(self, results: Results) -> str:
        return f"{results.label(self.variant)}, {self.name}"


def solved(variant: str, key: str = "agent") -> Quantity:
    """The share of test episodes that are solved; ``key`` is that of `TestEpisodes`."""
    return Quantity(variant, f"{key} on test episodes", lambda results, name: results.measured(name, key, "solved"))


def early(variant: str, share: float = 0.5) -> Quantity:
    """The mean of the learning curve over the first ``share`` of the run: how fast it learns at first."""
    name = f"training episodes solved in the first {share:.0%} of the frames"
    return Quantity(variant, name, lambda results, one: results.early(one, "solved", share))


def core_seconds(variant: str) -> Quantity:
    """Core-seconds of training for each real step, after random play."""
    return Quantity(variant, "core-seconds for each frame", lambda results, name: results.core_seconds(name))


def greater(first: Quantity, second: Quantity, by: float = 0.0) -> Callable[[Results], Verdict]:
    """``first`` is greater than ``second``, by more than ``by``."""

    def judge(results: Results) -> Verdict:
        return _compared(results, first, second, difference, lambda x: _above(x, by))

    return judge


def above(quantity: Quantity, limit: float = 0.0) -> Callable[[Results], Verdict]:
    """``quantity`` is greater than ``limit``."""

    def judge(results: Results) -> Verdict:
        sample = quantity.of(results)
        if len(sample) < 2:
            return _too_few(results, quantity, sample)
        interval = aggregate(sample, quantity.by)
        return Verdict(_above(interval, limit), f"{quantity.described(results)}: {interval}")

    return judge


def similar(first: Quantity, second: Quantity, margin: float = MARGIN) -> Callable[[Results], Verdict]:
    """``first`` and ``second`` differ by less than ``margin``."""

    def judge(results: Results) -> Verdict:
        return _compared(results, first, second, difference, lambda x: _within(x, margin))

    return judge


def times(first: Quantity, second: Quantity, low: float, high: float) -> Callable[[Results], Verdict]:
    """``first`` is ``low`` to ``high`` times ``second``."""

    def judge(results: Results) -> Verdict:
        def inside(x: Interval) -> Judgement:
            if low <= x.low and x.high <= high:
                return "holds"
            return "does not hold" if x.high < low or x.low > high else "undecided"

        return _compared(results, first, second, ratio, inside)

    return judge


def where_present(variant: str, judge: Callable[[Results], Verdict]) -> Callable[[Results], Verdict | None]:
    """``judge``, or None at scales at which the experiment does not have the ``variant``; a part of `all_of`."""
    return lambda results: judge(results) if variant in results.labels else None


def all_of(*parts: Callable[[Results], Verdict | None]) -> Callable[[Results], Verdict]:
    """Every part holds; parts that are None do not count."""

    def judge(results: Results) -> Verdict:
        verdicts = [verdict for part in parts if (verdict := part(results)) is not None]
        judgements = {verdict.judgement for verdict in verdicts}
        worst: Judgement = "holds" if verdicts else "undecided"
        for judgement in ("undecided", "does not hold"):
            worst = judgement if judgement in judgements else worst
        return Verdict(worst, "; ".join(dict.fromkeys(verdict.evidence for verdict in verdicts)))

    return judge


def _compared(
    results: Results,
    first: Quantity,
    second: Quantity,
    compare: Callable[[np.ndarray, np.ndarray, Aggregate], Interval],
    judge: Callable[[Interval], Judgement],
) -> Verdict:
    samples = [quantity.of(results) for quantity in (first, second)]
    for quantity, sample in zip((first, second), samples):
        if len(sample) < 2:
            return _too_few(results, quantity, sample)
    operation = "minus" if compare is difference else "divided by"
    if first.variant == second.variant and compare is difference:
        compare = paired_difference
    interval = compare(samples[0], samples[1], first.by)
    if first.name == second.name:
        compared = f"{results.label(first.variant)} {operation} {results.label(second.variant)}, {first.name}"
    else:
        compared = f"{first.described(results)} {operation} {second.described(results)}"
    evidence = f"{compared}: {interval}"
    return Verdict(judge(interval), evidence)


def _too_few(results: Results, quantity: Quantity, sample: np.ndarray) -> Verdict:
    have = "only one run" if len(sample) else "no run"
    return Verdict("undecided", f"{have} of {quantity.described(results)}")


def _above(interval: Interval, limit: float) -> Judgement:
    if interval.low > limit:
        return "holds"
    return "does not hold" if interval.high <= limit else "undecided"


def _within(interval: Interval, margin: float) -> Judgement:
    if -margin < interval.low and interval.high < margin:
        return "holds"
    return "does not hold" if interval.low > margin or interval.high < -margin else "undecided"
