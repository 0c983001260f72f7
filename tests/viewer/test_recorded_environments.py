"""Environments of every kind are recorded: autoreset modes, boards, pictures, vectors, and their metadata."""

from __future__ import annotations

import base64
import io
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from PIL import Image

from tests.viewer.support import (
    Corridor,
    FickleModel,
    LoggedEnv,
    Pictures,
    RandomPolicy,
    close,
    sokoban_env,
)
from thinker.augmented import ThinkerEnv
from thinker.envs.sokoban import SokobanVectorEnv, generate_levels
from thinker.viewer import record
from thinker.viewer.frames import FrameStore
from thinker.world_model.simulator import EnvSimulator, simulator


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED])
def test_vectors_of_any_environment_with_their_true_last_states(mode):
    envs = SyncVectorEnv([lambda: Pictures((3,))] * 2, autoreset_mode=mode)
    env = ThinkerEnv(envs, EnvSimulator(envs), stage_length=4, max_depth=2, keep_states=True)
    recording = record(env, RandomPolicy(env, 0), episodes=4, seed=5, action_names=["a", "b", "c"])
    assert recording.view.kind == "vector"
    assert recording.actions == ["a", "b", "c"]
    assert [len(episode.stages) for episode in recording.episodes] == [5] * 4
    truth = Pictures((3,))
    state, _ = truth.reset(seed=5)
    episode = recording.episodes[0]
    for stage in episode.stages:
        assert recording.frames[stage.frame] == close(state.tolist())
        state, reward, ended, _, _ = truth.step(stage.action)
        assert stage.reward == reward
    assert ended
    assert recording.frames[episode.final_frame] == close(state.tolist())
    assert episode.solved is None
    errors = [error for e in recording.episodes for s in e.stages for error in s.tree.error if error is not None]
    assert errors
    assert not any(errors)


def test_environments_that_wait_in_their_last_state_have_their_true_last_states():
    num_envs = 2
    envs = gym.make_vec("CartPole-v1", num_envs=num_envs, vectorization_mode="vector_entry_point")
    env = LoggedEnv(envs, FickleModel(envs), stage_length=3, keep_states=True)
    recording = record(env, RandomPolicy(env, 0), episodes=4, seed=0)
    lengths: list[list[int]] = [[], []]
    for step in env.steps:
        for e in np.flatnonzero(step["terminated"] | step["truncated"]):
            lengths[e].append(step["info"]["episode"]["l"][e])
    for e in range(num_envs):
        mine = [episode for episode in recording.episodes if episode.environment == e]
        assert [len(episode.stages) for episode in mine] == lengths[e][:2]
        assert all(episode.end == "terminated" for episode in mine)
        assert [stage.terminated for stage in mine[0].stages] == [False] * (lengths[e][0] - 1) + [True]
        truth = gym.make_vec("CartPole-v1", num_envs=num_envs, vectorization_mode="vector_entry_point")
        states, _ = truth.reset(seed=0)
        for stage in mine[0].stages:
            assert recording.frames[stage.frame] == close(states[e].tolist())
            states, _, terminated, _, _ = truth.step(np.full(num_envs, stage.action))
        assert terminated[e]
        assert recording.frames[mine[0].final_frame] == close(states[e].tolist())


def test_a_recording_does_not_depend_on_the_autoreset_mode():
    def policy(observation: dict, info: dict) -> np.ndarray:
        number = int(1e3 * float(observation["tree"].double().abs().sum()))  # the same at the same place
        return np.array([[number % 5, number % 2]])

    recordings = [
        record(sokoban_env(1, max_steps=6, autoreset_mode=mode), policy, episodes=5, seed=0) for mode in AutoresetMode
    ]
    assert recordings[0] == recordings[1] == recordings[2]
    assert {episode.solved for episode in recordings[0].episodes} <= {True, False}


