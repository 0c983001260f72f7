"""Figure 9 and the tables of scores: Thinker and the raw MDP on Atari, beside the published scores."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from thinker.experiments.catalogue.scales import variant
from thinker.experiments.experiment import Experiment, Games, Scale, Variant, changed
from thinker.experiments.games import Column, draw_games, game_claims, games_table
from thinker.experiments.measurements import TestEpisodes
from thinker.experiments.results import Results
from thinker.runs.presets import preset

FILE = Path(__file__).parent / "atari_scores.json"
"""The paper's table of scores for each game."""
EPISODES: dict[Scale, int] = {"tiny": 2, "laptop": 20, "paper": 100}
STEPS = 400_000
"""Real steps of a run at laptop scale, of four frames each."""
THINKER, RAW = "thinker", "raw"
UNIT = "human-normalised score"
TINY = {
    "real_steps": 160,
    "num_envs": 2,
    "environment.size": 16,
    "environment.max_frames": 160,
    "agent.batch_size": 2,
}


def published() -> dict[str, dict[str, float | None]]:
    """The paper's scores by column and game."""
    values = json.loads(FILE.read_text(encoding="utf-8"))
    return {
        f"paper: {column}": {game: scores[number] for game, scores in values["games"].items()}
        for number, column in enumerate(values["columns"])
    }


GAMES = tuple(published()["paper: Thinker"])
"""The 57 games of the benchmark."""


def variants(scale: Scale) -> tuple[Variant, ...]:
    agent, base = (TestEpisodes(EPISODES[scale], who) for who in ("agent", "base-policy"))
    if scale == "paper":
        return (
            Variant(THINKER, "Thinker", "atari", {}, (agent, base)),
            Variant(RAW, "raw MDP", "atari-raw", {}, (agent,)),
        )
    changes = {"real_steps": STEPS, "annealing_steps": None}
    return (
        variant(scale, THINKER, "Thinker", "atari-small", changes, (agent, base), tiny=TINY),
        variant(scale, RAW, "raw MDP", "atari-small-raw", changes, (agent,), tiny=TINY),
    )


@functools.cache
def _line(game: str) -> tuple[float, float]:
    """Score of a return of 0, and how much it grows with the return."""
    environment = changed(preset("atari"), {"environment.game": game}).environment
    zero, one = (environment.scores(np.array([points]))["human_normalised"] for points in (0.0, 1.0))
    return zero, one - zero


def normalised(results: Results, game: str, returns: np.ndarray) -> np.ndarray:
    """Human-normalised scores of ``returns`` on a game: 0 is random play, 1 a professional player."""
    zero, slope = _line(game)
    return np.asarray(zero + slope * returns)


def draw(results: Results, figure: Figure) -> None:
    draw_games(results, figure, normalised, "median", UNIT)


def table(results: Results) -> Iterator[str]:
    raw = Column(RAW, "agent", "here: raw MDP")
    columns = (
        raw,
        Column(THINKER, "base-policy", "here: Thinker, base policy"),
        Column(THINKER, "agent", "here: Thinker"),
    )
    yield from games_table(results, normalised, columns, published(), reference=raw)
    yield ""
    frames = sorted({4 * run.frames for run in results.runs})
    yield (
        f"Points of whole games. The paper's are those after 200 million frames (Rainbow: the best snapshots of its "
        f"authors), ours after {' or '.join(f'{count:,}' for count in frames)} frames of the emulator, on test "
        f"episodes, the mean over seeds with its 95 % interval (stratified bootstrap, rliable). The aggregates are "
        f"those of human-normalised scores (package `atarihns`) on the games of this table that have one. Better: the "
        f"probability that a run scores higher than a run of our raw MDP on the same game."
    )


EXPERIMENT = Experiment(
    module=__name__,
    name="atari",
    title="Thinker and the raw MDP on Atari",
    paper="figure 9 and tables of scores",
    question="How do the human-normalised scores compare after the same number of frames?",
    variants=variants,
    draw=draw,
    caption=(
        "Points in training on each game by real steps of four frames, the median of human-normalised scores over "
        "games, and their aggregates on test episodes."
    ),
    claims=game_claims(THINKER, RAW, normalised),
    table=table,
    games=Games(GAMES, {"tiny": ("breakout",), "laptop": ("pong", "breakout", "freeway"), "paper": GAMES}),
    notes=(
        "Laptop scale: `atari-small` and `atari-small-raw` (48×48 gray pixels, small networks, 400,000 real steps or "
        "1.6 million frames) on three games. Paper scale: `atari` and `atari-raw` on 57 games, 200 million frames, "
        "five seeds; the paper has one seed, and three on five games. Our running averages are over 200 episodes, the "
        "paper's over 500. The paper's scores of single games and `atarihns` give the medians over 57 games that are "
        "in the paper (261 %, base policy 160 %, raw MDP 102 %), but not the means: 1938 % instead of 1372 %, raw MDP "
        "815 % instead of 514 %. With 0 instead of 16,257 points for random play in Video Pinball, they do."
    ),
)
