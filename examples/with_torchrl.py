"""TorchRL's PPO on the Thinker-augmented MDP: a collector, generalised advantages and the clipped loss.

    pip install torchrl thinker
    python examples/with_torchrl.py --env CartPole-v1 --steps 4000

Steps are augmented steps: with a stage length of 5, four imaginary ones for every real one.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from tensordict.nn import TensorDictModule
from torch import nn
from torch.distributions import Categorical
from torchrl.collectors import Collector
from torchrl.envs.libs.gym import GymWrapper
from torchrl.modules import ProbabilisticActor, ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE

import thinker

ROLLOUT, BATCH, EPOCHS, WIDTH = 512, 128, 4, 64


class JointActions(gym.ActionWrapper):
    """The primary and the reset action as one number, 2 primary + reset: one categorical distribution is enough."""

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        (num_actions, resets) = env.action_space.nvec  # type: ignore[attr-defined]
        self.action_space = gym.spaces.Discrete(int(num_actions * resets))

    def action(self, action: Any) -> np.ndarray:
        return np.array(divmod(int(action), 2))


def make(**options: Any) -> tuple[GymWrapper, float]:
    """The environment for TorchRL, and its discount; ``options`` are the arguments of `thinker.make`.

    The parts of its observation are joined to one vector.
    """
    single = thinker.make(**options, num_envs=None)
    env = gym.wrappers.FlattenObservation(JointActions(single))
    return GymWrapper(env, categorical_action_encoding=True), single.augmented_discount


class PPO:
    """An actor and a critic of two layers each, and how they are trained."""

    def __init__(self, env: GymWrapper, discount: float, *, seed: int = 0) -> None:
        torch.manual_seed(seed)
        inputs, outputs = env.observation_spec["observation"].shape[-1], env.action_spec.space.n
        logits = TensorDictModule(_network(inputs, outputs), in_keys=["observation"], out_keys=["logits"])
        self.actor = ProbabilisticActor(
            logits, in_keys=["logits"], distribution_class=Categorical, spec=env.action_spec, return_log_prob=True
        )
        self.critic = ValueOperator(_network(inputs, 1), in_keys=["observation"])
        self.advantage = GAE(gamma=discount, lmbda=0.95, value_network=self.critic)
        self.loss = ClipPPOLoss(self.actor, self.critic, clip_epsilon=0.2, entropy_coeff=0.01)
        self.optimiser = torch.optim.Adam(self.loss.parameters(), lr=3e-4)

    def update(self, rollout: Any) -> dict[str, float]:
        """Several passes over a rollout in batches; returns the losses of the last batch."""
        with torch.no_grad():
            self.advantage(rollout)
        rollout = rollout.reshape(-1)
        losses: dict[str, float] = {}
        for _ in range(EPOCHS):
            for batch in torch.randperm(len(rollout)).split(BATCH):
                output = self.loss(rollout[batch])
                losses = {name: float(output[name].detach()) for name in output.keys() if name.startswith("loss_")}  # noqa: SIM118
                total = output["loss_objective"] + output["loss_critic"] + output["loss_entropy"]
                self.optimiser.zero_grad()
                total.backward()
                nn.utils.clip_grad_norm_(self.loss.parameters(), 0.5)
                self.optimiser.step()
        return losses


def _network(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(
        nn.Linear(inputs, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, outputs)
    )


def train(env: GymWrapper, discount: float, steps: int, *, seed: int = 0) -> list[dict[str, float]]:
    """Train for ``steps`` augmented steps; returns the losses and the mean reward of every rollout."""
    ppo = PPO(env, discount, seed=seed)
    collector = Collector(env, ppo.actor, frames_per_batch=ROLLOUT, total_frames=-(-steps // ROLLOUT) * ROLLOUT)
    results = []
    for rollout in collector:
        reward = rollout["next", "reward"].sum() / rollout["next", "done"].sum().clamp(min=1)
        results.append({**ppo.update(rollout), "return": float(reward), "steps": rollout.numel()})
    collector.shutdown()
    return results


def main(arguments: Sequence[str] | None = None) -> list[dict[str, float]]:
    parser = argparse.ArgumentParser(description="TorchRL's PPO on the Thinker-augmented MDP.")
    parser.add_argument("--env", default="CartPole-v1", help="the name of a Gymnasium environment")
    parser.add_argument("--steps", type=int, default=50_000, help="augmented steps")
    parser.add_argument("--stage-length", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args(arguments)
    model = thinker.DualModelSpec(training=thinker.TrainerSettings(learning_rate=1e-3, warm_up_transitions=200))
    env, discount = make(env=chosen.env, model=model, stage_length=chosen.stage_length, discount=0.99, seed=chosen.seed)
    results = train(env, discount, chosen.steps, seed=chosen.seed)
    for number, result in enumerate(results, 1):
        print(f"{number * ROLLOUT:>8} augmented steps, mean return about {result['return']:.1f}")
    return results


if __name__ == "__main__":
    main()
