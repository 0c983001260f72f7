"""Gymnasium's side: autoreset modes, the single view, what a learner is told, other libraries, and every bad input."""

from __future__ import annotations

import warnings
from functools import partial

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.error import ClosedEnvironmentError, ResetNeeded
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from reference import FakeModel, RandomEpisodes, ReferenceThinker

import thinker
from thinker.augmented import SingleThinkerEnv, ThinkerEnv, single_vector
from thinker.world_model.simulator import SokobanSimulator
from thinker.world_model.trainer import TrainerSettings

SAME_STEP, NEXT_STEP, DISABLED = AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED


def real_envs(num_envs=3, end_rate=0.3, mode=SAME_STEP, kind=SyncVectorEnv, num_actions=2):
    return kind([partial(RandomEpisodes, n, num_actions, end_rate) for n in range(num_envs)], autoreset_mode=mode)


class NativeNextStep(VectorEnv):
    """A vector environment in NEXT_STEP mode that cannot be reset one by one, as Gymnasium's own CartPole."""

    metadata = {"autoreset_mode": NEXT_STEP}

    def __init__(self, num_envs, end_rate):
        self._inner = real_envs(num_envs, end_rate, NEXT_STEP)
        self.num_envs = num_envs
        self.single_action_space, self.action_space = self._inner.single_action_space, self._inner.action_space
        self.single_observation_space = self._inner.single_observation_space
        self.observation_space = self._inner.observation_space

    def reset(self, *, seed=None, options=None):
        assert not options
        return self._inner.reset(seed=seed)

    def step(self, actions):
        return self._inner.step(actions)


class Witness:
    """A learner that only remembers."""

    def __init__(self):
        self.transitions = []

    def observe(self, transition):
        self.transitions.append(transition)

    def abandon(self):
        self.transitions.append("abandoned")

    def rows(self, row):
        return [
            (
                t.observation[row],
                t.action[row],
                t.reward[row],
                t.terminated[row],
                t.truncated[row],
                t.next_observation[row],
            )
            for t in self.transitions[1:]
            if t.valid[row]
        ]


@pytest.mark.parametrize(
    ("kind", "mode"),
    [(SyncVectorEnv, NEXT_STEP), (SyncVectorEnv, DISABLED), (AsyncVectorEnv, NEXT_STEP), (AsyncVectorEnv, SAME_STEP)],
)
def test_all_autoreset_modes_that_gymnasium_offers_give_the_same_steps(kind, mode):
    one = ThinkerEnv(real_envs(), FakeModel(2), stage_length=3)
    other = ThinkerEnv(real_envs(mode=mode, kind=kind), FakeModel(2), stage_length=3)
    try:
        for expected, got in zip(one.reset(seed=0)[0].values(), other.reset(seed=0)[0].values()):
            torch.testing.assert_close(got, expected)
        random = np.random.default_rng(0)
        ended = 0
        for _ in range(60):
            actions = random.integers(0, 2, (3, 2))
            expected, got = one.step(actions), other.step(actions)
            for i in (1, 2, 3):
                np.testing.assert_array_equal(got[i], expected[i])
            for key in ("tree", "hidden"):
                torch.testing.assert_close(got[0][key], expected[0][key])
            for row in np.flatnonzero(expected[2] | expected[3]):
                ended += 1
                torch.testing.assert_close(got[4]["final_obs"][row]["tree"], expected[4]["final_obs"][row]["tree"])
                assert got[4]["final_info"]["time"][row] == expected[4]["final_info"]["time"][row]
                assert got[4]["started_at"][row] == expected[4]["started_at"][row]
        assert ended > 5
    finally:
        other.close()


def test_rows_that_cannot_be_reset_alone_wait_one_stage_and_lose_nothing():
    """Rewards, transitions and returns are those of the other modes; only the end is reported one stage later."""
    told, expected = Witness(), Witness()
    waiting = ThinkerEnv(NativeNextStep(3, 0.3), FakeModel(2), stage_length=2, learner=told)
    plain = ThinkerEnv(real_envs(end_rate=0.3), FakeModel(2), stage_length=2, learner=expected)
    waiting.reset(seed=0), plain.reset(seed=0)
    episodes = {"waiting": [[], [], []], "plain": [[], [], []]}
    # Hash the action from the state, so that both see the same actions in the same states.
    for name, env, steps in (("waiting", waiting, 120), ("plain", plain, 80)):
        finals = 0
        for _ in range(steps):
            if env._step == 1:
                env.step(np.zeros((3, 2), int))
                continue
            action = (env._observation.sum(1) % 2).astype(int)
            _, reward, terminated, truncated, info = env.step(np.stack([action, action], 1))
            for row in np.flatnonzero(terminated | truncated):
                finals += 1
                assert info["final_obs"][row] is not None
                episodes[name][row].append((info["episode"]["r"][row], info["episode"]["l"][row]))
        assert finals > 5
    for row in range(3):
        number = min(len(told.rows(row)), len(expected.rows(row)))
        assert number > 20
        for got, want in zip(told.rows(row)[:number], expected.rows(row)[:number]):
            for g, w in zip(got, want):
                np.testing.assert_array_equal(g, w)
        number = min(len(episodes["waiting"][row]), len(episodes["plain"][row]))
        assert number > 1
        np.testing.assert_allclose(episodes["waiting"][row][:number], episodes["plain"][row][:number])


