"""Where the limit of a trained Sokoban agent lies: its values, its world model, or its search. Nothing is trained.

    python -m benchmarks.limits RUN [--episodes 128] [--states 512] [--stage-lengths 8 60] [--out FILE]

The solver knows the shortest solution of every position of a level, so that on held-out validation levels

1. the base value v is compared with the return V* of the shortest solution, and actions with those that start a
   shortest solution: in states that the agent visits, and in states along the shortest solutions;
2. imaginary actions are drawn uniformly and the real action is the one with the highest max return of the root's
   children, with learned and with perfect values, in the learned model and in the perfect simulator;
3. the world model's boards, rewards and ends are compared with the real ones, in what the agent imagines and plays.

v is trained on the agent's own returns, so it lies below V* where the agent fails; explained variance ignores a
constant difference. An unsolvable state has V* = -0.01 / (1 - γ), although a box that is not stuck could still be
pushed onto a target. Step limits are ignored by V*. Boards that the model imagines with other walls, targets or numbers
of boxes and players than the level's are broken, and count as unsolvable where perfect values are used, as do boards of
levels with more positions than --max-positions.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from benchmarks.solver_probe import (
    HORIZON,
    Accuracy,
    Numbers,
    Played,
    Shadowed,
    UniformSearch,
    WithSolverValues,
    chosen_rows,
    play,
    roots,
    share,
)
from thinker.augmented import ThinkerEnv
from thinker.cli.options import RUNS
from thinker.envs.sokoban import engine
from thinker.envs.sokoban.solver import DEFAULT_MAX_POSITIONS, UNDECIDED, UNSOLVABLE, Solutions
from thinker.envs.sokoban.spec import SokobanSpec
from thinker.envs.sokoban.vector_env import SokobanVectorEnv
from thinker.errors import UserError
from thinker.interfaces import WorldModel
from thinker.runs import machine
from thinker.runs.evaluate import evaluate, evaluate_run
from thinker.runs.folder import RunFolder
from thinker.runs.load import load_run
from thinker.runs.run import Run
from thinker.world_model.simulator import simulator
from thinker.world_model.spec import NoModelSpec

MODELS = ("learned", "simulator")
VALUES = ("learned", "solver")

# ---------------------------------------------------------------------------------------------------------- measures


def measure_values(model: WorldModel, played: Played, solutions: Solutions, count: int, seed: int) -> Numbers:
    """Base value, base policy and the actor's actions against the solver, in at most ``count`` of the states."""
    rows = _sample(len(played.board), count, seed)
    boards = played.board[rows]
    output = roots(model, boards, played.last_action[rows])
    value = output.value.double().cpu().numpy()
    steps, best = solutions.steps(boards), solutions.values(boards)
    decided, solvable, dead = steps != UNDECIDED, steps > 0, steps == UNSOLVABLE
    optimal = solutions.optimal_actions(boards)
    each = np.arange(len(boards))

    def optimal_share(action: np.ndarray) -> float:
        return _mean(optimal[each, action], solvable)

    # The action with the highest reward + γ v(next state), played in the simulator.
    after = np.repeat(boards, engine.NUM_ACTIONS, 0)
    actions = np.tile(np.arange(engine.NUM_ACTIONS), len(boards))
    reward, solved = np.empty(len(after)), np.empty(len(after), np.bool_)
    engine.step_boards(after, actions, reward, solved)
    next_value = np.where(solved, 0.0, roots(model, after, actions).value.double().cpu().numpy())
    return {
        "states": len(boards),
        "undecided": float((~decided).mean()),
        "unsolvable": _mean(dead, decided),
        "steps_to_solve": _mean(steps, solvable),
        "explained_variance": _explained(best, value, decided),
        "explained_variance_solvable": _explained(best, value, solvable),
        "value_error": _mean(value - best, decided),
        "value_absolute_error": _mean(np.abs(value - best), decided),
        "value_error_solvable": _mean(value - best, solvable),
        "value_error_unsolvable": _mean(value - best, dead),
        "uniform_optimal": _mean(optimal.mean(1), solvable),
        "base_policy_optimal": optimal_share(output.policy.argmax(1).cpu().numpy()),
        "value_optimal": optimal_share((reward + solutions.discount * next_value).reshape(len(boards), -1).argmax(1)),
        "agent_optimal": optimal_share(played.chosen[rows]),
    }


