"""Every wrong setting, action, policy, environment and model is refused with a reason."""

from __future__ import annotations

import dataclasses
from functools import partial

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.error import ClosedEnvironmentError, ResetNeeded
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import thinker
from tests.fakes import FakeModel, RandomEpisodes, random_episodes
from thinker.augmented import ThinkerEnv
from thinker.errors import UnsupportedError, UserError

SAME_STEP = AutoresetMode.SAME_STEP


def bad_env(observation_space=None, action_space=None):
    class Bad(RandomEpisodes):
        def __init__(self):
            super().__init__(0, 2, 0.0)
            self.observation_space = observation_space or self.observation_space
            self.action_space = action_space or self.action_space

    return SyncVectorEnv([Bad], autoreset_mode=SAME_STEP)


def wrap(envs=None, **options):
    return ThinkerEnv(envs or random_episodes(), FakeModel(2), **options)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: wrap(bad_env(action_space=spaces.Box(-1, 1, (2,)))), "Discrete action space, not Box"),
        (lambda: wrap(bad_env(observation_space=spaces.Discrete(3))), "type Box, of any shape, not Discrete"),
        (lambda: wrap(RandomEpisodes(0, 2, 0.0)), "wraps a gymnasium.vector.VectorEnv, not RandomEpisodes"),
        (lambda: ThinkerEnv(random_episodes(), FakeModel(3)), "the model has 3 actions but the environments have 2"),
        (lambda: wrap(stage_length=0), "stage_length is 0; it must be an integer of at least 1"),
        (lambda: wrap(stage_length=2.5), "stage_length is 2.5"),
        (lambda: wrap(max_depth=0), "max_depth is 0; it must be an integer of at least 1, or None"),
        (lambda: wrap(discount=1.5), "discount is 1.5; it must lie between 0 and 1"),
        (lambda: wrap(observe=("trees",)), "observe has the unknown name 'trees'; known are 'tree'"),
        (lambda: wrap(mask=("hint",)), "mask has the unknown name 'hint'; known are 'hints'"),
        (lambda: wrap(extra=("x",)), "extra has the unknown name 'x'"),
        (lambda: wrap(output="jax"), "output is 'jax'"),
        (lambda: wrap(autoreset=False), "needs environments in autoreset mode DISABLED"),
        (lambda: thinker.make("CartPole-v1", model="duel"), "model='duel': choose one of dual"),
        (lambda: thinker.make("CartPole-v1", vectorization="threads"), "vectorization='threads'"),
        (lambda: thinker.make("CartPole-v1", num_envs=None, output="torch"), "the single view"),
        (lambda: thinker.make("CartPole-v1", model="simulator", vectorization="native"), "SyncVectorEnv"),
    ],
)
def test_wrong_settings_are_refused_with_a_reason(make, message):
    with pytest.raises(UserError, match=message):
        make()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: wrap(stage_lenght=3), "stage_lenght"),
        (lambda: thinker.make("CartPole-v1", stage_lenght=3), "stage_lenght"),
        (lambda: wrap(observe="tree"), r"write observe=\('tree',\)"),
    ],
)
def test_wrong_arguments_are_type_errors(make, message):
    with pytest.raises(TypeError, match=message):
        make()


@pytest.mark.parametrize(
    "make",
    [
        lambda: wrap(bad_env(action_space=spaces.Box(-1, 1, (2,)))),
        lambda: wrap(bad_env(observation_space=spaces.Discrete(3))),
        lambda: wrap(RandomEpisodes(0, 2, 0.0)),
    ],
)
def test_environments_of_an_unsupported_kind_have_an_error_of_their_own(make):
    with pytest.raises(UnsupportedError):
        make()


def test_environments_must_declare_their_autoreset_mode():
    envs = random_episodes()
    envs.metadata = {}
    with pytest.raises(UserError, match="does not declare its autoreset mode"):
        wrap(envs)


def test_an_episode_that_ends_without_its_final_observation_is_an_error():
    class Forgetful(SyncVectorEnv):
        def step(self, actions):
            *step, _ = super().step(actions)
            return *step, {}

    env = wrap(Forgetful([partial(RandomEpisodes, 0, 2, 1.0)], autoreset_mode=SAME_STEP), stage_length=1)
    env.reset()
    with pytest.raises(UserError, match=r"ended an episode without info\['final_obs'\]"):
        env.step(np.zeros((1, 2), int))


