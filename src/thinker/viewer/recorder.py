"""Plays with any actor in any `ThinkerEnv` and records every stage: what was imagined, and what came of it.

The environment is only looked at: its search trees through `ThinkerEnv.search_tree`, its real states through
`ThinkerEnv.real_observation` and `ThinkerEnv.last_transition`. Recording changes nothing for the actor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv
from torch import Tensor

from thinker.augmented import ThinkerEnv
from thinker.errors import UnsupportedError, UserError
from thinker.interfaces import Actor, Decision
from thinker.viewer.episode_writer import EpisodeWriter, RealOutcome
from thinker.viewer.frames import FrameStore
from thinker.viewer.recording import Recording

Policy = Callable[[dict[str, Any], dict[str, Any]], "Decision | Tensor | np.ndarray"]
"""(observation, info) of `ThinkerEnv.reset` or `ThinkerEnv.step` -> a `Decision`, or only its actions [E, 2]."""


def record(
    env: ThinkerEnv,
    actor: Actor | Policy,
    *,
    episodes: int = 1,
    seed: int | None = None,
    max_real_steps: int | None = None,
    action_names: Sequence[str] | None = None,
    title: str = "",
    notes: dict[str, str] | None = None,
) -> Recording:
    """Reset ``env``, play ``episodes`` episodes and record them.

    Episodes are divided evenly among the environments, so that short ones are not preferred: with as many environments
    as episodes, the first of each environment is recorded. They are ordered by environment, and by time within one.

    Predicted states are recorded where ``env`` keeps them: make it with ``keep_states=True``, or let it observe
    ``"predicted_state"``. Otherwise, and where the model predicts no states, the recording has no imagined frames.

    Three entries of ``env.envs.metadata`` are used if present: ``"action_names"``, ``"tile_pictures"`` (uint8
    [tiles, P, P, 3], for observations that are one-hot planes [tiles, H, W]) and ``"success"`` (see `ThinkerEnv`). Two
    entries of ``info`` are: ``"level"`` (an integer that tells which episode of a set is played) and ``"evaluating"``
    (False in environments that have no episode left to play; these are not recorded any further).

    Args:
        env: the augmented environment. Its sink, if any, receives the transitions as always.
        actor: an `Actor` of this environment, or a function of (observation, info); see `Policy`.
        episodes: how many to record.
        seed: passed to ``env.reset``.
        max_real_steps: leave an episode unfinished after this many real steps, and record no more of its environment.
        action_names: names of the A actions; default: those in the metadata, or else their numbers.
        title: title of the page.
        notes: shown on the page as they are, such as the name of the run.
    """
    if episodes < 1:
        raise UserError(f"episodes is {episodes}; it must be at least 1")
    if max_real_steps is not None and max_real_steps < 1:
        raise UserError(f"max_real_steps is {max_real_steps}; it must be at least 1, or None for no limit")
    names = _action_names(env, action_names)
    space = cast(spaces.Box, env.envs.single_observation_space)  # ThinkerEnv accepts no other
    frames = FrameStore(space, tile_pictures=env.envs.metadata.get("tile_pictures"))
    acting = _as_actor(actor)
    quotas = [len(range(e, episodes, env.num_envs)) for e in range(min(env.num_envs, episodes))]
    writers = [EpisodeWriter(env, e, quota, frames, max_real_steps) for e, quota in enumerate(quotas)]

    observation, info = env.reset(seed=seed)
    acting.begin(observation, info)
    real_states = env.real_observation
    for writer in writers:
        writer.begin(real_states[writer.e], info)
    while not all(writer.done for writer in writers):
        decision = acting.act()
        is_real = bool(info["next_is_real"][0])
        for writer in writers:
            writer.decide(decision, is_real)
        observation, reward, terminated, truncated, info = env.step(decision.actions, decision.policy)
        acting.observe(decision, observation, reward, terminated, truncated, info)
        if is_real:
            outcome = RealOutcome(env, reward, terminated | truncated, info)
            for writer in writers:
                writer.act(outcome)
        else:
            for writer in writers:
                writer.imagine(info["planning_reward"])
    return Recording(
        title=title,
        environment=_name_of(env),
        actions=names,
        stage_length=env.stage_length,
        max_depth=env.max_depth,
        discount=env.discount,
        view=frames.view,
        frames=frames.frames,
        episodes=[episode for writer in writers for episode in writer.episodes],
        notes=dict(notes or {}),
    )


class _PolicyActor:
    """A function of (observation, info) as an `Actor`."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._observation: dict[str, Any] = {}
        self._info: dict[str, Any] = {}

    def begin(self, observation: dict[str, Any], info: dict[str, Any]) -> None:
        self._observation, self._info = observation, info

    def act(self) -> Decision:
        chosen = self._policy(self._observation, self._info)
        return chosen if isinstance(chosen, Decision) else Decision(torch.as_tensor(chosen))

    def observe(
        self,
        decision: Decision,
        observation: dict[str, Any],
        reward: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
        info: dict[str, Any],
    ) -> None:
        self._observation, self._info = observation, info

    def refresh(self, observation: dict[str, Any]) -> None:
        self._observation = observation

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


def _as_actor(actor: Actor | Policy) -> Actor:
    if hasattr(actor, "act"):
        return cast(Actor, actor)
    if not callable(actor):
        raise UnsupportedError(
            f"{type(actor).__name__} cannot act; pass an Actor (with begin, act and observe), or a function of "
            f"(observation, info) that returns a Decision or actions [E, 2]"
        )
    return _PolicyActor(actor)


def _action_names(env: ThinkerEnv, names: Sequence[str] | None) -> list[str]:
    """The names given, or those of the environments if there is one for each action, or else numbers."""
    if names is not None:
        if len(names) != env.num_actions:
            raise UserError(f"action_names has {len(names)} names, but the environments have {env.num_actions} actions")
        return [str(name) for name in names]
    known = env.envs.metadata.get("action_names", ())
    return [str(name) for name in (known if len(known) == env.num_actions else range(env.num_actions))]


def _name_of(env: ThinkerEnv) -> str:
    real = env.envs.unwrapped
    spec = env.spec or (real.envs[0].spec if isinstance(real, SyncVectorEnv) else None)
    return spec.id if spec is not None else type(real).__name__
