"""Your own algorithm on the Thinker-augmented MDP: PPO in one file, on CartPole, with a world model that is learned.

    python examples/own_algorithm.py            # solves CartPole-v1 in a few minutes on one CPU core
    python examples/own_algorithm.py --quick    # half a minute, to see that it runs

To PPO the augmented MDP is an environment like any other. What it should know of it is marked with the word Thinker.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Categorical

import thinker

SOLVED = 475.0  # the mean return of 100 episodes at which Gymnasium calls CartPole-v1 solved


@dataclass(frozen=True)
class PPOSettings:
    """PPO's usual numbers. Lengths are in real steps: every real step is ``stage_length`` augmented steps."""

    real_steps: int = 120_000  # all environments together
    rollout_length: int = 32  # real steps of each environment between two updates
    epochs: int = 6
    minibatches: int = 8
    learning_rate: float = 1e-3  # annealed to 0
    gae_lambda: float = 0.98
    clip: float = 0.2
    value_cost: float = 0.5
    entropy_cost: float = 0.0
    reward_scale: float = 1.0  # choose it so that discounted returns are not much above 1


@dataclass
class Progress:
    """What `train` gives back: the policy, and what happened on the way."""

    policy: Policy
    real_steps: int = 0
    episode_returns: list[float] = field(default_factory=list)
    model_losses: list[dict[str, float]] = field(default_factory=list)  # after each rollout

    def mean_return(self, episodes: int = 100) -> float:
        """Of the latest episodes."""
        return float(np.mean(self.episode_returns[-episodes:])) if self.episode_returns else float("nan")


