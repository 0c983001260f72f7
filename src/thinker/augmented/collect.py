"""Runs any actor in the augmented MDP for a number of steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from thinker.augmented.env import ThinkerEnv
from thinker.errors import UserError
from thinker.interfaces import Actor


@dataclass(frozen=True)
class EndedEpisodes:
    """The episodes that ended during `collect`, in the order in which they ended."""

    real_steps: int  # over all environments, including those of episodes that did not end
    returns: np.ndarray  # [episodes] float64
    lengths: np.ndarray  # [episodes] int64, in real steps
    success: np.ndarray | None  # [episodes] bool; None if the environments do not report it


def collect(env: ThinkerEnv, actor: Actor, num_steps: int) -> EndedEpisodes:
    """Let ``actor`` take the next ``num_steps`` augmented steps, which must be whole stages."""
    if num_steps < 1 or num_steps % env.stage_length:
        raise UserError(
            f"{num_steps} steps are not whole stages of {env.stage_length}; choose a multiple of {env.stage_length}"
        )
    returns, lengths, success, reports_success = [], [], [], False
    for _ in range(num_steps):
        decision = actor.act()
        observation, reward, terminated, truncated, info = env.step(
            decision.actions, policy=decision.policy, root_value=decision.root_value
        )
        actor.observe(decision, observation, reward, terminated, truncated, info)
        ended = info.get("_episode")
        if ended is not None and ended.any():
            episode = info["episode"]
            returns.append(episode["r"][ended])
            lengths.append(episode["l"][ended])
            reports_success = reports_success or "success" in episode
            success.append(episode.get("success", np.zeros_like(ended))[ended])
    return EndedEpisodes(
        real_steps=num_steps // env.stage_length * env.num_envs,
        returns=np.concatenate([np.zeros(0), *returns]),
        lengths=np.concatenate([np.zeros(0, np.int64), *lengths]),
        success=np.concatenate(success) if reports_success else None,
    )