def measure_real_play(model: WorldModel, played: Played, count: int, seed: int) -> Numbers:
    """The model's predictions of the `HORIZON` steps that follow at most ``count`` of the states."""
    accuracy, size = Accuracy(), len(played.board)
    rows = _sample(size, count, seed)
    output = roots(model, played.board[rows], played.last_action[rows])
    for depth in range(1, HORIZON + 1):
        with torch.no_grad():
            output = model.unroll(output.hidden, torch.from_numpy(played.action[rows]).to(output.hidden.device))
        following = np.minimum(rows + 1, size - 1)
        same = (played.episode[following] == played.episode[rows]) & (following > rows)
        known = same | played.terminated[rows]  # the boards after the last step of other episodes were not kept
        if known.any():
            shown = rows[known]
            ended, depths = played.terminated[shown], np.full(len(shown), depth)
            kept = chosen_rows(output, np.flatnonzero(known))
            after = played.board[following[known]]
            accuracy.add(kept, played.board[shown], after, played.reward[shown], ended, depths)
        if not same.any():
            break
        output = chosen_rows(output, np.flatnonzero(same))
        rows = following[same]
    return accuracy.numbers()


def probe(
    run: Run,
    *,
    episodes: int = 128,
    states: int = 512,
    stage_lengths: Sequence[int] = (8, 60),
    max_positions: int = DEFAULT_MAX_POSITIONS,
    seed: int = 0,
) -> dict[str, Any]:
    """All numbers of a trained run on its validation levels."""
    environment, search = run.settings.environment, run.search
    if not isinstance(environment, SokobanSpec) or environment.observation != "tiles":
        raise UserError(f"this run was trained on {environment}; expected Sokoban with tiles, as the solver needs")
    if isinstance(run.settings.model, NoModelSpec):
        raise UserError("this run has no model; expected one that predicts values and states")
    solutions = Solutions(search.discount, max_positions)
    num_envs = min(run.settings.evaluation.num_envs, episodes)

    def held_out() -> SokobanVectorEnv:
        return environment.held_out("validation", num_envs, episodes)

    def agent_play(lead: Solutions | None) -> tuple[Played, Shadowed]:
        envs = held_out()
        env = run.wrap(envs, keep_states=True, seed=seed)
        env.model = shadowed = Shadowed(env.model, envs)
        played = play(env, run.actor(env, "agent", seed=seed), episodes, lead)
        env.close()
        return played, shadowed

    def uniform_search(dynamics: str, values: str, stage_length: int) -> Numbers:
        envs = held_out()
        learned = run.model.for_envs(envs, predict_states=True)

        def learned_values(observation: Tensor, last_action: Tensor) -> tuple[Tensor, Tensor]:
            device = getattr(learned, "device", torch.device("cpu"))
            output = learned.root(observation.to(device), last_action.to(device))
            return output.policy.cpu(), output.value.cpu()

        model = learned if dynamics == "learned" else simulator(envs, learned_values if values == "learned" else None)
        if values == "solver":
            model = WithSolverValues(model, solutions)
        env = ThinkerEnv(
            envs,
            model,
            stage_length=stage_length,
            max_depth=search.max_depth,
            discount=search.discount,
            carry_tree=search.carry_tree,
            observe=("tree",),
            seed=seed,
        )
        result = evaluate(env, UniformSearch(env, seed), episodes)
        env.close()
        numbers = {"solved": _mean(result.success), "length": _mean(result.lengths)}
        print(f"{dynamics} model, {values} values, K = {stage_length}: {numbers['solved']:.3f}", file=sys.stderr)
        return numbers

    played, shadowed = agent_play(None)
    led, _ = agent_play(solutions)
    model = run.model.for_envs(held_out(), predict_states=True)
    base = evaluate_run(run, "base-policy", split="validation", episodes=episodes)
    uniform = {
        f"{dynamics} model, {values} values": {k: uniform_search(dynamics, values, k) for k in stage_lengths}
        for dynamics in MODELS
        for values in VALUES
    }
    result: dict[str, Any] = {
        "real_steps": run.real_steps,
        "stage_length": search.stage_length,
        "max_depth": search.max_depth,
        "discount": search.discount,
        "episodes": episodes,
        "values": {
            "visited": measure_values(model, played, solutions, states, seed),
            "solutions": measure_values(model, led, solutions, states, seed),
        },
        "solved": {"agent": _mean(played.solved), "base policy": _mean(base.success), "uniform": uniform},
        "model": {
            "imagined": shadowed.accuracy.numbers(),
            "played": measure_real_play(model, played, 8 * states, seed),
        },
    }
    return result | {"limit": limit(result)}


