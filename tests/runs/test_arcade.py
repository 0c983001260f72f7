"""Training on MinAtar and Atari: presets, exact resume, evaluation by game, and wrong sizes."""

from __future__ import annotations

import dataclasses

import pytest

from tests.runs.support import advance, differences, engine, tiny
from thinker.agents import paper_settings
from thinker.envs.atari.spec import AtariSpec
from thinker.errors import UserError
from thinker.nn.sizes import SIZES, UnsupportedSpaceError
from thinker.runs import checkpoint
from thinker.runs.build import build_run
from thinker.runs.evaluate import evaluate_run
from thinker.runs.presets import preset
from thinker.runs.settings import RunSettings
from thinker.viewer.play import record_run
from thinker.world_model.spec import LearnedValuesSimulatorSpec


def small(name: str) -> RunSettings:
    settings = tiny(name, num_envs=2)
    environment = settings.environment
    evaluation = dataclasses.replace(settings.evaluation, episodes=2, num_envs=2)
    if isinstance(environment, AtariSpec):
        pytest.importorskip("ale_py", reason="the extra thinker[atari] is not installed")
        environment = dataclasses.replace(environment, game="breakout", size=16, max_frames=250)
    else:
        pytest.importorskip("minatar", reason="the extra thinker[minatar] is not installed")
        environment = dataclasses.replace(environment, game="space_invaders", max_steps=40)
    agent = dataclasses.replace(settings.agent, batch_size=2)
    return dataclasses.replace(settings, environment=environment, evaluation=evaluation, agent=agent)


@pytest.mark.parametrize("name", ["minatar", "minatar-raw", "atari-small", "atari-small-raw", "simulator"])
def test_a_saved_run_continues_bit_for_bit(name, tmp_path):
    settings = small("minatar" if name == "simulator" else name)
    if name == "simulator":
        settings = dataclasses.replace(settings, model=LearnedValuesSimulatorSpec(training=settings.model.training))
    first = engine(settings)
    advance(first, 4)
    checkpoint.save(tmp_path, 0, first.run.state_dict())
    expected = advance(first, 6).run.state_dict()
    second = advance(engine(settings), 1)
    second.run.load_state_dict(checkpoint.load_latest(tmp_path)[1])
    assert differences(advance(second, 6).run.state_dict(), expected) == []


@pytest.mark.parametrize("name", ["minatar-raw", "atari-small-raw"])
def test_held_out_games_are_evaluated_by_their_score(name):
    run = build_run(small(name), device="cpu")
    first, second = (evaluate_run(run, episodes=3) for _ in range(2))
    assert first.returns.tolist() == second.returns.tolist()
    assert (first.lengths >= 1).all()
    if isinstance(run.settings.environment, AtariSpec):
        pytest.importorskip("atarihns", reason="the extra thinker[atari] is not installed")
        expected = (first.returns.mean() - 1.7) / (30.5 - 1.7)
        assert first.metrics()["eval/human_normalised"] == pytest.approx(expected)
        assert (first.lengths * 4 > 100).all()  # of several lives
    else:
        assert first.scores == {}


def test_plans_on_pictures_and_planes_are_recorded_with_names_of_actions():
    recording = record_run(build_run(small("minatar"), device="cpu"), episodes=1)
    assert recording.actions == ["no-op", "left", "right", "fire"]
    assert recording.view.kind == "image"
    recording = record_run(build_run(small("atari-small"), device="cpu"), episodes=1)
    assert recording.actions == ["noop", "fire", "right", "left"]
    assert (recording.view.kind, recording.view.height) == ("image", 16)


def test_the_preset_atari_has_the_papers_settings():
    settings = preset("atari")
    assert settings.environment == AtariSpec()
    assert dataclasses.astuple(AtariSpec())[1:5] == (80, "rgb", 4, 4)
    assert settings.real_steps * 4 == 200_000_000
    assert (settings.search.stage_length, settings.search.max_depth, settings.search.discount) == (20, 5, 0.99)
    assert settings.agent == paper_settings()
    assert settings.model.replay_capacity == settings.model.training.warm_up_transitions == 200_000
    assert SIZES[settings.model.size].blocks == 2
    raw = preset("atari-raw").agent
    assert (raw.learning_rate, raw.objective, raw.unroll_stages) == (3e-4, "v-trace", 20)
    assert raw.network_size == "paper"


def test_a_model_for_other_frames_is_refused():
    settings = small("atari-small")
    wrong = dataclasses.replace(settings.environment, frame_stack=3)
    with pytest.raises(UnsupportedSpaceError, match="its 3 channels are not 4 stacked frames"):
        build_run(dataclasses.replace(settings, environment=wrong), device="cpu")


def test_a_run_cannot_be_evaluated_on_observations_of_another_size():
    run = build_run(small("atari-small-raw"), device="cpu")
    other = dataclasses.replace(run.settings.environment, size=20).build(2)
    with pytest.raises(UserError, match="these environments have observations"):
        run.wrap(other)


def test_frames_are_stored_once_in_the_replay_of_a_run():
    trainer = build_run(small("atari-small"), device="cpu").trainer
    assert trainer is not None
    assert trainer.replay.observation_shape == (4, 16, 16)
    assert trainer.replay.frame_stack == 4
