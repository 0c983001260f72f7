"""Requests that cannot work are refused before any work is done, and saved runs stay usable."""

import dataclasses
import random

import gymnasium as gym
import numpy as np
import pytest
import torch

import thinker
from tests.runs.support import engine, tiny
from thinker.agents import ActorCriticLearner, LearnerSettings
from thinker.errors import UserError
from thinker.runs import checkpoint
from thinker.runs.evaluate import evaluate_run
from thinker.runs.folder import RunFolder, write_json
from thinker.runs.load import load_run
from thinker.runs.plot import plot_runs
from thinker.runs.train import train
from thinker.world_model import DualModelSpec, LearnedValuesSimulatorSpec


class Unrepeatable(gym.Env):
    """Uses a random generator that no seed reaches."""

    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._state(), {}

    def step(self, action):
        self.steps += 1
        return self._state(), 1.0, self.steps == 7, False, {}

    def _state(self):
        return np.array([random.random(), self.steps / 10], np.float32)


class Remembering(gym.Env):
    """Rewards depend on the past actions, which snapshots hold and observations do not show."""

    observation_space = gym.spaces.Box(0, 1, (1,), np.float32)
    action_space = gym.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.past = [int(self.np_random.integers(100))]
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.past.append(int(action))
        reward = sum((i + 1) * a for i, a in enumerate(self.past)) % 7
        return np.zeros(1, np.float32), float(reward), len(self.past) > 40, False, {}

    def snapshot(self):
        return {"past": np.array(self.past)}

    def restore(self, snapshot):
        self.past = snapshot["past"].tolist()


gym.register("tests/Unrepeatable-v0", entry_point=Unrepeatable)
gym.register("tests/Remembering-v0", entry_point=Remembering)


def test_too_many_held_out_episodes_are_refused_before_there_is_a_folder(tmp_path):
    settings = tiny("sokoban-quick", evaluation=thinker.EvaluationSettings(episodes=200_000))
    with pytest.raises(UserError, match="200000"):
        train(settings, tmp_path / "runs", "run")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"exploration_steps": 480}, "random play; set exploration_steps to 48"),
        ({"exploration_ratio": -3.0}, "at least 0"),
        ({"checkpoint_minutes": float("nan")}, "at least 0"),
        ({"seed": 1_000_000_000}, "higher seeds are held out"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changes, message):
    with pytest.raises(UserError, match=message):
        tiny("sokoban-quick", **changes)


def test_an_agent_of_the_raw_mdp_has_no_use_for_a_model():
    with pytest.raises(UserError, match="NoModelSpec"):
        tiny("sokoban-raw", model=DualModelSpec())


def test_a_raw_run_has_neither_other_stage_lengths_nor_a_base_policy():
    run = engine(tiny("sokoban-raw")).run
    with pytest.raises(UserError, match="stage length is 1, not 3"):
        evaluate_run(run, stage_length=3)
    with pytest.raises(UserError, match="no base policy"):
        evaluate_run(run, "base-policy")


def test_make_refuses_what_it_would_ignore():
    with pytest.raises(UserError, match="stage_length must be 1, not 20"):
        thinker.make("CartPole-v1", num_envs=2, model="none")
    envs = gym.make_vec("CartPole-v1", 2, vectorization_mode="sync")
    with pytest.raises(UserError, match="env_options"):
        thinker.make(envs, env_options={"sutton_barto_reward": True})


def test_a_run_in_an_environment_that_cannot_be_restored_can_still_be_evaluated(tmp_path):
    settings = tiny("cartpole", environment=thinker.GymnasiumSpec(id="tests/Unrepeatable-v0"), real_steps=200)
    with pytest.warns(UserWarning, match="cannot be resumed"):
        train(settings, tmp_path, "run")
    run = load_run(RunFolder(tmp_path, "run"))
    assert evaluate_run(run, episodes=3).lengths.tolist() == [7, 7, 7]


def test_a_search_in_copies_of_the_environments_is_resumed_exactly(tmp_path):
    model = LearnedValuesSimulatorSpec(training=tiny("cartpole").model.training, replay_capacity=2_000)
    environment = thinker.GymnasiumSpec(id="tests/Remembering-v0")
    settings = tiny("cartpole", environment=environment, model=model, real_steps=320)
    unbroken = engine(settings)
    for _ in range(2):
        unbroken.advance()
    checkpoint.save(tmp_path, unbroken.run.real_steps, unbroken.run.state_dict())
    resumed = engine(settings)
    resumed.run.load_state_dict(checkpoint.load_latest(tmp_path)[1])
    for one in (unbroken, resumed):
        while not one.run.finished:
            one.advance()
    weights, others = unbroken.run.networks(), resumed.run.networks()
    for part, network in weights.items():
        for name, value in network.state_dict().items():
            assert torch.equal(value, others[part].state_dict()[name]), f"{part}/{name}"


def test_a_damaged_configuration_is_named_by_plot(tmp_path):
    write_json(tmp_path / "config.json", {})
    (tmp_path / "config.json").write_text("{", encoding="utf-8")
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "minutes": 0.1, "episode/return": 1.0}\n', encoding="utf-8")
    with pytest.raises(UserError, match=r"config\.json is damaged"):
        plot_runs([tmp_path], tmp_path / "curves.png")


def test_the_scales_of_rewards_must_be_those_of_the_network():
    run = engine(tiny("sokoban-raw")).run
    network = run.agent.network

    @dataclasses.dataclass(frozen=True)
    class Others(LearnerSettings):
        def reward_scales(self, progress):
            return {"real": 1.0, "planning": 1.0}

    with pytest.raises(UserError, match="override reward_scales"):
        ActorCriticLearner(network, Others(), discount=0.9)


def test_a_finished_run_without_a_usable_checkpoint_is_reported_with_a_warning(tmp_path):
    settings = tiny("sokoban-raw", real_steps=32)
    summary = train(settings, tmp_path, "run")
    for path in checkpoint.list_checkpoints(tmp_path / "run" / "checkpoints"):
        (path / checkpoint.MANIFEST).unlink()
    with pytest.warns(UserWarning, match="no usable checkpoint"):
        assert train(settings, tmp_path, "run") == summary