# ----------------------------------------------------------------------------------------------------------- verdict


def limit(result: dict[str, Any]) -> dict[str, Any]:
    """What the agent lacks to solve every level, divided among values, model and search, for each stage length.

    Values and model: what perfect ones add to the solve rate of uniform search, each in the mean of doing so before and
    after the other. Search: the rest, that is what uniform search lacks with both perfect, and how far it is ahead of
    the agent (negative where the agent searches better).
    """
    agent, uniform = result["solved"]["agent"], result["solved"]["uniform"]
    parts = {}
    for k in uniform["learned model, learned values"]:
        none, values, model, both = (uniform[f"{m} model, {v} values"][k]["solved"] for m in MODELS for v in VALUES)
        parts[k] = {
            "values": (values - none + both - model) / 2,
            "model": (model - none + both - values) / 2,
            "search": 1 - both + none - agent,
        }
    deepest = max(parts)
    return {"parts": parts, "verdict": max(parts[deepest], key=lambda name: parts[deepest][name])}


def verdict(result: dict[str, Any]) -> str:
    """The limit in one paragraph."""
    agent, uniform, visited = result["solved"]["agent"], result["solved"]["uniform"], result["values"]["visited"]
    found, parts = result["limit"]["verdict"], result["limit"]["parts"]
    deepest = max(parts)
    part, own = parts[deepest], uniform["learned model, learned values"][deepest]["solved"]
    perfect_values = uniform["learned model, solver values"][deepest]["solved"]
    perfect_model = uniform["simulator model, learned values"][deepest]["solved"]
    both = uniform["simulator model, solver values"][deepest]["solved"]
    imagined = result["model"]["imagined"]
    text = (
        f"Verdict: {found}. The agent solves {agent:.0%} of the levels with K = {result['stage_length']}. Uniform "
        f"search with K = {deepest} solves {own:.0%} with what was learned, {perfect_values:.0%} with the solver's "
        f"values, {perfect_model:.0%} with a perfect model and {both:.0%} with both. So the {1 - agent:.0%} that the "
        f"agent does not solve are divided into {part['values']:+.0%} for values, {part['model']:+.0%} for the model "
        f"and {part['search']:+.0%} for search. "
    )
    if found == "values":
        text += (
            f"In visited states the explained variance of v is {visited['explained_variance']:.2f}, and the best "
            f"action by v is optimal in {visited['value_optimal']:.0%} of the solvable ones, the base policy's in "
            f"{visited['base_policy_optimal']:.0%}, the agent's in {visited['agent_optimal']:.0%}; "
            f"{visited['unsolvable']:.0%} of the visited states are unsolvable."
        )
    elif found == "model":
        text += (
            f"Of the boards that the agent imagines, {imagined['exact_1']:.1%} are exact after one step "
            f"({imagined['exact_push']:.1%} if it pushes a box) and {imagined[f'exact_{HORIZON}']:.1%} after "
            f"{HORIZON}; {imagined['missed_ends']:.1%} of the ends are missed."
        )
    else:
        text += (
            f"Uniform search fails in {1 - both:.0%} even with both perfect, and solves {own - agent:+.0%} compared "
            f"with the agent with what was learned: the agent needs more or better imaginary steps."
        )
    return text


def table(result: dict[str, Any], name: str) -> Table:
    """All numbers; the columns change their meaning from section to section."""
    shown = Table(title=f"{name}, {result['real_steps']:,} real steps: {result['episodes']} validation levels")
    for heading, justify in (("", "left"), ("", "right"), ("", "right")):
        shown.add_column(heading, justify=justify)  # type: ignore[arg-type]

    def section(title: str, columns: Sequence[str], rows: dict[str, list[str]]) -> None:
        shown.add_row(f"[bold]{title}", *(f"[bold]{column}" for column in columns))
        for row, cells in rows.items():
            shown.add_row(f"  {row}", *cells)
        shown.add_section()

    values, model, solved = result["values"], result["model"], result["solved"]
    section(
        "values",
        ("visited", "along solutions"),
        {label: [shape.format(values[kind][key]) for kind in values] for key, label, shape in VALUE_ROWS},
    )
    uniform, parts = solved["uniform"], result["limit"]["parts"]
    rows = {kind: [f"{numbers[k]['solved']:.3f}" for k in parts] for kind, numbers in uniform.items()}
    for part in ("values", "model", "search"):
        rows[f"lacking because of {part}"] = [f"{parts[k][part]:+.3f}" for k in parts]
    section("solved by uniform search", [f"K = {k}" for k in parts], rows)
    section(
        "solved",
        ("", ""),
        {
            f"the agent, K = {result['stage_length']}": ["", f"{solved['agent']:.3f}"],
            "the base policy": ["", f"{solved['base policy']:.3f}"],
        },
    )
    section(
        "model",
        ("imagined", "played"),
        {label: [shape.format(model[kind][key]) for kind in model] for key, label, shape in MODEL_ROWS},
    )
    return shown


