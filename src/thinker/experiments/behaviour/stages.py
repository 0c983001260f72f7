"""Stages of real play, as numbers: what the agent imagined, where it reset, and what it then did (appendix F)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from thinker.augmented import NO_NODE, ROOT, ThinkerEnv
from thinker.envs.spec import Split
from thinker.errors import UserError
from thinker.interfaces import Actor
from thinker.runs.run import Run
from thinker.runs.settings import SearchSettings

LEAST_STAGES_PER_ENVIRONMENT = 32
"""So that whole episodes are played, not only their beginnings, when few stages are asked for."""

Rival = Callable[[ThinkerEnv], np.ndarray]
"""Another search from the roots of an environment at the start of a stage -> its maximum TD errors [E]."""


@dataclass(frozen=True)
class Stages:
    """S stages of K - 1 imaginary steps and a real one, with A actions.

    The TD error of a node at depth n is r_1 + γ r_2 + ... + γ^(n-1) r_n + γ^n v_n - v_root: how much better the rollout
    to it is than what the model expects of its base policy.
    """

    max_depth: int  # L, at most K - 1: no rollout is deeper
    environment: np.ndarray  # [S] int64  the environment in which the stage was played
    td_error: np.ndarray  # [S, K-1] float64  of the node that the imaginary step reached, before a reset
    depth: np.ndarray  # [S, K-1] int64  of that node
    new: np.ndarray  # [S, K-1] bool  it was not in the tree before, not even carried over from the last stage
    reset: np.ndarray  # [S, K-1] bool  the agent chose to reset
    action: np.ndarray  # [S] int64  the real action
    visits: np.ndarray  # [S, A] int64  of the root's children before the real action
    mean_return: np.ndarray  # [S, A] float64  nan where never visited
    max_return: np.ndarray  # [S, A] float64  nan where never visited
    policy: np.ndarray  # [S, A] float64  the base policy of the root
    rivals: Mapping[str, np.ndarray]  # name of another search -> its maximum TD errors [S] from the same roots

    def __len__(self) -> int:
        return len(self.environment)

    @property
    def forced(self) -> np.ndarray:
        """Steps [S, K-1] to the depth limit, where the search returns to the root whatever the agent chooses."""
        return self.depth >= self.max_depth

    @property
    def free(self) -> np.ndarray:
        """Steps [S, K-1] on which the choice to reset has an effect: not forced, and not the last before a real one."""
        free = ~self.forced
        free[:, -1] = False
        return free

    @property
    def max_td_error(self) -> np.ndarray:
        """The maximum TD error [S] of the imaginary steps of each stage."""
        maximum: np.ndarray = self.td_error.max(1)
        return maximum

    def select(self, which: np.ndarray | slice) -> Stages:
        """The stages ``which``: a mask [S], indices or a slice."""
        arrays = {name: value[which] for name, value in vars(self).items() if name not in ("max_depth", "rivals")}
        rivals = {name: value[which] for name, value in self.rivals.items()}
        return dataclasses.replace(self, **arrays, rivals=rivals)


def depth_limit(max_depth: int | None, stage_length: int) -> int:
    """L, or K - 1, the largest depth that a stage can reach, if that is less."""
    return stage_length - 1 if max_depth is None else min(max_depth, stage_length - 1)


def check_plans(run: Run) -> None:
    """Raise an error unless the agent of ``run`` takes imaginary steps."""
    if run.settings.agent.acts_in() != "augmented":
        raise UserError(
            "this run's agent does not plan by imaginary steps, so there is no behaviour to analyse; choose a run with "
            "a world model and a Thinker agent"
        )
    if run.search.stage_length < 2:
        raise UserError(
            "this run was trained with a stage length of 1, so its agent takes no imaginary steps; choose a run with "
            "--search.stage-length of at least 2"
        )
    if run.search.discount == 0:
        raise UserError("this run's discount is 0: nothing beyond the next reward counts, so there are no plans")


def collect_stages(
    run: Run,
    *,
    stages: int,
    episodes: int,
    split: Split,
    seed: int,
    search: SearchSettings | None = None,
    rivals: Mapping[str, Rival] | None = None,
    on_stages: Callable[[int], object] | None = None,
) -> Stages:
    """Let the agent of ``run`` play until it has been through ``stages`` stages. The run itself is not changed.

    The first ``episodes`` held-out episodes of ``split`` are played, and again, with other draws, if they have fewer
    stages than that.

    Args:
        run: the run.
        stages: how many stages to return.
        episodes: how many different episodes to play.
        split: the set of held-out episodes.
        seed: of the agent's draws.
        search: the augmented MDP, if not that of the run.
        rivals: other searches, which start from the same roots.
        on_stages: called after every stage with the number of stages so far.
    """
    check_plans(run)
    for name, value in (("stages", stages), ("episodes", episodes)):
        if value < 1:
            raise UserError(f"{name} is {value}; it must be at least 1")
    num_envs = min(run.settings.evaluation.num_envs, episodes, max(1, stages // LEAST_STAGES_PER_ENVIRONMENT))
    envs = run.settings.environment.held_out(split, num_envs, episodes)
    try:
        env = (search or run.search).build(envs, run.model, device=run.device)
        actor = run.actor(env, seed=seed)
        parts: list[Stages] = []
        count = 0
        while count < stages:
            for part in play_stages(env, actor, episodes, rivals or {}):
                parts.append(part)
                count += len(part)
                if on_stages is not None:
                    on_stages(min(count, stages))
                if count >= stages:
                    break
    finally:
        envs.close()
    return _joined(parts).select(slice(stages))


def play_stages(env: ThinkerEnv, actor: Actor, episodes: int, rivals: Mapping[str, Rival]) -> Iterator[Stages]:
    """Play every episode once; yields the stages of one real step at a time, without environments that have finished.

    Environment e plays the episodes e, e + E, e + 2 E, ...
    """
    playing = np.arange(env.num_envs)  # the episode that each environment is playing
    actor.begin(*env.reset())
    while (playing < episodes).any():
        counts = playing < episodes
        found = {name: rival(env) for name, rival in rivals.items()}
        steps = [_imaginary_step(env, actor) for _ in range(env.stage_length - 1)]
        root = _root_statistics(env)
        decision = actor.act()
        result = env.step(decision.actions, decision.policy, decision.root_value)
        actor.observe(decision, *result)
        transition = env.last_transition
        if transition is not None:
            counts &= transition.valid
        played = Stages(
            max_depth=depth_limit(env.max_depth, env.stage_length),
            environment=np.arange(env.num_envs),
            **{name: np.stack([step[name] for step in steps], 1) for name in steps[0]},
            action=decision.actions[:, 0].cpu().numpy(),
            **root,
            rivals=found,
        )
        yield played.select(counts)
        playing[result[2] | result[3]] += env.num_envs


def _imaginary_step(env: ThinkerEnv, actor: Actor) -> dict[str, np.ndarray]:
    """Take one imaginary step; the numbers [E] of it, named as in `Stages`."""
    before = env.search_tree().size.copy()
    decision = actor.act()
    result = env.step(decision.actions)
    actor.observe(decision, *result)
    view = env.search_tree()
    every = np.arange(env.num_envs)
    # path_reward has γ r_1 + ... + γ^n r_n: returns in the tree begin with the root's reward, which is 0.
    value, root_value = view.value[every, view.current], view.value[every, ROOT]
    return {
        "td_error": view.path_reward / env.discount + env.discount**view.depth * value - root_value,
        "depth": view.depth.astype(np.int64),
        "new": view.size > before,
        "reset": decision.actions[:, 1].cpu().numpy() == 1,
    }


def _root_statistics(env: ThinkerEnv) -> dict[str, np.ndarray]:
    """What the search found out about the roots' children, [E, A], named as in `Stages`."""
    view = env.search_tree()
    child = view.children[:, ROOT]
    tried = child != NO_NODE
    place = np.arange(env.num_envs)[:, None], np.where(tried, child, ROOT)
    return {
        "visits": np.where(tried, view.visits[place], 0).astype(np.int64),
        "mean_return": np.where(tried, view.mean_return[place], np.nan),
        "max_return": np.where(tried, view.max_return[place], np.nan),
        "policy": view.policy[:, ROOT].astype(np.float64),
    }


def _joined(parts: Sequence[Stages]) -> Stages:
    first = parts[0]
    arrays = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in vars(first)
        if name not in ("max_depth", "rivals")
    }
    rivals = {name: np.concatenate([part.rivals[name] for part in parts]) for name in first.rivals}
    return Stages(max_depth=first.max_depth, **arrays, rivals=rivals)
