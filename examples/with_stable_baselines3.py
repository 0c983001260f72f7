"""Stable-Baselines3's PPO on the Thinker-augmented MDP: one environment as it is, or many through a small adapter.

    python examples/with_stable_baselines3.py --view single --env CartPole-v1 --steps 2000
    python examples/with_stable_baselines3.py --view vector --env CartPole-v1 --steps 2000

Steps are augmented steps: with a stage length of 5, four imaginary ones for every real one.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecEnv

import thinker

MODELS: dict[str, thinker.ModelSpec] = {
    "learned": thinker.DualModelSpec(training=thinker.TrainerSettings(learning_rate=1e-3, warm_up_transitions=200)),
    "simulator": thinker.SimulatorSpec(),
}


class ThinkerVecEnv(VecEnv):
    """A `ThinkerEnv` as the vector environment that Stable-Baselines3 expects.

    Both begin the next episode in the step that ends one; only where the last observation lies differs. The
    ``episode`` statistics of `ThinkerEnv` pass through, so no VecMonitor is needed; their length is in real steps.
    """

    def __init__(self, env: thinker.ThinkerEnv) -> None:
        if env.output != "numpy":
            raise thinker.UserError(f"Stable-Baselines3 needs output='numpy', but this environment has {env.output!r}")
        self.env = env
        self._actions = np.zeros((env.num_envs, 2), np.int64)
        super().__init__(env.num_envs, env.single_observation_space, env.single_action_space)

    def reset(self) -> dict[str, np.ndarray]:
        options = self._options[0] or None  # the same for all environments
        observation, info = self.env.reset(seed=None if None in self._seeds else self._seeds, options=options)
        self.reset_infos = self._rows(info)
        self._reset_seeds()
        self._reset_options()
        return observation

    def step_async(self, actions: np.ndarray) -> None:
        self._actions = actions

    def step_wait(self) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray, list[dict[str, Any]]]:
        observation, reward, terminated, truncated, info = self.env.step(self._actions)
        done = terminated | truncated
        rows = self._rows(info)
        for i in np.flatnonzero(done):
            rows[i]["terminal_observation"] = rows[i].pop("final_obs")
            rows[i]["TimeLimit.truncated"] = bool(truncated[i] and not terminated[i])
        return observation, reward.astype(np.float32), done, rows

    def _rows(self, info: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Gymnasium's dict of arrays as one dict per environment; a mask ``_name`` says which of them have ``name``."""
        rows: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for name, value in info.items():
            if name.startswith("_"):
                continue
            values = self._rows(value) if isinstance(value, Mapping) else value
            for i in np.flatnonzero(info.get(f"_{name}", np.ones(self.num_envs, bool))):
                rows[i][name] = values[i]
        return rows

    def close(self) -> None:
        self.env.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [getattr(self.env, attr_name) for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise NotImplementedError("all environments are stepped as one: set the attribute on .env")

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        raise NotImplementedError("all environments are stepped as one: call the method on .env")

    def env_is_wrapped(self, wrapper_class: type, indices: Any = None) -> list[bool]:
        return [False for _ in self._get_indices(indices)]


def make(view: str, env_id: str, *, num_envs: int = 8, **options: Any) -> tuple[Any, float]:
    """The environment for Stable-Baselines3, and its discount; ``options`` go to `thinker.make`."""
    if view == "single":
        single = thinker.make(env_id, num_envs=None, **options)
        return single, single.vector_env.augmented_discount
    many = thinker.make(env_id, num_envs=num_envs, output="numpy", **options)
    return ThinkerVecEnv(many), many.augmented_discount


def train(
    env: Any, discount: float, steps: int, *, seed: int = 0, verbose: int = 0, callback: BaseCallback | None = None
) -> PPO:
    """PPO as it is, with the discount of the augmented MDP. A rollout is 512 steps of all environments together."""
    num_envs = getattr(env, "num_envs", 1)
    ppo = PPO(
        "MultiInputPolicy", env, gamma=discount, n_steps=512 // num_envs, batch_size=128, seed=seed, verbose=verbose
    )
    return ppo.learn(steps, callback=callback)


def main(arguments: Sequence[str] | None = None) -> PPO:
    parser = argparse.ArgumentParser(description="Stable-Baselines3's PPO on the Thinker-augmented MDP.")
    parser.add_argument("--view", choices=("single", "vector"), default="vector")
    parser.add_argument("--env", default="CartPole-v1", help="the name of a Gymnasium environment")
    parser.add_argument("--model", choices=MODELS, default="learned", help="the world model to search in")
    parser.add_argument("--steps", type=int, default=50_000, help="augmented steps, all environments together")
    parser.add_argument("--stage-length", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args(arguments)
    env, discount = make(
        chosen.view,
        chosen.env,
        model=MODELS[chosen.model],
        stage_length=chosen.stage_length,
        discount=0.99,
        seed=chosen.seed,
    )
    ppo = train(env, discount, chosen.steps, seed=chosen.seed, verbose=1)
    env.close()
    return ppo


if __name__ == "__main__":
    main()
