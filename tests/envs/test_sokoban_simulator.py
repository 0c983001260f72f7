"""Sokoban's simulator: an imagined step is the real one, from tiles and from pixels."""

import gymnasium as gym
import numpy as np
import pytest
import torch

from thinker.envs.sokoban import SokobanEnv, SokobanVectorEnv
from thinker.envs.sokoban.rendering import ObservationKind
from thinker.envs.sokoban.simulator import SokobanSimulator
from thinker.errors import UnsupportedError
from thinker.interfaces import NO_ACTION, OffersSimulator, WorldModel

NUM_ENVS = 6


@pytest.mark.parametrize("kind", ["tiles", "rgb"])
def test_unrolling_from_the_root_equals_playing_for_real(kind: ObservationKind) -> None:
    envs = SokobanVectorEnv(NUM_ENVS, size=(6, 7), boxes=1, reverse_moves=(1, 1), observation=kind)
    model = envs.simulator()
    observation, _ = envs.reset(seed=3)
    output = model.root(torch.from_numpy(observation), torch.full((NUM_ENVS,), NO_ACTION))
    random = np.random.default_rng(3)
    for _ in range(60):
        actions = random.integers(0, 5, NUM_ENVS)
        observation, reward, terminated, _, info = envs.step(actions)
        if terminated.any():
            observation[terminated] = np.stack(list(info["final_obs"][terminated]))
        output = model.unroll(output.hidden, torch.from_numpy(actions))
        assert output.state is not None
        np.testing.assert_array_equal(output.state.numpy(), observation)
        np.testing.assert_allclose(output.reward.numpy(), reward, atol=1e-6)
        np.testing.assert_array_equal(output.termination.numpy(), terminated)
        planes = model.visible_hidden(output.hidden)
        assert tuple(planes.shape[1:]) == model.hidden_shape == (7, 6, 7)
        assert (planes.argmax(1) == output.hidden).all()
        assert torch.equal(output.policy, torch.full((NUM_ENVS, 5), 0.2))
        assert not output.value.any()
        if terminated.any():
            return
    pytest.fail("no level was solved")


def test_the_given_policy_and_value_are_asked_for_every_node() -> None:
    asked = []

    def policy_and_value(observation: torch.Tensor, last_action: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        asked.append((observation.clone(), last_action.clone()))
        return torch.eye(5)[: len(observation)], last_action.float()

    envs = SokobanVectorEnv(2)
    model = envs.simulator(policy_and_value)
    observation = torch.from_numpy(envs.reset(seed=0)[0])
    root = model.root(observation, torch.tensor([NO_ACTION, 3]))
    assert root.value.tolist() == [NO_ACTION, 3]
    node = model.unroll(root.hidden, torch.tensor([1, 2]))
    assert node.value.tolist() == [1, 2]
    assert torch.equal(node.policy, torch.eye(5)[:2])
    assert torch.equal(asked[0][0], observation)
    assert node.state is not None
    assert torch.equal(asked[1][0], node.state)


def test_both_environments_offer_the_simulator_and_it_declares_the_cpu() -> None:
    for env in (SokobanEnv(), SokobanVectorEnv(2), gym.make("thinker/Sokoban-v0").unwrapped):
        assert isinstance(env, OffersSimulator)
        model = env.simulator()
        assert isinstance(model, SokobanSimulator)
        assert isinstance(model, WorldModel)
        assert model.device == torch.device("cpu")
        assert model.num_actions == 5


@pytest.mark.parametrize("shape", [(), (7,), (3, 81, 80), (4, 80, 80), (7, 7, 7, 7)])
def test_other_observation_spaces_are_errors(shape: tuple[int, ...]) -> None:
    with pytest.raises(UnsupportedError, match="is not an observation space of thinker/Sokoban-v0"):
        SokobanSimulator(gym.spaces.Box(0, 1, shape, np.uint8))
