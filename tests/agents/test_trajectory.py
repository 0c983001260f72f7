"""Trajectories: what an actor writes down, when one is complete, and where the next begins."""

import numpy as np
import pytest
import torch

from tests.agents.support import as_if_learned, begun, build_network, trajectory_for
from tests.fakes import NoiseEnvs, noise_env, raw_env
from thinker.agents import NetworkActor, Trajectory
from thinker.augmented import ThinkerEnv, collect
from thinker.errors import UserError
from thinker.interfaces import NO_ACTION, Decision


def step(env, actor):
    decision = actor.act()
    outcome = env.step(decision.actions, decision.policy)
    actor.observe(decision, *outcome)
    return decision, outcome


def test_a_trajectory_is_complete_after_its_steps_and_then_begins_anew():
    env = noise_env(3)
    network = build_network(env)
    trajectory = trajectory_for(env, network, stages=2)
    actor = begun(env, network, trajectory=trajectory)
    assert not trajectory.is_complete
    for unroll in range(3):
        taken = []
        for time in range(6):
            taken.append(step(env, actor)[0].actions)
            assert trajectory.is_complete == (time == 5)
        assert torch.equal(trajectory.read().action, torch.stack(taken)), unroll


@pytest.mark.parametrize("tree_encoder", ["mlp", "lstm-attention"])
def test_all_that_happened_is_written_down(tree_encoder):
    env = noise_env(4, observe=("tree", "hidden", "real_state"), hidden=(4, 3, 3))
    network = as_if_learned(build_network(env, tree_encoder=tree_encoder))
    trajectory = trajectory_for(env, network, stages=4)
    actor = begun(env, network, trajectory=trajectory)
    collect(env, actor, trajectory.num_steps)  # so that there is a memory
    given, decisions, outcomes = [actor.given], [], []
    for _ in range(trajectory.num_steps):
        decision, outcome = step(env, actor)
        given.append(actor.given)
        decisions.append(decision)
        outcomes.append(outcome)
    unroll = trajectory.read()
    for name in ("episode_start", "next_is_real", "last_action", "last_reward"):
        assert torch.equal(getattr(unroll.given, name), torch.stack([getattr(one, name) for one in given])), name
    assert set(unroll.given.observation) == {"tree", "hidden", "real_state"}
    for key, seen in unroll.given.observation.items():
        expected = torch.stack([one.observation[key] for one in given])
        assert torch.equal(seen, expected), key
        assert seen.dtype == expected.dtype
    assert torch.equal(unroll.action, torch.stack([one.actions for one in decisions]))
    assert torch.equal(unroll.log_prob, torch.stack([one.log_prob for one in decisions]))
    assert torch.equal(unroll.value[:-1], torch.stack([one.value for one in decisions]))
    torch.testing.assert_close(unroll.value[-1], actor.value())
    rewards = [np.stack((reward, info["planning_reward"]), 1) for _, reward, _, _, info in outcomes]
    np.testing.assert_allclose(unroll.reward, np.stack(rewards), rtol=1e-6)
    np.testing.assert_array_equal(unroll.terminated, [terminated for _, _, terminated, _, _ in outcomes])
    np.testing.assert_array_equal(unroll.truncated, [truncated for _, _, _, truncated, _ in outcomes])
    assert unroll.memory.keys() == network.initial_memory(2).keys()


def test_an_unroll_begins_where_the_last_one_ended():
    env = noise_env(4)
    network = as_if_learned(build_network(env, tree_encoder="lstm-attention"))
    trajectory = trajectory_for(env, network, 2)
    actor = begun(env, network, trajectory=trajectory)
    collect(env, actor, 6)
    last, value = actor.given, trajectory.read().value[-1].clone()
    collect(env, actor, 6)
    unroll = trajectory.read()
    torch.testing.assert_close(unroll.value[0], value)
    for key, seen in last.observation.items():
        torch.testing.assert_close(unroll.given.observation[key][0], seen)


def test_an_unroll_begins_with_what_a_refresh_has_shown():
    env = noise_env(4)
    network = as_if_learned(build_network(env))
    trajectory = trajectory_for(env, network, 1)
    actor = begun(env, network, trajectory=trajectory)
    collect(env, actor, 3)
    before = trajectory.read().given.observation["hidden"][-1].clone()
    env.model.encode = -env.model.encode
    seen = env.refresh()
    actor.refresh(seen)
    collect(env, actor, 3)
    assert torch.equal(trajectory.read().given.observation["hidden"][0], seen["hidden"])
    assert not torch.equal(seen["hidden"], before)


def test_an_actor_without_a_trajectory_does_the_same():
    def actions(has_trajectory):
        env = noise_env(4)
        network = as_if_learned(build_network(env, tree_encoder="lstm-attention"))
        trajectory = trajectory_for(env, network, 2) if has_trajectory else None
        actor = begun(env, network, trajectory=trajectory)
        return torch.stack([step(env, actor)[0].actions for _ in range(12)])

    assert torch.equal(actions(True), actions(False))