VALUE_ROWS = (
    ("states", "states", "{:,}"),
    ("undecided", "undecided by the solver", "{:.1%}"),
    ("unsolvable", "unsolvable, of the decided", "{:.1%}"),
    ("steps_to_solve", "steps to the solution", "{:.1f}"),
    ("explained_variance", "variance of V* explained by v", "{:.2f}"),
    ("explained_variance_solvable", "the same, solvable states", "{:.2f}"),
    ("value_error", "mean of v - V*", "{:+.2f}"),
    ("value_absolute_error", "mean of |v - V*|", "{:.2f}"),
    ("value_error_solvable", "mean of v - V*, solvable", "{:+.2f}"),
    ("value_error_unsolvable", "mean of v - V*, unsolvable", "{:+.2f}"),
    ("uniform_optimal", "optimal: a random action", "{:.1%}"),
    ("base_policy_optimal", "optimal: the base policy's best", "{:.1%}"),
    ("value_optimal", "optimal: the best by r + γ v", "{:.1%}"),
    ("agent_optimal", "optimal: the agent's real action", "{:.1%}"),
)
MODEL_ROWS = (
    ("steps", "steps compared", "{:,}"),
    ("exact_1", "exact boards after 1 step", "{:.2%}"),
    ("exact_push", "the same, if a box was pushed", "{:.2%}"),
    (f"exact_{HORIZON}", f"exact boards after {HORIZON} steps", "{:.2%}"),
    ("broken", "broken boards", "{:.2%}"),
    ("reward_error", "mean error of rewards", "{:.4f}"),
    ("missed_ends", "missed ends", "{:.2%}"),
    ("false_ends", "false ends", "{:.3%}"),
)

# ----------------------------------------------------------------------------------------------------------- helpers


def _sample(size: int, count: int, seed: int) -> np.ndarray:
    """At most ``count`` of ``size`` rows, ascending."""
    return np.sort(np.random.default_rng(seed).permutation(size)[:count])


def _mean(numbers: np.ndarray | None, where: np.ndarray | None = None) -> float:
    if numbers is None:
        return float("nan")
    kept = numbers if where is None else numbers[where]
    return share(float(kept.sum()), len(kept))


def _explained(target: np.ndarray, value: np.ndarray, where: np.ndarray) -> float:
    """The share of the variance of ``target`` that ``value`` explains; NaN if it does not vary."""
    if not where.any():
        return float("nan")
    return 1 - share(float((target - value)[where].var()), float(target[where].var()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", metavar="RUN", help="name of the run")
    parser.add_argument("--root", type=Path, default=RUNS, help=f"the folder of all runs (default {RUNS})")
    parser.add_argument("--episodes", type=int, default=128, help="validation levels (default 128)")
    parser.add_argument("--states", type=int, default=512, help="states in which values are compared (default 512)")
    parser.add_argument("--stage-lengths", type=int, nargs="+", default=(8, 60), help="K of uniform search (8 60)")
    parser.add_argument(
        "--max-positions",
        type=int,
        default=DEFAULT_MAX_POSITIONS,
        help=f"levels with more positions are undecided (default {DEFAULT_MAX_POSITIONS:,})",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, help="also write all numbers to this file, as JSON")
    options = parser.parse_args()
    machine.prepare(options.threads)
    result = probe(
        load_run(RunFolder(options.root, options.run)),
        episodes=options.episodes,
        states=options.states,
        stage_lengths=options.stage_lengths,
        max_positions=options.max_positions,
        seed=options.seed,
    )
    Console().print(table(result, options.run))
    print(verdict(result))
    if options.out:
        options.out.write_text(json.dumps({"run": options.run, **result, "text": verdict(result)}, indent=1) + "\n")


if __name__ == "__main__":
    main()
