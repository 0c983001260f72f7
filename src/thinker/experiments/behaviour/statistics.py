"""The statistics of stages that appendix F shows, as plain functions of arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from thinker.experiments.behaviour.stages import Stages

GROUPS = 20
"""Of environments, each left out in turn to estimate standard errors."""


def standard_error(stages: Stages, statistic: Callable[[Stages], float]) -> float:
    """The standard error of ``statistic``, by leaving out a group of environments at a time (jackknife).

    Stages of one episode resemble each other, so whole environments are left out. nan if there is only one.
    """
    environments = np.unique(stages.environment)
    groups = min(GROUPS, len(environments))
    if groups < 2:
        return float("nan")
    group = np.searchsorted(environments, stages.environment) % groups
    values = np.array([statistic(stages.select(group != left_out)) for left_out in range(groups)])
    return float(np.sqrt((groups - 1) / groups * ((values - values.mean()) ** 2).sum()))


def bins(samples: Sequence[np.ndarray], count: int = 60, left_out: tuple[float, float] = (0.002, 0.002)) -> np.ndarray:
    """Edges [count + 1] of equal bins for all ``samples``.

    The shares ``left_out`` of each sample, the lowest and the highest numbers, may lie outside of them.

    Zero is an edge if it lies inside, so that no bar mixes better and worse rollouts.
    """
    full = [sample for sample in samples if len(sample)]
    low = min((float(np.quantile(sample, left_out[0])) for sample in full), default=0.0)
    high = max((float(np.quantile(sample, 1 - left_out[1])) for sample in full), default=0.0)
    if high - low < 1e-6:
        low, high = low - 0.5, high + 0.5
    width = (high - low) / count
    if low < 0 < high:
        below = min(max(1, round(-low / width)), count - 1)
        width = max(-low / below, high / (count - below))
        low = -width * below
    return low + width * np.arange(count + 1)


def density(sample: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """The probability density of ``sample`` in each bin; what lies outside of the edges counts in the total."""
    counts = np.histogram(sample, edges)[0]
    return counts / (max(1, len(sample)) * np.diff(edges))


def share_by_quantile(value: np.ndarray, event: np.ndarray, count: int = 20) -> tuple[np.ndarray, np.ndarray]:
    """The share of ``event`` [N] (bool) among ``count`` equally large groups by ``value`` [N], from low to high.

    Returns the groups' mean values and shares. There are fewer groups if there are fewer values.
    """
    order = np.argsort(value, kind="stable")
    groups = [group for group in np.array_split(order, count) if len(group)]
    return np.array([value[group].mean() for group in groups]), np.array([event[group].mean() for group in groups])


def expansion_lengths(stages: Stages) -> tuple[np.ndarray, int]:
    """The number of steps to new nodes in every rollout, and the number of rollouts left out.

    A rollout ends when the agent resets or at the depth limit. Those that the end of the stage cut off are left out.
    """
    lengths: list[np.ndarray] = []
    length = np.zeros(len(stages), np.int64)
    ends = stages.forced | (stages.free & stages.reset)
    for step in range(ends.shape[1]):
        length += stages.new[:, step]
        ended = ends[:, step]
        lengths.append(length[ended])
        length[ended] = 0
    return np.concatenate(lengths), int((~ends[:, -1]).sum())


def rank_shares(statistic: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """How much of ``weight`` [S, A] lies on the highest ``statistic`` [S, A] of each row, the second highest and so on.

    Actions without a statistic (nan) come last. Equal ones share their ranks: two that are the second highest each
    count one half as second and one half as third. Returns the mean over the rows, [A].
    """
    value = np.where(np.isnan(statistic), -np.inf, statistic)
    higher = (value[:, None, :] > value[:, :, None]).sum(2)  # [S, A]  actions that are better than action a
    equal = (value[:, None, :] == value[:, :, None]).sum(2)  # [S, A]  as good as it, itself included
    rank = np.arange(value.shape[1])
    covers = (rank >= higher[..., None]) & (rank < (higher + equal)[..., None])  # [S, A, rank]
    shares: np.ndarray = (weight[..., None] * covers / equal[..., None]).sum(1).mean(0)
    return shares


def visit_policy(visits: np.ndarray, temperature: float) -> np.ndarray:
    """MuZero's distribution of the real action: in proportion to ``visits``^(1 / temperature), [S, A]."""
    relative = (visits / visits.max(1, keepdims=True)) ** (1 / temperature)
    distribution: np.ndarray = relative / relative.sum(1, keepdims=True)
    return distribution


def crossing(budgets: Sequence[int], scores: Sequence[float], target: float) -> float | None:
    """The budget at which ``scores`` first reach ``target``, between two budgets by interpolation over their logarithm.

    The first budget if that is enough; None if none is.
    """
    for number, score in enumerate(scores):
        if score >= target:
            if number == 0:
                return float(budgets[0])
            before = scores[number - 1]
            part = (target - before) / (score - before)
            return float(budgets[number - 1] * (budgets[number] / budgets[number - 1]) ** part)
    return None
