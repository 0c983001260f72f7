"""Worker and engine: what comes home from an unroll, under which weights, and runs in which nothing is learned."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pytest
import torch

from tests.runs.support import advance, differences, engine, tiny
from thinker.augmented import ThinkerEnv
from thinker.envs.gymnasium import GymnasiumSpec
from thinker.interfaces import Actor, RealTransition
from thinker.planners import BasePolicy
from thinker.runs import checkpoint, registry
from thinker.runs.engines.local import LocalEngine
from thinker.runs.folder import RunFolder
from thinker.runs.load import load_run
from thinker.runs.settings import RunSettings
from thinker.runs.train import train
from thinker.runs.worker import Experience, TransitionBuffer
from thinker.world_model.spec import SimulatorSpec

# ------------------------------------------------------------------------------------------ transitions come home


def transition(number: int, *, terminated=(False, False), truncated=(False, False), valid=(True, True)):
    return RealTransition(
        observation=np.full((2, 1), number),
        action=np.zeros(2, np.int64),
        policy=None,
        root_value=np.zeros(2, np.float32),
        reward=np.zeros(2, np.float32),
        terminated=np.array(terminated),
        truncated=np.array(truncated),
        next_observation=np.full((2, 1), number + 1),
        final_value=np.zeros(2, np.float32),
        valid=np.array(valid),
    )


def delivered(buffer: TransitionBuffer) -> list[Any]:
    """What the buffer passes on: transitions, and "abandoned"."""
    received: list[Any] = []
    buffer.deliver(received.append, lambda: received.append("abandoned"))
    return received


def test_transitions_are_delivered_in_order_and_abandoned_episodes_in_their_place():
    buffer, made = TransitionBuffer(), [transition(number) for number in range(4)]
    buffer.abandon_episodes()
    buffer.add(made[0])
    buffer.add(made[1])
    buffer.abandon_episodes()
    buffer.abandon_episodes()
    buffer.add(made[2])
    buffer.add(made[3])
    assert delivered(buffer) == ["abandoned", made[0], made[1], "abandoned", "abandoned", made[2], made[3]]
    assert buffer.transitions == made
    assert delivered(TransitionBuffer()) == []


def test_cutting_off_makes_the_last_transition_the_end_of_all_episodes_that_run():
    buffer, first = TransitionBuffer(), transition(0)
    buffer.add(first)
    buffer.add(transition(1, terminated=(True, False)))
    buffer.cut_off()
    assert delivered(buffer)[0] is first
    assert delivered(buffer)[1].truncated.tolist() == [False, True]
    waiting = TransitionBuffer()
    waiting.add(transition(1, valid=(False, True)))
    waiting.cut_off()
    assert waiting.transitions[0].truncated.tolist() == [False, True]


def test_marking_random_play_marks_every_transition_and_keeps_the_order():
    buffer = TransitionBuffer()
    buffer.add(transition(0))
    buffer.abandon_episodes()
    buffer.add(transition(1))
    buffer.mark_random_play()
    first, abandoned, second = delivered(buffer)
    assert abandoned == "abandoned"
    assert first.random_play
    assert second.random_play
    assert (first.observation[0, 0], second.observation[0, 0]) == (0, 1)


def test_random_play_is_marked_as_such_and_the_agents_play_is_not():
    run = engine(tiny("sokoban-quick")).run
    explored = run.worker.explore(0, 3).transitions.transitions
    run.worker.restart()
    collected = run.worker.collect().transitions.transitions
    assert [len(explored), len(collected)] == [3, 4]
    assert all(step.random_play for step in explored)
    assert not any(step.random_play for step in collected)


def test_an_unroll_brings_home_its_own_transitions_and_nothing_else():
    run = engine(tiny("sokoban-quick", exploration_steps=0)).run
    first, second = run.worker.collect(), run.worker.collect()
    assert first.episodes.real_steps == second.episodes.real_steps == 4 * 8
    assert [type(item) for item in delivered(first.transitions)] == [str] + 4 * [RealTransition]
    assert [type(item) for item in delivered(second.transitions)] == 4 * [RealTransition]
    before, after = first.transitions.transitions[-1], second.transitions.transitions[0]
    going_on = ~(before.terminated | before.truncated)
    np.testing.assert_array_equal(before.next_observation[going_on], after.observation[going_on])


def test_a_resumed_worker_does_not_abandon_the_episodes_it_goes_on_with():
    run, fresh = (engine(tiny("sokoban-quick", exploration_steps=0)).run for _ in range(2))
    run.worker.collect()
    fresh.load_state_dict(run.state_dict())
    assert "abandoned" not in delivered(fresh.worker.collect().transitions)


# ------------------------------------------------------------------------------------------------------- versions


def experiences(moved: LocalEngine, count: int) -> tuple[list[Experience], list[int]]:
    """What the worker brings home in ``count`` unrolls, and how often weights had been published before each."""
    run, publications, seen, published = moved.run, [0], [], []
    worker, trainer = run.worker, run.trainer

    def watch(act):
        def watched(*arguments):
            published.append(publications[0])
            seen.append(act(*arguments))
            return seen[-1]

        return watched

    worker.collect, worker.explore = watch(worker.collect), watch(worker.explore)
    if trainer is not None:
        publish = trainer.publish

        def counted():
            publications[0] += 1
            publish()

        trainer.publish = counted
    advance(moved, count)
    return seen, published


@pytest.mark.parametrize("name", ["sokoban-quick", "sokoban-simulator"])
def test_experience_is_stamped_with_the_version_of_the_model_that_was_searched_in(name):
    seen, published = experiences(engine(tiny(name)), 4)  # the first is random play
    versions = [experience.model_version for experience in seen]
    assert published == [0, 1, 2, 3]
    assert versions == sorted(set(versions)), "a version for each publication"


@pytest.mark.parametrize("name", ["sokoban-quick", "sokoban-raw"])
def test_experience_is_stamped_with_the_version_of_the_agent_that_acted(name):
    settings = tiny(name, exploration_steps=0)
    seen, _ = experiences(engine(settings), 3)
    assert [experience.agent_version for experience in seen] == [0, 1, 2]


def test_versions_go_on_after_a_resume():
    moved = advance(engine(tiny("sokoban-quick")), 3)
    fresh = engine(tiny("sokoban-quick"))
    fresh.run.load_state_dict(moved.run.state_dict())
    worker = fresh.run.worker
    assert (worker.agent_version, worker.model_version) == (
        moved.run.worker.agent_version,
        moved.run.worker.model_version,
    )
    assert worker.model_version > 0


# ------------------------------------------------------------------------------------- an agent that learns nothing


@dataclass(frozen=True)
class BasePolicyAgent:
    """What `BasePolicySpec` builds."""

    unroll_stages: int
    learner: None = None

    def actor(self, env: ThinkerEnv, *, seed: int, greedy: bool = False, trajectory: Any = None) -> Actor:
        assert trajectory is None
        return BasePolicy(env, seed=seed, greedy=greedy)

    def trajectory(self, env: ThinkerEnv) -> None:
        return None


@dataclass(frozen=True)
class BasePolicySpec:
    """An agent of one's own: it acts by the base policy and learns nothing."""

    unroll_stages: int = 4

    def acts_in(self) -> Literal["augmented", "raw"]:
        return "augmented"

    def build(self, env: ThinkerEnv, *, seed: int, device: torch.device) -> BasePolicyAgent:
        return BasePolicyAgent(self.unroll_stages)


