"""A recording says exactly what the environment said."""

from __future__ import annotations

import copy
import dataclasses
import json

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st
from viewer_support import Log, Pictures, RandomPolicy, sokoban_env, sokoban_recording

from thinker.agents import Agent, build_network
from thinker.augmented import ThinkerEnv
from thinker.envs.sokoban import SokobanVectorEnv
from thinker.viewer import Recording, RecordingError, Stage, record
from thinker.viewer.frames import FrameStore
from thinker.world_model.learned import learned_model
from thinker.world_model.protocol import NodeOutput
from thinker.world_model.simulator import EnvSimulator, SokobanSimulator, simulator


def letters(planes: np.ndarray | torch.Tensor) -> str:
    """One-hot planes [7, H, W] as a board's frame."""
    return "".join(map(str, np.asarray(planes).argmax(0).ravel()))


def close(numbers: list[float] | float) -> object:
    return pytest.approx(numbers, rel=1e-4, abs=1e-5)


def check_stage(
    recording: Recording, stage: Stage, begin: dict, steps: list[dict], choices: list, e: int, env: ThinkerEnv
) -> None:
    """``begin``: the observation at the stage's start. ``steps``: what env.step said, the real step last."""
    assert recording.frames[stage.frame] == letters(begin["real_state"][e])
    assert len(stage.steps) == len(steps) - 1 == recording.stage_length - 1
    before = env.decode(begin["tree"])
    for imagined, step, choice in zip(stage.steps, steps, choices):
        assert not step["was_real"]
        after = env.decode(step["observation"]["tree"])
        assert imagined.action == step["actions"][e, 0]
        assert imagined.depth == step["info"]["depth"][e]
        assert (imagined.reset != "none") == bool(after["reset"][e])
        assert (imagined.reset == "forced") == (imagined.depth == env.max_depth)
        assert (imagined.reward, imagined.value) == close(
            (float(after["current_reward"][e]), float(after["current_value"][e]))
        )
        assert imagined.rollout_return == close(float(after["rollout_return"][e]))
        assert imagined.planning_reward == close(float(step["info"]["planning_reward"][e]))
        here = "root_policy" if before["reset"][e] else "current_policy"
        assert imagined.base_policy == close(before[here][e].tolist())
        assert imagined.agent_policy == close(choice.policy[e].tolist())
        predicted = step["observation"]["predicted_state"][e]
        if imagined.frame is None:  # below a predicted end
            assert not predicted.any()
        else:
            assert recording.frames[imagined.frame] == letters(predicted)
        assert stage.tree.frame[imagined.node] == imagined.frame
        assert stage.tree.fresh[imagined.node]
        before = after
    # The tree at the end of the stage, against what the agent last saw of it.
    tree, shown = stage.tree, {name: part[e].tolist() for name, part in before.items()}
    children = {action: node for node, action in enumerate(tree.action) if tree.parent[node] == 0}
    for action in range(env.num_actions):
        node = children.get(action)
        mean, best = (tree.mean_return[node], tree.max_return[node]) if node is not None else (0.0, 0.0)
        assert shown["root_child_mean_return"][action] == close(mean)
        assert shown["root_child_max_return"][action] == close(best)
        visits = tree.visits[node] if node is not None else 0
        assert shown["root_child_visits"][action] == close(visits / env.stage_length)
    for imagined in stage.steps:
        assert tree.rollout_return[imagined.node] == close(imagined.rollout_return)
    assert shown["max_return"] == close(tree.max_return[0])
    assert shown["root_policy"] == close(tree.policy[0])
    real = steps[-1]
    assert real["was_real"]
    assert stage.action == real["actions"][e, 0]
    assert stage.agent_policy == close(choices[-1].policy[e].tolist())
    assert stage.reward == close(float(real["reward"][e]))
    assert (stage.terminated, stage.truncated) == (real["terminated"][e], real["truncated"][e])


@settings(max_examples=12, deadline=None)
@given(
    stage_length=st.integers(1, 7),
    max_depth=st.sampled_from([1, 2, 4, None]),
    carry=st.booleans(),
    num_envs=st.integers(1, 3),
    episodes=st.integers(1, 4),
    seed=st.integers(0, 100),
)
def test_every_stage_is_what_the_environment_said(stage_length, max_depth, carry, num_envs, episodes, seed):
    observe = ("tree", "real_state", "predicted_state")
    env = sokoban_env(
        num_envs, max_steps=7, stage_length=stage_length, max_depth=max_depth, carry_tree=carry, observe=observe
    )
    log, policy = Log(env), RandomPolicy(env, seed)
    recording = record(env, policy, episodes=episodes, seed=seed)
    assert len(recording.episodes) == episodes
    assert Recording.from_dict(json.loads(json.dumps(recording.to_dict()))) == recording
    begins = [log.begin[0], *(step["observation"] for step in log.steps)]
    for e in range(num_envs):
        mine = [episode for episode in recording.episodes if episode.environment == e]
        assert len(mine) == len(range(e, episodes, num_envs))
        stages = [stage for episode in mine for stage in episode.stages]
        for t, stage in enumerate(stages):
            part = slice(t * stage_length, (t + 1) * stage_length)
            check_stage(recording, stage, begins[part.start], log.steps[part], policy.choices[part], e, env)
        for episode in mine:
            ends = [stage.terminated or stage.truncated for stage in episode.stages]
            assert ends == [False] * (len(ends) - 1) + [True]
            assert episode.end == ("terminated" if episode.stages[-1].terminated else "truncated")
            assert episode.solved == episode.stages[-1].terminated  # Sokoban ends by solving only


