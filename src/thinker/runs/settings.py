"""All settings of a training run, in one dataclass: the single source for presets, command line and checkpoints."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Literal, get_type_hints

from thinker.agents.settings import AgentSettings
from thinker.augmented.env import Observe
from thinker.augmented.representation import Extra, Hidden
from thinker.world_model.inference import Precision
from thinker.world_model.trainer import TrainerSettings

ModelKind = Literal[
    "dual-feature",
    "dual-l2",
    "dual-no-state",
    "single-l2",
    "single-no-state",
    "simulator",
    "simulator-learned-values",
    "none",
]
"""The world model: learned ones by variant, the perfect simulator with or without a learned base policy and value, or
"none" for the raw MDP (the paper's baseline)."""

SOKOBAN = "thinker/Sokoban-v0"


@dataclass(frozen=True)
class EnvironmentSettings:
    """The real MDP. Everything below ``id`` is for Sokoban."""

    id: str = SOKOBAN
    size: int = 7  # height and width of generated boards
    boxes: int = 1
    reverse_moves: tuple[int, int] = (1, 2)  # difficulty of generated levels: easy ones must be among them
    levels: str = "generated"  # or a Boxoban file or folder
    observation: Literal["tiles", "rgb"] = "tiles"
    max_steps: int = 60  # real steps after which an episode is truncated

    def options(self) -> dict[str, Any]:
        """Keyword arguments of the environment."""
        if self.id != SOKOBAN:
            return {}
        options: dict[str, Any] = {"observation": self.observation, "max_steps": self.max_steps}
        if self.levels == "generated":
            return {**options, "size": self.size, "boxes": self.boxes, "reverse_moves": self.reverse_moves}
        return {**options, "levels": self.levels}


@dataclass(frozen=True)
class SearchSettings:
    """The augmented MDP; see `thinker.ThinkerEnv`."""

    stage_length: int = 10  # K
    max_depth: int | None = 5  # L
    discount: float = 0.97  # γ
    carry_tree: bool = True
    observe: tuple[Observe, ...] = ("tree", "hidden")
    hide: tuple[Hidden, ...] = ()
    extra: tuple[Extra, ...] = ()


@dataclass(frozen=True)
class ModelSettings:
    """What the agent searches in and how it is learned."""

    kind: ModelKind = "dual-feature"
    size: str | None = None  # a named size (thinker.world_model.sizes); None chooses by the observations
    precision: Precision = "auto"  # while acting
    replay_capacity: int = 200_000  # real transitions
    training: TrainerSettings = field(default_factory=TrainerSettings)


@dataclass(frozen=True)
class EvaluationSettings:
    """How the agent is tested on levels it has never trained on."""

    levels: int = 256  # held-out levels, or episodes where the environment has no levels
    seed: int = 20_231_210  # of the held-out levels; training seeds give other levels
    source: str | None = None  # a Boxoban file or folder to test on instead of generated levels
    every: int = 0  # real steps between two evaluations in training; 0: only at the end
    num_envs: int = 128
    max_steps: int | None = None  # real steps for each level; None: as many as in training


@dataclass(frozen=True)
class RunSettings:
    """One training run."""

    preset: str = ""  # the name it began with
    seed: int = 0
    real_steps: int = 100_000  # all environments together
    annealing_steps: int | None = None  # learning rates and the planning reward reach their end here; None: real_steps
    num_envs: int = 64
    exploration_steps: int = 0  # the first so many real steps are random play, for the model to begin with
    exploration_ratio: float = 10.0  # transitions trained on for every one of them
    exploration_length: int = 16  # random episodes are cut off here: early on there is more to learn from
    threads: int = 0  # of PyTorch; 0: as many as there are cores
    environment: EnvironmentSettings = field(default_factory=EnvironmentSettings)
    search: SearchSettings = field(default_factory=SearchSettings)
    model: ModelSettings = field(default_factory=ModelSettings)
    agent: AgentSettings = field(default_factory=AgentSettings)
    evaluation: EvaluationSettings = field(default_factory=EvaluationSettings)
    log_every: int = 2_000  # real steps between two lines of metrics.jsonl
    checkpoint_minutes: float = 2.0  # between two checkpoints

    def __post_init__(self) -> None:
        for name in ("real_steps", "num_envs", "log_every", "exploration_length"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if self.exploration_steps < 0:
            raise ValueError(f"exploration_steps is {self.exploration_steps}; it must be at least 0")
        if self.annealing_steps is not None and self.annealing_steps < self.real_steps:
            raise ValueError(
                f"annealing_steps is {self.annealing_steps}: the learning rates would be 0 from there on, before "
                f"real_steps, {self.real_steps}, are over; give both, or annealing_steps None"
            )
        if self.model.kind == "none" and self.search.stage_length != 1:
            raise ValueError(
                f"model.kind is 'none' (the raw MDP), so search.stage_length must be 1, not {self.search.stage_length}"
            )

    def to_dict(self) -> dict[str, Any]:
        """Plain dicts, lists, numbers and strings."""
        return dataclasses.asdict(self)


def settings_from_dict(values: dict[str, Any]) -> RunSettings:
    """The settings that `RunSettings.to_dict` was made of, also after a detour through JSON."""
    return _build(RunSettings, values)


def _build(kind: type, values: dict[str, Any]) -> Any:
    hints = get_type_hints(kind)
    known = {one.name for one in dataclasses.fields(kind)}
    unknown = sorted(set(values) - known)
    if unknown:
        raise ValueError(f"{kind.__name__} has no setting {', '.join(unknown)}; was this run made by another version?")
    built = {}
    for name, value in values.items():
        if dataclasses.is_dataclass(hints[name]):
            value = _build(hints[name], value)
        built[name] = tuple(value) if isinstance(value, list) else value
    return kind(**built)
