"""Random symmetries in the training of a world model: batches of a turned world, and exact state."""

from __future__ import annotations

import copy
import dataclasses

import gymnasium as gym
import numpy as np
import pytest
import torch

import thinker.envs  # noqa: F401 - registers the environments
from tests.world_model.replay_reference import assert_plain
from thinker.errors import UserError
from thinker.interfaces import RealTransition
from thinker.nn.sizes import TilesSize
from thinker.nn.symmetry import BoardSymmetries
from thinker.world_model.augmentation import SymmetricBatches
from thinker.world_model.batch import SequenceBatch
from thinker.world_model.build import build_dual
from thinker.world_model.replay import Replay
from thinker.world_model.trainer import ModelTrainer, TrainerSettings

NUM_ENVS = 4
SYMMETRIC = ("observation", "last_action", "action", "policy_target")  # what a symmetry changes


class Sokoban:
    """Random play on small boards, as transitions with random policies."""

    def __init__(self, seed: int = 0) -> None:
        self.envs = gym.make_vec("thinker/Sokoban-v0", NUM_ENVS, size=5, boxes=1, max_steps=9)
        self.space = self.envs.single_observation_space
        self.symmetries = BoardSymmetries(self.envs.metadata["board"], 5, channels_last=False)
        self.random = np.random.default_rng(seed)
        self.observation, _ = self.envs.reset(seed=seed)

    def step(self) -> RealTransition:
        action = self.random.integers(0, 5, NUM_ENVS)
        before = self.observation.copy()
        self.observation, reward, terminated, truncated, info = self.envs.step(action)
        following, ended = self.observation.copy(), terminated | truncated
        for row in np.flatnonzero(ended):
            following[row] = info["final_obs"][row]
        return RealTransition(
            observation=before,
            action=action,
            policy=self.random.dirichlet(np.ones(5), NUM_ENVS).astype(np.float32),
            root_value=self.random.normal(size=NUM_ENVS).astype(np.float32),
            reward=reward.astype(np.float32),
            terminated=terminated,
            truncated=truncated,
            next_observation=following,
            final_value=np.zeros(NUM_ENVS, np.float32),
            valid=np.ones(NUM_ENVS, bool),
        )

    def replay(self, seed: int = 0) -> Replay:
        return Replay(
            400,
            num_envs=NUM_ENVS,
            observation_space=self.space,
            num_actions=5,
            discount=0.9,
            unroll_length=3,
            seed=seed,
        )

    def turned(self, step: RealTransition, which: int) -> RealTransition:
        """The same step in the turned world."""
        symmetries = self.symmetries
        assert step.policy is not None
        return dataclasses.replace(
            step,
            observation=symmetries.observation(torch.from_numpy(step.observation), which).numpy(),
            next_observation=symmetries.observation(torch.from_numpy(step.next_observation), which).numpy(),
            action=symmetries.action(torch.from_numpy(step.action), which).numpy(),
            policy=symmetries.policy(torch.from_numpy(step.policy), which).numpy(),
        )


def sampled(replay: Replay, size: int = 16) -> SequenceBatch:
    batch = replay.sample(size, 0.4)
    return dataclasses.replace(batch, observation=batch.observation.clone())


@pytest.mark.parametrize("which", range(BoardSymmetries.COUNT))
def test_a_turned_batch_is_the_batch_of_a_turned_world(which: int) -> None:
    world = Sokoban()
    plain, turned = world.replay(), world.replay()
    for _ in range(60):
        step = world.step()
        plain.add(step)
        turned.add(world.turned(step, which))
    transform = SymmetricBatches(world.symmetries, world.space.shape, 5, seed=0)
    before, expected = sampled(plain), sampled(turned)
    known = before.reward_mask.bool()  # the actions after an episode's end are arbitrary
    assert not known.all()
    found = transform.transformed(before, torch.full((16,), which))
    for name, value in vars(expected).items():
        if name == "action":
            torch.testing.assert_close(found.action[known], expected.action[known])
        elif isinstance(value, torch.Tensor):
            torch.testing.assert_close(getattr(found, name), value, rtol=0, atol=0)
            assert getattr(found, name).dtype == value.dtype
    np.testing.assert_array_equal(found.index, expected.index)


def test_every_sequence_is_turned_by_itself_and_by_each_symmetry_equally_often() -> None:
    world = Sokoban()
    replay = world.replay()
    for _ in range(60):
        replay.add(world.step())
    batch = sampled(replay, 64)
    transform = SymmetricBatches(world.symmetries, world.space.shape, 5, seed=0)
    every = [transform.transformed(batch, torch.full((64,), which)) for which in range(8)]
    counts = np.zeros((64, 8))
    for _ in range(100):
        turned = transform(batch)
        same = np.array(
            [
                [
                    all(torch.equal(getattr(turned, name)[n], getattr(one, name)[n]) for name in SYMMETRIC)
                    for one in every
                ]
                for n in range(64)
            ]
        )
        assert (same.sum(1) == 1).all()  # policies are all different, so no board is its own image
        assert len(np.unique(same.argmax(1))) == 8
        counts += same
    np.testing.assert_allclose(counts.sum(0) / 6400, 1 / 8, atol=0.02)
    assert counts.max() < 35  # of 100, 12.5 expected


def make_trainer(world: Sokoban, *, symmetric: bool = True, seed: int = 0) -> ModelTrainer:
    settings = TrainerSettings(
        batch_size=8, unroll_length=3, warm_up_transitions=40, replay_ratio=2, learning_rate=1e-3
    )
    network = build_dual(world.space, 5, size=TilesSize(channels=8, state_reward_channels=4))
    symmetries = world.symmetries if symmetric else None
    return ModelTrainer(network, world.replay(), settings, 2_000, symmetries=symmetries, seed=seed)


def test_a_trainer_with_symmetries_goes_on_exactly_as_the_saved_one() -> None:
    world = Sokoban()
    trainer, fresh = make_trainer(world), make_trainer(world, seed=9)
    for _ in range(30):
        trainer.add(world.step())
    assert trainer.trained_transitions > 0
    state = copy.deepcopy(trainer.state_dict())
    assert_plain(state)
    fresh.load_state_dict(state)
    for _ in range(20):
        step = world.step()
        assert fresh.add(step) == trainer.add(step)


def test_symmetries_change_what_is_learned_and_their_seed_too() -> None:
    losses = []
    for symmetric, seed in ((False, 0), (True, 0), (True, 0), (True, 1)):
        world = Sokoban()
        trainer = make_trainer(world, symmetric=symmetric, seed=seed)
        for _ in range(30):
            metrics = trainer.add(world.step())
        losses.append(metrics["loss/state"])
    assert losses[1] == losses[2]
    assert len(set(losses)) == 3


def test_a_state_without_symmetries_does_not_fit_a_trainer_with_them() -> None:
    world = Sokoban()
    plain, symmetric = make_trainer(world, symmetric=False), make_trainer(world)
    for one, other in ((plain, symmetric), (symmetric, plain)):
        with pytest.raises(UserError, match="symmetries"):
            one.load_state_dict(copy.deepcopy(other.state_dict()))
