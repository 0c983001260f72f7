"""Speed of the planners, beside mctx (batched search in JAX) on the same processor, and their cost beside a network.

    python -m benchmarks.planners                        # mcts; mctx is left out where it is not installed
    python -m benchmarks.planners --planner gumbel --envs 64
    python -m benchmarks.planners --run RUN              # the share outside the network with the model of a run

Both search the same model from the same roots, without noise: once a model of one small matrix multiplication, which
costs next to nothing, and once a small network. mctx is compiled before it is timed. Times are processor time, the
shortest of many searches, ours and mctx's in turns, so that other programs on the machine count as little as possible.
The last lines let the planner act in Sokoban with the untrained models of three presets, and say which share of the
time is not spent in the model's own calls. The model of `sokoban-quick` computes every board once and finds the others
in a table, so its calls are short; `sokoban-muzero` and `sokoban-dual` have networks that compute every node.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import thinker
from thinker import NodeOutput, planners
from thinker.runs.folder import RunFolder
from thinker.runs.load import load_run
from thinker.runs.run import Run

A = 5
DISCOUNT = 0.97
SPECS: dict[str, Callable[[int], planners.PlannerSpec]] = {
    "mcts": lambda simulations: planners.MCTSSpec(simulations=simulations),
    "gumbel": lambda simulations: planners.GumbelMCTSSpec(simulations=simulations),
}


@dataclasses.dataclass(frozen=True)
class Weights:
    """The last layer gives h', value, reward and logits, to which the action adds a vector; ReLU between layers."""

    action: np.ndarray  # [A, width + 2 + A] float32
    layers: list[np.ndarray]  # each [width, width] float32, the last one [width, width + 2 + A]

    @property
    def width(self) -> int:
        return len(self.layers[-1])

    @staticmethod
    def random(width: int, layers: int) -> Weights:
        random = np.random.default_rng(0)

        def normal(*shape: int, scale: float) -> np.ndarray:
            return (scale * random.normal(size=shape)).astype(np.float32)

        widths = [width] * (layers - 1) + [width + 2 + A]
        return Weights(normal(A, width + 2 + A, scale=0.5), [normal(width, n, scale=0.8 / width**0.5) for n in widths])


MODELS = {"free": Weights.random(8, 1), "network": Weights.random(256, 4)}


class TorchModel:
    """The model for our planners. A search starts as if action 0 had led to the observation, a hidden state."""

    num_actions = A

    def __init__(self, weights: Weights, num_envs: int) -> None:
        self._action, self._width = torch.from_numpy(weights.action), weights.width
        self._layers = [torch.from_numpy(layer) for layer in weights.layers]
        self._zeros = torch.zeros(num_envs)

    def root(self, observation: Tensor, last_action: Tensor) -> NodeOutput:
        output = self.unroll(observation, torch.zeros(len(observation), dtype=torch.int64))
        return dataclasses.replace(output, reward=self._zeros[: len(observation)])

    def unroll(self, hidden: Tensor, action: Tensor) -> NodeOutput:
        for layer in self._layers[:-1]:
            hidden = (hidden @ layer).relu_()
        found = torch.addmm(self._action.index_select(0, action), hidden, self._layers[-1])
        hidden, value, reward, logits = found.split((self._width, 1, 1, A), 1)
        zeros = self._zeros[: len(found)]
        return NodeOutput(hidden, value[:, 0], logits.softmax(1), reward[:, 0], zeros, None)


def mctx_search(mctx: Any, jax: Any, planner: str, weights: Weights, simulations: int) -> Callable[[Any], Any]:
    """The function (hidden [B, width]) -> mctx's result, compiled on first use."""
    jnp = jax.numpy
    action, width = jnp.asarray(weights.action), weights.width
    layers = [jnp.asarray(layer) for layer in weights.layers]

    def unroll(params: Any, key: Any, chosen: Any, hidden: Any) -> tuple[Any, Any]:
        for layer in layers[:-1]:
            hidden = jax.nn.relu(hidden @ layer)
        found = hidden @ layers[-1] + action[chosen]
        output = mctx.RecurrentFnOutput(
            reward=found[:, width + 1],
            discount=jnp.full(len(found), DISCOUNT),
            prior_logits=found[:, width + 2 :],
            value=found[:, width],
        )
        return output, found[:, :width]

    policy, quiet = {
        "mcts": (mctx.muzero_policy, {"dirichlet_fraction": 0.0}),
        "gumbel": (mctx.gumbel_muzero_policy, {"gumbel_scale": 0.0}),
    }[planner]

    def search(hidden: Any) -> Any:
        found, embedding = unroll((), None, jnp.zeros(len(hidden), int), hidden)
        root = mctx.RootFnOutput(prior_logits=found.prior_logits, value=found.value, embedding=embedding)
        return policy((), jax.random.PRNGKey(0), root, unroll, simulations, **quiet)

    return jax.jit(search)