def test_gymnasiums_native_cart_pole_works():
    env = thinker.make("CartPole-v1", num_envs=4, vectorization="native", stage_length=2, seed=0)
    env.reset()
    random = np.random.default_rng(0)
    lengths = []
    for _ in range(400):
        *_, info = env.step(random.integers(0, 2, (4, 2)))
        if "episode" in info:
            lengths += info["episode"]["l"][info["_episode"]].tolist()
            assert info["episode"]["r"][info["_episode"]].tolist() == lengths[-info["_episode"].sum() :]
    assert len(lengths) > 10


def test_a_learner_is_told_every_real_transition_with_values_and_policy():
    witness = Witness()
    options = dict(stage_length=3, max_depth=2, discount=0.9, carry_tree=True)
    env = ThinkerEnv(real_envs(), FakeModel(2), learner=witness, **options)
    rows = [ReferenceThinker(RandomEpisodes(n, 2, 0.3), FakeModel(2), **options) for n in range(3)]
    env.reset()
    for reference in rows:
        reference.reset()
    random = np.random.default_rng(0)
    root_values = [None] * 3
    for step in range(90):
        actions = random.integers(0, 2, (3, 2))
        policy = random.dirichlet([1, 1], 3)
        before = [reference.observation for reference in rows]
        env.step(actions, policy=policy)
        results = [reference.step(*pair) for reference, pair in zip(rows, actions)]
        if step % 3 == 2:
            told = witness.transitions[-1]
            assert len(witness.transitions) == step // 3 + 2
            np.testing.assert_allclose(told.policy, policy, rtol=1e-6)
            np.testing.assert_array_equal(told.action, actions[:, 0])
            for row, result in enumerate(results):
                np.testing.assert_array_equal(told.observation[row], before[row])
                assert told.reward[row] == pytest.approx(result["reward"])
                assert told.terminated[row] == result["terminated"]
                assert told.truncated[row] == result["truncated"]
                assert told.root_value[row] == pytest.approx(root_values[row], abs=1e-5)
                final = result["final"]
                assert told.final_value[row] == pytest.approx(final["root_value"] if final else 0, abs=1e-5)
                np.testing.assert_array_equal(
                    told.next_observation[row], final["real_state"] if final else result["real_state"]
                )
        root_values = [result["root_value"] for result in results]


def test_a_learned_model_survives_a_reset_in_the_middle_of_episodes():
    training = TrainerSettings(warm_up_transitions=40, batch_size=4)
    env = thinker.make("CartPole-v1", num_envs=4, stage_length=2, seed=0, training=training)
    random = np.random.default_rng(0)
    for _ in range(3):
        env.reset()
        for _ in range(60):
            env.step(random.integers(0, 2, (4, 2)))
    assert env.learner.collected_transitions == 3 * 30 * 4
    assert env.learner.trained_transitions > 0


def test_actions_with_an_offset_reach_the_environment():
    class Offset(RandomEpisodes):
        def __init__(self, number):
            super().__init__(number, 3, 0.0)
            self.action_space = spaces.Discrete(3, start=5)

        def step(self, action):
            assert self.action_space.contains(action)
            return self._observation(), float(action), False, False, {}

    env = ThinkerEnv(SyncVectorEnv([partial(Offset, 0)], autoreset_mode=SAME_STEP), FakeModel(3), stage_length=1)
    env.reset()
    assert env.step(np.array([[2, 0]]))[1][0] == 7