def test_an_environment_describes_itself_through_its_metadata():
    envs = SyncVectorEnv([Corridor] * 2)
    env = ThinkerEnv(envs, EnvSimulator(envs), stage_length=3, keep_states=True)
    recording = record(env, lambda observation, info: np.array([[1, 0], [0, 0]]), episodes=2, seed=0)
    assert recording.actions == ["west", "east"]
    assert recording.view.kind == "board"
    assert recording.view.sprites is not None
    picture = decoded(recording.view.sprites)
    assert np.array_equal(picture, np.concatenate(list(Corridor.TILES), axis=1))
    east, west = recording.episodes
    assert (east.solved, west.solved) == (True, False)
    frames = [recording.frames[stage.frame] for stage in east.stages] + [recording.frames[east.final_frame or 0]]
    assert frames == ["0102", "0012", "0001"]
    assert record(env, RandomPolicy(env, 0), action_names=["left", "right"]).actions == ["left", "right"]


def decoded(address: str) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(address.partition(",")[2]))).convert("RGB"))


@pytest.mark.parametrize(
    "metadata",
    [
        {"tile_pictures": Corridor.TILES[:2], "action_names": ["only one"]},
        {"tile_pictures": Corridor.TILES.astype(np.float32)},
        {"tile_pictures": Corridor.TILES[:, :1]},
        {},
    ],
)
def test_descriptions_that_do_not_fit_are_left_out(metadata):
    class Undescribed(Corridor):
        pass

    Undescribed.metadata = metadata
    envs = SyncVectorEnv([Undescribed])
    env = ThinkerEnv(envs, EnvSimulator(envs), stage_length=2, keep_states=True)
    recording = record(env, RandomPolicy(env, 0), seed=0)
    assert recording.view.kind == "board"
    assert recording.view.sprites is None
    assert recording.actions == ["0", "1"]
    assert recording.episodes[0].solved is None


@pytest.mark.parametrize("shape", [(3, 40, 40), (40, 40, 3), (1, 24, 32), (4, 24, 32)])
def test_pictures_in_any_layout(shape):
    envs = SyncVectorEnv([lambda: Pictures(shape)])
    env = ThinkerEnv(envs, EnvSimulator(envs), stage_length=3, keep_states=True)
    recording = record(env, RandomPolicy(env, 0), seed=1)
    sides = {side for side in shape if side > 4}
    assert recording.view.kind == "image"
    assert {recording.view.height, recording.view.width} == sides
    assert all(str(frame).startswith("data:image/") for frame in recording.frames)


def test_single_boards_in_a_vector_are_recorded_as_boards():
    envs = SyncVectorEnv([lambda: gym.make("thinker/Sokoban-v0", size=6, boxes=1, max_steps=4)])
    env = ThinkerEnv(envs, simulator(envs), stage_length=3)
    recording = record(env, RandomPolicy(env, 0), seed=0)
    assert recording.view.sprites is not None
    assert recording.actions[1] == "up"
    assert recording.episodes[0].solved is False
    assert recording.environment == "thinker/Sokoban-v0"


def test_environments_without_episodes_left_are_not_recorded():
    envs = SokobanVectorEnv(2, levels=generate_levels(3, 6, 1, seed=0), max_steps=3, order="sequential")
    env = ThinkerEnv(envs, simulator(envs), stage_length=2)
    recording = record(env, RandomPolicy(env, 0), episodes=10, seed=0)
    assert [(episode.environment, episode.level) for episode in recording.episodes] == [(0, 0), (0, 2), (1, 1)]


def test_short_episodes_are_not_preferred_and_long_ones_can_be_cut():
    env = sokoban_env(2, max_steps=8)
    recording = record(env, RandomPolicy(env, 0), episodes=5, seed=0)
    assert [episode.environment for episode in recording.episodes] == [0, 0, 0, 1, 1]
    env = sokoban_env(1, max_steps=100)
    cut = record(env, RandomPolicy(env, 1), episodes=2, seed=1, max_real_steps=3).episodes
    assert [(len(episode.stages), episode.end, episode.solved) for episode in cut] == [(3, "unfinished", None)]


