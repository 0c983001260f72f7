"""The learner: whose rewards reach which actions, what a gradient step may not do, and exact resuming."""

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.agents.support import CPU, as_if_learned
from tests.fakes import NoiseEnvs, noise_env, raw_env
from thinker.agents import ActorCriticLearner, NetworkActor, NotFiniteError, RawAgentSpec, ThinkerAgentSpec
from thinker.agents.learner import AdvantageScale, _behaviour_log_prob, _log_prob
from thinker.augmented import collect
from thinker.errors import UserError

OBJECTIVES = ("v-trace", "ppo")
REAL_REWARD, PLANNING_REWARD = 0, 1
"""Columns of rewards, values and advantages."""


class Setting:
    """An agent in noise with one unroll to learn from."""

    def __init__(self, *, raw=False, stages=6, seed=0, **settings):
        self.env = raw_env(NoiseEnvs(6)) if raw else noise_env(6, stage_length=4, max_depth=2)
        spec = (RawAgentSpec if raw else ThinkerAgentSpec)(batch_size=3, unroll_stages=stages, **settings)
        agent = spec.build(self.env, seed=seed, device=CPU)
        self.network, self.learner, self.trajectory = agent.network, agent.learner, agent.trajectory(self.env)
        self.actor = agent.actor(self.env, seed=0, trajectory=self.trajectory)
        self.actor.begin(*self.env.reset())
        self.collect()

    def collect(self):
        collect(self.env, self.actor, self.trajectory.num_steps)
        self.unroll = self.trajectory.read()

    def learn(self, progress=0.0):
        return self.learner.learn(self.trajectory, progress)


def weights(network):
    return {name: value.clone() for name, value in network.state_dict().items()}


def policy_gradient(setting, progress=0.0):
    """The gradient [T + 1, B, A] of the policy loss with respect to the logits."""
    unroll, learner = setting.unroll, setting.learner
    output, _ = setting.network(unroll.given, unroll.memory)
    output.logits.retain_grad()
    log_prob = _log_prob(unroll, output.logits, output.reset_logits)
    log_ratio = log_prob - _behaviour_log_prob(unroll)
    if learner.settings.objective == "ppo":
        returns = learner._on_policy_returns(unroll)
    else:
        returns = learner._off_policy_returns(unroll, output, log_ratio.detach())
    learner._losses(unroll, output, log_prob, log_ratio, returns, progress)["policy"].backward()
    return output.logits.grad


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("normalise", [True, False])
def test_planning_rewards_reach_imaginary_actions_only(objective, normalise):
    setting = Setting(objective=objective, normalise_advantages=normalise)
    with torch.no_grad():  # nothing real to gain or to lose
        setting.network.heads.weight[-2] = 0
    setting.unroll.reward[..., REAL_REWARD] = 0
    setting.unroll.value[..., REAL_REWARD] = 0
    setting.unroll.final_value[..., REAL_REWARD] = 0
    gradient = policy_gradient(setting)
    real = setting.unroll.given.next_is_real
    assert (gradient[real] == 0).all()
    assert (gradient[~real] != 0).any()
    assert (policy_gradient(setting, progress=1.0) == 0).all()  # by then c^p is 0


def test_each_stage_is_an_episode_of_the_planning_rewards():
    setting = Setting()
    unroll = setting.unroll
    before = setting.learner._on_policy_returns(unroll).target.clone()
    unroll.reward[8:, :, PLANNING_REWARD] += 100  # from the third stage on
    after = setting.learner._on_policy_returns(unroll).target
    assert torch.equal(before[:8, :, PLANNING_REWARD], after[:8, :, PLANNING_REWARD])
    assert (after[8:11, :, PLANNING_REWARD] > before[8:11, :, PLANNING_REWARD]).all()
    assert torch.equal(before[..., REAL_REWARD], after[..., REAL_REWARD])
    unroll.value[:, :, PLANNING_REWARD] = 7.0  # whatever the critic promises of the next stage
    real = unroll.given.next_is_real[:-1]
    target = setting.learner._on_policy_returns(unroll).target[..., PLANNING_REWARD]
    torch.testing.assert_close(target[real], unroll.reward[..., PLANNING_REWARD][real])


