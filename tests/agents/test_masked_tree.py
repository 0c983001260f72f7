"""Real decisions that see no search: exactly what an agent sees that acts without imaginary steps."""

import pytest
import torch

from tests.agents.support import as_if_learned, begun, build_network, trajectory_for
from tests.fakes import OBSERVE, FakeModel, noise_env, random_episodes
from thinker.agents import NetworkActor
from thinker.augmented import ThinkerEnv
from thinker.errors import UserError

INPUTS = ("next_is_real", "last_action", "last_reward")


def walk(env, actor, steps):
    for _ in range(steps):
        decision = actor.act()
        actor.observe(decision, *env.step(decision.actions, decision.policy))


def both_lengths(**options):
    """Environments that go through the same episodes with K = 5 and with K = 1, and an actor for each."""

    def env(stage_length):
        return ThinkerEnv(
            random_episodes(4, end_rate=0.1),
            FakeModel(2),
            stage_length=stage_length,
            max_depth=3,
            discount=0.9,
            seed=0,
            **options,
        )

    long, short = env(5), env(1)
    network = as_if_learned(build_network(long))
    return (long, begun(long, network, tree_mask_probability=1.0)), (short, begun(short, network))


@pytest.mark.parametrize("extra", [(), ("action_sequence", "termination")], ids=str)
@pytest.mark.parametrize("mask", [(), ("hints",), ("base_policy_and_value",)], ids=str)
@pytest.mark.parametrize("carry_tree", [True, False])
def test_a_masked_decision_sees_what_an_agent_without_imaginary_steps_sees(extra, mask, carry_tree):
    observe = ("tree", "hidden", "predicted_state", "real_state")
    options = {"observe": observe, "extra": extra, "mask": mask, "carry_tree": carry_tree}
    (long, searching), (short, acting) = both_lengths(**options)
    generator = torch.Generator().manual_seed(0)
    for _ in range(30):
        for _ in range(4):  # imaginary steps, which differ from one environment to another
            decision = searching.act()
            decision.actions[:] = torch.randint(0, 2, (4, 2), generator=generator)
            searching.observe(decision, *long.step(decision.actions))
        given, expected = searching.given, acting.given
        assert given.next_is_real.all()
        for key in observe:
            assert torch.equal(given.observation[key], expected.observation[key]), key
        for name in INPUTS:
            assert torch.equal(getattr(given, name), getattr(expected, name)), name
        action = torch.randint(0, 2, (4, 2), generator=generator)
        for env, actor in ((long, searching), (short, acting)):
            decision = actor.act()
            decision.actions[:] = action
            actor.observe(decision, *env.step(action))


def test_only_real_decisions_are_masked_and_as_often_as_asked_for():
    env, same = (noise_env(200, observe=OBSERVE, hidden=(4, 3, 3)) for _ in range(2))
    network = as_if_learned(build_network(env))
    masking, seeing = begun(env, network, tree_mask_probability=0.25), begun(same, network)
    count = 0
    for time in range(30):
        changed = torch.zeros(200, dtype=torch.bool)
        for key in OBSERVE:
            different = masking.given.observation[key] != seeing.given.observation[key]
            changed |= different.flatten(1).any(1)
        if time % 3 == 2:
            count += int(changed.sum())
        else:
            assert not changed.any()
        decision = masking.act()
        for one, actor in ((env, masking), (same, seeing)):
            actor.act()
            actor.observe(decision, *one.step(decision.actions, decision.policy))
    assert 400 < count < 600  # of 2,000


def test_the_trajectory_holds_what_the_actor_saw():
    env = noise_env(6, hidden=(4, 3, 3))
    network = as_if_learned(build_network(env))
    trajectory = trajectory_for(env, network, stages=4)
    actor = begun(env, network, trajectory=trajectory, tree_mask_probability=0.5)
    given = []
    for _ in range(trajectory.num_steps):
        given.append(actor.given)
        decision = actor.act()
        actor.observe(decision, *env.step(decision.actions, decision.policy))
    unroll = trajectory.read()
    for key in ("tree", "hidden"):
        assert torch.equal(unroll.given.observation[key][:-1], torch.stack([one.observation[key] for one in given]))
    with torch.no_grad():
        output, _ = network(unroll.given, unroll.memory)
    torch.testing.assert_close(output.value, unroll.value, rtol=1e-4, atol=1e-4)
    visits = env.decode(unroll.given.observation["tree"])["root_child_visits"].sum(-1)[:-1]
    real = unroll.given.next_is_real[:-1]
    assert (visits[real] == 0).any()
    assert (visits[real] > 0).any()


def test_a_refreshed_start_of_a_stage_is_what_a_masked_decision_sees():
    env = noise_env(4)
    actor = begun(env, build_network(env), tree_mask_probability=1.0)
    env.model.encode = -env.model.encode
    seen = env.refresh()
    actor.refresh(seen)
    walk(env, actor, 2)
    assert torch.equal(actor.given.observation["hidden"], seen["hidden"])


@pytest.mark.parametrize("steps", [3, 4, 5], ids=["start of a stage", "in a stage", "end of a stage"])
def test_masks_resume_exactly(steps):
    env, other = noise_env(8), noise_env(8)
    network = as_if_learned(build_network(env))
    actor, same = (begun(one, network, tree_mask_probability=0.5) for one in (env, other))
    for one, playing in ((env, actor), (other, same)):
        walk(one, playing, steps)
    state = {name: value.clone() for name, value in actor.state_dict().items()}
    resumed = NetworkActor(network, env, seed=9, tree_mask_probability=0.5)
    resumed.load_state_dict(state)
    for _ in range(9):
        for one, playing in ((env, resumed), (other, same)):
            walk(one, playing, 1)
        for key, seen in same.given.observation.items():
            assert torch.equal(resumed.given.observation[key], seen), key
        assert torch.equal(resumed.given.last_action, same.given.last_action)


def test_a_probability_that_makes_no_sense_is_an_error():
    env = noise_env(2)
    with pytest.raises(UserError, match=r"tree_mask_probability is -0\.5; it must be between 0 and 1"):
        NetworkActor(build_network(env), env, tree_mask_probability=-0.5)
    env = noise_env(2, copy=False)
    with pytest.raises(UserError, match=r"use ThinkerEnv\(copy=True\)"):
        NetworkActor(build_network(env), env, tree_mask_probability=0.5)