def test_single_view_passes_gymnasiums_checker():
    for env_id, options in [("CartPole-v1", {}), ("thinker/Sokoban-v0", {"size": 5, "boxes": 1})]:
        env = thinker.make(env_id, num_envs=None, model="simulator", stage_length=4, env_options=options, seed=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that boxes are unbounded, and that the environment has no spec
            check_env(env)


def test_single_view_equals_the_vector_environment_and_shows_the_final_observation():
    model = FakeModel(2)
    vector = ThinkerEnv(real_envs(1), model, stage_length=3, output="numpy")
    inner = ThinkerEnv(single_vector(RandomEpisodes(0, 2, 0.3)), model, stage_length=3, output="numpy", autoreset=False)
    single = SingleThinkerEnv(inner)
    with pytest.raises(ResetNeeded):
        single.step(np.array([0, 0]))
    many, _ = vector.reset()
    one, info = single.reset()
    random = np.random.default_rng(0)
    ended = 0
    for _ in range(60):
        np.testing.assert_array_equal(one["tree"], many["tree"][0])
        action = random.integers(0, 2, 2)
        many, reward, terminated, truncated, infos = vector.step(action[None])
        one, *rest, info = single.step(action)
        assert rest == [reward[0], terminated[0], truncated[0]]
        assert info["root_value"] == (infos["root_value"][0] if not rest[1] and not rest[2] else info["root_value"])
        if rest[1] or rest[2]:
            ended += 1
            np.testing.assert_array_equal(one["tree"], infos["final_obs"][0]["tree"])
            assert info["episode"]["r"] == infos["episode"]["r"][0]
            with pytest.raises(ResetNeeded):
                single.step(action)
            one, _ = single.reset()
    assert ended > 3


def test_seed_given_to_make_is_used_by_the_first_reset():
    options = dict(num_envs=2, model="simulator", env_options={"size": 6, "boxes": 1}, observe=("real_state",))
    seeded = thinker.make("thinker/Sokoban-v0", seed=7, **options).reset()[0]["real_state"]
    given = thinker.make("thinker/Sokoban-v0", **options).reset(seed=7)[0]["real_state"]
    assert torch.equal(seeded, given)


# --------------------------------------------------------------------------------------------------- bad input


def bad_env(observation_space=None, action_space=None):
    class Bad(RandomEpisodes):
        def __init__(self):
            super().__init__(0, 2, 0.0)
            self.observation_space = observation_space or self.observation_space
            self.action_space = action_space or self.action_space

    return SyncVectorEnv([Bad], autoreset_mode=SAME_STEP)


def wrap(envs=None, **options):
    return ThinkerEnv(envs or real_envs(), FakeModel(2), **options)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: wrap(bad_env(action_space=spaces.Box(-1, 1, (2,)))), "Discrete action space, not Box"),
        (lambda: wrap(bad_env(observation_space=spaces.Discrete(3))), "type Box, of any shape, not Discrete"),
        (lambda: wrap(RandomEpisodes(0, 2, 0.0)), "wraps a gymnasium.vector.VectorEnv, not RandomEpisodes"),
        (lambda: ThinkerEnv(real_envs(), FakeModel(3)), "the model has 3 actions but the environments have 2"),
        (lambda: wrap(stage_length=0), "stage_length is 0; it must be an integer of at least 1"),
        (lambda: wrap(stage_length=2.5), "stage_length is 2.5"),
        (lambda: wrap(max_depth=0), "max_depth is 0; it must be an integer of at least 1, or None"),
        (lambda: wrap(discount=1.5), "discount is 1.5; it must lie between 0 and 1"),
        (lambda: wrap(observe=("trees",)), "observe has the unknown name 'trees'; known are 'tree'"),
        (lambda: wrap(observe="tree"), r"write observe=\('tree',\)"),
        (lambda: wrap(hide=("hint",)), "hide has the unknown name 'hint'; known are 'hints'"),
        (lambda: wrap(extra=("x",)), "extra has the unknown name 'x'"),
        (lambda: wrap(output="jax"), "output is 'jax'"),
        (lambda: wrap(stage_lenght=3), "stage_lenght"),
        (lambda: wrap(autoreset=False), "needs environments in autoreset mode DISABLED"),
        (lambda: thinker.make("CartPole-v1", stage_lenght=3), "stage_lenght"),
        (lambda: thinker.make("CartPole-v1", model="dual"), "model='dual': choose one of dual-feature"),
        (lambda: thinker.make("CartPole-v1", vectorization="threads"), "vectorization='threads'"),
        (lambda: thinker.make("CartPole-v1", num_envs=None, output="torch"), "the single view"),
        (lambda: thinker.make("CartPole-v1", model="simulator", vectorization="native"), "SyncVectorEnv"),
    ],
)
def test_wrong_settings_are_refused_with_a_reason(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()


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
    env = ThinkerEnv(real_envs(), FakeModel(2), stage_length=3)
    env.reset(seed=0)
    with pytest.raises(ValueError, match=message):
        env.step(actions)
    obs, *_ = env.step(torch.zeros((3, 2), dtype=torch.int32))
    assert (env.decode(obs["tree"])["step"].argmax(1) == 1).all()


def test_step_needs_a_reset_and_an_open_environment():
    env = ThinkerEnv(real_envs(), FakeModel(2))
    with pytest.raises(ResetNeeded, match="call reset"):
        env.step(np.zeros((3, 2), int))
    env.reset()
    env.close()
    with pytest.raises(ClosedEnvironmentError, match="has been closed"):
        env.step(np.zeros((3, 2), int))
    with pytest.raises(ClosedEnvironmentError):
        env.reset()


def test_wrong_policies_are_refused():
    env = ThinkerEnv(real_envs(), FakeModel(2), stage_length=1)
    env.reset()
    for policy in (np.ones((3, 2)), np.full((2, 2), 0.5), np.array([[1.5, -0.5]] * 3)):
        with pytest.raises(ValueError, match=r"probabilities of shape \(3, 2\) whose rows sum to 1"):
            env.step(np.zeros((3, 2), int), policy=policy)


@pytest.mark.parametrize(
    ("part", "message"),
    [("reward", "environment 1 gave the reward nan"), ("observation", "environment 1 gave an observation with NaN")],
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
    with pytest.raises(ValueError, match=message):
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

    env = ThinkerEnv(real_envs(), Broken(2), stage_length=3, observe=("tree", "hidden"))
    with pytest.raises(ValueError, match=rf"{call}\(\) gave NaN or infinity for environment 1"):
        env.reset()
        env.step(np.zeros((3, 2), int))


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ("value", r"'value': \(3, 1\)"),
        ("policy", r"'policy': \(3, 2, 1\)"),
        ("hidden", r"unroll\(\) gave hidden of shape \(3, 1, 1\) for 3 nodes; expected \(3, 1\)"),
        ("state", r"state of shape \(3, 2, 1\) for 3 nodes; expected \(3, 2\)"),
    ],
)
def test_a_model_whose_shapes_do_not_match_is_an_error(field, message):
    import dataclasses

    class Broken(FakeModel):
        hidden_shape = (1,)

        def unroll(self, hidden, action):
            output = super().unroll(hidden, action)
            return dataclasses.replace(output, **{field: getattr(output, field)[..., None]})

    env = ThinkerEnv(real_envs(), Broken(2), stage_length=3)
    env.reset()
    with pytest.raises(ValueError, match=message):
        env.step(np.zeros((3, 2), int))


