"""Runs are recorded on their held-out episodes, whatever their model and whoever acts."""

from __future__ import annotations

import dataclasses
from itertools import zip_longest

import gymnasium as gym
import pytest

from tests.viewer.runs_support import small_settings
from tests.viewer.support import Pictures
from thinker.agents import RawAgentSpec
from thinker.envs.gymnasium import GymnasiumSpec
from thinker.envs.sokoban import generate_levels
from thinker.errors import UserError
from thinker.runs.build import build_run
from thinker.runs.run import Run
from thinker.viewer.play import record_run
from thinker.world_model import (
    BoardModelSpec,
    DualModelSpec,
    LearnedValuesSimulatorSpec,
    ModelSpec,
    NoModelSpec,
    SimulatorSpec,
    SingleModelSpec,
)

VECTOR_MODEL = DualModelSpec(replay_capacity=2_000)


@pytest.fixture(scope="module")
def run() -> Run:
    return build_run(small_settings(), device="cpu")


def first_frames(run: Run, **options) -> list[str]:
    recording = record_run(run, **options)
    return [str(recording.frames[episode.stages[0].frame]) for episode in recording.episodes]


def test_every_held_out_episode_is_played_once(run):
    recording = record_run(run, episodes=3, title="three", notes={"a": "b"})
    assert [episode.level for episode in recording.episodes] == [0, 1, 2]
    assert len(set(first_frames(run, episodes=3))) == 3
    assert recording.stage_length == 4
    assert recording.environment == run.settings.environment.name
    assert (recording.title, recording.notes) == ("three", {"a": "b"})
    assert all(step.frame is not None for e in recording.episodes for s in e.stages for step in s.steps)


def test_the_episodes_are_the_same_whoever_acts_and_whatever_is_drawn(run):
    expected = first_frames(run, episodes=3)
    assert first_frames(run, episodes=3, seed=5) == expected
    assert first_frames(run, episodes=3, stage_length=2) == expected
    assert first_frames(run, episodes=3, who="base-policy", greedy=True) == expected
    assert first_frames(run, episodes=3, split="validation") != expected


def test_a_recording_is_repeatable_and_depends_on_the_seed(run):
    assert record_run(run, episodes=2) == record_run(run, episodes=2)
    assert record_run(run, episodes=2, seed=1) != record_run(run, episodes=2, seed=2)
    assert record_run(run, episodes=2, seed=1, greedy=True) == record_run(run, episodes=2, seed=2, greedy=True)


def test_the_agent_plays_as_it_would_without_a_recorder(run):
    env = run.wrap(run.settings.environment.held_out("test", 2, 2))
    actor = run.actor(env, seed=run.settings.evaluation.seed)
    actor.begin(*env.reset())
    for t, stages in enumerate(zip_longest(*(episode.stages for episode in record_run(run, episodes=2).episodes))):
        for k in range(env.stage_length):
            decision = actor.act()
            actor.observe(decision, *env.step(decision.actions, decision.policy))
            for e, stage in enumerate(stages):
                if stage is not None:  # environment e still plays
                    taken = [*(step.action for step in stage.steps), stage.action]
                    assert decision.actions[e, 0] == taken[k], (t, k, e)


def test_the_agent_and_the_base_policy_can_be_recorded(run):
    agent, base = (record_run(run, episodes=1, who=who).episodes[0].stages[0] for who in ("agent", "base-policy"))
    assert base.agent_policy == base.tree.policy[0]
    assert agent.agent_policy != agent.tree.policy[0]


def test_one_held_out_episode_can_be_chosen(run):
    recording = record_run(run, episodes=2, episode="2")
    assert [episode.level for episode in recording.episodes] == [2, 2]
    assert first_frames(run, episodes=2, episode="2") == [first_frames(run, episodes=3)[2]] * 2


def test_a_level_of_a_file_can_be_chosen(run, tmp_path):
    levels = generate_levels(3, 6, 1, seed=5)
    levels.save(tmp_path / "levels.txt")
    recording = record_run(run, episodes=2, episode=f"{tmp_path / 'levels.txt'}:2", stage_length=6)
    assert recording.stage_length == 6
    for episode in recording.episodes:
        assert episode.level == 2
        assert recording.frames[episode.stages[0].frame] == "".join(map(str, levels.boards[2].ravel()))


def test_a_level_of_another_size_is_refused(run, tmp_path):
    generate_levels(1, 8, 1, seed=5).save(tmp_path / "large.txt")
    with pytest.raises(UserError, match=r"8x8.*6x6"):
        record_run(run, episode=f"{tmp_path / 'large.txt'}:0")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"episodes": 0}, "episodes is 0"),
        ({"stage_length": 0}, "stage_length is 0"),
        ({"episode": "seven"}, "seven"),
        ({"episode": "-1"}, "-1"),
    ],
)
def test_wrong_arguments_are_errors_of_the_user(run, options, told):
    with pytest.raises(UserError, match=told):
        record_run(run, **options)


@pytest.mark.parametrize(
    "model",
    [
        SimulatorSpec(),
        LearnedValuesSimulatorSpec(replay_capacity=2_000),
        BoardModelSpec(replay_capacity=2_000),
        DualModelSpec(replay_capacity=2_000),
        DualModelSpec(state_loss="l2", replay_capacity=2_000),
        DualModelSpec(state_loss="none", replay_capacity=2_000),
        SingleModelSpec(state_loss="l2", replay_capacity=2_000),
        SingleModelSpec(state_loss="none", replay_capacity=2_000),
    ],
    ids=lambda model: f"{type(model).__name__}-{getattr(model, 'state_loss', '')}",
)
def test_runs_with_every_kind_of_model_can_be_recorded(model: ModelSpec):
    stages = record_run(build_run(small_settings(model=model), device="cpu"), episodes=1).episodes[0].stages
    steps = [step for stage in stages for step in stage.steps]
    assert len(steps) == 3 * len(stages)
    assert any(step.frame is not None for step in steps) == model.predicts_states


def test_runs_of_the_raw_mdp_can_be_recorded():
    settings = small_settings()
    search = dataclasses.replace(settings.search, stage_length=1)
    run = build_run(small_settings(model=NoModelSpec(), agent=RawAgentSpec(), search=search), device="cpu")
    recording = record_run(run, episodes=1)
    assert recording.stage_length == 1
    assert all(not stage.steps for stage in recording.episodes[0].stages)


def test_runs_of_any_gymnasium_environment_can_be_recorded():
    run = build_run(small_settings(environment=GymnasiumSpec("CartPole-v1"), model=VECTOR_MODEL), device="cpu")
    recording = record_run(run, episodes=2)
    assert recording.environment == "CartPole-v1"
    assert [episode.level for episode in recording.episodes] == [0, 1]
    assert recording.episodes[0].solved is None
    assert record_run(run, episodes=1, episode="1").episodes[0].level == 1


def test_environments_that_can_render_give_pictures():
    gym.register("tests/Pictures-v0", lambda **options: Pictures((3,), **options))
    try:
        run = build_run(
            small_settings(environment=GymnasiumSpec("tests/Pictures-v0"), model=VECTOR_MODEL), device="cpu"
        )
        recording = record_run(run, episodes=1)
        chosen = record_run(run, episodes=1, episode="0")
    finally:
        del gym.registry["tests/Pictures-v0"]
    assert recording.renderings is not None
    assert all(stage.picture is not None for stage in recording.episodes[0].stages)
    assert chosen.renderings is not None