def test_termination_leaves_nothing_and_truncation_the_final_value():
    setting = Setting(raw=True, stages=30, trace_decay=1.0)
    unroll, discount = setting.unroll, setting.env.augmented_discount
    assert unroll.terminated.any()
    assert unroll.truncated.any()
    unroll.final_value[:] = 50.0
    target = setting.learner._on_policy_returns(unroll).target
    torch.testing.assert_close(target[unroll.terminated], unroll.reward[unroll.terminated])
    torch.testing.assert_close(target[unroll.truncated], unroll.reward[unroll.truncated] + discount * 50)
    goes_on = ~(unroll.terminated | unroll.truncated)[:-1]
    torch.testing.assert_close(target[:-1][goes_on], (unroll.reward[:-1] + discount * target[1:])[goes_on])


def test_the_real_discount_is_the_root_of_the_real_mdps():
    setting = Setting(stages=3, trace_decay=1.0)
    unroll = setting.unroll
    unroll.terminated[:], unroll.truncated[:], unroll.reward[:], unroll.value[:] = False, False, 0.0, 0.0
    unroll.reward[[3, 7, 11], :, REAL_REWARD] = torch.tensor([1.0, 2.0, 4.0]).unsqueeze(1)
    target = setting.learner._on_policy_returns(unroll).target
    step = 0.9 ** (1 / 4)
    expected = step**3 * (1 + 0.9 * 2 + 0.9**2 * 4)
    torch.testing.assert_close(target[0, :, REAL_REWARD], torch.full((6,), expected))


def test_forced_resets_and_real_steps_have_no_reset_probability():
    unroll = Setting().unroll
    acts = unroll.reset_acts
    assert acts.any()
    assert (~acts & ~unroll.given.next_is_real[:-1]).any()  # some resets were forced
    logits = torch.randn(*unroll.given.next_is_real.shape, 3)
    reset_logits = torch.randn(*unroll.given.next_is_real.shape, 2, requires_grad=True)
    _log_prob(unroll, logits, reset_logits).sum().backward()
    assert (reset_logits.grad[:-1][~acts] == 0).all()
    assert (reset_logits.grad[:-1][acts] != 0).all()
    behaviour = _behaviour_log_prob(unroll)
    assert torch.equal(behaviour[~acts], unroll.log_prob[~acts][:, 0])
    assert torch.equal(behaviour[acts], unroll.log_prob[acts].sum(-1))


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("raw", [False, True])
def test_every_loss_has_a_scale_and_is_reported(objective, raw):
    setting = Setting(objective=objective, raw=raw)
    metrics = setting.learn()
    assert {name.removeprefix("loss/") for name in metrics if name.startswith("loss/")} == set(
        setting.learner.loss_scales
    )
    assert all(isinstance(value, float) for value in metrics.values())
    assert setting.learner.updates == 2 * setting.learner.settings.epochs  # 6 environments in batches of 3


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_on_policy_the_policy_has_not_moved_at_the_first_gradient_step(objective):
    setting = Setting(objective=objective, epochs=1, stages=3)
    setting.learner.settings = dataclasses.replace(setting.learner.settings, batch_size=6)
    for _ in range(3):
        assert abs(setting.learn()["agent/divergence"]) < 1e-6
        setting.collect()


def test_ppo_does_not_push_beyond_the_clipped_ratio():
    setting = Setting(objective="ppo")
    unroll = setting.unroll
    unroll.log_prob[..., 0] -= 1.0  # now the actions are e times as likely as they were
    returns = setting.learner._on_policy_returns(unroll)
    advantage = returns.advantage
    gradient = policy_gradient(setting)[:-1].abs().sum(-1)
    better = advantage.sum(-1) > 1e-4
    worse = advantage.sum(-1) < -1e-4
    assert (gradient[better] == 0).all()
    assert (gradient[worse] > 0).all()


def test_the_learning_rate_falls_linearly_to_zero():
    setting = Setting(learning_rate=0.01)
    assert setting.learn(progress=0.25)["agent/learning_rate"] == pytest.approx(0.0075)
    before = weights(setting.network)
    setting.learn(progress=1.0)
    for name, parameter in setting.network.named_parameters():
        assert torch.equal(parameter, before[name]), name


