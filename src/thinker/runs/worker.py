"""The worker of a run: real environments, an actor, and the model's acting copy."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from thinker.augmented import EndedEpisodes, ThinkerEnv, collect
from thinker.envs.replayable import environments_state, restore_environments
from thinker.interfaces import Actor, RealTransition, TrainingActor


class TransitionBuffer:
    """A `TransitionSink` that stores transitions until they are delivered."""

    def __init__(self) -> None:
        self._received: list[RealTransition | None] = []  # None: all running episodes were cut off

    @property
    def is_empty(self) -> bool:
        return not self._received

    @property
    def transitions(self) -> list[RealTransition]:
        return [transition for transition in self._received if transition is not None]

    def add(self, transition: RealTransition) -> None:
        """See `TransitionSink`."""
        self._received.append(transition)

    def abandon_episodes(self) -> None:
        """See `TransitionSink`."""
        self._received.append(None)

    def cut_off(self) -> None:
        """Mark the last transition as the end of every episode."""
        last = self.transitions[-1]
        ended = last.truncated | (last.valid & ~last.terminated)
        self._received[-1] = dataclasses.replace(last, truncated=ended)

    def mark_random_play(self) -> None:
        """Mark all transitions as random play."""
        self._received = [item and dataclasses.replace(item, random_play=True) for item in self._received]

    def deliver(self, store: Callable[[RealTransition], object], abandon_episodes: Callable[[], object]) -> None:
        """Pass everything on, in order."""
        for transition in self._received:
            if transition is None:
                abandon_episodes()
            else:
                store(transition)


@dataclass(frozen=True)
class Experience:
    """A worker's data from one unroll."""

    episodes: EndedEpisodes
    trajectory: Any  # for the agent's learner; None if nothing is learned
    transitions: TransitionBuffer  # for the model's trainer
    agent_version: int  # version of the agent's weights
    model_version: int  # version of the model's weights


class Worker:
    """Acts for whole unrolls; each continues where the last one ended.

    Args:
        env: the augmented environments; their sink is replaced by the worker's.
        play_env: the same real environments without planning, for random play.
        actor: acts in ``env``.
        trajectory: the trajectory that ``actor`` writes to, or None.
        unroll_stages: length of an unroll in stages.
        seed: of the environments and of random play.
    """

    def __init__(
        self,
        env: ThinkerEnv,
        play_env: ThinkerEnv,
        actor: Actor,
        trajectory: Any,
        *,
        unroll_stages: int,
        seed: int,
    ) -> None:
        self.env = env
        self.actor = actor
        self.agent_version = 0
        self.model_version = 0
        self._play_env = play_env
        self._trajectory = trajectory
        self._unroll_steps = unroll_stages * env.stage_length
        self._seed = seed
        self._buffer = TransitionBuffer()
        self._take_buffer()
        actor.begin(*env.reset(seed=seed))

    def collect(self, progress: float = 0.0) -> Experience:
        """Let the actor act for one unroll; ``progress``, 0 .. 1, is the fraction of the run completed."""
        if isinstance(self.actor, TrainingActor):
            self.actor.begin_unroll(progress)
        episodes = collect(self.env, self.actor, self._unroll_steps)
        return Experience(episodes, self._trajectory, self._take_buffer(), self.agent_version, self.model_version)

    def explore(self, start: int, length: int) -> Experience:
        """Play new episodes of ``length`` random steps without planning, after ``start`` real steps so far.

        Planning needs a trained model: random play trains it before the agent starts.
        """
        env = self._play_env
        num_envs, num_actions = env.num_envs, env.num_actions
        random = np.random.default_rng((self._seed, start))
        uniform = np.full((num_envs, num_actions), 1 / num_actions, np.float32)
        env.reset()
        for _ in range(length):
            env.step(np.stack((random.integers(0, num_actions, num_envs), np.zeros(num_envs, int)), 1), uniform)
        buffer = self._take_buffer()
        buffer.cut_off()
        buffer.mark_random_play()
        count = sum(int(transition.valid.sum()) for transition in buffer.transitions)
        nothing = EndedEpisodes(count, np.zeros(0), np.zeros(0, np.int64), None)
        return Experience(nothing, None, buffer, self.agent_version, self.model_version)

    def restart(self) -> None:
        """Start new episodes in all environments, after random play."""
        self.actor.begin(*self.env.reset())

    def use(self, *, agent_version: int, model_version: int) -> None:
        """Act with weights of these versions from now on; with a new model, the roots are evaluated again."""
        model_is_new = model_version != self.model_version
        self.agent_version, self.model_version = agent_version, model_version
        if model_is_new:
            self.actor.refresh(self.env.refresh())

    def state_dict(self) -> dict[str, Any]:
        """Everything that later unrolls depend on, except for weights."""
        return {
            "environments": environments_state(self.env.envs),
            "env": self.env.state_dict(),
            "actor": self.actor.state_dict(),
            "abandoned_episodes": not self._buffer.is_empty,  # between two unrolls it holds nothing else
            "agent_version": self.agent_version,
            "model_version": self.model_version,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue exactly from the state of a worker that was created in the same way."""
        restore_environments(self.env.envs, state["environments"])
        self.env.load_state_dict(state["env"])
        self.actor.load_state_dict(state["actor"])
        self._take_buffer()
        if state["abandoned_episodes"]:
            self._buffer.abandon_episodes()
        self.agent_version, self.model_version = state["agent_version"], state["model_version"]

    def _take_buffer(self) -> TransitionBuffer:
        """Return the current buffer and replace it with a new one."""
        taken, self._buffer = self._buffer, TransitionBuffer()
        self.env.sink = self._play_env.sink = self._buffer
        return taken
