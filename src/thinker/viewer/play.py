"""Records a training run's agent at play, on the held-out episodes that evaluations use."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from thinker.errors import UserError
from thinker.viewer.recorder import record
from thinker.viewer.recording import Recording

if TYPE_CHECKING:
    from thinker.envs.spec import Split
    from thinker.planners import PlannerSpec
    from thinker.runs.run import Run, Who

_MOST_NODES = 8_192
"""In the search trees of all environments together: planners with many simulations play in fewer environments."""


def record_run(
    run: Run,
    *,
    episodes: int = 5,
    episode: str | None = None,
    stage_length: int | None = None,
    greedy: bool = False,
    seed: int | None = None,
    who: Who | PlannerSpec = "agent",
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
        stage_length: K; default: the one that the agent was trained with. Ignored for planners.
        greedy: take the most probable actions instead of sampling them.
        seed: of the actor's random draws; default: that of the run's evaluations.
        who: "agent", the world model's "base-policy", or a planner that searches the model.
        split: the set of held-out episodes.
        title: title of the page.
        notes: shown on the page.
    """
    if episodes < 1:
        raise UserError(f"episodes is {episodes}; it must be at least 1")
    if stage_length is not None and stage_length < 1:
        raise UserError(f"stage_length is {stage_length}; it must be at least 1 (1: no planning)")
    environment = run.settings.environment.rendering()
    planner = _planner(run, who)
    if episode is None:
        most_envs = episodes if planner is None else max(1, _MOST_NODES // getattr(planner, "simulations", 1))
        envs = environment.held_out(split, min(episodes, most_envs), episodes)
    else:
        envs = environment.chosen_episode(episode, split, episodes)
    keeps = run.settings.model.predicts_states
    try:
        env = run.wrap(envs, stage_length=stage_length if planner is None else 1, keep_states=keeps)
        chosen_seed = run.settings.evaluation.seed if seed is None else seed
        actor = run.actor(env, who, seed=chosen_seed, greedy=greedy, keep_states=keeps)
        recording = record(env, actor, episodes=episodes, title=title, notes=notes)
    finally:
        envs.close()
    if episode is None:  # environment e of E has played the held-out episodes e, e + E, e + 2 E, ...
        count = [0] * envs.num_envs
        numbers = []
        for one in recording.episodes:
            numbers.append(one.environment + envs.num_envs * count[one.environment])
            count[one.environment] += 1
        in_order = sorted(zip(numbers, recording.episodes), key=lambda pair: pair[0])
        played = [dataclasses.replace(one, level=number) for number, one in in_order]
    else:
        played = [dataclasses.replace(one, level=_index_of(episode)) for one in recording.episodes]
    return dataclasses.replace(recording, environment=environment.name, episodes=played)


def _planner(run: Run, who: Who | PlannerSpec) -> PlannerSpec | None:
    from thinker.planners import PlannerSpec

    spec = run.settings.agent if who == "agent" else who
    return spec if isinstance(spec, PlannerSpec) else None


def _index_of(episode: str) -> int | None:
    """The number in a name such as ``17`` or ``FILE:17``."""
    number = episode.rpartition(":")[2]
    return int(number) if number.isdecimal() else None
