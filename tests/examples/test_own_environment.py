"""The example of a custom environment: the environment itself, and that an agent learns it."""

from pathlib import Path

import gymnasium as gym
import numpy as np
import own_environment
import pytest
from gymnasium.utils.env_checker import check_env

import thinker


def test_the_environment_passes_gymnasiums_checker():
    check_env(gym.make(own_environment.ENV_ID).unwrapped)


@pytest.mark.parametrize(
    ("position", "velocity", "action", "reward", "terminated"),
    [
        (0.0, 0.0, 1, 1.0, True),  # at rest at the station
        (0.0, 0.18, 2, -0.01, False),  # past it at full speed
        (0.95, 0.18, 1, -1.0, True),  # over the edge
        (-0.5, 0.2, 2, -0.01, False),  # not faster than the fastest
    ],
)
def test_docking_and_getting_lost_end_the_episode_with_their_rewards(position, velocity, action, reward, terminated):
    env = own_environment.Docking()
    env.reset(seed=0)
    env.position, env.velocity, env.station = position, velocity, 0.05
    observation, got, ended, truncated, info = env.step(np.int64(action))
    assert (got, ended, truncated) == (reward, terminated, False)
    assert info["is_success"] == (reward == 1.0)
    assert observation in env.observation_space


def test_a_run_finds_the_environment_from_its_folder(monkeypatch):
    monkeypatch.chdir(Path(own_environment.__file__).parent)
    spec = thinker.GymnasiumSpec(f"own_environment:{own_environment.ENV_ID}")
    spec.check()
    assert spec.build(2).single_observation_space == own_environment.Docking().observation_space


@pytest.mark.slow
def test_the_shortened_example_learns_to_dock():
    lines: list[str] = []
    progress, before, after = own_environment.main(["--quick", "--seed", "1"], log=lines.append)
    assert lines[0].startswith("before")
    assert lines[-1].startswith("after")
    assert progress.real_steps == 13_824
    assert before[1] < 0.4  # untrained: at rest at the station by chance
    assert after[1] > before[1] + 0.25
    assert after[0] > before[0] + 0.5


def test_evaluation_leaves_the_model_as_it_is():
    env = own_environment.make(seed=0)
    before = {name: value.clone() for name, value in env.sink.network.state_dict().items()}
    evaluation = own_environment.make(model=env.model)
    own_environment.evaluate(evaluation, own_environment.Policy(env), episodes_each=1, seed=0)
    assert evaluation.sink is None
    assert env.sink.collected_transitions == 0
    assert all((before[name] == value).all() for name, value in env.sink.network.state_dict().items())
