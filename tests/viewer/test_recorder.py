"""A recording says exactly what the environment said, whoever acts, and recording changes nothing."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.vector import SyncVectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.viewer.support import (
    FickleModel,
    LoggedEnv,
    Pictures,
    RandomPolicy,
    TinyActor,
    close,
    sokoban_env,
    sokoban_recording,
)
from thinker.augmented import NO_NODE, ThinkerEnv
from thinker.envs.sokoban import SokobanVectorEnv
from thinker.errors import UnsupportedError, UserError
from thinker.interfaces import Decision, NodeOutput, RealTransition
from thinker.planners import BasePolicy
from thinker.viewer import Recording, Stage, record


def letters(planes: np.ndarray | torch.Tensor) -> str:
    """One-hot planes [7, H, W] as a board's frame."""
    return "".join(map(str, np.asarray(planes).argmax(0).ravel()))


def check_stage(
    recording: Recording, stage: Stage, begin: dict, steps: list[dict], decisions: list, e: int, env: ThinkerEnv
) -> None:
    """``begin``: the observation at the stage's start. ``steps``: what env.step said, the real step last."""
    assert recording.frames[stage.frame] == letters(begin["real_state"][e])
    assert len(stage.steps) == len(steps) - 1 == recording.stage_length - 1
    before = env.decode(begin["tree"])
    for imagined, step, decision in zip(stage.steps, steps, decisions):
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
        assert imagined.agent_policy == close(decision.policy[e].tolist())
        assert imagined.reset_probability == close(float(decision.reset_probability[e]))
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
        # The agent sees returns counted from the child; the recording counts them from the root.
        assert env.discount * shown["root_child_mean_return"][action] == close(mean)
        assert env.discount * shown["root_child_max_return"][action] == close(best)
        visits = tree.visits[node] if node is not None else 0
        assert shown["root_child_visits"][action] == close(visits / env.stage_length)
    for imagined in stage.steps:
        assert tree.rollout_return[imagined.node] == close(imagined.rollout_return)
    assert shown["max_return"] == close(tree.max_return[0])
    assert shown["root_policy"] == close(tree.policy[0])
    real = steps[-1]
    assert real["was_real"]
    assert stage.action == real["actions"][e, 0]
    assert stage.agent_policy == close(decisions[-1].policy[e].tolist())
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
        num_envs,
        max_steps=7,
        stage_length=stage_length,
        max_depth=max_depth,
        carry_tree=carry,
        observe=observe,
        kind=LoggedEnv,
    )
    policy = RandomPolicy(env, seed)
    recording = record(env, policy, episodes=episodes, seed=seed)
    assert len(recording.episodes) == episodes
    assert Recording.from_dict(json.loads(json.dumps(recording.to_dict()))) == recording
    begins = [env.begin[0], *(step["observation"] for step in env.steps)]
    for e in range(num_envs):
        mine = [episode for episode in recording.episodes if episode.environment == e]
        assert len(mine) == len(range(e, episodes, num_envs))
        stages = [stage for episode in mine for stage in episode.stages]
        for t, stage in enumerate(stages):
            part = slice(t * stage_length, (t + 1) * stage_length)
            check_stage(recording, stage, begins[part.start], env.steps[part], policy.decisions[part], e, env)
        for episode in mine:
            ends = [stage.terminated or stage.truncated for stage in episode.stages]
            assert ends == [False] * (len(ends) - 1) + [True]
            assert episode.end == ("terminated" if episode.stages[-1].terminated else "truncated")
            assert episode.solved == episode.stages[-1].terminated  # Sokoban ends by solving only


def test_all_returns_are_counted_from_the_root():
    envs = SyncVectorEnv([lambda: Pictures((3,), length=10)] * 3)
    env = ThinkerEnv(envs, FickleModel(envs), stage_length=12, max_depth=4, keep_states=True)
    recording = record(env, RandomPolicy(env, 0), episodes=3, seed=0)
    carried_best = 0
    for stage in (stage for episode in recording.episodes for stage in episode.stages):
        tree, below = stage.tree, [[node] for node in range(len(stage.tree))]
        for node in range(len(tree) - 1, 0, -1):
            below[tree.parent[node]] += below[node]
        for node in range(len(tree)):
            path, each = [], node
            while each:
                path.insert(0, each)
                each = tree.parent[each]
            rewards = sum(env.discount ** (1 + i) * tree.reward[each] for i, each in enumerate(path))
            value = env.discount ** (1 + len(path)) * tree.value[node]
            assert tree.rollout_return[node] == close(rewards + value)  # equation 1
            returns = [tree.rollout_return[each] for each in below[node]]
            assert tree.max_return[node] == close(max(returns))
            assert tree.mean_return[node] == close(sum(returns) / len(returns))
        best = tree.rollout_return.index(max(tree.rollout_return))
        carried_best += not tree.fresh[best]
    assert carried_best > 0  # so that this is tried too


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