def test_a_loss_that_is_not_finite_is_named_and_touches_no_weight():
    setting = Setting(objective="v-trace")
    before = weights(setting.network)
    setting.unroll.reward[2, 1, REAL_REWARD] = float("nan")
    with pytest.raises(NotFiniteError, match="'policy' is nan"):
        setting.learn()
        setting.learn()  # the first batch may have been the other environments
    for name, parameter in setting.network.named_parameters():
        assert torch.isfinite(parameter).all(), name
    setting = Setting(objective="v-trace")
    setting.trajectory.read().reward[:, :, REAL_REWARD] = float("inf")
    with pytest.raises(NotFiniteError):
        setting.learn()
    after = weights(setting.network)
    assert all(torch.equal(after[name], before[name]) for name in before)


def test_input_scales_change_in_learning_only():
    setting = Setting()
    before = weights(setting.network)
    setting.collect()
    assert all(torch.equal(value, before[name]) for name, value in setting.network.state_dict().items())
    setting.learn()
    after = setting.network.state_dict()
    for name in ("tree.scale.factor", "encoders.hidden.scale.factor", "reward_scale.factor"):
        assert not torch.equal(after[name], before[name]), name


def test_real_and_planning_advantages_are_normalised_separately():
    setting = Setting()
    setting.unroll.reward[..., PLANNING_REWARD] *= 1000
    setting.learn()
    advantage = setting.learner._on_policy_returns(setting.unroll).advantage * setting.learner._advantage_scale.factor
    size = advantage.flatten(0, 1).square().mean(0).sqrt()
    torch.testing.assert_close(size, torch.ones(2), rtol=0.01, atol=0.01)


def test_both_objectives_normalise_alike():
    """The scale is updated once per trajectory, from the same data: however many batches and epochs there are."""
    factors = []
    for objective in OBJECTIVES:
        setting = Setting(objective=objective, epochs=3, learning_rate=1e-9)
        for _ in range(4):
            setting.learn()
            setting.collect()
        assert setting.learner._advantage_scale.updates == 4
        factors.append(setting.learner._advantage_scale.factor)
    torch.testing.assert_close(*factors)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_balanced_real_actions_count_as_often_as_a_stage_has_steps(objective, reduction):
    plain, balanced = (
        Setting(objective=objective, loss_reduction=reduction, balance_actions=balance) for balance in (False, True)
    )
    real = plain.unroll.given.next_is_real
    before, after = policy_gradient(plain), policy_gradient(balanced)
    assert before[:-1][real[:-1]].any()
    torch.testing.assert_close(after[real], 4 * before[real])
    assert torch.equal(after[~real], before[~real])
    metrics, same = plain.learn(), balanced.learn()
    assert same["loss/entropy_real"] == pytest.approx(4 * metrics["loss/entropy_real"], rel=0.05)
    for name in ("agent/entropy_real", "loss/entropy_imaginary", "agent/entropy_imaginary"):
        assert same[name] == pytest.approx(metrics[name], rel=0.05), name


def test_without_a_search_balanced_actions_are_the_same():
    learned = []
    for balance in (False, True):
        setting = Setting(raw=True, balance_actions=balance)
        setting.learn()
        learned.append(weights(setting.network))
    assert all(torch.equal(learned[0][name], learned[1][name]) for name in learned[0])


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_first_scale_is_that_of_the_first_trajectory(objective):
    setting = Setting(objective=objective)
    advantage = setting.learner._on_policy_returns(setting.unroll).advantage
    setting.learn()
    real, planning = advantage.flatten(0, 1).square().mean(0).sqrt()
    expected = torch.stack((real, max(planning, real / 3)))
    torch.testing.assert_close(1 / setting.learner._advantage_scale.factor, expected)


