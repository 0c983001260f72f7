"""I2A: rollouts against rollouts imagined one by one, what is read from them, and whom the rollout policy follows."""

import copy

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from tests.agents.support import CPU, as_if_learned
from tests.agents.test_learning import SETTINGS, learned_return
from tests.fakes import NUM_ACTIONS, FakeModel, NoiseModel, SameStepEnvs, noise_env
from thinker.agents import I2ASpec
from thinker.agents.i2a import distinct, imagine
from thinker.augmented import ThinkerEnv, collect
from thinker.errors import UserError
from thinker.interfaces import NodeOutput

OBSERVE = ("real_state", "predicted_state")


def noise(num_envs=4, shape=(4,), **options):
    return noise_env(num_envs, observe=OBSERVE, stage_length=1, max_depth=None, shape=shape, **options)


class Played:
    """An agent in noise with an unroll to learn from."""

    def __init__(self, *, steps=6, shape=(4,), learned=False, **spec):
        self.env = noise(shape=shape)
        spec = I2ASpec(unroll_stages=steps, batch_size=2, **{"rollout_width": 8, **spec})
        self.agent = spec.build(self.env, seed=0, device=CPU)
        self.network = as_if_learned(self.agent.network) if learned else self.agent.network
        self.trajectory = self.agent.trajectory(self.env)
        self.actor = self.agent.actor(self.env, seed=0, trajectory=self.trajectory)
        self.actor.begin(*self.env.reset(seed=0))
        collect(self.env, self.actor, steps)
        self.unroll = self.trajectory.read()


# ---------------------------------------------------------------------------------------------------- imagination


def by_state(state):
    """A deterministic rollout policy that differs from state to state."""
    return (state[:, 0] * 1e4).long() % NUM_ACTIONS


@pytest.mark.parametrize("length", [1, 2, 5])
@pytest.mark.parametrize("termination_rate", [0.0, 0.3, 1.0])
def test_rollouts_are_those_imagined_one_by_one(length, termination_rate):
    model = FakeModel(NUM_ACTIONS, termination_rate)
    observation = torch.tensor([[3.0, 1.0], [5.0, 9.0], [7.0, 2.0], [11.0, 4.0]])
    root = model.root(observation, torch.tensor([-1, 0, 1, 2]))
    model.calls.clear()
    states, rewards = imagine(model, root, by_state, length)
    assert states.shape == (4, NUM_ACTIONS, length, 2)
    assert rewards.shape == (4, NUM_ACTIONS, length)
    calls = [0] * length
    for e in range(4):
        for first in range(NUM_ACTIONS):
            hidden, action, ended = root.hidden[e : e + 1], torch.tensor([first]), False
            for step in range(length):
                if ended:
                    assert not states[e, first, step].any()
                    assert rewards[e, first, step] == 0
                    continue
                calls[step] += 1
                output = FakeModel(NUM_ACTIONS, termination_rate).unroll(hidden, action)
                assert torch.equal(states[e, first, step], output.state[0])
                assert rewards[e, first, step] == output.reward[0]
                hidden, action, ended = output.hidden, by_state(output.state), bool(output.termination[0] > 0.5)
    assert model.calls == [("unroll", count) for count in calls if count]  # nothing is imagined beyond an end


class Wrong(NoiseModel):
    """A model with something wrong in its output."""

    def __init__(self, **wrong):
        super().__init__((4,))
        self.wrong = wrong

    def unroll(self, hidden, action):
        output = super().unroll(hidden, action)
        return NodeOutput(**{**vars(output), **self.wrong})


def test_models_that_predict_no_states_or_nonsense_are_refused():
    observation, last = torch.zeros(2, 4, dtype=torch.uint8), torch.tensor([-1, -1])
    root = NoiseModel((4,)).root(observation, last)
    stateless = NodeOutput(**{**vars(root), "state": None})
    with pytest.raises(UserError, match="I2A reads imagined states, but this model predicts none"):
        imagine(NoiseModel((4,)), stateless, by_state, 2)
    with pytest.raises(UserError, match=r"unroll\(\) predicted no states, but its root\(\) did"):
        imagine(Wrong(state=None), root, by_state, 2)
    with pytest.raises(UserError, match=r"unroll\(\) returned NaN or infinity for environment 1"):
        reward = torch.zeros(2 * NUM_ACTIONS)
        reward[NUM_ACTIONS] = torch.nan
        imagine(Wrong(reward=reward), root, by_state, 2)
    with pytest.raises(UserError, match=r"expected .*, the shape of the observations"):
        imagine(Wrong(state=torch.zeros(2 * NUM_ACTIONS, 5)), root, by_state, 2)


