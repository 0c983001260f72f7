"""All settings of a training run in one dataclass: the single source for presets, command line and checkpoints."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, get_type_hints, runtime_checkable

import torch
from gymnasium.vector import VectorEnv

from thinker.augmented import Extra, FeatureGroup, Observe, ThinkerEnv
from thinker.envs.spec import EnvironmentSpec
from thinker.errors import UserError
from thinker.interfaces import Actor
from thinker.runs import registry
from thinker.runs.machine import Device
from thinker.world_model.spec import BuiltModel, LearnedSpec, ModelSpec, NoModelSpec


class AgentLearner(Protocol):
    """Trains an agent on the trajectories of its actors."""

    def learn(self, trajectory: Any, progress: float) -> dict[str, float]:
        """Learn from one trajectory; ``progress``, 0 .. 1, is the fraction of the run completed. Returns metrics."""
        ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class Agent(Protocol):
    """An agent built from its spec: it creates actors, and it may learn."""

    @property
    def unroll_stages(self) -> int:
        """The number of stages between two updates."""
        ...

    @property
    def learner(self) -> AgentLearner | None:
        """None for planners that do not learn."""
        ...

    def actor(self, env: ThinkerEnv, *, seed: int, greedy: bool = False, trajectory: Any = None) -> Actor:
        """An actor for ``env``; it writes its steps to ``trajectory`` if given."""
        ...

    def trajectory(self, env: ThinkerEnv) -> Any:
        """Storage for one unroll of ``env``, or None if nothing is learned."""
        ...


ActsIn = Literal["augmented", "raw", "raw-with-model", "raw-with-states"]
"""Where an agent acts: in the augmented MDP, in the raw MDP, or in the raw MDP with a model that it searches by itself.

