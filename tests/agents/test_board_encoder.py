"""The raw agent with the board model's network."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.fakes import NoiseEnvs, raw_env
from thinker.agents import RawAgentSpec
from thinker.agents.encoders import BoardEncoder
from thinker.augmented import ThinkerEnv
from thinker.envs.sokoban.vector_env import SokobanVectorEnv
from thinker.errors import UserError
from thinker.interfaces import NO_ACTION
from thinker.world_model.build import build_board
from thinker.world_model.no_model import NoModel

CPU = torch.device("cpu")


def boards(count: int = 6) -> tuple[SokobanVectorEnv, torch.Tensor]:
    env = SokobanVectorEnv(count, size=7, boxes=2)
    env.reset(seed=3)
    for step in range(6):
        observation = env.step(np.full(count, 1 + step % 4))[0]
    return env, torch.from_numpy(observation)


def test_it_computes_what_the_board_model_computes() -> None:
    env, observation = boards()
    model = build_board(env.single_observation_space, 5, board=env.metadata["board"], seed=4)
    encoder = BoardEncoder(env.single_observation_space, 5, env.metadata["board"])
    encoder.load_state_dict(
        {name: value for name, value in model.value_policy.state_dict().items() if not name.startswith("output.")}
    )
    expected = model.value_policy(model.codec.encode(observation)).features
    torch.testing.assert_close(encoder(observation, torch.full((6,), NO_ACTION)), expected)


def test_the_agent_trains_every_weight_and_sees_the_whole_board() -> None:
    env = ThinkerEnv(SokobanVectorEnv(3, size=7, boxes=2), NoModel(5, CPU), stage_length=1, observe=("real_state",))
    agent = RawAgentSpec(network_size="board").build(env, seed=0, device=CPU)
    encoder = agent.network.encoders["real_state"]
    _, observation = boards()
    features = encoder(observation, torch.full((6,), NO_ACTION))
    assert len(features.unique(dim=0)) == 6
    features.square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in encoder.parameters())


def test_other_observations_are_refused() -> None:
    with pytest.raises(UserError, match="network_size is 'board', but observations are not boards"):
        RawAgentSpec(network_size="board").build(raw_env(NoiseEnvs(2)), seed=0, device=CPU)