def test_observations_that_break_their_spaces_promise_are_an_error():
    class Doubles(SyncVectorEnv):
        def step(self, actions):
            observation, *rest = super().step(actions)
            return observation.astype(np.float64), *rest

    env = wrap(Doubles([partial(RandomEpisodes, 0, 2, 0.0)], autoreset_mode=SAME_STEP), stage_length=1)
    env.reset()
    with pytest.raises(UserError, match="dtype float64, but their observation space promises"):
        env.step(np.zeros((1, 2), int))


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        (np.zeros((3, 3), int), r"integers of shape \(3, 2\).*got shape \(3, 3\)"),
        (np.zeros(3, int), r"got shape \(3,\)"),
        (np.zeros((3, 2)), "dtype float64"),
        (np.zeros((3, 2), bool), "dtype bool"),
        (np.array([[0, 0], [2, 0], [0, 0]]), r"environment 1 are \[2, 0\]; the first must be 0 to 1"),
        (np.array([[0, 0], [0, 0], [0, 2]]), r"environment 2 are \[0, 2\].*reset\) 0 or 1"),
        (np.array([[-1, 0], [0, 0], [0, 0]]), r"environment 0 are \[-1, 0\]"),
    ],
)
def test_wrong_actions_are_refused_and_nothing_has_happened(actions, message):
    env = ThinkerEnv(random_episodes(), FakeModel(2), stage_length=3)
    env.reset(seed=0)
    with pytest.raises(UserError, match=message):
        env.step(actions)
    obs, *_ = env.step(torch.zeros((3, 2), dtype=torch.int32))
    assert (env.decode(obs["tree"])["step"].argmax(1) == 1).all()


def test_step_needs_a_reset_and_an_open_environment():
    env = ThinkerEnv(random_episodes(), FakeModel(2))
    with pytest.raises(ResetNeeded, match="call reset"):
        env.step(np.zeros((3, 2), int))
    env.reset()
    env.close()
    with pytest.raises(ClosedEnvironmentError, match="has been closed"):
        env.step(np.zeros((3, 2), int))
    with pytest.raises(ClosedEnvironmentError):
        env.reset()


def test_wrong_policies_and_values_of_the_roots_are_refused():
    env = ThinkerEnv(random_episodes(), FakeModel(2), stage_length=1)
    env.reset()
    for policy in (np.ones((3, 2)), np.full((2, 2), 0.5), np.array([[1.5, -0.5]] * 3)):
        with pytest.raises(UserError, match=r"probabilities of shape \(3, 2\) whose rows sum to 1"):
            env.step(np.zeros((3, 2), int), policy=policy)
    for value in (np.ones((3, 1)), np.ones(2), np.array([1.0, np.nan, 0.0])):
        with pytest.raises(UserError, match=r"root_value must contain finite numbers of shape \(3,\)"):
            env.step(np.zeros((3, 2), int), root_value=value)


@pytest.mark.parametrize(
    ("part", "message"),
    [
        ("reward", "environment 1 returned the reward nan"),
        ("observation", "environment 1 returned an observation with NaN"),
    ],
)
def test_nan_from_the_environment_is_an_error_that_names_it(part, message):
    class Broken(RandomEpisodes):
        def step(self, action):
            observation, reward, *rest = super().step(action)
            if self.number == 1:
                observation, reward = (observation, np.nan) if part == "reward" else (observation * np.nan, reward)
            return observation, reward, *rest

    envs = SyncVectorEnv([partial(Broken, n, 2, 0.0) for n in range(3)], autoreset_mode=SAME_STEP)
    env = ThinkerEnv(envs, FakeModel(2), stage_length=1)
    env.reset()
    with pytest.raises(UserError, match=message):
        env.step(np.zeros((3, 2), int))


@pytest.mark.parametrize(
    ("call", "field"),
    [("root", "value"), ("root", "policy")] + [("unroll", f) for f in ("value", "policy", "reward", "termination")],
)
def test_nan_from_the_model_is_an_error_that_names_the_environment(call, field):
    class Broken(FakeModel):
        hidden_shape = (1,)

        def _output(self, hidden, observation):
            output = super()._output(hidden, observation)
            if (observation is not None) == (call == "root"):
                getattr(output, field)[1] = float("nan")
            return output

    env = ThinkerEnv(random_episodes(), Broken(2), stage_length=3, observe=("tree", "hidden"))
    with pytest.raises(UserError, match=rf"{call}\(\) returned NaN or infinity for environment 1"):
        env.reset()
        env.step(np.zeros((3, 2), int))


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ("value", r"'value': \(3, 1\)"),
        ("policy", r"'policy': \(3, 2, 1\)"),
        ("hidden", r"unroll\(\) returned hidden of shape \(3, 1, 1\) for 3 nodes; expected \(3, 1\)"),
        ("state", r"state of shape \(3, 2, 1\) for 3 nodes; expected \(3, 2\)"),
    ],
)
def test_a_model_whose_shapes_do_not_match_is_an_error(field, message):
    class Broken(FakeModel):
        hidden_shape = (1,)

        def unroll(self, hidden, action):
            output = super().unroll(hidden, action)
            return dataclasses.replace(output, **{field: getattr(output, field)[..., None]})

    env = ThinkerEnv(random_episodes(), Broken(2), stage_length=3)
    env.reset()
    with pytest.raises(UserError, match=message):
        env.step(np.zeros((3, 2), int))


def test_a_model_without_states_cannot_be_asked_for_them():
    class Stateless(FakeModel):
        def root(self, observation, last_action):
            return dataclasses.replace(super().root(observation, last_action), state=None)

    env = ThinkerEnv(random_episodes(), Stateless(2), observe=("predicted_state",))
    with pytest.raises(UserError, match="this model does not predict states"):
        env.reset()