def test_numbers_of_a_vector_have_names():
    def names(metadata: dict, **options: Any) -> list[str] | None:
        envs = SyncVectorEnv([lambda: Pictures((3,))])
        envs.metadata = {**envs.metadata, **metadata}
        env = ThinkerEnv(envs, EnvSimulator(envs), stage_length=2, keep_states=True)
        return record(env, RandomPolicy(env, 0), seed=0, **options).view.names

    assert names({}) == ["0", "1", "2"]
    assert names({"observation_names": ("x", "y", "angle")}) == ["x", "y", "angle"]
    assert names({"observation_names": ["too", "few"]}) == ["0", "1", "2"]
    assert names({"observation_names": ["x", "y", "z"]}, observation_names=["a", "b", "c"]) == ["a", "b", "c"]


def rendering_env(mode: AutoresetMode, shape: tuple[int, ...] = (3,), model: Any = FickleModel) -> ThinkerEnv:
    envs = SyncVectorEnv([lambda: Pictures(shape, render_mode="rgb_array")] * 3, autoreset_mode=mode)
    return ThinkerEnv(envs, model(envs), stage_length=3, keep_states=True)


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
@pytest.mark.parametrize("model", [FickleModel, EnvSimulator])
@pytest.mark.parametrize("shape", [(3,), (3, 40, 60)], ids=["vector", "image"])
def test_environments_that_render_give_pictures_of_real_states(mode, model, shape):
    env = rendering_env(mode, shape, model)
    recording = record(env, RandomPolicy(env, 0), episodes=2, seed=5)
    renderings = recording.renderings
    assert renderings is not None
    assert (renderings.height, renderings.width) == (20, 30)
    assert len(renderings.pictures) == 10  # none of the environment that is not recorded, none of a third episode
    for episode in recording.episodes:
        truth = Pictures(shape, render_mode="rgb_array")
        truth.reset(seed=5 + episode.environment)
        for stage in episode.stages:
            assert stage.picture is not None
            assert np.array_equal(decoded(renderings.pictures[stage.picture]), truth.render())
            truth.step(stage.action)
        assert episode.final_picture is None  # the next episode has begun by then


def test_the_final_state_has_a_picture_where_it_can_be_rendered():
    env = rendering_env(AutoresetMode.SAME_STEP)
    (episode,) = (recording := record(env, RandomPolicy(env, 0), seed=5, max_real_steps=2)).episodes
    assert recording.renderings is not None
    assert episode.final_picture == 2
    envs = gym.make_vec(
        "CartPole-v1", num_envs=1, vectorization_mode="vector_entry_point"
    )  # it waits in its last state
    envs.render_mode, colours = "rgb_array", iter(range(1000))
    envs.render = lambda: (np.full((4, 4, 3), next(colours), np.uint8),)
    env = ThinkerEnv(envs, FickleModel(envs), stage_length=2, keep_states=True)
    (episode,) = (recording := record(env, RandomPolicy(env, 0), seed=0)).episodes
    pictures = [stage.picture for stage in episode.stages]
    assert [*pictures, episode.final_picture] == list(range(len(episode.stages) + 1))


class Unrenderable(Pictures):
    def __init__(self) -> None:
        super().__init__((3,), render_mode="rgb_array")

    def render(self) -> np.ndarray | None:
        raise gym.error.DependencyNotInstalled("pip install something")


class Uncopyable(Pictures):
    """Like all environments that draw with pygame: once rendered, it cannot be copied."""

    def __init__(self) -> None:
        super().__init__((3,), render_mode="rgb_array")

    def render(self) -> np.ndarray | None:
        self._window = (letter for letter in "a generator cannot be copied")
        return super().render()


def test_rendering_never_stops_a_recording():
    envs = SyncVectorEnv([Unrenderable])
    env = ThinkerEnv(envs, FickleModel(envs), stage_length=3)
    with pytest.warns(UserWarning, match="pip install something"):
        assert record(env, RandomPolicy(env, 0), seed=0).renderings is None
    for model, renders in ((EnvSimulator, False), (FickleModel, True)):
        envs = SyncVectorEnv([Uncopyable])
        env = ThinkerEnv(envs, model(envs), stage_length=3)
        assert (record(env, RandomPolicy(env, 0), seed=0).renderings is not None) == renders