@pytest.mark.parametrize(("size", "weight"), [(100.0, 1.0), (1.0, 1.0), (0.5, 1.0), (0.1, 0.3), (0.001, 0.003)])
def test_planning_advantages_are_enlarged_at_most_three_times_as_much_as_real_ones(size, weight):
    """``size``: of the planning advantages, if the real ones have 1. Normalised, both would count the same."""
    gradients = []
    for planning in (1.0, size):
        setting = Setting()
        unroll = setting.unroll
        for values in (unroll.reward, unroll.value, unroll.final_value):
            values[..., REAL_REWARD] = 0  # nothing real to gain or to lose
            values[..., PLANNING_REWARD] *= planning
        setting.learner._advantage_scale.follow(torch.tensor([[[1.0, planning]]]), torch.ones(1, 1, 2))
        gradients.append(policy_gradient(setting))
    torch.testing.assert_close(gradients[1], weight * gradients[0], rtol=1e-3, atol=1e-8)
    assert gradients[0].any()


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.tuples(*[st.just(0.0) | st.floats(1e-3, 1e4)] * 3), min_size=1, max_size=12),
    st.sampled_from([("real", "planning"), ("real",)]),
)
def test_the_scale_of_advantages_against_a_slow_reference(trajectories, names):
    """``trajectories``: the sizes of their real and planning advantages, and their largest real reward."""
    scale, square, largest = AdvantageScale(names), [0.0, 0.0], 0.0
    for number, (*sizes, reward) in enumerate(trajectories, start=1):
        advantage = torch.tensor([[sizes[: len(names)], [-size for size in sizes[: len(names)]]]])
        rewards = torch.zeros(2, 3, len(names))
        rewards[1, 2, 0] = -reward
        scale.follow(advantage, rewards)
        weight = max(1 / number, 0.1)
        square = [(1 - weight) * old + weight * new**2 for old, new in zip(square, sizes)]
        largest = max(largest, reward)
        real, planning = (one**0.5 if one > 0 else 1.0 for one in square)
        real = max(real, 0.01 * largest if largest > 0 else 1.0)
        expected = [real, max(planning, real / 3)][: len(names)]
        assert (1 / scale.factor).tolist() == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("raw", [True, False])