def test_resets_count_only_where_they_act():
    env = noise_env(16, stage_length=6, max_depth=2)
    network = build_network(env)
    trajectory = trajectory_for(env, network, 4)
    collect(env, begun(env, network, trajectory=trajectory), 24)
    unroll = trajectory.read()
    depth = np.zeros(16, int)
    for t in range(24):
        if t % 6 == 5:
            assert not unroll.reset_acts[t].any()
            depth[:] = 0
            continue
        depth += 1
        assert np.array_equal(unroll.reset_acts[t].numpy(), depth < 2)
        depth[(unroll.action[t, :, 1].numpy() == 1) | (depth >= 2)] = 0


def test_without_a_depth_limit_every_imaginary_reset_acts():
    env = noise_env(4, stage_length=6, max_depth=None)
    network = build_network(env)
    trajectory = trajectory_for(env, network, 2)
    collect(env, begun(env, network, trajectory=trajectory), 12)
    unroll = trajectory.read()
    assert torch.equal(unroll.reset_acts, ~unroll.given.next_is_real[:-1])


@pytest.mark.parametrize("tree_encoder", ["mlp", "lstm-attention"])
def test_truncated_episodes_keep_the_value_of_their_final_observation(tree_encoder):
    env = noise_env(8, stage_length=2, observe=("tree", "real_state"))
    network = as_if_learned(build_network(env, tree_encoder=tree_encoder))
    trajectory = Trajectory(1, 8, 2)  # one step each, so that it can be looked at after every step
    actor = begun(env, network, trajectory=trajectory)
    seen = 0
    for _ in range(20):
        given = actor.given.map(lambda x: x.unsqueeze(0))
        decision, (_, reward, terminated, truncated, info) = step(env, actor)
        unroll = trajectory.read()
        for e in range(8):
            final_value = unroll.final_value[0, e]
            if not truncated[e] or terminated[e]:
                assert (final_value == 0).all()
                continue
            seen += 1
            # The network on this episode as it would have gone on: one step more, without an end.
            after = given.map(torch.clone)
            for key in after.observation:
                after.observation[key][0, e] = info["final_obs"][e][key]
            after.episode_start[0, e] = False
            after.next_is_real[0, e] = False
            after.last_action[0, e] = torch.tensor([decision.actions[e, 0], NO_ACTION, NO_ACTION])
            after.last_reward[0, e] = torch.tensor([reward[e], 0.0])
            with torch.no_grad():
                _, memory = network(given, unroll.memory)
                expected = network(after, memory)[0].value[0, e]
            torch.testing.assert_close(final_value, expected, rtol=1e-4, atol=1e-4)
    assert seen > 5


def test_episodes_are_those_of_the_unroll():
    env = raw_env(NoiseEnvs(3, end_probability=0.25))
    network = build_network(env, raw=True)
    trajectory = trajectory_for(env, network, 60)
    episodes = collect(env, begun(env, network, trajectory=trajectory), 60)
    unroll = trajectory.read()
    ended = (unroll.terminated | unroll.truncated).numpy()
    assert episodes.real_steps == 180
    expected = []
    for t, e in np.argwhere(ended):
        before = np.flatnonzero(ended[:t, e])
        first = before[-1] + 1 if len(before) else 0
        expected.append((unroll.reward[first : t + 1, e, 0].sum().item(), t + 1 - first))
    np.testing.assert_allclose(episodes.returns, [one for one, _ in expected], rtol=1e-4)
    assert episodes.lengths.tolist() == [length for _, length in expected]
    assert episodes.success is None


def test_decisions_that_cannot_be_learned_from_are_refused():
    env = noise_env(2)
    network = build_network(env)
    actor = begun(env, network, trajectory=trajectory_for(env, network, 1))
    own = Decision(torch.zeros(2, 2, dtype=torch.int64))
    actor.act()
    with pytest.raises(UserError, match="only decisions with log_prob and value can be learned from"):
        actor.observe(own, *env.step(own.actions))


def test_a_trajectory_has_at_least_one_step():
    with pytest.raises(UserError, match="at least one step, not 0"):
        Trajectory(0, 2, 2)


def test_an_environment_that_overwrites_its_observations_is_refused():
    env = noise_env(4)
    env = ThinkerEnv(env.envs, env.model, stage_length=3, max_depth=2, discount=0.9, copy=False, seed=1)
    network = build_network(env)
    with pytest.raises(UserError, match="copy=True"):
        NetworkActor(network, env, trajectory=trajectory_for(env, network, 2))


def test_beginning_again_begins_a_new_unroll():
    env = noise_env(3)
    network = build_network(env)
    trajectory = trajectory_for(env, network, stages=2)
    actor = begun(env, network, trajectory=trajectory)
    collect(env, actor, 3)
    actor.begin(*env.reset())
    actions = [step(env, actor)[0].actions for _ in range(6)]
    assert trajectory.is_complete
    assert torch.equal(trajectory.read().action, torch.stack(actions))


