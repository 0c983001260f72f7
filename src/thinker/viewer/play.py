"""Records a training run's agent at play: on held-out levels, as `thinker.runs.evaluation` tests it."""

from __future__ import annotations

import dataclasses

import numpy as np

from thinker.agents import Agent
from thinker.envs.sokoban import LevelSet
from thinker.runs.evaluation import environments_for_levels, held_out_levels
from thinker.runs.loop import Run, make_environments
from thinker.runs.settings import SOKOBAN
from thinker.viewer.recorder import record
from thinker.viewer.recording import Recording


def record_run(
    run: Run,
    *,
    episodes: int = 5,
    level: str | None = None,
    stage_length: int | None = None,
    greedy: bool = False,
    seed: int | None = None,
    title: str = "",
    notes: dict[str, str] | None = None,
) -> Recording:
    """Play with the run's agent. Nothing of the run is changed.

    Args:
        run: from `thinker.runs.commands.load_run`.
        episodes: on as many different levels, or with ``level`` as many tries of that one.
        level: the index of a held-out level, or ``FILE:INDEX`` of a level in a Boxoban file.
        stage_length: K; default: the one it was trained with.
        greedy: take the likeliest actions instead of drawing them.
        seed: of the agent's draws; default: that of the run's evaluation.
        title: of the page.
        notes: shown on the page.
    """
    if episodes < 1:
        raise ValueError(f"episodes={episodes}; expected at least 1")
    settings = run.settings
    seed = settings.evaluation.seed if seed is None else seed
    indices: list[int] | None = None
    if settings.environment.id == SOKOBAN:
        levels, indices = _levels(run, episodes, level)
        envs = environments_for_levels(settings, episodes, levels)
        if envs.single_observation_space != run.envs.single_observation_space:
            height, width = levels.size
            raise ValueError(f"--level {level}: a board of {height} x {width}, but the run was trained on other sizes")
    elif level is not None:
        raise ValueError(f"--level {level}: {settings.environment.id} has no levels to choose from; leave it out")
    else:
        envs = make_environments(settings, episodes)
    env = run.wrap(envs, stage_length or settings.search.stage_length, seed)
    agent = Agent(run.network, env, seed=seed, greedy=greedy)
    recording = record(env, agent, episodes=episodes, title=title, notes=notes)
    env.close()
    if indices is not None:
        played = [dataclasses.replace(e, level=indices[e.environment]) for e in recording.episodes]
        recording = dataclasses.replace(recording, episodes=played)
    return dataclasses.replace(recording, environment=settings.environment.id)


def _levels(run: Run, episodes: int, level: str | None) -> tuple[LevelSet, list[int]]:
    """A set of one level for each episode, and their indices where they came from."""
    if level is None:
        found = held_out_levels(run.settings, episodes)
        if len(found) < episodes:
            raise ValueError(f"--episodes {episodes}: there are only {len(found)} held-out levels")
        return found, list(range(episodes))
    file, _, text = level.rpartition(":")
    if not text.isdecimal():
        raise ValueError(f"--level {level}: expected the index of a held-out level, or FILE:INDEX")
    index = int(text)
    found = LevelSet.load(file) if file else held_out_levels(run.settings, index + 1)
    if index >= len(found):
        raise ValueError(f"--level {level}: there are only {len(found)} levels, counted from 0")
    return LevelSet(np.repeat(found.boards[index : index + 1], episodes, 0)), [index] * episodes