class WrongModel:
    """The perfect model, but it foresees that every box vanishes."""

    def __init__(self, envs: SokobanVectorEnv) -> None:
        self._right = envs.simulator()
        self.num_actions = self._right.num_actions
        self.root = self._right.root

    def unroll(self, hidden: Tensor, action: Tensor) -> NodeOutput:
        output = self._right.unroll(hidden, action)
        state = torch.as_tensor(output.state).clone()
        state[:, 1] += state[:, 3]
        state[:, 3] = 0
        return dataclasses.replace(output, state=state)


def test_a_wrong_prediction_is_told_from_a_right_one():
    envs = SokobanVectorEnv(1, size=6, boxes=1, max_steps=10)
    env = ThinkerEnv(envs, WrongModel(envs), stage_length=6, keep_states=True)
    recording = record(env, RandomPolicy(env, 0), seed=3)
    stages = recording.episodes[0].stages
    errors = [error for stage in stages for error in stage.tree.error if error is not None]
    assert errors
    assert all(error == pytest.approx(1 / 36, rel=1e-4) for error in errors)  # one square of 36


def test_nodes_dropped_below_a_predicted_end_are_not_recorded():
    envs = SyncVectorEnv([lambda: Pictures((3,), length=40)] * 3)
    env = ThinkerEnv(envs, FickleModel(envs, ends=0.3), stage_length=12, max_depth=4, keep_states=True)
    policy = RandomPolicy(env, 0)
    dropped = 0

    def counting_policy(observation: dict, info: dict) -> Decision:
        nonlocal dropped
        if info["next_is_real"][0]:
            tree = env.search_tree()
            dropped += sum(int((tree.parent[e, 1 : tree.size[e]] == NO_NODE).sum()) for e in range(3))
        return policy(observation, info)

    recording = record(env, counting_policy, episodes=3, seed=0)
    assert dropped > 0
    assert Recording.from_dict(json.loads(json.dumps(recording.to_dict()))) == recording
    for stage in (stage for episode in recording.episodes for stage in episode.stages):
        tree = stage.tree
        assert tree.parent.count(NO_NODE) == 1  # the root
        for step in stage.steps:
            assert tree.action[step.node] == step.action
            assert tree.fresh[step.node]
            assert tree.frame[step.node] == step.frame
            assert tree.rollout_return[step.node] == close(step.rollout_return)
            assert (step.frame is None) == tree.terminated[tree.parent[step.node]]


# ------------------------------------------------------------------------------------------------ whoever acts


def test_an_actor_object_is_recorded_and_told_of_every_step():
    env = sokoban_env(2, max_steps=4, stage_length=5)
    actor = TinyActor(env)
    recording = record(env, actor, episodes=2, seed=0)
    augmented_steps = max(len(episode.stages) for episode in recording.episodes) * env.stage_length
    assert len(actor.observed) == augmented_steps
    for episode in recording.episodes:
        taken = [action for s in episode.stages for action in (*(step.action for step in s.steps), s.action)]
        assert taken == [count % 5 for count in range(len(taken))]
        assert all(s.agent_policy is None for s in episode.stages)
        assert all(step.reset_probability is None for s in episode.stages for step in s.steps)


def test_the_base_policy_is_recorded_with_its_own_probabilities():
    env = sokoban_env(2, max_steps=5)
    recording = record(env, BasePolicy(env, seed=0), episodes=2, seed=0)
    for stage in (stage for episode in recording.episodes for stage in episode.stages):
        assert stage.agent_policy == stage.tree.policy[0]
        assert all(step.agent_policy == step.base_policy for step in stage.steps)