def test_without_rewards_the_noise_of_values_trains_neither_policy_nor_features(raw):
    """Beside an agent that has seen one large reward before, whose noise counts even less."""
    for first_reward, largest in ((0.0, 1.0), (1e4, 0.01)):
        setting = Setting(raw=raw, stages=4, real_entropy_cost=0.0)
        unroll = setting.unroll
        unroll.reward.zero_()
        setting.learner._advantage_scale.largest_reward.fill_(first_reward)
        setting.learn()
        advantage = setting.learner._on_policy_returns(unroll).advantage * setting.learner._advantage_scale.factor
        noise = setting.learner._on_policy_returns(unroll).advantage.square().mean().sqrt()
        assert advantage.square().mean().sqrt() <= 3 * largest * noise
        assert (setting.network.heads.value_unit >= 1 / 3).all()


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("raw", [True, False])
def test_learning_does_not_depend_on_the_scale_of_the_rewards(raw, objective):
    """Rewards 1/64 as large: the same policy and 1/64 of the values. A power of two, so that rounding is the same."""
    learned = []
    for scale in (1.0, 1 / 64):
        setting = Setting(raw=raw, objective=objective, stages=4)
        with torch.no_grad():
            setting.network.heads.weight[-len(setting.network.reward_names) :] = 0  # values of 0
        unroll = setting.unroll
        unroll.value[:], unroll.final_value[:] = 0.0, 0.0
        unroll.reward.mul_(scale)
        for _ in range(5):
            setting.learn()
        output, _ = setting.network(unroll.given, unroll.memory)
        learned.append((output.logits, output.reset_logits, output.value / scale))
    for ours, theirs in zip(*learned, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    assert (learned[0][2] != 0).any()


def test_a_new_unit_does_not_change_the_values():
    setting = Setting()
    as_if_learned(setting.network)
    with torch.no_grad():
        setting.network.heads.bias.normal_(generator=torch.Generator().manual_seed(2))
    given, memory = setting.unroll.given, setting.unroll.memory
    before, _ = setting.network(given, memory)
    for unit in ([0.01, 50.0], [3.0, 0.002]):
        setting.network.set_value_unit(torch.tensor(unit))
        after, _ = setting.network(given, memory)
        torch.testing.assert_close(after.value, before.value, rtol=1e-5, atol=1e-5)
        assert torch.equal(after.logits, before.logits)
    assert setting.network.heads.value_unit.tolist() == pytest.approx(unit)


def test_weights_without_a_unit_can_be_loaded():
    setting = Setting()
    saved = weights(setting.network)
    setting.network.set_value_unit(torch.tensor([2.0, 3.0]))
    del saved["heads.value_unit"]
    setting.network.load_state_dict(saved)
    assert setting.network.heads.value_unit.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_scale_of_advantages_forgets(objective):
    """After 50 trajectories of large rewards, 60 of rewards a hundred times as small."""
    setting = Setting(objective=objective, stages=2, epochs=1, learning_rate=1e-9)
    unroll = setting.unroll
    unroll.value[:], unroll.final_value[:] = 0.0, 0.0
    with torch.no_grad():
        setting.network.heads.weight.zero_()
    factors = []
    for size, repetitions in ((1.0, 50), (0.01, 60)):
        unroll.reward.mul_(size)
        for _ in range(repetitions):
            setting.learn()
        factors.append(setting.learner._advantage_scale.factor.clone())
    assert (factors[1] > 15 * factors[0]).all()


@pytest.mark.parametrize("stage_length", range(1, 9))
def test_traces_decay_by_the_same_factor_per_real_step_at_every_stage_length(stage_length):
    """A slow reference: each error's weight is the discount and λ, both per real step, to the power of the time."""
    env = noise_env(3, stage_length=stage_length, max_depth=2, end_probability=0.0)
    agent = ThinkerAgentSpec(trace_decay=0.7, unroll_stages=5).build(env, seed=0, device=CPU)
    trajectory = agent.trajectory(env)
    actor = agent.actor(env, seed=0, trajectory=trajectory)
    actor.begin(*env.reset())
    collect(env, actor, trajectory.num_steps)
    unroll = trajectory.read()
    unroll.value.normal_(generator=torch.Generator().manual_seed(0))
    reward, value = unroll.reward[..., REAL_REWARD].double(), unroll.value[..., REAL_REWARD].double()
    steps = trajectory.num_steps
    expected = torch.zeros(steps, 3, dtype=torch.float64)
    for t in range(steps):
        for later in range(t, steps):
            error = reward[later] + 0.9 ** (1 / stage_length) * value[later + 1] - value[later]
            expected[t] += (0.9 * 0.7) ** ((later - t) / stage_length) * error
    advantage = agent.learner._on_policy_returns(unroll).advantage[..., REAL_REWARD]
    torch.testing.assert_close(advantage, expected.float(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("tree_encoder", ["mlp", "lstm-attention", "per-action"])
def test_two_seeded_runs_are_identical_and_a_resumed_one_too(objective, tree_encoder):
    def run(resume_at):
        setting = Setting(objective=objective, tree_encoder=tree_encoder, stages=2)
        for step in range(3):
            if step == resume_at:
                state = {name: value.clone() for name, value in setting.learner.state_dict().items()}
                assert all(isinstance(value, torch.Tensor) for value in state.values())
                other = Setting(objective=objective, tree_encoder=tree_encoder, stages=2, seed=7)
                other.learn()
                other.learner.load_state_dict(state)
                # The environments go on; network, learner, actor and trajectory are new.
                setting.network, setting.learner, setting.trajectory = other.network, other.learner, other.trajectory
                actor_state = setting.actor.state_dict()
                setting.actor = NetworkActor(other.network, setting.env, seed=9, trajectory=other.trajectory)
                setting.actor.load_state_dict(actor_state)
            setting.collect()
            setting.learn(progress=step / 3)
        return weights(setting.network), setting.unroll.action

    (first, actions), (second, same_actions), (resumed, resumed_actions) = run(None), run(None), run(2)
    assert torch.equal(actions, same_actions)
    assert torch.equal(actions, resumed_actions)
    for name in first:
        assert torch.equal(first[name], second[name]), name
        assert torch.equal(first[name], resumed[name]), name


def test_a_discount_that_makes_no_sense_is_an_error():
    network = Setting().network
    with pytest.raises(UserError, match=r"discount is 1\.5; it must lie between 0 and 1"):
        ActorCriticLearner(network, ThinkerAgentSpec(), discount=1.5)
    with pytest.raises(UserError, match="stage_length is 0; it must be at least 1"):
        ActorCriticLearner(network, ThinkerAgentSpec(), discount=0.9, stage_length=0)


def test_errors_of_numbers_are_told_to_the_user():
    assert issubclass(NotFiniteError, UserError)
    assert issubclass(NotFiniteError, FloatingPointError)
