"""A training run: one process, one loop, in a fixed order.

Act for an unroll, train the agent on it, and train the model meanwhile on what had been collected before. What the
model has learned, and what the agent has seen, are exchanged only between unrolls, so that nothing is a race: however
the two share the processor, a run comes out the same. Before all that, the model may learn from random play; there it
has all threads, and what it learns differs in the last bits with their number.
"""

from __future__ import annotations

import dataclasses
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import VectorEnv

from thinker import machine
from thinker.agents import ActorCriticLearner, Agent, Episodes, Trajectory, build_network, collect, raw_env
from thinker.augmented import ThinkerEnv
from thinker.runs.environments import ReplayableEnvs, environments_state, restore_environments
from thinker.runs.settings import SOKOBAN, RunSettings
from thinker.world_model.learned import learned_model, learned_values
from thinker.world_model.protocol import WorldModel
from thinker.world_model.simulator import PolicyAndValue, simulator
from thinker.world_model.trainer import ModelTrainer
from thinker.world_model.transition import RealTransition


class Run:
    """Everything that a run consists of, and its one step, `advance`."""

    def __init__(self, settings: RunSettings) -> None:
        self.settings = settings
        self.real_steps = 0
        self.seconds = {"act": 0.0, "agent": 0.0, "wait": 0.0, "model": 0.0}
        search, seed = settings.search, settings.seed
        self.envs = make_environments(settings, settings.num_envs)
        self.values: PolicyAndValue | None = None
        self.trainer: ModelTrainer | None = None
        self.model: WorldModel | None = None
        if settings.model.kind != "none":
            self.model = self._make_model()
        self.env = self.wrap(self.envs, search.stage_length, seed)
        self._collected: list[RealTransition] = []  # in the unroll under way
        if self.trainer is not None:
            self.env.learner = SimpleNamespace(observe=self._collect, abandon=self.trainer.abandon)
        # Where the model is trained while the agent acts; with one thread it is trained afterwards.
        self._beside = ThreadPoolExecutor(1, "model-training") if learns_beside(settings) else None
        self.network = build_network(
            self.env,
            tree_encoder=settings.agent.tree_encoder,
            size=settings.agent.network_size,
            plans=self.model is not None,
            seed=seed,
        )
        self.agent = Agent(self.network, self.env, seed=seed + 1)
        self.learner = ActorCriticLearner(
            self.network, settings.agent, discount=self.env.augmented_discount, seed=seed + 2
        )
        steps = settings.agent.unroll_stages * search.stage_length
        self.trajectory = Trajectory(steps, settings.num_envs, len(self.network.reward_names))
        self.agent.begin(*self.env.reset(seed=seed))

    def advance(self) -> tuple[Episodes, dict[str, float]]:
        """Act for an unroll and train the agent on it; meanwhile train the model until its replay ratio is reached."""
        if self.trainer is not None and self.real_steps < self.settings.exploration_steps:
            return self._explore(self.trainer)
        progress = min(self.real_steps / annealing_steps(self.settings), 1.0)
        training = self._beside.submit(self._train_model) if self._beside is not None else None
        start = time.perf_counter()
        episodes = collect(self.env, self.agent, self.trajectory)
        self.real_steps += episodes.real_steps
        acted = time.perf_counter()
        metrics = self.learner.learn(self.trajectory, progress)
        learned = time.perf_counter()
        if training is not None:
            metrics |= training.result()
        elif self.trainer is not None:
            metrics |= self._train_model()
        if self.trainer is not None:
            self._exchange()
        self.seconds["act"] += acted - start
        self.seconds["agent"] += learned - acted
        self.seconds["wait"] += time.perf_counter() - learned
        return episodes, metrics

    def _explore(self, trainer: ModelTrainer) -> tuple[Episodes, dict[str, float]]:
        """Play at random, without planning, new levels for a few steps each, and train the model on it.

        Nothing can be planned in a model that knows nothing. So it gets ahead before the agent begins, which would else
        learn first of all not to trust it.
        """
        num_envs, num_actions = self.env.num_envs, self.env.num_actions
        start = time.perf_counter()
        random = np.random.default_rng((self.settings.seed, self.real_steps))
        uniform = np.full((num_envs, num_actions), 1 / num_actions, np.float32)
        env = raw_env(self.envs, discount=self.settings.search.discount)
        env.learner = SimpleNamespace(observe=self._collect, abandon=trainer.abandon)
        env.reset()
        for _ in range(self.settings.exploration_length):
            env.step(np.stack((random.integers(0, num_actions, num_envs), np.zeros(num_envs, int)), 1), uniform)
        last = self._collected[-1]
        self._collected[-1] = dataclasses.replace(last, truncated=last.truncated | (last.valid & ~last.terminated))
        count = sum(int(transition.valid.sum()) for transition in self._collected)
        self.real_steps += count
        for transition in self._collected:
            trainer.store(transition)
        self._collected.clear()
        acted = time.perf_counter()
        with machine.all_threads(self.settings.threads):
            metrics = trainer.train_more(round(self.settings.exploration_ratio * count))
        trainer.publish()
        self.agent.begin(*self.env.reset())
        trained = time.perf_counter()
        self.seconds["act"] += acted - start
        self.seconds["wait"] += trained - acted
        self.seconds["model"] += trained - acted
        nothing = Episodes(0, 0, np.zeros(0), np.zeros(0, np.int64), None)
        return nothing, _of_the_model(metrics)

    def _train_model(self) -> dict[str, float]:
        assert self.trainer is not None
        start = time.perf_counter()
        metrics = self.trainer.train(publish=False)
        self.seconds["model"] += time.perf_counter() - start
        return _of_the_model(metrics)

    def _collect(self, transition: RealTransition) -> None:
        """Keep a real step of all environments until the model may learn from it."""
        arrays: dict[str, Any] = {
            name: None if array is None else array.copy() for name, array in vars(transition).items()
        }
        self._collected.append(RealTransition(**arrays))

    def _exchange(self) -> None:
        """The agent goes on with what the model has learned, the model with what the agent has seen."""
        assert self.trainer is not None
        for transition in self._collected:
            self.trainer.store(transition)
        self._collected.clear()
        self.trainer.publish()
        self.agent.look_again(self.env.refresh())

    @property
    def wall_seconds(self) -> float:
        """How long all calls of `advance` took. Training the model counts only as far as the rest waited for it."""
        return self.seconds["act"] + self.seconds["agent"] + self.seconds["wait"]

    @property
    def finished(self) -> bool:
        return self.real_steps >= self.settings.real_steps

    def wrap(self, envs: VectorEnv, stage_length: int, seed: int | None = None) -> ThinkerEnv:
        """``envs`` with this run's world model, for training or for tests with another stage length."""
        search = self.settings.search
        if self.model is None:
            return raw_env(envs, discount=search.discount, seed=seed)
        is_simulator = self.settings.model.kind.startswith("simulator")
        return ThinkerEnv(
            envs,
            simulator(envs, self.values) if is_simulator else self.model,
            stage_length=stage_length,
            max_depth=search.max_depth,
            discount=search.discount,
            carry_tree=search.carry_tree,
            observe=search.observe,
            hide=search.hide,
            extra=search.extra,
            seed=seed,
        )

    def state_dict(self) -> dict[str, Any]:
        """All that the run's future depends on: plain dicts of tensors, arrays, numbers and strings."""
        return {
            "real_steps": self.real_steps,
            "seconds": dict(self.seconds),
            "environments": environments_state(self.envs),
            "env": self.env.state_dict(),
            "agent": self.agent.state_dict(),
            "learner": self.learner.state_dict(),
            "trainer": self.trainer.state_dict() if self.trainer is not None else None,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on exactly where a run with the same settings was saved."""
        self.real_steps = state["real_steps"]
        self.seconds = dict(state["seconds"])
        self.env.load_state_dict(state["env"])
        restore_environments(self.envs, state["environments"])
        self.agent.load_state_dict(state["agent"])
        self.learner.load_state_dict(state["learner"])
        if self.trainer is not None:
            self.trainer.load_state_dict(state["trainer"])

    def _make_model(self) -> WorldModel:
        settings, model = self.settings, self.settings.model
        if model.kind == "simulator":
            return simulator(self.envs)
        common: dict[str, Any] = {
            "num_envs": settings.num_envs,
            "discount": settings.search.discount,
            "size": model.size,
            "precision": model.precision,
            "settings": model.training,
            "replay_capacity": model.replay_capacity,
            "total_transitions": annealing_steps(settings),
            "seed": settings.seed,
        }
        spaces = self.envs.single_observation_space, self.envs.single_action_space
        if model.kind == "simulator-learned-values":
            self.values, self.trainer = learned_values(*spaces, **common)
            return simulator(self.envs, self.values)
        give_states = "predicted_state" in settings.search.observe
        learned, self.trainer = learned_model(*spaces, variant=model.kind, give_states=give_states, **common)
        return learned


def _of_the_model(metrics: dict[str, float]) -> dict[str, float]:
    """Told apart from the agent's losses."""
    return {name.replace("loss/", "loss/model_"): value for name, value in metrics.items()}


def annealing_steps(settings: RunSettings) -> int:
    """Real steps after which all that is annealed has come to its end."""
    return settings.real_steps if settings.annealing_steps is None else settings.annealing_steps


def learns_beside(settings: RunSettings) -> bool:
    """Whether a model is trained at the same time as the agent acts and learns."""
    return settings.model.kind not in ("none", "simulator") and settings.threads != 1


def prepare_machine(settings: RunSettings) -> None:
    """Share the threads of this process, once, before a run is made."""
    machine.prepare(settings.threads, at_once=2 if learns_beside(settings) else 1)


def make_environments(settings: RunSettings, num_envs: int, **more: Any) -> VectorEnv:
    """The real environments of a run, such that their state can be saved."""
    options = {**settings.environment.options(), **more}
    if settings.environment.id == SOKOBAN:
        return gym.make_vec(SOKOBAN, num_envs, vectorization_mode="vector_entry_point", **options)
    return ReplayableEnvs([lambda: gym.make(settings.environment.id, **options) for _ in range(num_envs)])
