"""RLlib's PPO (its new API stack) on the Thinker-augmented MDP, with any number of processes that act.

    pip install "ray[rllib]==2.60.*" thinker          # in an environment of its own: RLlib pins its Gymnasium
    python examples/with_rllib.py --env CartPole-v1 --steps 4000 --env-runners 2

Every environment has a world model of its own, which is trained as it steps; RLlib sees an ordinary Gymnasium
environment. Steps are augmented steps: with a stage length of 5, four imaginary ones for every real one.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.ppo import PPOConfig
from ray.tune.registry import register_env

import thinker

NAME = "thinker"
ROLLOUT = 512
"""Augmented steps between two updates."""


def make(config: dict[str, Any]) -> gym.Env:
    """One augmented environment; ``config``: the arguments of `thinker.make`.

    The parts of its observation are joined to one vector, which RLlib's default network expects.
    """
    training = thinker.TrainerSettings(learning_rate=1e-3, warm_up_transitions=200)
    options = {"model": thinker.DualModelSpec(training=training), **config}
    return gym.wrappers.FlattenObservation(thinker.make(**options, num_envs=None))


def build(env_config: dict[str, Any], *, env_runners: int = 0, seed: int = 0) -> Algorithm:
    """PPO with the discount of the augmented MDP; ``env_runners`` processes act, 0: the main one."""
    register_env(NAME, make)
    probe = make(env_config)
    discount = probe.unwrapped.augmented_discount  # type: ignore[attr-defined]
    probe.close()
    config = (
        PPOConfig()
        .api_stack(enable_rl_module_and_learner=True, enable_env_runner_and_connector_v2=True)
        .environment(NAME, env_config=env_config)
        .env_runners(num_env_runners=env_runners, num_envs_per_env_runner=1)
        .learners(num_learners=0)
        .training(gamma=discount, lr=3e-4, train_batch_size_per_learner=ROLLOUT, minibatch_size=128, num_epochs=4)
        .debugging(seed=seed, log_level="ERROR")
    )
    return config.build_algo()


def train(algorithm: Algorithm, steps: int) -> list[dict[str, Any]]:
    """Train for at least ``steps`` augmented steps; returns the results of all iterations."""
    results: list[dict[str, Any]] = []
    while not results or results[-1]["num_env_steps_sampled_lifetime"] < steps:
        results.append(algorithm.train())
    return results


def main(arguments: Sequence[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description="RLlib's PPO on the Thinker-augmented MDP.")
    parser.add_argument("--env", default="CartPole-v1", help="the name of a Gymnasium environment")
    parser.add_argument("--steps", type=int, default=50_000, help="augmented steps, all environments together")
    parser.add_argument("--stage-length", type=int, default=5)
    parser.add_argument("--env-runners", type=int, default=0, help="processes that act; 0: the main one")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args(arguments)
    env_config = {"env": chosen.env, "stage_length": chosen.stage_length, "discount": 0.99, "seed": chosen.seed}
    algorithm = build(env_config, env_runners=chosen.env_runners, seed=chosen.seed)
    try:
        results = train(algorithm, chosen.steps)
    finally:
        algorithm.stop()
    for result in results:
        mean = result["env_runners"].get("episode_return_mean", float("nan"))
        print(f"{result['num_env_steps_sampled_lifetime']:>8.0f} augmented steps, mean return {mean:.1f}")
    return results


if __name__ == "__main__":
    main()
