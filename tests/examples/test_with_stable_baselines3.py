"""Stable-Baselines3 on the single view as it is, and on the vector environment through the adapter of the example."""

import gymnasium as gym
import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason="needs the extra thinker[sb3]")

import with_stable_baselines3
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_checker import check_env
from stable_baselines3.common.vec_env import VecMonitor

import thinker

STEPS = 2_000
FINISHED: list[float] = []  # the returns of all episodes of LedgerEnv, kept by itself


class LedgerEnv(gym.Env):
    """Random rewards and random ends, of which it keeps the account itself."""

    observation_space = gym.spaces.Box(-1, 1, (3,), np.float32)
    action_space = gym.spaces.Discrete(2)
    limit = 12

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.total = 0, 0.0
        return self._observe(), {}

    def step(self, action):
        reward = float(self.np_random.integers(10))
        self.steps += 1
        self.total += reward
        terminated = bool(self.np_random.random() < 0.1)
        truncated = self.steps == self.limit
        if terminated or truncated:
            FINISHED.append(self.total)
        return self._observe(), reward, terminated, truncated, {}

    def _observe(self):
        return self.np_random.uniform(-1, 1, 3).astype(np.float32)


gym.register("tests/Ledger-v0", entry_point=LedgerEnv)

TRAINING = thinker.TrainerSettings(warm_up_transitions=100, batch_size=16, learning_rate=1e-3)
SOKOBAN = {"size": 5, "boxes": 1, "max_steps": 20}
OPTIONS = {
    "learned CartPole": {"env_id": "CartPole-v1", "model": thinker.DualModelSpec(training=TRAINING)},
    "learned Sokoban": {
        "env_id": "thinker/Sokoban-v0",
        "env_options": SOKOBAN,
        "model": thinker.DualModelSpec(size=thinker.TilesSize(channels=8), training=TRAINING),
    },
    "simulated Sokoban": {"env_id": "thinker/Sokoban-v0", "env_options": SOKOBAN, "model": "simulator"},
}


class Monitored(BaseCallback):
    """The episodes that Stable-Baselines3 is told of, and the number of real steps."""

    def __init__(self):
        super().__init__()
        self.returns: list[float] = []
        self.real_steps = 0

    def _on_step(self) -> bool:
        for done, info in zip(self.locals["dones"], self.locals["infos"]):
            self.real_steps += int(info["step_kind"] == 0)
            assert ("episode" in info) == bool(done)
            if done:
                self.returns.append(info["episode"]["r"])
        return True


@pytest.mark.slow
@pytest.mark.parametrize(
    ("view", "which"),
    [
        ("single", "learned CartPole"),
        ("single", "learned Sokoban"),
        ("vector", "learned CartPole"),
        ("vector", "simulated Sokoban"),
    ],
)
def test_ppo_takes_2000_steps(view, which):
    env, discount = with_stable_baselines3.make(view, stage_length=4, seed=0, **OPTIONS[which])
    monitored = Monitored()
    ppo = with_stable_baselines3.train(env, discount, STEPS, callback=monitored)
    assert ppo.num_timesteps == 2_048  # whole rollouts
    assert ppo.gamma == 0.97 ** (1 / 4)
    assert monitored.real_steps == 2_048 // 4
    assert len(monitored.returns) > 10
    losses = {name: value for name, value in ppo.logger.name_to_value.items() if name.endswith("loss")}
    assert len(losses) >= 4
    assert all(np.isfinite(value) and value != 0 for value in losses.values())
    if which.startswith("learned"):
        trainer = env.vector_env.sink if view == "single" else env.env.sink
        assert trainer.collected_transitions == monitored.real_steps
        assert trainer.trained_transitions > 0


@pytest.mark.parametrize("view", ["single", "vector", "monitored vector"])
def test_the_episodes_that_ppo_is_told_of_are_the_real_ones(view):
    kind = view.removeprefix("monitored ")
    env, discount = with_stable_baselines3.make(kind, "tests/Ledger-v0", stage_length=3, seed=0, num_envs=4)
    if view.startswith("monitored"):
        env = VecMonitor(env)
    FINISHED.clear()
    monitored = Monitored()
    with_stable_baselines3.train(env, discount, 1_000, callback=monitored)
    assert len(FINISHED) > 30
    assert monitored.returns == FINISHED


def test_the_adapter_hands_over_last_observations_and_says_which_episodes_were_cut_off():
    options = {"stage_length": 2, "num_envs": 4, "seed": 5}
    twin = thinker.make("tests/Ledger-v0", output="numpy", **options)
    adapter, _ = with_stable_baselines3.make("vector", "tests/Ledger-v0", **options)
    observation, _ = twin.reset()
    for name, part in adapter.reset().items():
        np.testing.assert_array_equal(part, observation[name])
    kinds = set()
    generator = np.random.default_rng(0)
    for _ in range(120):
        actions = np.stack([generator.integers(2, size=4), generator.integers(2, size=4)], 1)
        observation, reward, terminated, truncated, info = twin.step(actions)
        seen, reward_seen, done, rows = adapter.step(actions)
        np.testing.assert_array_equal(reward, reward_seen)
        np.testing.assert_array_equal(done, terminated | truncated)
        for i, row in enumerate(rows):
            assert ("terminal_observation" in row) == ("TimeLimit.truncated" in row) == bool(done[i])
            if done[i]:
                kinds.add((bool(terminated[i]), bool(truncated[i])))
                assert row["TimeLimit.truncated"] == (truncated[i] and not terminated[i])
                for name, part in row["terminal_observation"].items():
                    np.testing.assert_array_equal(part, info["final_obs"][i][name])
                    assert not np.array_equal(part, seen[name][i])
        for name, part in seen.items():
            np.testing.assert_array_equal(part, observation[name])
    assert {(True, False), (False, True)} <= kinds


def test_the_adapters_seed_decides_the_episodes():
    adapter, _ = with_stable_baselines3.make(
        "vector", "tests/Ledger-v0", stage_length=2, num_envs=2, observe=["real_state"]
    )
    seen = []
    for seed in (1, 1, 2):
        adapter.seed(seed)
        seen.append(adapter.reset()["real_state"])
    np.testing.assert_array_equal(seen[0], seen[1])
    assert not np.array_equal(seen[0], seen[2])


def test_the_adapter_wants_numpy_arrays():
    with pytest.raises(thinker.UserError, match="needs output='numpy'"):
        with_stable_baselines3.ThinkerVecEnv(thinker.make("CartPole-v1", num_envs=2))


def test_stable_baselines3_finds_nothing_to_complain_about_in_the_single_view():
    check_env(thinker.make("CartPole-v1", num_envs=None, stage_length=3), warn=True, skip_render_check=True)


def test_the_command_line_trains(capsys):
    ppo = with_stable_baselines3.main(["--view", "vector", "--steps", "500", "--stage-length", "2"])
    assert ppo.num_timesteps == 512
    assert "ep_rew_mean" in capsys.readouterr().out
