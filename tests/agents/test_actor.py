"""Acting: what the agent knows at every step, what is written down, and thinking longer than in training."""

import numpy as np
import pytest
import torch
from agents_support import NUM_ACTIONS, NoiseEnvs, NoiseModel, noise_env
from test_agent_networks import as_if_learned

from thinker.agents import Agent, Trajectory, build_network, collect, convert_stage_length, raw_env
from thinker.agents.networks import NO_ACTION
from thinker.augmented import ThinkerEnv, layout


def begun(env, network, **options):
    agent = Agent(network, env, **options)
    agent.begin(*env.reset())
    return agent


def trajectory_for(env, network, stages):
    return Trajectory(stages * env.stage_length, env.num_envs, len(network.reward_names))


def test_policies_are_distributions_and_actions_are_drawn_from_them():
    env = noise_env(200)
    network = as_if_learned(build_network(env))
    agent = begun(env, network)
    counts, expected = torch.zeros(2, 200, NUM_ACTIONS)
    for _ in range(50):
        decision = agent.act()  # nothing is taken in, so the policy stays the same
        counts += torch.nn.functional.one_hot(decision.actions[:, 0], NUM_ACTIONS)
        expected += decision.policy
    torch.testing.assert_close(decision.policy.sum(1), torch.ones(200))
    drawn = decision.policy.gather(1, decision.actions[:, :1]).log().squeeze(1)
    torch.testing.assert_close(drawn, decision.log_prob[:, 0])
    assert (counts.sum(0) - expected.sum(0)).abs().max() < 250  # of 10,000


def test_the_greedy_agent_takes_the_likeliest_actions():
    env = noise_env(50)
    agent = begun(env, as_if_learned(build_network(env)), greedy=True)
    decision = agent.act()
    assert torch.equal(decision.actions[:, 0], decision.policy.argmax(1))
    assert (decision.log_prob >= np.log(0.5) - 1e-6)[:, 1].all()


def test_last_actions_and_rewards_are_those_of_the_step_before():
    env = noise_env(8, stage_length=3, end_probability=0.4)
    agent = begun(env, build_network(env))
    assert (agent.given.last_action == NO_ACTION).all()
    last_real = np.full(8, NO_ACTION)
    for step in range(60):
        decision = agent.act()
        _, reward, terminated, truncated, info = outcome = env.step(decision.actions)
        agent.observe(decision, *outcome)
        ended, given, actions = terminated | truncated, agent.given, decision.actions.numpy()
        assert np.array_equal(given.episode_start.numpy(), ended)
        if step % 3 == 2:  # that was the real step of the stage
            last_real = np.where(ended, NO_ACTION, actions[:, 0])
            assert (given.last_action[:, 1:] == NO_ACTION).all()
            np.testing.assert_allclose(given.last_reward[:, 0].numpy(), np.where(ended, 0, reward), rtol=1e-6)
        else:
            assert np.array_equal(given.last_action[:, 1:].numpy(), actions)
            np.testing.assert_allclose(given.last_reward[:, 1].numpy(), info["planning_reward"])
        assert np.array_equal(given.last_action[:, 0].numpy(), last_real)


def test_resets_count_only_where_they_act():
    env = noise_env(16, stage_length=6, max_depth=2)
    network = build_network(env)
    agent = begun(env, network)
    trajectory = trajectory_for(env, network, 4)
    collect(env, agent, trajectory)
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


@pytest.mark.parametrize("tree_encoder", ["mlp", "lstm-attention"])
def test_truncated_episodes_keep_the_value_of_their_final_observation(tree_encoder):
    env = noise_env(8, stage_length=2, observe=("tree", "real_state"))
    network = as_if_learned(build_network(env, tree_encoder=tree_encoder))
    agent = begun(env, network)
    seen = 0
    for _ in range(20):
        memory_before = agent.memory
        given = agent.given.map(lambda x: x.unsqueeze(0))
        decision = agent.act()
        outcome = env.step(decision.actions)
        final_value = agent.observe(decision, *outcome)
        _, reward, terminated, truncated, info = outcome
        for e in range(8):
            if not truncated[e]:
                assert (final_value[e] == 0).all()
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
                _, memory = network(given, memory_before)
                expected = network(after, memory)[0].value[0, e]
            torch.testing.assert_close(final_value[e], expected, rtol=1e-4, atol=1e-4)
    assert seen > 5


def test_an_unroll_begins_where_the_last_one_ended():
    env = noise_env(4)
    network = as_if_learned(build_network(env, tree_encoder="lstm-attention"))
    agent = begun(env, network)
    trajectory = trajectory_for(env, network, 2)
    collect(env, agent, trajectory)
    last, value = agent.given, trajectory.read().value[-1].clone()
    collect(env, agent, trajectory)
    unroll = trajectory.read()
    torch.testing.assert_close(unroll.value[0], value)
    for key, seen in last.observation.items():
        torch.testing.assert_close(unroll.given.observation[key][0], seen)