def test_boards_with_tile_pictures_are_not_rendered():
    envs = SokobanVectorEnv(1, size=6, boxes=1, max_steps=3, render_mode="rgb_array")
    env = ThinkerEnv(envs, simulator(envs), stage_length=2)
    assert record(env, RandomPolicy(env, 0), seed=0).renderings is None


def test_large_renderings_are_made_smaller():
    class Large(Pictures):
        def __init__(self) -> None:
            super().__init__((3,), render_mode="rgb_array")

        def render(self) -> np.ndarray:
            return np.random.default_rng(self._past).integers(0, 256, (400, 600, 3)).astype(np.uint8)

    envs = SyncVectorEnv([Large])
    env = ThinkerEnv(envs, FickleModel(envs), stage_length=2)
    renderings = record(env, RandomPolicy(env, 0), seed=0).renderings
    assert renderings is not None
    assert (renderings.height, renderings.width) == (213, 320)
    assert max(map(len, renderings.pictures)) < 9_000  # noise; drawings are far smaller


def test_squares_without_a_clear_tile_are_kept_as_such():
    space = SokobanVectorEnv(1, size=6, boxes=1).single_observation_space
    store = FrameStore(space)
    state = np.zeros(space.shape, np.uint8)
    state[1] = 1
    state[:, 0, 0] = 0
    state[3, 0, 1] = 1
    assert store.frames[store.add(state)] == "??" + "1" * 34
    assert store.add(state.copy()) == 0
    assert len(store.frames) == 1


def test_errors_of_pictures_are_relative_to_no_change_since_the_root_from_which_they_were_predicted():
    shape = (1, 12, 12)
    envs = SyncVectorEnv([lambda: Pictures(shape, length=12)] * 2)
    env = ThinkerEnv(envs, FickleModel(envs), stage_length=8, max_depth=3, keep_states=True)  # predicts black pictures
    recording = record(env, RandomPolicy(env, 0), episodes=1, seed=5)
    truth, stages = Pictures(shape, length=12), recording.episodes[0].stages
    real = [truth.reset(seed=5)[0].astype(float)]
    real += [truth.step(stage.action)[0].astype(float) for stage in stages]
    checked = [0, 0, 0, 0]
    for t, stage in enumerate(stages):
        node, tree = 0, stage.tree
        for depth, action in enumerate([later.action for later in stages[t : t + 3]], start=1):
            child = [n for n in range(1, len(tree)) if (tree.parent[n], tree.action[n]) == (node, action)]
            if not child or not tree.fresh[child[0]]:
                break
            node, now = child[0], real[t + depth]
            changed = np.square(real[t] - now).sum()  # 0 after action 0, by which the noise is the same
            expected = np.square(now).sum() / max(changed, 25.5**2)
            assert tree.error[node] == pytest.approx(expected, rel=1e-2)
            checked[depth] += 1
    assert checked[1] > 2
    assert checked[2] > 0


def test_the_error_of_a_picture_is_relative_to_that_of_no_change():
    """Most of a picture never changes, so that a mean over all pixels would call everything right."""
    store = FrameStore(gym.spaces.Box(0, 255, (4, 48, 48), np.uint8))
    before = np.full((4, 48, 48), 80, np.uint8)
    real, half, blank = before.copy(), before.copy(), before.copy()
    real[3, 10, 10] = 200  # only the newest picture counts
    half[3, 10, 10] = 140
    blank[0] = 0
    assert store.error(real, real, before) == 0
    assert store.error(half, real, before) == pytest.approx(0.25)
    assert 0.25 < store.view.tolerance < 1
    assert store.error(before, real, before) == 1
    assert store.error(blank, real, before) == 1
    assert store.error(before, before, before) == 0
    assert store.error(real, before, before) > 1  # something that did not happen
    faint = before.copy()
    faint[3, 10, 10] += 1
    assert store.error(faint, before, before) < 0.01  # nothing that could be seen