def shortest_times(calls: list[Callable[[], object]], seconds: float) -> list[float]:
    """The shortest processor time of each call, taken in turns for ``seconds`` of processor time in all."""
    best = [float("inf")] * len(calls)
    for call in calls:
        call()
    end, rounds = time.process_time() + seconds, 0
    while rounds < 3 or time.process_time() < end:
        for which, call in enumerate(calls):
            start = time.process_time()
            call()
            best[which] = min(best[which], time.process_time() - start)
        rounds += 1
    return best


def line(name: str, num_envs: int, options: argparse.Namespace, jax: Any, mctx: Any) -> str:
    """Simulations per second of ours and of mctx, all environments counted."""
    weights = MODELS[name]
    roots = np.random.default_rng(1).normal(size=(num_envs, weights.width)).astype(np.float32)
    model, spec = TorchModel(weights, num_envs), SPECS[options.planner](options.simulations)

    def ours() -> planners.SearchResult:
        return planners.search(model, roots, spec, discount=DISCOUNT, greedy=True)

    calls: list[Callable[[], Any]] = [ours]
    if mctx is not None:
        search, hidden = mctx_search(mctx, jax, options.planner, weights, options.simulations), jax.numpy.asarray(roots)
        calls.append(lambda: jax.block_until_ready(search(hidden)))
    speeds = [num_envs * options.simulations / best for best in shortest_times(calls, options.seconds)]
    text = f"{name:<8} {num_envs:>5} {speeds[0]:>13,.0f}"
    if mctx is not None:
        theirs = np.asarray(calls[1]().search_tree.summary().visit_counts)
        same = (ours().visits == theirs).all(1).mean()
        text += f" {speeds[1]:>13,.0f} {speeds[0] / speeds[1]:>6.2f}x {same:>13.0%}"
    return text


class Timed:
    """A model that measures the processor time of its own calls."""

    def __init__(self, model: Any) -> None:
        self._model, self.num_actions = model, model.num_actions
        self.seconds = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def unroll(self, hidden: Tensor, action: Tensor) -> NodeOutput:
        start = time.process_time()
        output: NodeOutput = self._model.unroll(hidden, action)
        self.seconds += time.process_time() - start
        return output


def share_outside(run: Run, spec: planners.PlannerSpec, num_envs: int, real_steps: int) -> tuple[float, float]:
    """The share of the searches' time that is not the model's, and simulations per second, in play on real levels."""
    envs = run.settings.environment.held_out("validation", num_envs, num_envs)
    try:
        env = run.wrap(envs, stage_length=1)
        env.reset()
        model, whole, simulations = Timed(env.model), 0.0, 0
        for step in range(real_steps + 1):
            if step == 1:  # the first search compiles
                model.seconds, whole, simulations = 0.0, 0.0, 0
            start = time.process_time()
            result = spec.search(model, env.root_output, discount=env.discount, random=np.random.default_rng(step))
            whole += time.process_time() - start
            simulations += num_envs * result.simulations
            env.step(torch.from_numpy(np.stack((result.action, np.zeros_like(result.action)), 1)))
    finally:
        envs.close()
    return 1 - model.seconds / whole, simulations / whole


def runs_of(options: argparse.Namespace) -> dict[str, Run]:
    """The runs whose models are searched, by name."""
    if options.run is not None:
        return {options.run: load_run(RunFolder(options.root, options.run), device="cpu")}
    names = ("sokoban-quick", "sokoban-muzero", "sokoban-dual")
    return {f"{name}, untrained": thinker.build_run(thinker.preset(name), device="cpu") for name in names}


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--planner", choices=list(SPECS), default="mcts")
    parser.add_argument("--envs", type=int, nargs="+", default=[1, 16, 64, 256], help="environments (1 16 64 256)")
    parser.add_argument("--simulations", type=int, default=50, help="of each search (default 50)")
    parser.add_argument("--seconds", type=float, default=4.0, help="processor time for each line (default 4)")
    parser.add_argument("--models", choices=list(MODELS), nargs="*", default=list(MODELS))
    parser.add_argument("--real-steps", type=int, default=5, help="searches for the share outside the network; 0: none")
    parser.add_argument("--run", help="measure that share with the model of this run")
    parser.add_argument("--root", type=Path, default=Path("runs"), help="the folder of all runs")
    options = parser.parse_args(words)
    torch.set_num_threads(1)

    jax = mctx = None
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
    try:
        jax, mctx = importlib.import_module("jax"), importlib.import_module("mctx")
    except ImportError as error:
        print(f"without mctx: {error}; pip install -c constraints.txt -e '.[mctx]', for Python 3.11 or newer")
    print(f"{options.planner}, {options.simulations} simulations, {A} actions, simulations/s of processor time")
    print(f"model     envs {'ours':>13}" + ("" if mctx is None else f" {'mctx':>13}   ratio same searches"))
    for name in options.models:
        for num_envs in options.envs:
            print(line(name, num_envs, options, jax, mctx), flush=True)
    if options.real_steps:
        spec = SPECS[options.planner](options.simulations)
        for name, run in runs_of(options).items():
            share, speed = share_outside(run, spec, 64, options.real_steps)
            print(f"{name}, 64 environments: {share:.1%} of the time outside the model, {speed:,.0f} simulations/s")


if __name__ == "__main__":
    main()
