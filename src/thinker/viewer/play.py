"""Records a training run's agent at play, on the held-out episodes that evaluations use."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from thinker.errors import UserError
from thinker.viewer.recorder import record
from thinker.viewer.recording import Recording

if TYPE_CHECKING:
    from thinker.envs.spec import Split
    from thinker.runs.run import Run, Who


def record_run(
    run: Run,
    *,
    episodes: int = 5,
    episode: str | None = None,
    stage_length: int | None = None,
    greedy: bool = False,
    seed: int | None = None,
    who: Who = "agent",
    split: Split = "test",
    title: str = "",
    notes: dict[str, str] | None = None,
) -> Recording:
    """Record held-out episodes of a run. The run itself is not changed.

    The `Episode.level` of each is its index among the held-out episodes, or in the file it was chosen from.

    Args:
        run: a run, for example from `thinker.runs.load.load_run`.
        episodes: how many different held-out episodes to play, or how often to play the chosen ``episode``.
        episode: play only this one: the index of a held-out episode, or another name that the environment knows.
        stage_length: K; default: the one that the agent was trained with.
        greedy: take the most probable actions instead of sampling them.
        seed: of the actor's random draws; default: that of the run's evaluations.
        who: "agent", or the world model's "base-policy".
        split: the set of held-out episodes.
        title: title of the page.
        notes: shown on the page.
    """
    if episodes < 1:
        raise UserError(f"episodes is {episodes}; it must be at least 1")
    if stage_length is not None and stage_length < 1:
        raise UserError(f"stage_length is {stage_length}; it must be at least 1 (1: no planning)")
    environment = run.settings.environment.rendering()
    if episode is None:
        envs = environment.held_out(split, episodes, episodes)
    else:
        envs = environment.chosen_episode(episode, split, episodes)
    try:
        env = run.wrap(envs, stage_length=stage_length, keep_states=run.settings.model.predicts_states)
        actor = run.actor(env, who, seed=run.settings.evaluation.seed if seed is None else seed, greedy=greedy)
        recording = record(env, actor, episodes=episodes, title=title, notes=notes)
    finally:
        envs.close()
    played = [
        dataclasses.replace(one, level=one.environment if episode is None else _index_of(episode))
        for one in recording.episodes
    ]
    return dataclasses.replace(recording, environment=environment.name, episodes=played)


def _index_of(episode: str) -> int | None:
    """The number in a name such as ``17`` or ``FILE:17``."""
    number = episode.rpartition(":")[2]
    return int(number) if number.isdecimal() else None
