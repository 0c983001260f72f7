"""Any Gymnasium environment in a run, by id or function: a held-out episode depends on nothing but its number."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import tyro
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

from thinker.envs.gymnasium import FunctionSpec, GymnasiumSpec, SingleEnvironmentsSpec
from thinker.envs.replayable import ReplayableEnvs, environments_state, restore_environments
from thinker.envs.spec import Split
from thinker.errors import UnsupportedError, UserError

SPLITS: tuple[Split, ...] = ("validation", "test")


class Walk(gym.Env):
    """A random walk that the actions push: everything after the start depends on np_random and on what was done."""

    metadata = {"render_modes": [], "success": "arrived", "action_names": ("left", "right")}
    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = spaces.Discrete(2)

    def __init__(self, limit: int = 6) -> None:
        self.limit = limit

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.steps = 0
        self.position = self.np_random.normal(size=2)
        return self.position.copy(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.steps += 1
        self.position = self.position + self.np_random.normal(size=2) + action
        ended = self.steps >= self.limit or self.np_random.random() < 0.1 + 0.2 * action
        return self.position.copy(), 1.0, bool(ended), False, {"arrived": bool(self.position[0] > 0)}


@pytest.fixture
def walk() -> Iterator[str]:
    gym.register("Walk-v0", entry_point=Walk, disable_env_checker=True)
    yield "Walk-v0"
    del gym.registry["Walk-v0"]


def spec_of(kind: str) -> SingleEnvironmentsSpec:
    return FunctionSpec(Walk) if kind == "function" else GymnasiumSpec("CartPole-v1", max_steps=20)


def beginnings(envs: VectorEnv, count: int, seed: int) -> list[np.ndarray]:
    """The first observation of held-out episodes 0 .. count - 1, while playing at random."""
    random = np.random.default_rng(seed)
    observation, _ = envs.reset(seed=seed)  # the seed makes no difference
    found = dict(enumerate(observation))
    played = np.arange(envs.num_envs)
    while len([episode for episode in found if episode < count]) < count:
        observation, _, terminated, truncated, _ = envs.step(random.integers(0, 2, envs.num_envs))
        for e in np.flatnonzero(terminated | truncated).tolist():
            played[e] += envs.num_envs
            found[int(played[e])] = observation[e]
    return [found[episode].copy() for episode in range(count)]


@pytest.mark.parametrize("kind", ["function", "id"])
def test_training_environments_can_be_saved_and_restored(kind: str) -> None:
    spec = spec_of(kind)
    spec.check()
    envs, fresh = spec.build(3), spec.build(3)
    assert isinstance(envs, ReplayableEnvs)
    envs.reset(seed=0)
    random = np.random.default_rng(0)
    for _ in range(30):
        envs.step(random.integers(0, 2, 3))
    restore_environments(fresh, environments_state(envs))
    for _ in range(30):
        actions = random.integers(0, 2, 3)
        for left, right in zip(envs.step(actions)[:4], fresh.step(actions)[:4]):
            np.testing.assert_array_equal(left, right)


def test_training_environments_are_those_of_gymnasium() -> None:
    spec = GymnasiumSpec("MountainCar-v0", {"goal_velocity": 0.01}, max_steps=7)
    envs = spec.build(2)
    same = ReplayableEnvs([lambda: gym.make("MountainCar-v0", max_episode_steps=7, goal_velocity=0.01)] * 2)
    np.testing.assert_array_equal(envs.reset(seed=1)[0], same.reset(seed=1)[0])
    for step in range(1, 30):
        truncated = envs.step(np.full(2, 2))[3]
        np.testing.assert_array_equal(truncated, same.step(np.full(2, 2))[3])
        assert truncated.all() == (step % 7 == 0)
    assert envs.get_attr("goal_velocity") == (0.01, 0.01)
    assert spec.name == "MountainCar-v0"


@pytest.mark.parametrize("kind", ["function", "id"])
@pytest.mark.parametrize("num_envs", [1, 3, 7, 10])
def test_held_out_episodes_are_the_same_whoever_acts_and_however_many_environments_play(
    kind: str, num_envs: int
) -> None:
    spec = spec_of(kind)
    expected = beginnings(spec.held_out("validation", 1, 7), 7, seed=0)
    envs = spec.held_out("validation", num_envs, 7)
    assert envs.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    for seed in (1, 2):  # a reset begins again, in the middle of episodes too
        np.testing.assert_array_equal(beginnings(envs, 7, seed), expected)


def test_a_held_out_episode_gives_the_same_numbers_for_the_same_actions_after_any_other_episodes() -> None:
    def third_episode(action_before: int) -> list[np.ndarray]:
        envs = FunctionSpec(Walk).held_out("test", 1, 3)
        envs.reset()
        ends, seen = 0, []
        while ends < 3:
            observation, _, terminated, _, info = envs.step(np.array([action_before if ends < 2 else 1]))
            ends += int(terminated[0])
            if ends >= 2:
                seen.append(info["final_obs"][0] if ends == 3 else observation[0])
        return seen

    left, right = third_episode(0), third_episode(1)
    assert len(left) == len(right) > 1
    np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize("kind", ["function", "id"])
def test_training_validation_and_test_episodes_differ(kind: str) -> None:
    spec = spec_of(kind)
    validation, test = (beginnings(spec.held_out(split, 8, 40), 40, seed=0) for split in SPLITS)
    training = spec.build(50)
    starts = [*training.reset(seed=0)[0], *training.reset(seed=123)[0], *training.reset()[0]]
    assert len({observation.tobytes() for observation in (*validation, *test, *starts)}) == 40 + 40 + 150


def test_held_out_environments_play_as_many_as_asked_for_and_beyond() -> None:
    envs = FunctionSpec(Walk).held_out("test", 2, 3)
    beginnings(envs, 30, seed=0)
    with pytest.raises(UserError, match="at least one of each"):
        FunctionSpec(Walk).held_out("test", 0, 3)
    with pytest.raises(UserError, match="at least one of each"):
        FunctionSpec(Walk).build(0)
    with pytest.raises(UserError, match="only 500000000"):
        FunctionSpec(Walk).held_out("test", 2, 10**9)


def test_a_chosen_episode_is_played_by_all_environments_again_and_again() -> None:
    spec = FunctionSpec(Walk)
    for split in SPLITS:
        expected = beginnings(spec.held_out(split, 1, 6), 6, seed=0)[5]
        np.testing.assert_array_equal(beginnings(spec.chosen_episode("5", split, 3), 9, seed=1), [expected] * 9)
    spec.chosen_episode("499999999", "test", 1).reset()
    for episode in ("-1", "x", "", "1.5", "500000000", "9" * 10_000, "levels.txt:3"):
        with pytest.raises(UserError, match="is not the number of a held-out episode; expected 0 to 499999999"):
            spec.chosen_episode(episode, "test", 1)


def test_metadata_are_passed_on_and_success_can_be_named(walk: str) -> None:
    class_metadata = dict(Walk.metadata)
    for spec, success in (
        (FunctionSpec(Walk), "arrived"),
        (FunctionSpec(Walk, success="won"), "won"),
        (GymnasiumSpec(walk), "arrived"),
        (GymnasiumSpec(walk, success="won"), "won"),
    ):
        for envs in (spec.build(2), spec.held_out("test", 2, 2), spec.chosen_episode("1", "test", 2)):
            assert envs.metadata["success"] == success
            assert envs.metadata["action_names"] == ("left", "right")
            assert envs.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    assert "success" not in GymnasiumSpec("CartPole-v1").build(1).metadata
    assert Walk.metadata == class_metadata


def test_an_id_with_a_module_imports_it_from_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_walk.py").write_text(
        "import gymnasium\n"
        "from tests.envs.test_gymnasium_spec import Walk\n"
        "gymnasium.register('Walk-v7', entry_point=Walk, kwargs={'limit': 3})\n"
    )
    (tmp_path / "needs_more.py").write_text("import no_such_package\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    spec = GymnasiumSpec("my_walk:Walk-v7", {"limit": 5})
    try:
        spec.check()
        assert spec.build(2).get_attr("limit") == (5, 5)
        with pytest.raises(UserError, match=r"'needs_more' needs a package that is missing: .*no_such_package"):
            GymnasiumSpec("needs_more:Walk-v7").check()
    finally:
        gym.registry.pop("Walk-v7", None)
        sys.modules.pop("my_walk", None)
    with pytest.raises(UserError, match=rf"there is no module 'nowhere' for .*folder is {tmp_path}"):
        GymnasiumSpec("nowhere:Walk-v7").check()


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (GymnasiumSpec(), "'' is not the id of an environment; expected, for example, CartPole-v1"),
        (GymnasiumSpec("a:b:c"), "'a:b:c' is not the id of an environment"),
        (GymnasiumSpec("Cartpol-v1"), "no environment 'Cartpol-v1'.*Close matches: CartPole-v1"),
        (GymnasiumSpec("cartpole-v1"), "no environment 'cartpole-v1'.*CartPole-v1"),
        (GymnasiumSpec("CartPole-v99"), "no environment 'CartPole-v99'.*CartPole-v1"),
        (GymnasiumSpec("Nothing/Xyzzy-v0"), "'Nothing/Xyzzy-v0'.*MODULE:ID"),
        (GymnasiumSpec("not an id"), "no environment 'not an id'"),
        (GymnasiumSpec("CartPole-v1", {"gravitty": 3}), "'CartPole-v1' cannot be created with the options.*gravitty"),
        (GymnasiumSpec("CartPole-v1", max_steps=0), "max_steps is 0; expected at least 1"),
        (GymnasiumSpec("CartPole-v1", {"f": print}), "cannot be saved with a run"),
        (GymnasiumSpec("thinker/Sokoban-v0", {"size": 4}), "size 4x4"),
        (FunctionSpec(lambda: 3), "<lambda> returned a int; expected a gymnasium.Env"),  # type: ignore[arg-type,return-value]
    ],
)
def test_mistakes_are_told_before_a_run(spec: SingleEnvironmentsSpec, message: str) -> None:
    with pytest.raises(UserError, match=message):
        spec.check()


@pytest.mark.parametrize("method", ["check", "build", "held_out"])
def test_unsupported_spaces_are_errors_that_say_what_helps(method: str) -> None:
    arguments: dict[str, tuple[Any, ...]] = {"check": (), "build": (2,), "held_out": ("test", 2, 2)}
    for env_id, message in (
        ("Pendulum-v1", "Pendulum-v1.*only Discrete actions are supported.*TransformAction"),
        ("Blackjack-v1", r"Blackjack.*Tuple.*only Box and Discrete observations.*FlattenObservation"),
    ):
        with pytest.raises(UnsupportedError, match=message):
            getattr(GymnasiumSpec(env_id), method)(*arguments[method])
    getattr(FunctionSpec(lambda: gym.wrappers.FlattenObservation(gym.make("FrozenLake-v1"))), method)(
        *arguments[method]
    )


def test_options_are_a_json_object_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    def parse(text: str) -> GymnasiumSpec:
        return tyro.cli(GymnasiumSpec, args=["--id", "CartPole-v1", "--options", text], default=GymnasiumSpec())

    assert parse('{"a": [1, "b"]}') == GymnasiumSpec("CartPole-v1", {"a": [1, "b"]})
    for text, message in (("{a: 1}", "is not JSON"), ("[1]", "is not a JSON object")):
        with pytest.raises(SystemExit):
            parse(text)
        assert message in capsys.readouterr().err
    assert len({GymnasiumSpec("a", {"b": 1}), GymnasiumSpec("a", {"b": 1})}) == 1


def test_a_bug_in_an_environment_keeps_its_own_error() -> None:
    class Broken(Walk):
        def __init__(self) -> None:
            self.limit = None + 1  # type: ignore[operator]

    gym.register("Broken-v0", entry_point=Broken)
    try:
        with pytest.raises(TypeError, match="unsupported operand") as found:
            GymnasiumSpec("Broken-v0").check()
        assert not isinstance(found.value, UserError)
    finally:
        del gym.registry["Broken-v0"]