@pytest.fixture
def registered(monkeypatch) -> None:
    monkeypatch.setitem(registry.AGENTS, "base-policy", BasePolicySpec)


def settings_without_a_learner(kind: str) -> RunSettings:
    settings = tiny("cartpole" if kind == "cartpole simulator" else "sokoban-quick", agent=BasePolicySpec())
    if kind == "learned model":
        return settings
    return dataclasses.replace(settings, model=SimulatorSpec())


KINDS = ["learned model", "sokoban simulator", "cartpole simulator"]


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("kind", KINDS)
def test_an_agent_without_a_learner_runs_and_resumes_exactly(kind, tmp_path):
    settings = settings_without_a_learner(kind)
    expected = advance(engine(settings), 5).run
    assert expected.learner is None
    assert "agent" not in expected.networks()
    first = advance(engine(settings), 3).run
    checkpoint.save(tmp_path, first.real_steps, first.state_dict())
    second = engine(settings)
    second.run.load_state_dict(checkpoint.load_latest(tmp_path)[1])
    assert differences(advance(second, 2).run.state_dict(), expected.state_dict()) == []


@pytest.mark.usefixtures("registered")
def test_an_agent_without_a_learner_is_trained_evaluated_and_loaded_like_any_other(tmp_path):
    settings = settings_without_a_learner("sokoban simulator")
    summary = train(dataclasses.replace(settings, real_steps=96), tmp_path, "run")
    assert summary["real_steps"] == 96
    run = load_run(RunFolder(tmp_path, "run"))
    assert run.settings.agent == BasePolicySpec()
    assert run.networks() == {}
    assert run.real_steps == 96


@pytest.mark.usefixtures("registered")
def test_a_run_that_was_made_with_a_type_of_ones_own_needs_it_again(tmp_path, monkeypatch):
    settings = settings_without_a_learner("sokoban simulator")
    train(dataclasses.replace(settings, real_steps=32), tmp_path, "run")
    monkeypatch.delitem(registry.AGENTS, "base-policy")
    with pytest.raises(ValueError, match=r"no type 'base-policy'; known are thinker, raw.*of your own"):
        load_run(RunFolder(tmp_path, "run"))


# --------------------------------------------------------------------------------------------------- environments


def test_environments_of_a_run_begin_with_the_runs_seed():
    settings = tiny("cartpole", environment=GymnasiumSpec("CartPole-v1"))
    observations = [
        engine(dataclasses.replace(settings, seed=seed)).run.worker.env.real_observation for seed in (1, 1, 2)
    ]
    np.testing.assert_array_equal(observations[0], observations[1])
    assert (observations[0] != observations[2]).any()
