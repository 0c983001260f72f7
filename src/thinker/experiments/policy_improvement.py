"""One step of policy improvement with a fixed base policy (the paper's appendix H).

The world model consists of the true dynamics and a given base policy with its value, slightly better than random play
and never trained. Three kinds of operators improve it: exhaustive search, Monte Carlo tree search, and agents that
learn to search and see nothing but the tree. All of them play the same test episodes.

OUT/config.json                settings that all parts depend on
OUT/runs/                      training runs: the base policy, and the agents
OUT/base-policy.safetensors    the frozen base policy and value
OUT/evaluations/NAME.json      the episodes of one actor
OUT/memory.json                memory of the search trees
OUT/results.json, report.md, figure.png

Everything is written when it is finished, so the same command continues where it was stopped.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from thinker.agents import ThinkerAgentSpec
from thinker.errors import UserError
from thinker.experiments.experiment import changed
from thinker.experiments.tree_memory import agent_tree_kib, planner_tree_kib
from thinker.planners import ExhaustiveSpec, MCTSSpec, PlannerSpec
from thinker.runs.build import build_run
from thinker.runs.evaluate import evaluate_run
from thinker.runs.folder import RunFolder, config_differences, write_json
from thinker.runs.load import load_run
from thinker.runs.metrics import STEP, read_metrics
from thinker.runs.presets import SIMULATOR_PRESET, preset
from thinker.runs.run import Run, Who
from thinker.runs.settings import RunSettings
from thinker.runs.train import train
from thinker.world_model.build import ValueNetwork
from thinker.world_model.frozen import FrozenValuesSimulatorSpec, save_values
from thinker.world_model.spec import LearnedValuesSimulatorSpec, ModelSpec, SimulatorSpec

Kind = Literal["random", "base-policy", "exhaustive", "mcts", "agent"]
BASE_RUN = "base-policy"
SPLIT: Literal["test"] = "test"
_POINTS_OF_A_CURVE, _EPISODES_OF_A_POINT = 8, 128  # evaluations of an agent in training


@dataclass(frozen=True)
class ImprovementSettings:
    """What is compared, and how long agents are trained."""

    out: Path  # the folder of all results
    preset: str = SIMULATOR_PRESET  # environment, agent and value-policy network; its model must be a simulator
    changes: Mapping[str, Any] = field(default_factory=dict)  # of the preset's settings, by dotted names
    stage_lengths: tuple[int, ...] = (5, 10, 20, 40)  # K of the agents
    depths: tuple[int, ...] = (1, 2, 3, 4, 5)  # n of the exhaustive searches
    simulations: tuple[int, ...] = (5, 10, 20, 40, 60, 120, 250, 1000)  # of the Monte Carlo tree searches
    seeds: tuple[int, ...] = (0, 1, 2)  # of the agents; one agent for each seed and K
    real_steps: int = 100_000  # of training of each agent
    base_steps: int = 20_000  # real steps of training of the base policy
    base_seed: int = 0  # of that training
    episodes: int = 2_000  # test episodes of each evaluation
    threads: int = 0  # of PyTorch; 0: one per core

    def __post_init__(self) -> None:
        for name in ("real_steps", "base_steps", "episodes"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} is {getattr(self, name)}; it must be at least 1")
        for name, least in (("stage_lengths", 2), ("depths", 1), ("simulations", 1), ("seeds", 0)):
            values = getattr(self, name)
            for value in values:
                if value < least:
                    raise UserError(f"{name} has {value}; they must be at least {least}")
            if len(set(values)) != len(values):
                raise UserError(f"{name} is {' '.join(map(str, values))}; every value can be given only once")
        settings = self.changed_preset
        if not isinstance(settings.model, LearnedValuesSimulatorSpec):
            raise UserError(
                f"the model of the preset {self.preset} is {type(settings.model).__name__}, but the base policy must "
                f"be trained with the true dynamics; use a preset with LearnedValuesSimulatorSpec, such as "
                f"{SIMULATOR_PRESET}"
            )
        if not isinstance(settings.agent, ThinkerAgentSpec):
            raise UserError(
                f"the agent of the preset {self.preset} is {type(settings.agent).__name__}, which does not learn to "
                f"search; use a preset with ThinkerAgentSpec, such as {SIMULATOR_PRESET}"
            )

    @property
    def changed_preset(self) -> RunSettings:
        """The settings that all trainings start from."""
        settings: RunSettings = changed(preset(self.preset), self.changes)
        return settings

    @property
    def weights(self) -> Path:
        """The file of the base policy. Absolute, as it is a setting of the agents' runs."""
        return self.out.resolve() / "base-policy.safetensors"

    def base_run(self) -> RunSettings:
        """Training of the base policy: a short run of the preset, whose value-policy network is kept."""
        return self._training(self.changed_preset, self.base_steps, self.base_seed)

    def agent_run(self, stage_length: int, seed: int, model: ModelSpec | None = None) -> RunSettings:
        """Training of an agent that sees only the tree, without a limit on the depth of its search.

        ``model``: default: the true dynamics with the frozen base policy.
        """
        settings = self.changed_preset
        assert isinstance(settings.model, LearnedValuesSimulatorSpec)
        assert isinstance(settings.agent, ThinkerAgentSpec)
        return dataclasses.replace(
            self._training(settings, self.real_steps, seed),
            search=dataclasses.replace(
                settings.search, stage_length=stage_length, max_depth=None, observe=("tree",), mask=(), extra=()
            ),
            model=model or FrozenValuesSimulatorSpec.frozen(settings.model, self.weights),
            agent=dataclasses.replace(settings.agent, tree_mask_probability=0.0),  # it always thinks for K steps
            evaluation=dataclasses.replace(
                settings.evaluation,
                every=max(1, self.real_steps // _POINTS_OF_A_CURVE),
                episodes=min(_EPISODES_OF_A_POINT, settings.evaluation.episodes),
            ),
        )

    def _training(self, settings: RunSettings, real_steps: int, seed: int) -> RunSettings:
        return dataclasses.replace(
            settings,
            seed=seed,
            real_steps=real_steps,
            annealing_steps=None,
            exploration_steps=0,
            threads=self.threads,
        )

    def shared(self) -> dict[str, Any]:
        """The settings that must be the same whenever the command is repeated with this folder."""
        agents = self.agent_run(2, 0).to_dict()
        agents["model"]["weights"] = self.weights.name
        for place, name in ((agents, "seed"), (agents["search"], "stage_length")):
            del place[name]  # agents differ in these
        return {"preset": self.preset, "base_policy": self.base_run().to_dict(), "agents": agents}


@dataclass(frozen=True)
class Played:
    """One actor in the comparison."""

    kind: Kind
    budget: int = 0  # K of an agent, depth of an exhaustive search, simulations; 0 for those without search
    seed: int | None = None  # of an agent's training

    @property
    def name(self) -> str:
        """Of the file with its episodes, and of an agent's run."""
        parts = [self.kind, *([str(self.budget)] if self.budget else [])]
        return "-".join(parts if self.seed is None else [*parts, "seed", str(self.seed)])

    @property
    def label(self) -> str:
        """Who it is, for people."""
        if self.kind == "exhaustive":
            return f"{self.budget}-step exhaustive search"
        if self.kind == "mcts":
            return f"MCTS, {self.budget} simulations"
        if self.kind == "agent":
            return f"agent, K = {self.budget}" + ("" if self.seed is None else f", seed {self.seed}")
        return "random play" if self.kind == "random" else "base policy"

    def who(self) -> Who | PlannerSpec:
        """As `evaluate_run` needs it."""
        if self.kind == "exhaustive":
            return ExhaustiveSpec(depth=self.budget)
        if self.kind == "mcts":
            return MCTSSpec(simulations=self.budget)
        return "agent" if self.kind == "agent" else "base-policy"


class Improvement:
    """Makes the parts that do not exist yet, one after the other.

    Args:
        settings: what to compare.
        tell: called with a line of text when a part begins or ends.
        on_episodes: called during evaluations with the number of episodes played.
    """

    def __init__(
        self,
        settings: ImprovementSettings,
        *,
        tell: Callable[[str], object] = print,
        on_episodes: Callable[[int], object] | None = None,
    ) -> None:
        self.settings = settings
        self._tell, self._on_episodes = tell, on_episodes
        self._planning_run: Run | None = None

    def run(self) -> dict[str, Any]:
        """Make everything and return the content of results.json, without the statements."""
        self._open()
        self._make_base_policy()
        evaluations = {who.name: self._evaluation(who) for who in self.without_training()}
        for who in self.agents():
            settings = self.settings.agent_run(who.budget, who.seed or 0)
            train(settings, self._runs, who.name, preset=self.settings.preset)
            evaluations[who.name] = self._evaluation(who)
        return {
            "command": "thinker improve",
            "settings": {
                **{one.name: getattr(self.settings, one.name) for one in dataclasses.fields(self.settings)},
                "out": self.settings.out.name,
                "changes": sorted(self.settings.changes),
                "split": SPLIT,
                "evaluation_seed": self.settings.changed_preset.evaluation.seed,
                **self.settings.shared(),
            },
            "versions": {"thinker": version("thinker"), "torch": torch.__version__, "numpy": np.__version__,
                         "python": sys.version.split()[0]},
            "memory": self._memory(),
            "evaluations": evaluations,
            "curves": {who.name: self._curve(who) for who in self.agents()},
            "training_core_minutes": {who.name: self._core_minutes(who) for who in self.agents()},
        }  # fmt: skip

    def without_training(self) -> Iterator[Played]:
        """All actors that need nothing but the base policy."""
        yield Played("random")
        yield Played("base-policy")
        for depth in self.settings.depths:
            yield Played("exhaustive", depth)
        for simulations in self.settings.simulations:
            yield Played("mcts", simulations)

    def agents(self) -> Iterator[Played]:
        """The agents; all stage lengths of one seed before the next seed."""
        for seed in self.settings.seeds:
            for stage_length in self.settings.stage_lengths:
                yield Played("agent", stage_length, seed)

    @property
    def _runs(self) -> Path:
        return self.settings.out / "runs"

    def _open(self) -> None:
        """Create the folder, or check that its parts were made with the same settings."""
        path = self.settings.out / "config.json"
        shared = json.loads(json.dumps(self.settings.shared()))
        if path.exists():
            differences = config_differences(json.loads(path.read_text(encoding="utf-8")), shared)
            if differences:
                changes = "; ".join(f"{name} was {old}, and now is {new}" for name, (old, new) in differences.items())
                raise UserError(
                    f"{self.settings.out} has results that were made with other settings: {changes}. Repeat the "
                    f"command with the old settings, or choose another folder with --out"
                )
            return
        try:
            (self.settings.out / "evaluations").mkdir(parents=True, exist_ok=True)
            write_json(path, shared)
        except OSError as error:
            raise UserError(f"cannot write to {self.settings.out}: {error}; choose another folder: --out") from error

    def _make_base_policy(self) -> None:
        """Train the base policy and save it, if that has not been done."""
        if self.settings.weights.exists():
            return
        train(self.settings.base_run(), self._runs, BASE_RUN, preset=self.settings.preset)
        trainer = load_run(RunFolder(self._runs, BASE_RUN)).trainer
        assert trainer is not None
        assert isinstance(trainer.network, ValueNetwork)
        save_values(trainer.network, self.settings.weights)

    def _run_of(self, who: Played) -> Run:
        """The run in which ``who`` acts."""
        if who.kind == "agent":
            return load_run(RunFolder(self._runs, who.name))
        if who.kind == "random":
            return build_run(self.settings.agent_run(2, 0, SimulatorSpec()))
        if self._planning_run is None:
            model = self.settings.agent_run(2, 0).model
            assert isinstance(model, FrozenValuesSimulatorSpec)
            fast = dataclasses.replace(model, keep_values="always")
            self._planning_run = build_run(self.settings.agent_run(2, 0, fast))
        return self._planning_run

    def _evaluation(self, who: Played) -> dict[str, Any]:
        """The test episodes of ``who``; read from its file if they have been played."""
        path = self.settings.out / "evaluations" / f"{who.name}.json"
        saved = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        if saved.get("episodes") == self.settings.episodes:
            return saved
        run = self._run_of(who)
        self._tell(f"{who.label}: {self.settings.episodes:,} episodes ...")
        start = time.process_time()
        result = evaluate_run(
            run, who.who(), split=SPLIT, episodes=self.settings.episodes, on_episodes=self._on_episodes
        )
        evaluation = {
            **dataclasses.asdict(who),
            "episodes": self.settings.episodes,
            "simulations": who.budget - 1 if who.kind == "agent" else result.simulations or 0,
            "mean_return": float(result.returns.mean()),
            "solved": None if result.success is None else float(result.success.mean()),
            "core_seconds": time.process_time() - start,
            "returns": result.returns.tolist(),
            "lengths": result.lengths.tolist(),
        }
        write_json(path, evaluation)
        self._tell(f"{who.label}: mean return {evaluation['mean_return']:.2f}")
        return evaluation

    def _curve(self, who: Played) -> dict[str, list[float]]:
        """The mean returns of an agent on validation episodes, in training and at its end.

        Training episodes may have another limit of steps, so their returns cannot be compared with those of others.
        """
        lines = read_metrics(self._runs / who.name)
        points = [(line[STEP], line["eval/return"]) for line in lines if "eval/return" in line]
        return {"real_steps": [step for step, _ in points], "return": [value for _, value in points]}

    def _core_minutes(self, who: Played) -> float:
        """Of the training of an agent, without evaluations."""
        summary = RunFolder(self._runs, who.name).read_summary() or {}
        return float(summary["time/core_minutes"])

    def _memory(self) -> dict[str, float]:
        """KiB of the search tree of one environment, for every agent and planner; measured once for each."""
        path = self.settings.out / "memory.json"
        saved: dict[str, float] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        for stage_length in self.settings.stage_lengths:
            name = Played("agent", stage_length).name
            if name not in saved:
                saved[name] = agent_tree_kib(build_run(self.settings.agent_run(stage_length, 0)))
        for who in self.without_training():
            planner = who.who()
            if isinstance(planner, PlannerSpec) and who.name not in saved:
                saved[who.name] = planner_tree_kib(self._run_of(who), planner)
        write_json(path, saved)
        return saved
