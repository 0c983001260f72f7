"""Human-normalised scores of the 57 games of the paper's benchmark: 0 is random play, 1 a professional player.

The scores of both are those of the package ``atarihns`` (extra ``thinker[atari]``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from thinker.envs.atari.env import rom_name
from thinker.errors import UserError


def benchmark_games() -> list[str]:
    """The names of the 57 games."""
    return sorted(_table())


def human_normalised(game: str, score: float) -> float:
    """(score - random) / (human - random); raises a `UserError` for a game outside of the benchmark."""
    table = _table()
    name = rom_name(game)
    if name not in table:
        raise UserError(f"{name} is not one of the 57 games with known human scores: {', '.join(sorted(table))}")
    random, human = table[name]
    return (score - random) / (human - random)


def aggregate(normalised: Iterable[float]) -> dict[str, float]:
    """Median, mean and interquartile mean over games (or runs).

    The interquartile mean leaves out the lowest and the highest quarter, rounded down to whole scores.
    """
    scores = np.sort(np.fromiter(normalised, np.float64))
    if len(scores) == 0:
        raise UserError("there are no scores to aggregate")
    cut = len(scores) // 4
    inner = scores[cut : len(scores) - cut]
    return {"median": float(np.median(scores)), "mean": float(scores.mean()), "interquartile_mean": float(inner.mean())}


def _table() -> Mapping[str, tuple[float, float]]:
    """(random, human) score of each game."""
    try:
        from atarihns.constants import ATARI_SCORES
    except ImportError as problem:
        raise UserError(
            f"human-normalised scores need the package atarihns ({problem}); install it with pip install "
            f"'thinker[atari]', or in a clone of the repository pip install -c constraints.txt -e \".[atari]\""
        ) from problem
    return {rom_name(name): scores for name, scores in ATARI_SCORES.items()}
