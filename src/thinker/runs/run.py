"""The parts of a training run, and their state."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import torch
from gymnasium.vector import VectorEnv
from torch import nn

from thinker.augmented import ThinkerEnv
from thinker.errors import UserError
from thinker.interfaces import Actor
from thinker.planners import BasePolicy, PlannerActor, PlannerSpec, RandomPlay
from thinker.runs.engines.trainer_process import RemoteTrainer
from thinker.runs.settings import Agent, AgentLearner, RunSettings, SearchSettings
from thinker.runs.worker import Worker
from thinker.world_model.spec import BuiltModel, NoModelSpec
from thinker.world_model.trainer import ModelTrainer

Who = Literal["agent", "base-policy", "random-play"]
"""The actor in an evaluation: the run's agent, the base policy of its model without search, or random actions."""


class Run:
    """A worker that acts, an agent that learns from it, and a model with its trainer, built by `build_run`.

    An engine (`runs/engines`) advances the parts; `state_dict` contains everything that a resumed run depends on.
    """

    def __init__(
        self,
        settings: RunSettings,
        device: torch.device,
        search: SearchSettings,
        model: BuiltModel,
        agent: Agent,
        worker: Worker,
    ) -> None:
        self.settings = settings
        self.device = device
        self.search = search  # as the agent needs it: stages of one step if it acts in the raw MDP
        self.model = model
        self.trainer: ModelTrainer | RemoteTrainer | None = model.trainer  # None if the model is not learned
        self.agent = agent
        self.worker = worker
        self.real_steps = 0
        self.seconds = {"act": 0.0, "agent": 0.0, "wait": 0.0, "model": 0.0}
        self.core_seconds = 0.0  # time spent on training, summed over all cores; other processes do not change it

    @property
    def learner(self) -> AgentLearner | None:
        """Trains the agent; None for planners."""
        return self.agent.learner

    @property
    def wall_seconds(self) -> float:
        """Time spent on training. Training of the model counts only while the rest waited for it."""
        return self.seconds["act"] + self.seconds["agent"] + self.seconds["wait"]

    @property
    def finished(self) -> bool:
        return self.real_steps >= self.settings.real_steps

    def wrap(
        self,
        envs: VectorEnv,
        *,
        stage_length: int | None = None,
        keep_states: bool = False,
        seed: int | None = None,
    ) -> ThinkerEnv:
        """``envs`` with this run's world model, for evaluation; ``stage_length`` may differ from the run's."""
        if stage_length is not None and stage_length < 1:
            raise UserError(f"stage_length is {stage_length}; it must be at least 1 (1: no imaginary steps)")
        if stage_length not in (None, 1) and self.settings.agent.acts_in() != "augmented":
            budget = "; a planner has simulations instead" if isinstance(self.settings.agent, PlannerSpec) else ""
            raise UserError(
                f"this run's agent takes no imaginary steps, so its stage length is 1, not {stage_length}{budget}"
            )
        mine = self.worker.env.envs.single_observation_space
        if envs.single_observation_space != mine:
            raise UserError(
                f"these environments have observations {envs.single_observation_space}, but the run was trained on "
                f"{mine}"
            )
        search = self.search
        if stage_length is not None:
            search = dataclasses.replace(search, stage_length=stage_length)
        return search.build(envs, self.model, device=self.device, keep_states=keep_states, seed=seed)

    def actor(
        self,
        env: ThinkerEnv,
        who: Who | PlannerSpec = "agent",
        *,
        seed: int = 0,
        greedy: bool = False,
        keep_states: bool = False,
    ) -> Actor:
        """A new actor for ``env``, independent of the one used in training.

        ``who`` can also be a planner that searches this run's model; it keeps the states of its trees if
        ``keep_states``.
        """
        if who == "random-play":
            return RandomPlay(env, seed=seed)
        if isinstance(self.settings.model, NoModelSpec) and who != "agent":
            missing = "no base policy" if who == "base-policy" else "nothing to search in"
            raise UserError(f"this run has no model and therefore {missing}; only its agent can act")
        if who == "base-policy":
            return BasePolicy(env, seed=seed, greedy=greedy)
        planner = who if isinstance(who, PlannerSpec) else self.settings.agent
        if isinstance(planner, PlannerSpec):
            return PlannerActor(env, planner, seed=seed, greedy=greedy, keep_states=keep_states)
        return self.agent.actor(env, seed=seed, greedy=greedy)

    def networks(self) -> dict[str, nn.Module]:
        """All networks used for acting. The model's network is the trainer's, in full precision."""
        networks = {"agent": getattr(self.agent, "network", None)}
        networks["model"] = None if self.trainer is None else self.trainer.network
        return {name: network for name, network in networks.items() if network is not None}

    def publish(self) -> None:
        """Let all actors use the current weights."""
        if self.trainer is not None:
            self.trainer.publish()

    def state_dict(self) -> dict[str, Any]:
        """Everything that the rest of the run depends on: nested dicts of tensors, arrays, numbers and strings."""
        return {
            **self.counters(),
            "worker": self.worker.state_dict(),
            "learner": self.learner.state_dict() if self.learner is not None else None,
            "trainer": self.trainer.state_dict() if self.trainer is not None else None,
        }

    def counters(self) -> dict[str, Any]:
        """The part of `state_dict` that is not the state of another part."""
        return {"real_steps": self.real_steps, "seconds": dict(self.seconds), "core_seconds": self.core_seconds}

    def load_counters(self, state: dict[str, Any]) -> None:
        """Load what `counters` saved."""
        self.real_steps = state["real_steps"]
        self.seconds = dict(state["seconds"])
        self.core_seconds = state["core_seconds"]

    def load_weights(self, state: dict[str, Any]) -> None:
        """Load only what acting depends on from a state of `state_dict`; training cannot be continued from there."""
        self._load_counters_and_learner(state)
        if self.trainer is not None:
            self.trainer.network.load_state_dict(state["trainer"]["network"])
        self.publish()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue exactly from the state of a run with the same settings."""
        if state["worker"] is None:
            raise UserError("this run was trained by several workers; continue it with --engine ray")
        self._load_counters_and_learner(state)
        if self.trainer is not None:
            self.trainer.load_state_dict(state["trainer"])
        self.worker.load_state_dict(state["worker"])

    def _load_counters_and_learner(self, state: dict[str, Any]) -> None:
        self.load_counters(state)
        if self.learner is not None:
            self.learner.load_state_dict(state["learner"])