def test_the_perfect_model_is_right_wherever_the_game_followed_it():
    recording = sokoban_recording(4, stage_length=12, max_depth=4, max_steps=30)
    compared = 0
    for episode in recording.episodes:
        for t, stage in enumerate(episode.stages):
            tree = stage.tree
            for node in range(1, len(tree)):
                path, each = [], node
                while each:
                    path.insert(0, tree.action[each])
                    each = tree.parent[each]
                later = episode.stages[t : t + len(path)]
                followed = [s.action for s in later] == path and tree.frame[node] is not None
                assert (tree.error[node] is not None) == followed
                if followed:
                    compared += 1
                    assert tree.error[node] == 0
                    end = t + len(path)
                    came = episode.stages[end].frame if end < len(episode.stages) else episode.final_frame
                    assert tree.frame[node] == came
    assert compared > 20


class WrongModel(SokobanSimulator):
    """Foresees that every box vanishes."""

    def unroll(self, hidden: torch.Tensor, action: torch.Tensor) -> NodeOutput:
        output = super().unroll(hidden, action)
        assert output.state is not None
        state = output.state.clone()
        state[:, 1] += state[:, 3]
        state[:, 3] = 0
        return dataclasses.replace(output, state=state)


def test_a_wrong_prediction_is_told_from_a_right_one():
    envs = SokobanVectorEnv(1, size=6, boxes=1, max_steps=10)
    env = ThinkerEnv(envs, WrongModel(envs.single_observation_space), stage_length=6)
    recording = record(env, RandomPolicy(env, 0), seed=3)
    stages = recording.episodes[0].stages
    errors = [error for stage in stages for error in stage.tree.error if error is not None]
    assert errors
    assert all(error == pytest.approx(1 / 36, rel=1e-4) for error in errors)  # one square of 36


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


def learned_env(seed: int = 0) -> ThinkerEnv:
    envs = SokobanVectorEnv(2, size=6, boxes=1, max_steps=5)
    model, _ = learned_model(
        envs.single_observation_space, envs.single_action_space, num_envs=2, discount=0.97, give_states=False, seed=seed
    )
    return ThinkerEnv(envs, model, stage_length=4, max_depth=3)


def test_an_agent_plays_as_if_nobody_looked_and_its_model_shows_its_states():
    env = learned_env()
    network = build_network(env, seed=1)
    log = Log(env)
    agent = Agent(network, env, seed=2)
    recording = record(env, agent, episodes=2, seed=3)
    seen = log.steps
    assert env.model.network.give_states is False  # as it was
    assert all(step.frame is not None for e in recording.episodes for s in e.stages for step in s.steps)
    first = recording.episodes[0].stages[0].steps[0]
    assert first.agent_policy is not None
    assert sum(first.agent_policy) == pytest.approx(1, abs=1e-4)
    assert first.reset_probability is not None

    env = learned_env()
    agent = Agent(network, env, seed=2)
    agent.begin(*env.reset(seed=3))
    for step in seen:
        decision = agent.act()
        assert np.array_equal(decision.actions, step["actions"])
        observation, reward, *rest = env.step(decision.actions)
        assert all(torch.equal(observation[key], step["observation"][key]) for key in observation)
        assert np.array_equal(reward, step["reward"])
        agent.observe(decision, observation, reward, *rest)


def test_the_environment_gets_its_model_back_also_after_an_error():
    env = sokoban_env()
    model = env.model

    def broken(observation, info):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        record(env, broken)
    assert env.model is model


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED])
def test_vectors_of_any_environment_with_their_true_last_states(mode):
    envs = SyncVectorEnv([lambda: Pictures((3,))] * 2, autoreset_mode=mode)
    env = ThinkerEnv(envs, EnvSimulator(envs), stage_length=4, max_depth=2)
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


def test_environments_that_wait_in_their_last_state_can_be_recorded():
    envs = gym.make_vec("CartPole-v1", 2, vectorization_mode="vector_entry_point")
    model, _ = learned_model(envs.single_observation_space, envs.single_action_space, num_envs=2, discount=0.97)
    env = ThinkerEnv(envs, model, stage_length=3)
    recording = record(env, RandomPolicy(env, 0), episodes=2, seed=0)
    for episode in recording.episodes:
        assert episode.end == "terminated"
        assert episode.stages[-1].frame == episode.final_frame


