"""The perfect model: whose simulator is used, and that the general one foresees what really happens."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.wrappers import TransformObservation
from gymnasium.wrappers.vector import RecordEpisodeStatistics
from gymnasium.wrappers.vector import TransformObservation as TransformVectorObservation

from thinker.errors import UnsupportedError
from thinker.interfaces import NO_ACTION
from thinker.world_model.simulator import EnvSimulator, simulator

SPACE = spaces.Box(0, 9, (2,), np.int64)
OTHER_SPACE = spaces.Box(0, 90, (2,), np.int64)


class Offered:
    """Stands for a simulator of an environment's own."""

    def __init__(self, policy_and_value) -> None:
        self.policy_and_value = policy_and_value


class Counter(gym.Env):
    """Counts up, by 1 or by 2; 9 terminates. Rewards are random, by the environment's own generator."""

    observation_space = SPACE
    action_space = spaces.Discrete(2, start=1)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.total = 0
        return np.array([0, 0]), {}

    def step(self, action):
        assert action in (1, 2)
        self.total = min(self.total + int(action), 9)
        state = np.array([self.total, 0])
        return state, float(self.np_random.integers(100)), self.total == 9, False, {}


class WithSnapshots(Counter):
    entered = 0

    def snapshot(self):
        return self.total, self.np_random.bit_generator.state

    def restore(self, snapshot):
        WithSnapshots.entered += 1
        self.total, self.np_random.bit_generator.state = snapshot

    def __deepcopy__(self, memo):
        raise TypeError("not to be copied")


class OffersItsOwn(Counter):
    def simulator(self, policy_and_value=None):
        return Offered(policy_and_value)


class NativeVector(VectorEnv):
    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}
    num_envs = 2
    single_observation_space, single_action_space = SPACE, spaces.Discrete(2)
    observation_space, action_space = spaces.Box(0, 9, (2, 2), np.int64), spaces.MultiDiscrete([2, 2])


class NativeVectorThatOffers(NativeVector):
    def simulator(self, policy_and_value=None):
        return Offered(policy_and_value)


class SyncThatOffers(SyncVectorEnv):
    def simulator(self, policy_and_value=None):
        return Offered("of the vector environment")


def values(observation, last_action):
    return torch.full((len(observation), 2), 0.5), observation[:, 0].float()


def test_an_environments_own_simulator_is_preferred_with_the_policy_given() -> None:
    for envs in (NativeVectorThatOffers(), SyncVectorEnv([OffersItsOwn] * 2)):
        for wrapped in (envs, RecordEpisodeStatistics(envs)):
            model = simulator(wrapped, values)
            assert isinstance(model, Offered)
            assert model.policy_and_value is values
            assert simulator(wrapped).policy_and_value is None


def test_the_vector_environments_offer_comes_before_the_single_ones() -> None:
    assert simulator(SyncThatOffers([OffersItsOwn])).policy_and_value == "of the vector environment"


def test_an_offer_is_refused_where_wrappers_change_what_is_observed() -> None:
    wrapped = SyncVectorEnv([lambda: TransformObservation(OffersItsOwn(), lambda x: x * 10, OTHER_SPACE)] * 2)
    wrapped.reset(seed=0)
    model = simulator(wrapped)
    assert isinstance(model, EnvSimulator)
    node = model.unroll(model.root(torch.zeros(2, 2), torch.full((2,), NO_ACTION)).hidden, torch.tensor([0, 1]))
    assert node.state.tolist() == [[10, 0], [20, 0]]
    with pytest.raises(UnsupportedError, match="wrap the single environments rather than"):
        simulator(TransformVectorObservation(NativeVectorThatOffers(), lambda x: x * 10, None, OTHER_SPACE))


@pytest.mark.parametrize("kind", [Counter, WithSnapshots])
def test_the_general_simulator_foresees_what_really_happens(kind: type[Counter]) -> None:
    envs = SyncVectorEnv([kind] * 3)
    observation, _ = envs.reset(seed=5)
    entered = WithSnapshots.entered
    model = simulator(envs, values)
    assert isinstance(model, EnvSimulator)
    assert model.device == torch.device("cpu")
    root = model.root(torch.from_numpy(observation), torch.full((3,), NO_ACTION))
    assert not root.reward.any()
    plan = [[0, 1, 1], [1, 1, 0], [1, 1, 1], [0, 1, 1], [1, 1, 0]]
    nodes = [root]
    for actions in plan:
        nodes.append(model.unroll(nodes[-1].hidden, torch.tensor(actions)))
    again = model.unroll(root.hidden, torch.tensor(plan[0]))  # nodes stay where they are
    assert torch.equal(again.state, nodes[1].state)
    assert torch.equal(again.reward, nodes[1].reward)
    for actions, node in zip(plan, nodes[1:]):
        observation, reward, terminated, _, _ = envs.step(np.array(actions) + 1)
        assert node.state.tolist() == observation.tolist()
        assert node.reward.tolist() == reward.tolist()
        assert node.termination.tolist() == terminated.astype(float).tolist()
        assert node.value.tolist() == observation[:, 0].tolist()
        assert torch.equal(model.visible_hidden(node.hidden), node.state)
        assert node.reward.dtype == node.termination.dtype == torch.float32
    assert terminated.tolist() == [False, True, False]
    assert (WithSnapshots.entered > entered) == (kind is WithSnapshots)


def test_without_a_policy_it_is_uniform() -> None:
    envs = SyncVectorEnv([Counter] * 2)
    observation, _ = envs.reset(seed=0)
    root = simulator(envs).root(torch.from_numpy(observation), torch.full((2,), NO_ACTION))
    assert root.policy.tolist() == [[0.5, 0.5]] * 2
    assert root.value.tolist() == [0, 0]


class Continuous(Counter):
    action_space = spaces.Box(-1, 1, (1,))


class Composite(Counter):
    observation_space = spaces.Dict(a=SPACE)


def test_environments_that_cannot_be_simulated_are_errors_that_say_what_to_do() -> None:
    with pytest.raises(UnsupportedError, match="use a learned model"):
        simulator(NativeVector())
    with pytest.raises(UnsupportedError, match="Discrete action space"):
        simulator(SyncVectorEnv([Continuous]))
    with pytest.raises(UnsupportedError, match="needs arrays as observations, not Dict"):
        simulator(SyncVectorEnv([Composite]))
    envs = AsyncVectorEnv([Counter])
    try:
        with pytest.raises(UnsupportedError, match="SyncVectorEnv"):
            simulator(envs)
    finally:
        envs.close()


class Uncopyable(Counter):
    def __deepcopy__(self, memo):
        raise TypeError("not to be copied")


def test_environments_that_cannot_be_copied_are_errors_that_say_what_to_do() -> None:
    envs = SyncVectorEnv([Uncopyable])
    observation, _ = envs.reset(seed=0)
    model = simulator(envs)
    root = model.root(torch.from_numpy(observation), torch.tensor([NO_ACTION]))
    with pytest.raises(UnsupportedError, match=r"cannot be deep-copied .*snapshot\(\) and restore"):
        model.unroll(root.hidden, torch.tensor([0]))