In the raw MDP there are only real steps. "raw-with-states": the agent also needs the states that the model predicts."""


@runtime_checkable
class AgentSpec(Protocol):
    """The settings of an agent: a learned agent or a planner."""

    def acts_in(self) -> ActsIn:
        """Where it acts."""
        ...

    def build(self, env: ThinkerEnv, *, seed: int, device: torch.device) -> Agent:
        """Build the agent for ``env``."""
        ...


@dataclass(frozen=True)
class SearchSettings:
    """The augmented MDP; see `thinker.ThinkerEnv`."""

    stage_length: int = 10  # K: augmented steps per real step, including the real step
    max_depth: int | None = 5  # L: depth at which a reset to the root is forced
    discount: float = 0.97  # γ of the real MDP
    carry_tree: bool = True  # keep the subtree below the real action for the next stage
    observe: tuple[Observe, ...] = ("tree", "hidden")  # the agent's observations
    mask: tuple[FeatureGroup, ...] = ()  # features of the tree that are set to zero
    extra: tuple[Extra, ...] = ()  # features added to the tree

    def build(
        self, envs: VectorEnv, model: BuiltModel, *, device: torch.device, keep_states: bool = False, **options: Any
    ) -> ThinkerEnv:
        """The augmented MDP of ``envs``; ``options`` are further arguments of `ThinkerEnv`."""
        return ThinkerEnv(
            envs,
            model.for_envs(envs, predict_states=keep_states or "predicted_state" in self.observe),
            stage_length=self.stage_length,
            max_depth=self.max_depth,
            discount=self.discount,
            carry_tree=self.carry_tree,
            observe=self.observe,
            mask=self.mask,
            extra=self.extra,
            keep_states=keep_states,
            device=device,
            **options,
        )


@dataclass(frozen=True)
class EvaluationSettings:
    """Evaluation of the agent on held-out episodes."""

    episodes: int = 256  # number of held-out episodes
    every: int = 0  # real steps between evaluations during training; 0: only at the end
    num_envs: int = 128  # number of environments in parallel
    seed: int = 20_231_210  # random seed of the actor


LARGEST_SEED = 999_999_999
"""Seeds above are those of held-out episodes of Gymnasium environments."""


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """One training run."""

    seed: int = 0  # random seed of the run
    real_steps: int = 100_000  # length of the run in real steps over all environments
    annealing_steps: int | None = None  # real steps over which learning rates are annealed; None: real_steps
    num_envs: int = 64  # number of real environments
    exploration_steps: int = 0  # number of initial real steps with random actions, to train the model before the agent
    exploration_ratio: float = 10.0  # transitions trained on for each of these steps
    exploration_length: int = 16  # random episodes are cut off after this many steps
    threads: int = 0  # number of PyTorch threads; 0: one per core
    device: Device = "auto"  # where networks compute; auto: a GPU if there is one
    environment: EnvironmentSpec
    search: SearchSettings = field(default_factory=SearchSettings)
    model: ModelSpec
    agent: AgentSpec
    evaluation: EvaluationSettings = field(default_factory=EvaluationSettings)
    log_every: int = 2_000  # real steps between lines of metrics.jsonl
    checkpoint_minutes: float = 2.0  # minutes between checkpoints

    def __post_init__(self) -> None:
        for name in ("real_steps", "num_envs", "log_every", "exploration_length"):
            _at_least(1, name, getattr(self, name))
        for name in ("exploration_steps", "threads", "seed"):
            _at_least(0, name, getattr(self, name))
        _at_least(1, "evaluation.episodes", self.evaluation.episodes)
        _at_least(1, "evaluation.num_envs", self.evaluation.num_envs)
        _at_least(0, "evaluation.every", self.evaluation.every)
        self._check_combination()
        if self.seed > LARGEST_SEED:
            raise UserError(f"seed is {self.seed}; it must be at most {LARGEST_SEED}: higher seeds are held out")
        if not self.exploration_ratio >= 0 or not self.checkpoint_minutes >= 0:
            raise UserError(
                f"exploration_ratio is {self.exploration_ratio}, checkpoint_minutes is {self.checkpoint_minutes}; both "
                f"must be at least 0"
            )
        if isinstance(self.model, LearnedSpec) and self.exploration_steps >= self.real_steps:
            raise UserError(
                f"exploration_steps is {self.exploration_steps}, so the whole run of {self.real_steps} real steps "
                f"would be random play; set exploration_steps to {self.real_steps // 10} or so"
            )
        if self.annealing_steps is not None and self.annealing_steps < self.real_steps:
            raise UserError(
                f"annealing_steps is {self.annealing_steps}: the learning rates would be 0 from there on, before the "
                f"end of the run at real_steps {self.real_steps}; set both, or set annealing_steps to None"
            )

    def _check_combination(self) -> None:
        """Raise an error if environment, model and agent do not fit together."""
        agent, model, where = type(self.agent).__name__, type(self.model).__name__, self.agent.acts_in()
        if where != "augmented" and self.search.stage_length != 1:
            raise UserError(
                f"{agent} acts in the raw MDP, so search.stage_length must be 1, not {self.search.stage_length}"
            )
        if where == "raw" and not isinstance(self.model, NoModelSpec):
            raise UserError(
                f"{agent} acts in the raw MDP and does not use {model}; use the model type none, NoModelSpec"
            )
        if where != "raw" and isinstance(self.model, NoModelSpec):
            fitting = [name for name, kind in registry.MODELS.items() if kind is not NoModelSpec]
            raise UserError(f"{agent} needs a model to search, and {model} has none; use {', '.join(fitting)}")
        if where == "raw-with-states" and not self.model.predicts_states:
            raise UserError(
                f"{agent} uses predicted states, but {model} with these settings predicts none; use a model with a "
                f"state loss"
            )
        if "predicted_state" in self.search.observe and not self.model.predicts_states:
            raise UserError(
                f"search.observe has 'predicted_state', but {model} with these settings predicts no states; remove it, "
                f"or use a model with a state loss"
            )

    @property
    def total_steps(self) -> int:
        """Real steps over which learning rates and the planning reward are annealed."""
        return self.real_steps if self.annealing_steps is None else self.annealing_steps

    @property
    def trains_model_concurrently(self) -> bool:
        """Whether the model is trained in its own process or thread while the agent acts and learns."""
        return isinstance(self.model, LearnedSpec) and self.threads != 1

    def to_dict(self) -> dict[str, Any]:
        """Nested dicts of lists, numbers and strings; specs have a "type", the name of their type in the registry."""
        values = {one.name: getattr(self, one.name) for one in dataclasses.fields(self)}
        for name, types in _SPEC_TYPES.items():
            values[name] = _spec_to_dict(values[name], types)
        values["search"], values["evaluation"] = dataclasses.asdict(self.search), dataclasses.asdict(self.evaluation)
        return values


_SPEC_TYPES = {"environment": registry.ENVIRONMENTS, "model": registry.MODELS, "agent": registry.AGENTS}


def _spec_to_dict(spec: Any, types: Mapping[str, type]) -> dict[str, Any]:
    values = {"type": registry.name_of(spec, types), **dataclasses.asdict(spec)}
    size = getattr(spec, "size", None)
    if dataclasses.is_dataclass(size):  # a custom size instead of a name
        values["size"] = _spec_to_dict(size, registry.SIZES)
    return values


def _spec_from_dict(values: Mapping[str, Any], types: Mapping[str, type]) -> Any:
    spec = dict(values)
    kind = registry.type_named(spec.pop("type", None), types)
    if isinstance(spec.get("size"), dict):
        spec["size"] = _spec_from_dict(spec["size"], registry.SIZES)
    return _build(kind, spec)


def settings_from_dict(values: dict[str, Any]) -> RunSettings:
    """The inverse of `RunSettings.to_dict`, also after a round trip through JSON."""
    values = dict(values)
    for name, types in _SPEC_TYPES.items():
        values[name] = _spec_from_dict(values.get(name, {}), types)
    return RunSettings(**_arguments(RunSettings, values))


def _build(kind: type, values: dict[str, Any]) -> Any:
    return kind(**_arguments(kind, values))


def _arguments(kind: type, values: dict[str, Any]) -> dict[str, Any]:
    """The arguments of the dataclass ``kind`` from their JSON form."""
    hints = get_type_hints(kind)
    known = {one.name for one in dataclasses.fields(kind)}
    unknown = sorted(set(values) - known)
    if unknown:
        near = difflib.get_close_matches(unknown[0], known, n=3) or sorted(known)
        raise UserError(
            f"{kind.__name__} has no setting {', '.join(unknown)}; there is {', '.join(near)}. Was this run created by "
            f"another version?"
        )
    built = {}
    for name, value in values.items():
        if dataclasses.is_dataclass(hints[name]) and isinstance(value, dict):
            value = _build(hints[name], value)
        built[name] = tuple(value) if isinstance(value, list) else value
    return built


def _at_least(lowest: int, name: str, value: int) -> None:
    if value < lowest:
        raise UserError(f"{name} is {value}; it must be at least {lowest}")