def test_episode_statistics_are_those_of_the_real_environments():
    envs = NoiseEnvs(3, end_probability=0.25)
    env = raw_env(envs, discount=0.9, seed=0)
    network = build_network(env, plans=False)
    agent = begun(env, network)
    trajectory = trajectory_for(env, network, 60)
    episodes = collect(env, agent, trajectory)
    unroll = trajectory.read()
    ended = (unroll.terminated | unroll.truncated).numpy()
    assert episodes.real_steps == episodes.augmented_steps == 180
    expected = []
    for t, e in np.argwhere(ended):
        before = np.flatnonzero(ended[:t, e])
        first = before[-1] + 1 if len(before) else 0
        expected.append((unroll.reward[first : t + 1, e, 0].sum().item(), t + 1 - first))
    np.testing.assert_allclose(episodes.returns, [one for one, _ in expected], rtol=1e-4)
    assert episodes.lengths.tolist() == [length for _, length in expected]
    assert episodes.solved is None


def test_trajectories_hold_whole_stages():
    env = noise_env(2, stage_length=3)
    network = build_network(env)
    with pytest.raises(ValueError, match="not whole stages of 3"):
        collect(env, begun(env, network), Trajectory(7, 2, 2))


@pytest.mark.parametrize("observe", [("tree",), ("tree", "hidden")])
def test_an_agent_refuses_an_environment_that_shows_something_else(observe):
    network = build_network(noise_env(2, observe=observe))
    with pytest.raises(ValueError, match="the network sees"):
        Agent(network, noise_env(2, observe=("tree", "real_state")))


def test_two_seeded_agents_do_the_same_and_two_seeds_do_not():
    def actions(seed):
        env = noise_env(8)
        network = as_if_learned(build_network(env, tree_encoder="lstm-attention"))
        trajectory = trajectory_for(env, network, 5)
        collect(env, begun(env, network, seed=seed), trajectory)
        return trajectory.read().action

    assert torch.equal(actions(0), actions(0))
    assert not torch.equal(actions(0), actions(1))


def test_an_agent_goes_on_exactly_from_its_state():
    def played(save_at):
        env = noise_env(4)
        network = as_if_learned(build_network(env, tree_encoder="lstm-attention"))
        agent = begun(env, network)
        for step in range(12):
            if step == save_at:
                state = {name: value.clone() for name, value in agent.state_dict().items()}
                agent = Agent(network, env, seed=99)
                agent.load_state_dict(state)
            decision = agent.act()
            agent.observe(decision, *env.step(decision.actions))
        return decision

    unbroken, resumed = played(None), played(7)
    assert torch.equal(unbroken.policy, resumed.policy)
    assert torch.equal(unbroken.actions, resumed.actions)


# ------------------------------------------------------------------------------------------------ stage length


def one_tree(known, step):
    tree = torch.arange(known.size, dtype=torch.float32)
    tree[known.slices["step"]] = torch.nn.functional.one_hot(torch.tensor(step - 1), known.stage_length).float()
    return tree


@pytest.mark.parametrize("seen_length", [1, 2, 5, 8, 20, 40])
def test_another_stage_length_changes_only_the_step_and_keeps_how_many_remain(seen_length):
    seen, known = layout(NUM_ACTIONS, seen_length), layout(NUM_ACTIONS, 8)
    for step in range(1, seen_length + 1):
        tree = one_tree(seen, step)
        converted = known.decode(convert_stage_length(tree, seen, known))
        remaining = seen_length - step
        assert converted["step"].sum() == 1
        assert converted["step"].argmax() + 1 == max(1, 8 - remaining)
        original = seen.decode(tree)
        for name in set(known.slices) - {"step"}:
            assert torch.equal(converted[name], original[name]), name


def test_the_same_stage_length_changes_nothing():
    known = layout(NUM_ACTIONS, 8)
    tree = one_tree(known, 3)
    assert torch.equal(convert_stage_length(tree, known, known), tree)


def test_action_sequences_are_cut_or_padded():
    seen, known = layout(2, 6, extra=["action_sequence"]), layout(2, 3, extra=["action_sequence"])
    tree = torch.zeros(seen.size)
    tree[seen.slices["action_sequence"]] = torch.arange(1.0, 11.0)
    shorter = convert_stage_length(tree, seen, known)
    assert known.decode(shorter)["action_sequence"].tolist() == [1, 2, 3, 4]
    longer = convert_stage_length(shorter, known, seen)
    assert seen.decode(longer)["action_sequence"].tolist() == [1, 2, 3, 4, 0, 0, 0, 0, 0, 0]


def test_other_actions_are_an_error():
    with pytest.raises(ValueError, match="Only the stage length may differ"):
        convert_stage_length(torch.zeros(layout(2, 4).size), layout(2, 4), layout(3, 4))


@pytest.mark.parametrize("stage_length", [1, 2, 5, 10, 20, 40])
def test_an_agent_acts_with_another_stage_length(stage_length):
    network = as_if_learned(build_network(noise_env(2, stage_length=8)))
    model = NoiseModel((4,))
    env = ThinkerEnv(NoiseEnvs(2), model, stage_length=stage_length, max_depth=None, discount=0.9, seed=0)
    agent = begun(env, network)
    for _ in range(2 * stage_length):
        decision = agent.act()
        agent.observe(decision, *env.step(decision.actions, decision.policy))
        assert agent.given.observation["tree"].shape == (2, network.layout.size)