class Policy(nn.Module):
    """A perceptron over all parts of the augmented observation: one head for each kind of action, one for the value."""

    def __init__(self, env: thinker.ThinkerEnv, width: int = 128) -> None:
        super().__init__()
        inputs = sum(int(np.prod(space.shape)) for space in env.single_observation_space.values())  # type: ignore
        # The tree's returns grow as the agent learns, so inputs are scaled by their running mean and variance.
        self.scale = nn.BatchNorm1d(inputs, affine=False).eval()
        self.body = nn.Sequential(nn.Linear(inputs, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.value = nn.Linear(width, 1)
        # Thinker: acting in the world and searching in the model are different skills, hence heads of their own.
        self.real, self.imaginary, self.reset = (nn.Linear(width, n) for n in (env.num_actions, env.num_actions, 2))
        for head in (self.real, self.imaginary, self.reset):
            nn.init.zeros_(head.weight)  # all actions are alike at first

    @staticmethod
    def flat(observation: dict[str, Tensor]) -> Tensor:
        """All parts side by side, [E, inputs]."""
        return torch.cat([part.flatten(1).float() for part in observation.values()], 1)

    def scaled(self, inputs: Tensor) -> Tensor:
        scaled: Tensor = self.scale(inputs).clamp(-5, 5)
        return scaled

    def forward(self, inputs: Tensor, is_real: Tensor) -> tuple[Categorical, Categorical, Tensor]:
        """Inputs [B, inputs], whether the next step is real [B] -> primary action, reset action, value [B]."""
        hidden = self.body(self.scaled(inputs))
        primary = torch.where(is_real[:, None], self.real(hidden), self.imaginary(hidden))
        return Categorical(logits=primary), Categorical(logits=self.reset(hidden)), self.value(hidden).squeeze(1)

    @torch.no_grad()
    def value_of(self, observation: dict[str, Tensor]) -> Tensor:
        """The value [E] of augmented observations."""
        value: Tensor = self.value(self.body(self.scaled(self.flat(observation)))).squeeze(1)
        return value


def log_probability(primary: Categorical, reset: Categorical, actions: Tensor, is_real: Tensor) -> Tensor:
    """Of actions [B, 2]. Thinker: on real steps the reset action does nothing, so it has no part in it."""
    return primary.log_prob(actions[:, 0]) + reset.log_prob(actions[:, 1]) * ~is_real


def generalised_advantages(
    rewards: Tensor, ends: Tensor, values: Tensor, next_value: Tensor, discount: float, gae_lambda: float
) -> Tensor:
    """Advantages [T, E] of augmented steps like any others; ``next_value`` [E] is that of the state after the last."""
    advantages, advantage = torch.zeros_like(values), torch.zeros_like(next_value)
    for step in reversed(range(len(rewards))):
        going_on = 1 - ends[step]
        delta = rewards[step] + discount * next_value * going_on - values[step]
        advantage = delta + discount * gae_lambda * going_on * advantage
        advantages[step], next_value = advantage, values[step]
    return advantages


def ppo_loss(policy: Policy, batch: dict[str, Tensor], settings: PPOSettings) -> Tensor:
    """The clipped objective, the squared error of the values, and a price on being too sure too early."""
    primary, reset, value = policy(batch["inputs"], batch["is_real"])
    ratio = (log_probability(primary, reset, batch["actions"], batch["is_real"]) - batch["log"]).exp()
    clipped = ratio.clamp(1 - settings.clip, 1 + settings.clip)
    gain = torch.min(ratio * batch["advantage"], clipped * batch["advantage"]).mean()
    entropy = (primary.entropy() + reset.entropy() * ~batch["is_real"]).mean()
    value_loss = (value - batch["return"]).square().mean()
    return settings.value_cost * value_loss - settings.entropy_cost * entropy - gain


def train(
    env: thinker.ThinkerEnv,
    settings: PPOSettings,
    *,
    seed: int = 0,
    target_return: float = float("inf"),
    log: Callable[[str], None] = print,
) -> Progress:
    """PPO on any augmented environment, until the mean return of 100 episodes is ``target_return`` or steps run out."""
    torch.manual_seed(seed)
    policy = Policy(env)
    optimizer = torch.optim.Adam(policy.parameters(), lr=settings.learning_rate, eps=1e-5)
    progress = Progress(policy)
    length = settings.rollout_length * env.stage_length
    rollouts = max(1, settings.real_steps // (settings.rollout_length * env.num_envs))
    # Thinker: γ and λ are per real step; spread over the augmented steps, the horizons stay the same.
    discount, gae_lambda = env.augmented_discount, settings.gae_lambda ** (1 / env.stage_length)

    observation, info = env.reset(seed=seed)
    for rollout in range(rollouts):
        began = time.perf_counter()
        steps: dict[str, list[Tensor]] = {name: [] for name in ("inputs", "is_real", "actions", "log", "value")}
        rewards, ends = np.zeros((2, length, env.num_envs), np.float32)
        for step in range(length):
            inputs, is_real = policy.flat(observation), torch.tensor(info["next_is_real"])
            with torch.no_grad():
                primary, reset, value = policy(inputs, is_real)
            actions = torch.stack((primary.sample(), reset.sample()), 1)
            taken = (inputs, is_real, actions, log_probability(primary, reset, actions, is_real), value)
            for name, item in zip(steps, taken):
                steps[name].append(item)
            # Thinker: the base policy learns from the whole distribution, where it is given one.
            observation, reward, terminated, truncated, info = env.step(actions, policy=primary.probs)

            rewards[step] = reward * settings.reward_scale
            ends[step] = terminated | truncated
            for i in np.flatnonzero(ends[step]):
                progress.episode_returns.append(float(info["episode"]["r"][i]))
                if truncated[i] and not terminated[i]:  # the episode would have gone on from its last state
                    last = {name: part[None] for name, part in info["final_obs"][i].items()}
                    rewards[step, i] += discount * policy.value_of(last).item()
            progress.real_steps += int(is_real.sum())
        next_value = policy.value_of(observation)

        batch = {name: torch.cat(items) for name, items in steps.items()}
        values = torch.stack(steps["value"])
        ends_of, rewards_of = torch.from_numpy(ends), torch.from_numpy(rewards)
        advantages = generalised_advantages(rewards_of, ends_of, values, next_value, discount, gae_lambda).flatten()
        batch["return"] = advantages + batch["value"]
        batch["advantage"] = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        optimizer.param_groups[0]["lr"] = settings.learning_rate * (1 - rollout / rollouts)
        for _ in range(settings.epochs):
            for rows in torch.randperm(len(advantages)).chunk(settings.minibatches):
                optimizer.zero_grad()
                ppo_loss(policy, {name: items[rows] for name, items in batch.items()}, settings).backward()
                nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
                optimizer.step()
        policy.scale.train()(batch["inputs"])  # after the update, so that the ratios above were 1 at first
        policy.scale.eval()

        metrics = getattr(env.sink, "metrics", {})  # of the model's trainer; there is none beside a simulator
        losses = {name: value for name, value in metrics.items() if name.startswith("loss/")}
        progress.model_losses.append(losses)
        if rollout % 10 == 9 or rollout == rollouts - 1:
            speed = settings.rollout_length * env.num_envs / (time.perf_counter() - began)
            shown = "  ".join(f"{name.removeprefix('loss/')} {value:.3g}" for name, value in losses.items())
            log(
                f"{progress.real_steps:7d} real steps  return {progress.mean_return():6.2f}  "
                f"{speed:5.0f} real steps/s  model losses: {shown or 'no training yet'}"
            )
        if len(progress.episode_returns) >= 100 and progress.mean_return() >= target_return:
            break
    return progress


def make_cartpole(stage_length: int, seed: int, real_steps: int) -> thinker.ThinkerEnv:
    """The augmented CartPole: each real step comes after ``stage_length - 1`` steps in a model that is learned."""
    return thinker.make(
        "CartPole-v1",
        num_envs=32,
        stage_length=stage_length,
        max_depth=4,
        discount=0.99,
        observe=("tree", "real_state"),
        seed=seed,
        model=thinker.DualModelSpec(
            size=thinker.VectorSize(channels=64),
            training=thinker.TrainerSettings(learning_rate=1e-3, warm_up_transitions=1_000, replay_ratio=4),
        ),
        total_transitions=real_steps,
    )


def main(arguments: Sequence[str] | None = None, log: Callable[[str], None] = print) -> Progress:
    parser = argparse.ArgumentParser(description="PPO on the augmented CartPole, with a learned world model.")
    parser.add_argument("--quick", action="store_true", help="half a minute, to see that it learns")
    parser.add_argument("--stage-length", type=int, default=5, help="1: no planning")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args(arguments)
    settings = PPOSettings(real_steps=150_000, reward_scale=0.05)
    if chosen.quick:  # more updates from fewer steps: faster at first, less steady later
        settings = replace(settings, real_steps=15_000, rollout_length=8, minibatches=4)
    began = time.perf_counter()
    env = make_cartpole(chosen.stage_length, chosen.seed, settings.real_steps)
    progress = train(env, settings, seed=chosen.seed, target_return=SOLVED, log=log)
    env.close()
    solved = "solved" if progress.mean_return() >= SOLVED else "not solved yet"
    log(
        f"{solved}: mean return of the last 100 episodes {progress.mean_return():.1f} after {progress.real_steps} real "
        f"steps and {(time.perf_counter() - began) / 60:.1f} minutes"
    )
    return progress


if __name__ == "__main__":
    main()