@pytest.mark.parametrize("shape", [(3, 40, 40), (40, 40, 3), (1, 24, 32), (4, 24, 32)])
def test_pictures_in_any_layout(shape):
    envs = SyncVectorEnv([lambda: Pictures(shape)])
    env = ThinkerEnv(envs, EnvSimulator(envs), stage_length=3)
    recording = record(env, RandomPolicy(env, 0), seed=1)
    sides = {side for side in shape if side > 4}
    assert recording.view.kind == "image"
    assert {recording.view.height, recording.view.width} == sides
    assert all(str(frame).startswith("data:image/") for frame in recording.frames)


def test_short_episodes_are_not_preferred_and_long_ones_can_be_cut():
    env = sokoban_env(2, max_steps=8)
    recording = record(env, RandomPolicy(env, 0), episodes=5, seed=0)
    assert [episode.environment for episode in recording.episodes] == [0, 0, 0, 1, 1]
    env = sokoban_env(1, max_steps=100)
    cut = record(env, RandomPolicy(env, 1), episodes=2, seed=1, max_real_steps=3).episodes
    assert [(len(episode.stages), episode.end, episode.solved) for episode in cut] == [(3, "unfinished", None)]


def test_wrong_arguments_are_told():
    env = sokoban_env()
    with pytest.raises(ValueError, match="episodes=0"):
        record(env, RandomPolicy(env, 0), episodes=0)
    with pytest.raises(ValueError, match="2 action_names for 5 actions"):
        record(env, RandomPolicy(env, 0), action_names=["a", "b"])


# --------------------------------------------------------------------------------------------------- the file


@pytest.fixture(scope="module")
def recording() -> Recording:
    return sokoban_recording(2, title="of the file")


def test_a_recording_comes_back_from_its_file(recording, tmp_path):
    recording.save(tmp_path / "plan.json")
    assert Recording.load(tmp_path / "plan.json") == recording


def test_a_truncated_file_is_refused_with_its_name(recording, tmp_path):
    path = tmp_path / "plan.json"
    recording.save(path)
    whole = path.read_bytes()
    for size in (0, 1, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(RecordingError, match=r"plan\.json"):
            Recording.load(path)
    path.write_bytes(b"\xff\x00" + whole)
    with pytest.raises(RecordingError):
        Recording.load(path)


@pytest.mark.parametrize(
    ("where", "value", "told"),
    [
        (("format",), "other", "not a recording"),
        (("version",), 99, "version 99"),
        (("actions",), [], "no actions"),
        (("title",), 3, "title"),
        (("frames", 0), "11", "squares"),
        (("view", "kind"), "hologram", "kind"),
        (("episodes", 0, "stages"), [], "no stages"),
        (("episodes", 0, "stages", 0, "frame"), 10**9, "frame"),
        (("episodes", 0, "stages", 0, "frame"), True, "frame"),
        (("episodes", 0, "stages", 0, "action"), 5, "action"),
        (("episodes", 0, "stages", 0, "reward"), "1", "reward"),
        (("episodes", 0, "stages", 0, "tree", "parent", 1), 1, "parent"),
        (("episodes", 0, "stages", 0, "tree", "value"), [], "different lengths"),
        (("episodes", 0, "stages", 0, "steps", 0, "node"), 10**6, "node"),
        (("episodes", 0, "stages", 0, "steps", 0, "reset"), "maybe", "reset"),
        (("episodes", 0, "stages", 0, "agent_policy"), [1.0], "5 actions"),
        (("episodes", 0, "extra"), 1, "extra"),
    ],
)
def test_a_file_with_a_wrong_entry_is_refused(recording, where, value, told):
    document = copy.deepcopy(recording.to_dict())
    place = document
    for key in where[:-1]:
        place = place[key]
    place[where[-1]] = value
    with pytest.raises(RecordingError, match=told):
        Recording.from_dict(document)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
    )
)
@settings(max_examples=50, deadline=None)
def test_no_document_leads_to_any_other_error(document):
    with pytest.raises(RecordingError):
        Recording.from_dict(document)
    with pytest.raises(RecordingError):
        Recording.from_dict({"format": "thinker-recording", "version": 1, "episodes": document, "frames": document})


def test_simulators_of_wrapped_boards_are_recorded_as_boards():
    envs = SyncVectorEnv([lambda: gym.make("thinker/Sokoban-v0", size=6, boxes=1, max_steps=4)])
    env = ThinkerEnv(envs, simulator(envs), stage_length=3)
    recording = record(env, RandomPolicy(env, 0), seed=0)
    assert recording.view.sprites is not None
    assert recording.actions[1] == "up"
    assert recording.episodes[0].solved is False