@pytest.mark.parametrize("as_array", [np.asarray, torch.as_tensor, list])
def test_a_function_may_return_actions_alone(as_array):
    env = sokoban_env(2, max_steps=3)
    recording = record(env, lambda observation, info: as_array([[1, 0], [2, 1]]), episodes=2, seed=0)
    for episode, action in zip(recording.episodes, (1, 2)):
        assert all(stage.action == action for stage in episode.stages)
        assert all(step.action == action for stage in episode.stages for step in stage.steps)


def test_environments_with_numpy_output_are_recorded_as_well():
    actions = np.array([[1, 0]])
    recordings = [
        record(sokoban_env(1, max_steps=3, output=output), lambda observation, info: actions, seed=0)
        for output in ("torch", "numpy")
    ]
    assert recordings[0] == recordings[1]


def play(env: ThinkerEnv, actor: Any, num_steps: int) -> None:
    """What anyone does without a recorder."""
    actor.begin(*env.reset(seed=3))
    for _ in range(num_steps):
        decision = actor.act()
        actor.observe(decision, *env.step(decision.actions, decision.policy))


@pytest.mark.parametrize("keep_states", [True, False])
def test_recording_changes_nothing(keep_states):
    def make() -> Any:
        return sokoban_env(2, max_steps=5, keep_states=keep_states, kind=LoggedEnv)

    recorded = make()
    record(recorded, BasePolicy(recorded, seed=2), episodes=4, seed=3)
    alone = make()
    play(alone, BasePolicy(alone, seed=2), len(recorded.steps))
    assert len(recorded.steps) == len(alone.steps)
    for one, other in zip(recorded.steps, alone.steps):
        for name in ("actions", "reward", "terminated", "truncated"):
            assert np.array_equal(one[name], other[name])
        assert one["observation"].keys() == other["observation"].keys()
        assert all(torch.equal(one["observation"][key], other["observation"][key]) for key in one["observation"])


class Sink:
    def __init__(self) -> None:
        self.transitions: list[RealTransition] = []

    def add(self, transition: RealTransition) -> None:
        self.transitions.append(transition)

    def abandon_episodes(self) -> None:
        pass


def test_a_sink_receives_the_transitions_with_the_actors_policy():
    sink = Sink()
    env = sokoban_env(1, max_steps=4, sink=sink)
    recording = record(env, RandomPolicy(env, 0), seed=0)
    stages = recording.episodes[0].stages
    assert len(sink.transitions) == len(stages)
    for transition, stage in zip(sink.transitions, stages):
        assert transition.policy is not None
        assert transition.policy[0].tolist() == close(stage.agent_policy)


def test_without_kept_states_only_the_imagined_frames_are_absent():
    with_states, without = (sokoban_recording(2, keep_states=keep_states) for keep_states in (True, False))
    steps = [step for episode in without.episodes for stage in episode.stages for step in stage.steps]
    assert steps
    assert all(step.frame is None for step in steps)
    for one, other in zip(with_states.episodes, without.episodes):
        assert [stage.action for stage in one.stages] == [stage.action for stage in other.stages]
        for mine, theirs in zip(one.stages, other.stages):
            assert with_states.frames[mine.frame] == without.frames[theirs.frame]
            assert mine.tree.max_return == theirs.tree.max_return
            assert not any(theirs.tree.error)


def test_states_that_the_agent_observes_are_recorded_too():
    recording = sokoban_recording(1, keep_states=False, observe=("tree", "predicted_state"))
    assert any(step.frame is not None for stage in recording.episodes[0].stages for step in stage.steps)


def test_wrong_arguments_are_errors_of_the_user():
    env = sokoban_env()
    with pytest.raises(UserError, match="episodes is 0"):
        record(env, RandomPolicy(env, 0), episodes=0)
    with pytest.raises(UserError, match="max_real_steps is 0"):
        record(env, RandomPolicy(env, 0), max_real_steps=0)
    with pytest.raises(UserError, match="2 names, but the environments have 5 actions"):
        record(env, RandomPolicy(env, 0), action_names=["a", "b"])
    with pytest.raises(UserError, match="1 names, but the environments have 252 numbers in an observation"):
        record(env, RandomPolicy(env, 0), observation_names=["a"])
    with pytest.raises(UnsupportedError, match="pass an Actor"):
        record(env, "agent")  # type: ignore[arg-type]