def test_the_actor_imagines_from_every_real_state_with_actions_of_the_rollout_policy():
    setting = Played(rollout_length=3)
    seen = setting.actor.given.observation
    assert set(seen) == {"real_state", "rollout_state", "rollout_reward"}
    assert seen["rollout_state"].shape == (4, NUM_ACTIONS, 3, 4)
    env, network = setting.env, setting.network
    with torch.no_grad():  # a rollout policy that always takes action 2
        network.rollout_policy[1].weight.zero_()
        network.rollout_policy[1].bias.copy_(torch.tensor([0.0, 0.0, 100.0]))
    setting.actor.refresh({"real_state": seen["real_state"], "predicted_state": seen["real_state"]})
    expected = imagine(env.model, env.root_output, lambda state: torch.full((len(state),), 2), 3)
    assert torch.equal(setting.actor.given.observation["rollout_state"], expected[0])
    assert torch.equal(setting.actor.given.observation["rollout_reward"], expected[1])


def test_rollout_actions_have_the_rollout_policys_probabilities():
    setting = Played()
    with torch.no_grad():
        setting.network.rollout_policy[1].weight.zero_()
        setting.network.rollout_policy[1].bias.copy_(torch.tensor([0.5, 0.2, 0.3]).log())
    actions = setting.actor._rollout_action(torch.zeros(20_000, 4, dtype=torch.uint8))
    np.testing.assert_allclose(np.bincount(actions, minlength=3) / 20_000, [0.5, 0.2, 0.3], atol=0.02)


# ------------------------------------------------------------------------------------------------------ the network


def test_rollouts_are_read_from_the_last_step_to_the_first():
    network = Played(rollout_length=4).network
    states = torch.randint(0, 256, (2, NUM_ACTIONS, 4, 4), dtype=torch.uint8)
    rewards = torch.randn(2, NUM_ACTIONS, 4).clamp(-3, 3)  # larger ones are clipped
    found = network.encode_rollouts(states, rewards)
    assert found.shape == (2, NUM_ACTIONS, 8)
    cell = nn.LSTMCell(9, 8)
    cell.load_state_dict(
        {name.removesuffix("_l0"): value for name, value in network.rollout_encoder.state_dict().items()}
    )
    for n in range(2):
        for action in range(NUM_ACTIONS):
            memory = (torch.zeros(1, 8), torch.zeros(1, 8))
            for step in (3, 2, 1, 0):
                frame = network.frames(states[n, action, step : step + 1])
                memory = cell(torch.cat((frame, rewards[n, action, step].view(1, 1)), 1), memory)
            torch.testing.assert_close(found[n, action], memory[0][0])


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bool, torch.int16, torch.float32, torch.float64], ids=str)
def test_equal_states_share_a_number_and_others_do_not(dtype):
    states = torch.randint(0, 2, (200, 2, 3)).to(dtype)  # 64 different ones
    rows, number = distinct(states)
    assert torch.equal(states[rows][number], states)
    assert len(rows) == len({tuple(state.flatten().tolist()) for state in states})
    steps = torch.stack((states[0], states[0], states[0])).double()
    steps[:, 0, 0] = torch.tensor([1.0, 2.0, 1.0 + 1e-15], dtype=torch.float64)  # differences in one bit each
    assert len(distinct(steps)[0]) == 3


