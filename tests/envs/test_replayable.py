"""Restored environments go on bit for bit, from the middle of episodes, in fresh ones and through a checkpoint."""

import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv

import thinker.envs  # noqa: F401  (registers Sokoban)
from thinker.envs.replayable import NotReproducibleError, ReplayableEnvs, environments_state, restore_environments
from thinker.envs.sokoban import SokobanVectorEnv
from thinker.runs.checkpoint import load_latest, save

NUM_ENVS = 3


class Noisy(gym.Env):
    """Draws random numbers in every step and ends at random: the generator matters in the middle of episodes, too."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = spaces.Discrete(3, start=1)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.position = self.np_random.normal(size=2)
        return self.position.copy(), {}

    def step(self, action):
        self.position = self.position * 0.9 + action * self.np_random.normal(size=2)
        return self.position.copy(), float(self.position.sum()), bool(self.np_random.random() < 0.1), False, {}


class Remembers(Noisy):
    """Carries a count from episode to episode, which no replay of the last one can bring back; only rewards show it."""

    episodes = 0

    def reset(self, *, seed=None, options=None):
        self.episodes += 1
        return super().reset(seed=seed)

    def step(self, action):
        observation, _, terminated, truncated, info = super().step(action)
        return observation, self.episodes, terminated, truncated, info


class OwnGenerator(Noisy):
    """Draws from a generator that Gymnasium knows nothing of."""

    def __init__(self):
        self.generator = np.random.default_rng()

    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        return observation + self.generator.normal(), reward, terminated, truncated, info


class SecretGenerator(Noisy):
    """Uses up np_random at a rate that its observations do not show."""

    calls = 0

    def step(self, action):
        SecretGenerator.calls += 1
        self.np_random.random(SecretGenerator.calls)
        return np.zeros(2), 0.0, False, False, {}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2), {}


def replayable(make):
    return lambda: ReplayableEnvs([make] * NUM_ENVS)


MAKERS = {
    "cart pole": replayable(lambda: gym.make("CartPole-v1")),
    "mountain car": replayable(lambda: gym.make("MountainCar-v0", max_episode_steps=60)),
    "noisy": replayable(Noisy),
    "sokoban": lambda: SokobanVectorEnv(NUM_ENVS, size=6, boxes=1, max_steps=15),
    "sokoban made by name": lambda: gym.make_vec(
        "thinker/Sokoban-v0", NUM_ENVS, vectorization_mode="vector_entry_point", size=6, boxes=2, max_steps=15
    ),
}


def assert_same(left, right):
    if isinstance(left, dict):
        assert left.keys() == right.keys()
        for key in left:
            assert_same(left[key], right[key])
    elif isinstance(left, np.ndarray) and left.dtype == object:
        for a, b in zip(left, right):
            assert_same(a, b)
    else:
        assert np.array_equal(left, right)


def play(envs, steps, seed):
    """All that ``envs`` return for random actions."""
    generator = np.random.default_rng(seed)
    space = envs.single_action_space
    return [envs.step(space.start + generator.integers(space.n, size=NUM_ENVS)) for _ in range(steps)]


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("steps", [0, 1, 37, 150])
def test_fresh_and_used_environments_go_on_exactly_from_a_checkpoint(tmp_path, name, steps):
    envs = MAKERS[name]()
    envs.reset(seed=steps)
    play(envs, steps, seed=1)
    save(tmp_path, steps, environments_state(envs))
    expected = play(envs, 400, seed=2)
    assert sum((step[2] | step[3]).sum() for step in expected) > 8, "many episodes must follow"

    _, state = load_latest(tmp_path)
    fresh, used = MAKERS[name](), MAKERS[name]()
    used.reset(seed=99)
    play(used, 23, seed=3)
    for others in (fresh, used, envs):
        restore_environments(others, state)
        for step, other in zip(expected, play(others, 400, seed=2)):
            for left, right in zip(step, other):
                assert_same(left, right)


def test_a_restored_state_can_be_saved_and_restored_again_in_the_same_episode():
    envs = MAKERS["noisy"]()
    envs.reset(seed=0)
    for part in range(30):
        play(envs, 3, seed=part)
        fresh = MAKERS["noisy"]()
        restore_environments(fresh, environments_state(envs))
        left, right = environments_state(fresh), environments_state(envs)
        assert_same(left, right)
        envs = fresh


def test_replayable_environments_behave_as_gymnasiums_own():
    envs, plain = (
        MAKERS["cart pole"](),
        SyncVectorEnv([lambda: gym.make("CartPole-v1")] * NUM_ENVS, autoreset_mode="SameStep"),
    )
    assert envs.metadata["autoreset_mode"] == plain.metadata["autoreset_mode"]
    for left, right in zip(envs.reset(seed=4), plain.reset(seed=4)):
        assert_same(left, right)
    for step, other in zip(play(envs, 200, seed=0), play(plain, 200, seed=0)):
        for left, right in zip(step, other):
            assert_same(left, right)


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (Remembers, "observations or rewards in .* differ"),
        (OwnGenerator, "observations or rewards in .* differ"),
        (SecretGenerator, "np_random is in another state"),
    ],
)
def test_an_environment_that_cannot_be_replayed_is_an_error_when_restored(make, problem):
    envs = replayable(make)()
    envs.reset(seed=0)
    play(envs, 50, seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the next test but one
        state = environments_state(envs)
    fresh = replayable(make)()
    with pytest.raises(NotReproducibleError, match=rf"environment 0 .*{problem}.*snapshot\(\)"):
        restore_environments(fresh, state)


def test_an_episode_that_ends_too_early_when_replayed_is_an_error():
    envs = replayable(lambda: gym.make("MountainCar-v0", max_episode_steps=60))()
    envs.reset(seed=0)
    play(envs, 40, seed=0)
    shorter = replayable(lambda: gym.make("MountainCar-v0", max_episode_steps=20))()
    with pytest.raises(NotReproducibleError, match="its episode ended after 20 of 40 steps"):
        restore_environments(shorter, environments_state(envs))


def test_the_first_snapshot_after_an_autoreset_warns_of_environments_that_cannot_be_resumed():
    envs = replayable(Remembers)()
    envs.reset(seed=0)
    environments_state(envs)  # the first episodes were seeded: nothing can be known yet
    play(envs, 60, seed=0)
    with pytest.warns(UserWarning, match=r"cannot be resumed: .*rewards in .* differ"):
        environments_state(envs)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        environments_state(envs)  # once is enough


def test_trying_a_replay_leaves_the_environments_alone():
    env = Noisy()
    envs = ReplayableEnvs([lambda: env])  # no new ones can be made
    envs.reset(seed=0)
    for _ in range(50):
        envs.step(np.array([1]))
    position = env.position.copy()
    environments_state(envs)
    assert np.array_equal(env.position, position)


def test_wrong_environments_are_clear_errors():
    plain = SyncVectorEnv([Noisy])
    with pytest.raises(TypeError, match=r"SyncVectorEnv cannot be saved; use .*ReplayableEnvs"):
        environments_state(plain)
    wrapped = gym.wrappers.vector.RecordEpisodeStatistics(MAKERS["noisy"]())
    with pytest.raises(TypeError, match="RecordEpisodeStatistics cannot be saved"):
        environments_state(wrapped)
    with pytest.raises(gym.error.ResetNeeded):
        environments_state(MAKERS["noisy"]())
    with pytest.raises(TypeError, match="Discrete actions"):
        ReplayableEnvs([lambda: gym.make("Pendulum-v1")])
    envs = MAKERS["noisy"]()
    with pytest.raises(ValueError, match="options"):
        envs.reset(options={"a": 1})
    envs.reset(seed=0)
    state = environments_state(envs)
    with pytest.raises(ValueError, match=r"3 environments in a ReplayableEnvs, .* 2 in a ReplayableEnvs"):
        restore_environments(ReplayableEnvs([Noisy] * 2), state)
    with pytest.raises(ValueError, match="SokobanVectorEnv"):
        restore_environments(MAKERS["sokoban"](), state)
