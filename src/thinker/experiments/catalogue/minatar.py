"""Figure 9 on a laptop: Thinker and the raw MDP on the five games of MinAtar."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from matplotlib.figure import Figure

from thinker.experiments.catalogue.scales import variant
from thinker.experiments.experiment import Experiment, Games, Scale, Variant
from thinker.experiments.games import Column, draw_games, game_claims, games_table
from thinker.experiments.measurements import TestEpisodes
from thinker.experiments.results import Results

GAMES = ("asterix", "breakout", "freeway", "seaquest", "space_invaders")
EPISODES: dict[Scale, int] = {"tiny": 6, "laptop": 50, "paper": 500}
FRAMES: dict[Scale, int] = {"tiny": 480, "laptop": 100_000, "paper": 5_000_000}
"""MinAtar's authors train for as many as at paper scale."""
THINKER, RAW = "thinker", "raw"
UNIT = "random play = 0, best run = 1"


def variants(scale: Scale) -> tuple[Variant, ...]:
    changes: dict[str, int | None] = {"real_steps": FRAMES[scale], "annealing_steps": None}
    if scale == "laptop":
        changes["evaluation.episodes"] = 20  # of validation: settings are not chosen here
    agent, base, chance = (TestEpisodes(EPISODES[scale], who) for who in ("agent", "base-policy", "random-play"))
    chosen = ((THINKER, "Thinker", "minatar", (agent, base)), (RAW, "raw MDP", "minatar-raw", (agent, chance)))
    if scale == "paper":
        return tuple(Variant(name, label, preset, changes, measured) for name, label, preset, measured in chosen)
    return tuple(variant(scale, name, label, preset, changes, measured) for name, label, preset, measured in chosen)


def normalised(results: Results, game: str, returns: np.ndarray) -> np.ndarray:
    """Scores of ``returns`` on a game: 0 is random play, 1 the best run of all on test episodes."""
    chance = results.measured(RAW, "random-play", "return", game)
    if not len(chance):
        return returns[:0]
    best = max(results.measured(name, "agent", "return", game).max(initial=-np.inf) for name in results.labels)
    span = best - chance.mean()
    return (returns - chance.mean()) / (span if span > 0 else 1.0)


def draw(results: Results, figure: Figure) -> None:
    draw_games(results, figure, normalised, "interquartile mean", UNIT)


def table(results: Results) -> Iterator[str]:
    raw = Column(RAW, "agent", "raw MDP")
    columns = (
        Column(RAW, "random-play", "random play"),
        raw,
        Column(THINKER, "base-policy", "Thinker, base policy"),
        Column(THINKER, "agent", "Thinker"),
    )
    yield from games_table(results, normalised, columns, reference=raw)
    yield ""
    yield (
        f"Returns of test episodes, the mean over seeds with its 95 % interval (stratified bootstrap, rliable). The "
        f"aggregates are those of scores that are normalised on each game: {UNIT}, the highest mean return of a "
        f"single run of either method. Better: the probability that a run scores higher than a run of the raw MDP on "
        f"the same game."
    )


EXPERIMENT = Experiment(
    module=__name__,
    name="minatar",
    title="Thinker and the raw MDP on MinAtar",
    paper="figure 9, on small games",
    question="Does planning help on games with moving objects, after the same number of frames?",
    variants=variants,
    draw=draw,
    caption=(
        "Return in training on each game by frames, the interquartile mean of normalised returns, and the aggregates "
        "of normalised scores on test episodes."
    ),
    claims=game_claims(THINKER, RAW, normalised),
    table=table,
    games=Games(GAMES, {"tiny": ("breakout",), "laptop": GAMES, "paper": GAMES}),
    notes=(
        "The paper has no MinAtar: these are its claims about Atari, on games that two cores can learn. Presets "
        "`minatar` and `minatar-raw`, with sticky actions; Thinker's agent sees the tree and the real board. Laptop "
        "scale: 100,000 frames for both methods, which take different times for them. Episodes of Freeway take 2,500 "
        "steps, more than each environment plays, so that none ends in training. Paper scale: 5,000,000 frames with "
        "the same settings."
    ),
)