def test_a_model_without_states_cannot_be_asked_for_them():
    import dataclasses

    class Stateless(FakeModel):
        def root(self, observation, last_action):
            return dataclasses.replace(super().root(observation, last_action), state=None)

    env = ThinkerEnv(real_envs(), Stateless(2), observe=("predicted_state",))
    with pytest.raises(ValueError, match="this model predicts no states"):
        env.reset()


def test_an_environment_that_cannot_be_copied_is_an_error_that_says_what_to_do():
    class Uncopyable(RandomEpisodes):
        def __deepcopy__(self, memo):
            raise RuntimeError("no copies")

    from thinker.world_model.simulator import EnvSimulator

    envs = SyncVectorEnv([partial(Uncopyable, 0, 2, 0.0)], autoreset_mode=SAME_STEP)
    env = ThinkerEnv(envs, EnvSimulator(envs), stage_length=2)
    env.reset()
    with pytest.raises(TypeError, match=r"cannot be deep-copied \(no copies\); give it snapshot\(\)"):
        env.step(np.zeros((1, 2), int))


def test_a_model_learns_even_where_the_caller_has_turned_gradients_off():
    training = TrainerSettings(warm_up_transitions=40, batch_size=4)
    env = thinker.make("CartPole-v1", num_envs=4, stage_length=2, seed=0, training=training)
    env.reset()
    with torch.no_grad():
        for _ in range(60):
            env.step(np.zeros((4, 2), int))
    assert env.learner.trained_transitions > 0


def test_the_single_view_of_sokoban_uses_the_native_simulator_and_outlives_the_step_limit():
    options = {"size": 6, "boxes": 1, "max_steps": 5}
    env = thinker.make("thinker/Sokoban-v0", num_envs=None, model="simulator", stage_length=4, env_options=options)
    assert isinstance(env.vector_env.model, SokobanSimulator)
    env.reset(seed=0)
    random = np.random.default_rng(0)
    ended = 0
    for _ in range(100):
        _, _, terminated, truncated, _ = env.step(random.integers(0, (5, 2)))
        if terminated or truncated:
            ended += 1
            env.reset()
    assert ended >= 4


def test_the_general_simulator_goes_on_where_the_real_environment_is_at_its_step_limit():
    env = thinker.make(
        "CartPole-v1", num_envs=2, model="simulator", stage_length=4, env_options={"max_episode_steps": 3}
    )
    env.reset(seed=0)
    for _ in range(40):
        env.step(np.array([[1, 0], [0, 0]]))