def test_the_unroll_of_a_resumed_actor_is_the_same():
    """An actor is saved between two unrolls, when its trajectory has been learned from."""

    def unroll(resumes):
        env = noise_env(4)
        network = as_if_learned(build_network(env, tree_encoder="lstm-attention"))
        trajectory = trajectory_for(env, network, 2)
        actor = begun(env, network, trajectory=trajectory)
        collect(env, actor, 6)
        if resumes:
            state = actor.state_dict()
            trajectory = trajectory_for(env, network, 2)
            actor = NetworkActor(network, env, seed=9, trajectory=trajectory)
            actor.load_state_dict(state)
        collect(env, actor, 6)
        return trajectory.read()

    one, other = unroll(False), unroll(True)
    for name in ("value", "action", "log_prob", "reward", "terminated", "truncated", "final_value"):
        assert torch.equal(getattr(one, name), getattr(other, name)), name
    for name, value in one.memory.items():
        assert torch.equal(value, other.memory[name]), name


def test_hidden_planes_are_stored_in_half_precision_just_as_the_actor_saw_them():
    env = noise_env(3, observe=("tree", "hidden", "root_hidden", "real_state"), hidden=(4, 3, 3), shape=(2, 5, 5))
    network = as_if_learned(build_network(env))
    trajectory = trajectory_for(env, network, stages=2)
    actor = begun(env, network, trajectory=trajectory)
    collect(env, actor, trajectory.num_steps)
    unroll = trajectory.read()
    seen = unroll.given.observation
    assert {key: value.dtype for key, value in seen.items()} == {
        "tree": torch.float32,
        "hidden": torch.float16,
        "root_hidden": torch.float16,
        "real_state": torch.uint8,
    }
    with torch.no_grad():
        output, _ = network(unroll.given, unroll.memory)
    log_policy = output.logits[:-1].log_softmax(-1).gather(-1, unroll.action[..., :1]).squeeze(-1)
    torch.testing.assert_close(log_policy, unroll.log_prob[..., 0])


def test_hidden_vectors_keep_their_precision_and_large_planes_stay_finite():
    env = noise_env(2)
    actor = begun(env, build_network(env))
    assert actor.given.observation["hidden"].dtype == torch.float32
    planes = noise_env(2, hidden=(4, 3, 3))
    actor = NetworkActor(build_network(planes), planes)
    observation, info = planes.reset()
    actor.begin({**observation, "hidden": torch.full((2, 4, 3, 3), -1e9)}, info)
    assert actor.given.observation["hidden"].isfinite().all()
    assert actor.given.observation["hidden"].max() < -6e4


@pytest.mark.parametrize("tree_encoder", ["mlp", "lstm-attention"])
def test_joined_trajectories_are_those_of_all_environments(tree_encoder):
    parts = []
    for num_envs in (2, 3):
        env = noise_env(num_envs, observe=("tree", "hidden", "real_state"), hidden=(4, 3, 3))
        network = as_if_learned(build_network(env, tree_encoder=tree_encoder))
        trajectory = trajectory_for(env, network, stages=2)
        collect(env, begun(env, network, trajectory=trajectory), trajectory.num_steps)
        parts.append(trajectory)
    assert Trajectory.joined(parts[:1]) is parts[0]
    whole = Trajectory.joined(parts)
    assert whole.is_complete
    assert whole.num_envs == 5
    assert whole.num_steps == parts[0].num_steps
    for part, which in zip(parts, (torch.arange(2), torch.arange(2, 5))):
        expected, found = part.read(), whole.read(which)
        for name in ("value", "action", "log_prob", "reset_acts", "reward", "terminated", "truncated", "final_value"):
            assert torch.equal(getattr(expected, name), getattr(found, name)), name
        for name in ("episode_start", "next_is_real", "last_action", "last_reward"):
            assert torch.equal(getattr(expected.given, name), getattr(found.given, name)), name
        for mine, yours in ((expected.given.observation, found.given.observation), (expected.memory, found.memory)):
            assert mine.keys() == yours.keys()
            assert all(torch.equal(value, yours[key]) for key, value in mine.items())


def test_only_complete_trajectories_of_the_same_length_are_joined():
    env = noise_env(2)
    network = build_network(env)
    complete, short = (trajectory_for(env, network, stages=stages) for stages in (2, 1))
    for trajectory in (complete, short):
        collect(env, begun(env, network, trajectory=trajectory), trajectory.num_steps)
    with pytest.raises(ValueError, match="same length"):
        Trajectory.joined([complete, short])
    with pytest.raises(ValueError, match="complete"):
        Trajectory.joined([complete, trajectory_for(env, network, stages=2)])
