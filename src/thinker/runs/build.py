"""The composition root: combines environments, world model and agent for training runs and `thinker.make`."""

from __future__ import annotations

import dataclasses

import torch
from gymnasium.vector import VectorEnv

from thinker.runs import machine
from thinker.runs.run import Run
from thinker.runs.settings import RunSettings, SearchSettings
from thinker.runs.worker import Worker
from thinker.world_model.spec import BuiltModel, ModelContext, ModelSpec, NoModelSpec

RAW = SearchSettings(stage_length=1, observe=("real_state",))
"""The raw MDP as an augmented MDP: stages of one step, no imaginary steps, only the real state is observed."""
RAW_WITH_STATES = SearchSettings(stage_length=1, observe=("real_state", "predicted_state"))
"""The same with a model that predicts states, for agents that imagine by themselves."""


def build_model(
    spec: ModelSpec,
    envs: VectorEnv,
    *,
    discount: float,
    total_transitions: int | None,
    seed: int,
    device: torch.device,
    num_envs: int | None = None,
) -> BuiltModel:
    """The world model for ``envs``, with its trainer if it is learned.

    The trainer receives the transitions of ``num_envs`` environments; default: of ``envs``.
    """
    return spec.build(
        ModelContext(
            envs.single_observation_space,
            envs.single_action_space,
            num_envs=envs.num_envs if num_envs is None else num_envs,
            discount=discount,
            total_transitions=total_transitions,
            seed=seed,
            device=device,
            board=envs.metadata.get("board"),
        )
    )


def build_run(
    settings: RunSettings, *, device: str | None = None, num_envs: int | None = None, worker_seed: int | None = None
) -> Run:
    """Build all parts of a new run.

    Args:
        settings: of the run.
        device: overrides the one in the settings.
        num_envs: of this run's worker, if it is one of several that share the environments of the run; the model's
            trainer is built for the transitions of all.
        worker_seed: overrides the settings' seed for environments and actions, but not for weights.
    """
    machine.prepare(settings.threads, concurrent=2 if settings.trains_model_concurrently else 1)
    place = machine.choose_device(settings.device if device is None else device)
    envs = settings.environment.build(settings.num_envs if num_envs is None else num_envs)
    discount, seed = settings.search.discount, settings.seed
    model = build_model(
        settings.model,
        envs,
        discount=discount,
        total_transitions=settings.total_steps,
        seed=seed,
        device=place,
        num_envs=settings.num_envs,
    )
    nothing = build_model(NoModelSpec(), envs, discount=discount, total_transitions=None, seed=seed, device=place)

    search, where = settings.search, settings.agent.acts_in()
    if where != "augmented":
        search = dataclasses.replace(RAW_WITH_STATES if where == "raw-with-states" else RAW, discount=discount)
    acting_seed = seed if worker_seed is None else worker_seed
    env = search.build(envs, model, device=place, seed=acting_seed)
    play_env = RAW.build(envs, nothing, device=place)
    agent = settings.agent.build(env, seed=seed, device=place)
    trajectory = agent.trajectory(env)
    actor = agent.actor(env, seed=acting_seed + 1, trajectory=trajectory)
    worker = Worker(env, play_env, actor, trajectory, unroll_stages=agent.unroll_stages, seed=acting_seed)
    return Run(settings, place, search, model, agent, worker)
