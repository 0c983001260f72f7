"""Plays with any actor in any `ThinkerEnv` and records every stage: what was imagined, and what came of it.

The environment is only looked at: its search trees through `ThinkerEnv.search_tree`, its real states through
`ThinkerEnv.real_observation` and `ThinkerEnv.last_transition`. The trees of a planner are in `PlannerActor.result`.
Recording changes nothing for the actor.
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
from thinker.planners import PlannerActor
from thinker.viewer.episode_writer import EpisodeWriter, RealOutcome
from thinker.viewer.frames import FrameStore
from thinker.viewer.recording import RecordedPlanner, Recording
from thinker.viewer.rendering import Renderer

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
    observation_names: Sequence[str] | None = None,
    title: str = "",
    notes: dict[str, str] | None = None,
) -> Recording:
    """Reset ``env``, play ``episodes`` episodes and record them.

    Episodes are divided evenly among the environments, so that short ones are not preferred: with as many environments
    as episodes, the first of each environment is recorded. They are ordered by environment, and by time within one.

    Predicted states are recorded where ``env`` keeps them: make it with ``keep_states=True``, or let it observe
    ``"predicted_state"``. Otherwise, and where the model predicts no states, the recording has no imagined frames.

    Planners have search trees of their own, which are recorded instead of those of ``env``, with the predicted states
    if they were made with ``keep_states=True``. Large searches are recorded in part, see `thinker.viewer.searches`.

    Environments made with ``render_mode="rgb_array"`` are rendered before each real step, for pictures of the real
    states. Boards that are drawn with ``"tile_pictures"`` need none.

    Some entries of ``env.envs.metadata`` are used if present: ``"action_names"``, ``"observation_names"`` (for vectors:
    the names of their numbers), ``"tile_pictures"`` (uint8 [tiles, P, P, 3], for observations that are one-hot planes
    [tiles, H, W]), ``"plane_colours"`` (uint8 [planes, 3], for observations that are any planes [planes, H, W]),
    ``"plane_names"`` (what these colours stand for) and ``"success"`` (see `ThinkerEnv`). Two entries of ``info`` are:
    ``"level"`` (an integer that tells which episode of a set is played) and ``"evaluating"`` (False in environments
    that have no episode left to play; these are not recorded any further).

    Args:
        env: the augmented environment. Its sink, if any, receives the transitions as always.
        actor: an `Actor` of this environment, or a function of (observation, info); see `Policy`.
        episodes: how many to record.
        seed: passed to ``env.reset``.
        max_real_steps: leave an episode unfinished after this many real steps, and record no more of its environment.
        action_names: names of the A actions; default: those in the metadata, or else their indices.
        observation_names: names of the numbers of an observation that is a vector; default: as for actions.
        title: title of the page.
        notes: shown on the page as they are, such as the name of the run.
    """
    if episodes < 1:
        raise UserError(f"episodes is {episodes}; it must be at least 1")
    if max_real_steps is not None and max_real_steps < 1:
        raise UserError(f"max_real_steps is {max_real_steps}; it must be at least 1, or None for no limit")
    metadata = env.envs.metadata
    space = cast(spaces.Box, env.envs.single_observation_space)  # ThinkerEnv accepts no other
    names = _names("action", action_names, metadata, env.num_actions) or [str(a) for a in range(env.num_actions)]
    numbers = _names("observation", observation_names, metadata, int(np.prod(space.shape)))
    pictures, colours = metadata.get("tile_pictures"), metadata.get("plane_colours")
    planes = metadata.get("plane_names") or ()
    frames = FrameStore(space, tile_pictures=pictures, plane_colours=colours, plane_names=planes, names=numbers)
    acting = _as_actor(actor)
    planner = acting if isinstance(acting, PlannerActor) else None
    quotas = [len(range(e, episodes, env.num_envs)) for e in range(min(env.num_envs, episodes))]

    observation, info = env.reset(seed=seed)
    acting.begin(observation, info)
    renderer = Renderer(env, wanted=frames.view.sprites is None)
    renderer.render()
    real_states = env.real_observation
    writers = [EpisodeWriter(env, e, n, frames, renderer, max_real_steps, planner) for e, n in enumerate(quotas)]
    for writer in writers:
        writer.begin(real_states[writer.e], info)
    while not all(writer.done for writer in writers):
        decision = acting.act()
        is_real = bool(info["next_is_real"][0])
        for writer in writers:
            writer.decide(decision, is_real)
        observation, reward, terminated, truncated, info = env.step(
            decision.actions, decision.policy, decision.root_value
        )
        acting.observe(decision, observation, reward, terminated, truncated, info)
        if is_real:
            renderer.render()
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
        planner=_recorded_planner(planner),
        stage_length=env.stage_length,
        max_depth=env.max_depth if planner is None else getattr(planner.spec, "max_depth", None),
        discount=env.discount,
        view=frames.view,
        frames=frames.frames,
        renderings=renderer.renderings,
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


def _names(kind: str, given: Sequence[str] | None, metadata: dict[str, Any], count: int) -> list[str]:
    """The names given, or those of the environments if there is one for each, or else none."""
    if given is not None and len(given) != count:
        raise UserError(f"{kind}_names has {len(given)} names, but the environments have {count} {_COUNTED[kind]}")
    names = metadata.get(f"{kind}_names", ()) if given is None else given
    return [str(name) for name in names] if len(names) == count else []


_COUNTED = {"action": "actions", "observation": "numbers in an observation"}


def _recorded_planner(planner: PlannerActor | None) -> RecordedPlanner | None:
    if planner is None or planner.result is None:
        return None
    return RecordedPlanner(type(planner.spec).__name__.removesuffix("Spec"), planner.result.simulations)


def _name_of(env: ThinkerEnv) -> str:
    real = env.envs.unwrapped
    spec = env.spec or (real.envs[0].spec if isinstance(real, SyncVectorEnv) else None)
    return spec.id if spec is not None else type(real).__name__