@pytest.mark.parametrize("shape", [(4,), (3, 16, 16), (16, 16, 3)], ids=str)
def test_learning_sees_what_acting_saw(shape):
    setting = Played(shape=shape, learned=True)
    unroll = setting.unroll
    assert unroll.given.observation["rollout_state"].shape == (7, 4, NUM_ACTIONS, 5, *shape)
    with torch.no_grad():
        output, _ = setting.network(unroll.given, unroll.memory)
    torch.testing.assert_close(output.value, unroll.value, rtol=1e-4, atol=1e-4)
    log_prob = output.logits[:-1].log_softmax(-1).gather(-1, unroll.action[..., :1])
    torch.testing.assert_close(log_prob, unroll.log_prob[..., :1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [(4,), (3, 16, 16)], ids=str)
def test_learning_reaches_every_parameter(shape):
    setting = Played(shape=shape, learned=True)
    setting.agent.learner.learn(setting.trajectory, 0.0)
    for name, parameter in setting.network.named_parameters():
        if not parameter.requires_grad:
            continue
        assert parameter.grad is not None, name
        assert parameter.grad.any(), name


def test_a_truncated_episodes_last_step_teaches_nothing():
    setting = Played(steps=12, learned=True)
    unroll, learner = setting.unroll, setting.agent.learner
    cut = unroll.truncated & ~unroll.terminated
    assert cut.any()
    difference = unroll.reward + 0.9 * unroll.final_value - unroll.value[:-1]
    assert difference[cut].abs().max() < 1e-5
    assert learner._on_policy_returns(unroll).advantage[cut].abs().max() < 1e-5
    assert (unroll.final_value[~cut] == 0).all()


# ---------------------------------------------------------------------------------------------------- distillation


def divergence(setting):
    """Mean Kullback-Leibler divergence of the rollout policy from the agent's, and the agent's policies."""
    with torch.no_grad():
        output, _ = setting.network(setting.unroll.given, {})
    policy = output.logits.log_softmax(-1)
    rollout_policy = output.auxiliary["rollout_logits"].log_softmax(-1)
    return float((policy.exp() * (policy - rollout_policy)).sum(-1).mean()), policy


def test_distillation_moves_the_rollout_policy_towards_the_agents_and_leaves_the_agent_alone():
    setting = Played(learned=True, steps=8)
    before, agents_policy = divergence(setting)
    assert before > 0.5
    optimiser = torch.optim.Adam(setting.network.parameters(), lr=1e-2)
    losses = []
    for _ in range(100):
        output, _ = setting.network(setting.unroll.given, {})
        loss = setting.network.auxiliary_losses(setting.unroll, output)["distillation"].mean()
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    for name, parameter in setting.network.named_parameters():
        assert (parameter.grad is not None) == name.startswith("rollout_policy"), name
    after, same_policy = divergence(setting)
    assert torch.equal(agents_policy, same_policy)
    assert losses[-1] < losses[0]
    assert after < 0.2 * before


def test_the_learner_lets_the_rollout_policy_follow_the_agent():
    nothing_else = {"baseline_scale": 0.0, "real_entropy_cost": 0.0, "feature_cost": 0.0, "real_logits_cost": 0.0}
    # Normalised advantages would also rescale the weights of the values.
    setting = Played(learned=True, steps=8, learning_rate=1e-2, normalise_advantages=False, **nothing_else)
    for outcome in (setting.unroll.reward, setting.unroll.value, setting.unroll.final_value):
        outcome.zero_()  # no advantages
    (before, _), weights = divergence(setting), copy.deepcopy(dict(setting.network.named_parameters()))
    for _ in range(20):
        setting.agent.learner.learn(setting.trajectory, 0.0)
    assert divergence(setting)[0] < 0.5 * before
    for name, parameter in setting.network.named_parameters():
        assert torch.equal(parameter, weights[name]) != name.startswith("rollout_policy"), name


# ------------------------------------------------------------------------------------------------------- the agent


class SecretEnvs(SameStepEnvs):
    """One real step: one action is worth 1, and the state says which, but in a way that is hard to learn."""

    def __init__(self, num_envs):
        super().__init__(num_envs, spaces.Box(0, 1, (1,), np.float32))

    def first_state(self):
        return self.random.random(1, np.float32)

    def next_state(self, state, action):
        return state, float(int(state[0] * 9_999) % NUM_ACTIONS == action), True, False


class SecretModel:
    """The perfect model of `SecretEnvs`."""

    num_actions = NUM_ACTIONS
    hidden_shape = (1,)

    def root(self, observation, last_action):
        return self._output(observation, torch.zeros(len(observation)), 0.0)

    def unroll(self, hidden, action):
        reward = ((hidden[:, 0].double() * 9_999).long() % NUM_ACTIONS == action).float()
        return self._output(hidden, reward, 1.0)

    def _output(self, hidden, reward, termination):
        policy = torch.full((len(hidden), NUM_ACTIONS), 1 / NUM_ACTIONS)
        ended = torch.full_like(reward, termination)
        return NodeOutput(hidden, torch.zeros_like(reward), policy, reward, ended, hidden)


def test_the_agent_learns_to_read_in_its_rollouts_what_it_cannot_see():
    env = ThinkerEnv(SecretEnvs(32), SecretModel(), stage_length=1, discount=0.9, observe=OBSERVE)
    spec = I2ASpec(rollout_length=2, rollout_width=16, **{**SETTINGS, "unroll_stages": 8, "epochs": 4})
    assert learned_return(env, spec, updates=40) > 0.75


def test_the_agent_needs_real_and_predicted_states_and_stages_of_one_step():
    with pytest.raises(UserError, match="I2A sees real and predicted states, but the environment shows hidden, tree"):
        I2ASpec().build(noise_env(2), seed=0, device=CPU)
    agent = I2ASpec(rollout_width=8).build(noise(), seed=0, device=CPU)
    with pytest.raises(UserError, match="I2A takes no imaginary steps, but stage_length is 3"):
        agent.actor(noise_env(2, observe=OBSERVE), seed=0)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"rollout_length": 0}, "rollout_length is 0; it must be at least 1"),
        ({"rollout_width": 0}, "rollout_width is 0; it must be at least 1"),
        ({"distillation_scale": -1.0}, "distillation_scale is -1.0; it must not be negative"),
        ({"network_size": "huge"}, "network_size is 'huge'; it must be one of 'paper', 'small', 'board'"),
    ],
    ids=str,
)
def test_settings_that_make_no_sense_are_errors(wrong, message):
    with pytest.raises(UserError, match=message):
        I2ASpec(**wrong)
