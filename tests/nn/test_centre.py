"""Centring of pictures: the running mean, and who updates it."""

import copy
from collections.abc import Callable

import gymnasium as gym
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from thinker.agents import AgentNetwork, ATreeCNetwork, I2ANetwork, RawNetwork, ThinkerNetwork
from thinker.agents.network import AgentInput
from thinker.interfaces import RealTransition
from thinker.nn.centre import RunningCentre
from thinker.nn.encoder import Architecture
from thinker.nn.sizes import SIZES
from thinker.world_model.acting import ActingCopy
from thinker.world_model.architecture import ModelArchitecture
from thinker.world_model.dual import DualNetwork
from thinker.world_model.replay import Replay
from thinker.world_model.trainer import ModelTrainer, TrainerSettings

PICTURES = gym.spaces.Box(0, 255, (4, 16, 16), np.uint8)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.integers(0, 100))
def test_the_first_batches_have_equal_weights(sizes: list[int], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    batches = [torch.rand(size, 2, 3, 3, generator=generator) for size in sizes]
    centre = RunningCentre((2, 3, 3))
    for batch in batches:
        centre.update(batch)
    torch.testing.assert_close(centre.mean.data, torch.stack([batch.mean(0) for batch in batches]).mean(0))


def test_what_stays_the_same_vanishes_and_the_rest_has_size_one() -> None:
    generator = torch.Generator().manual_seed(0)
    background = torch.rand(1, 16, 16, generator=generator)
    ball = torch.zeros(256, 1, 16, 16)
    ball.view(256, -1)[torch.arange(256), torch.arange(256)] = 0.3  # one pixel, at every place once
    centre = RunningCentre((1, 16, 16))
    for _ in range(50):
        centre.update(background + ball)
    seen = centre((background + ball).clone())
    assert float(seen.square().mean()) == pytest.approx(1, rel=0.05)
    assert (seen.flatten(1).argmax(1) == torch.arange(256)).all()  # the ball stands out
    assert float(centre(background.unsqueeze(0)).abs().max()) < 0.1 * float(seen.max())


def test_a_mean_that_never_changes_is_not_divided_by_zero() -> None:
    centre = RunningCentre((1, 4, 4))
    for _ in range(100):
        centre.update(torch.full((8, 1, 4, 4), 0.5))
    assert torch.isfinite(centre(torch.rand(2, 1, 4, 4))).all()


def test_only_small_networks_of_pictures_centre_them() -> None:
    for name in ("paper", "paper-stacked", "image-small", "image-small-stacked"):
        encoder = Architecture(PICTURES, 3, SIZES[name]).encoder()
        assert (encoder.centre is not None) == name.startswith("image-small")


def pictures(number: int, generator: np.random.Generator) -> np.ndarray:
    return generator.integers(0, 256, (number, *PICTURES.shape), dtype=np.uint8)


def trained(steps: int, *, num_envs: int = 3, resumed_after: int | None = None) -> ModelTrainer:
    """A trainer of a small dual network, and its acting copy, after some steps of noise."""

    def make() -> ModelTrainer:
        torch.manual_seed(0)
        model = DualNetwork(ModelArchitecture(PICTURES, 3, SIZES["image-small-stacked"]), "l2")
        settings = TrainerSettings(batch_size=4, unroll_length=2, warm_up_transitions=12, replay_ratio=4.0)
        replay = Replay(50, num_envs=num_envs, observation_space=PICTURES, num_actions=3, discount=0.9, unroll_length=2)
        return ModelTrainer(model, replay, settings, None, (ActingCopy(model, "bfloat16"),))

    generator, trainer = np.random.default_rng(0), make()
    zeros, never = np.zeros(num_envs, np.float32), np.zeros(num_envs, bool)
    before = pictures(num_envs, generator)
    for step in range(steps):
        after = pictures(num_envs, generator)
        trainer.add(
            RealTransition(
                observation=before,
                action=np.zeros(num_envs, np.int64),
                policy=np.full((num_envs, 3), 1 / 3, np.float32),
                root_value=zeros,
                reward=zeros,
                terminated=never,
                truncated=never,
                next_observation=after,
                final_value=zeros,
                valid=~never,
            )
        )
        before = after
        if step + 1 == resumed_after:
            state, trainer = copy.deepcopy(trainer.state_dict()), make()
            trainer.load_state_dict(state)
    return trainer


def centres(network: torch.nn.Module) -> list[RunningCentre]:
    return [module for module in network.modules() if isinstance(module, RunningCentre)]


def test_training_the_model_updates_the_mean_and_acting_copies_receive_it() -> None:
    trainer = trained(20)
    acting = trainer.acting[0].network
    assert len(centres(trainer.network)) == len(centres(acting)) == 2
    batches = trainer.trained_transitions // 8
    for ours, theirs in zip(centres(trainer.network), centres(acting)):
        assert int(ours.updates) == batches > 10
        assert 0.4 < float(ours.mean.mean()) < 0.6
        assert torch.equal(ours.mean, theirs.mean)  # not rounded, while convolutions are
        assert torch.equal(ours.mean_square, theirs.mean_square)
    assert acting.state_reward.encoder.first.action_weight.dtype == torch.bfloat16


def test_the_mean_is_resumed_exactly() -> None:
    whole, resumed = trained(20), trained(20, resumed_after=11)
    for name, value in whole.network.state_dict().items():
        assert torch.equal(value, resumed.network.state_dict()[name]), name


def test_weights_without_a_centre_can_be_loaded() -> None:
    network = RawNetwork(PICTURES, 3)
    centre = network.encoders["real_state"].encoder.centre
    saved = {name: value for name, value in network.state_dict().items() if ".centre." not in name}
    centre.update(torch.rand(5, 4, 16, 16))
    network.load_state_dict(saved)
    frames = torch.rand(5, 4, 16, 16)
    assert torch.equal(centre(frames), frames)
    centre.update(frames)
    assert float(centre.mean.max()) < 0.01  # which changes slowly, as late in a run


AGENTS: dict[str, Callable[[], AgentNetwork]] = {
    "raw": lambda: RawNetwork(PICTURES, 3),
    "thinker": lambda: ThinkerNetwork({"real_state": PICTURES}, 3, None, reward_names=("real",)),
    "atreec": lambda: ATreeCNetwork(PICTURES, 3, discount=0.9),
    "i2a": lambda: I2ANetwork(PICTURES, 3, length=2, width=8),
}


@pytest.mark.parametrize("name", AGENTS)
def test_the_agents_mean_changes_with_its_other_scales(name: str) -> None:
    network = AGENTS[name]()
    (centre,) = centres(network)
    observation = torch.randint(0, 256, (2, 5, 4, 16, 16), dtype=torch.uint8)
    given_ = AgentInput(
        {"real_state": observation},
        torch.zeros(2, 5, dtype=torch.bool),
        torch.ones(2, 5, dtype=torch.bool),
        torch.zeros(2, 5, 3, dtype=torch.int64),
        torch.zeros(2, 5, 1),
    )
    if name != "i2a":  # which also needs rollouts
        network(given_, network.initial_memory(5))
    assert int(centre.updates) == 0
    network.update_scales(given_)
    assert int(centre.updates) == 1
    torch.testing.assert_close(centre.mean.data, observation.flatten(0, 1).float().mean(0) / 255)
