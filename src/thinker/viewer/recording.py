"""A recording of play, and its file: one JSON document, described in docs/plans.md.

Every real step is a `Stage`: the real state, the imaginary steps, the search tree they left, the real action and its
outcome. Each state is stored once, in `Recording.frames`, and referred to by its index there.

All returns are g, the return of a path that starts at the root (the paper's equation 1): its predicted rewards and the
value of its last node, discounted to the root, whose own reward is 0.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
import types
from dataclasses import dataclass, field
from functools import cache
from os import PathLike
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from thinker.errors import UserError

FORMAT = "thinker-recording"
VERSION = 4
"""The version of the layout below; files of other versions are refused."""

ViewKind = Literal["board", "image", "vector"]
Reset = Literal["none", "chosen", "forced"]
End = Literal["terminated", "truncated", "unfinished"]


class RecordingError(UserError):
    """A file is not a recording, or is damaged."""


@dataclass(frozen=True)
class View:
    """How frames are drawn.

    * board: a frame is one character per square, row by row: a tile's code in base 36, or ``?`` where the model
      predicts no tile, or several.
    * image: a frame is a picture as a ``data:image/...`` URL.
    * vector: a frame is a list of numbers.
    """

    kind: ViewKind
    height: int = 1  # squares of a board, pixels of an image
    width: int = 1  # the same, or the numbers of a vector
    sprites: str | None = None  # of a board: a picture of all tiles side by side, in the order of their codes
    names: list[str] | None = None  # of a vector: what each of its numbers is called
    tolerance: float = 0.0  # a prediction whose error is above it is shown as wrong
    colours: dict[str, str] | None = None  # of an image of planes: what has which colour, as #rrggbb


@dataclass(frozen=True)
class Renderings:
    """Pictures of real states, rendered by the environment itself."""

    height: int  # pixels
    width: int
    pictures: list[str]  # ``data:image/...`` URLs


@dataclass(frozen=True)
class ImaginedStep:
    """One imaginary step: from a node by an action to a node."""

    action: int
    reset: Reset  # to the root after this step
    node: int  # reached; an index into the stage's tree
    depth: int
    frame: int | None  # the predicted state; None where the model gives none, or after a predicted end
    reward: float
    value: float
    rollout_return: float  # g of the node
    planning_reward: float
    base_policy: list[float]  # [A] where the step was taken
    agent_policy: list[float] | None  # [A] that the action was drawn from; None where the actor does not tell
    reset_probability: float | None  # of the reset action; None where the actor does not tell


@dataclass(frozen=True)
class RecordedTree:
    """The search tree at the end of a stage, as columns with one entry per node.

    Node 0 is the root; parents come before their children. The root's ``max_return`` is the highest g in the
    tree, that is the maximum of ``rollout_return``.
    """

    parent: list[int]  # -1 for the root
    action: list[int]  # into the node; -1 for the root of an episode's first stage
    reward: list[float]  # r; 0 for the root
    value: list[float]  # v
    visits: list[int]  # n: arrivals by an imaginary step; those at the root are of earlier stages
    mean_return: list[float]  # mean g of all paths through the node
    max_return: list[float]  # their highest g
    rollout_return: list[float]  # g of the path that ends at the node
    terminated: list[bool]  # the model predicts that the episode ends there
    fresh: list[bool]  # reached in this stage; the others were carried over from the stage before
    frame: list[int | None]  # predicted state
    error: list[float | None]  # of the predicted state, where the real actions later led to this very node
    policy: list[list[float]]  # [A] each: the base policy

    def __len__(self) -> int:
        return len(self.parent)


@dataclass(frozen=True)
class Stage:
    """One real step and the imaginary steps before it."""

    frame: int  # the real state
    picture: int | None  # its rendering; None where the environment gives none
    steps: list[ImaginedStep]
    rollouts: int | None  # of a planner, of which ``steps`` and ``tree`` may show only a part; None for others
    tree: RecordedTree
    action: int  # the real one
    agent_policy: list[float] | None  # [A] that it was drawn from; None where the actor does not tell
    reward: float
    terminated: bool
    truncated: bool


@dataclass(frozen=True)
class Episode:
    """From a reset to the end of the episode, or to where the recording stopped."""

    environment: int  # the row of the vector environment
    level: int | None  # its index in the set of episodes, e.g. the held-out ones; None if unknown
    stages: list[Stage]
    final_frame: int | None  # the real state after the last real step
    final_picture: int | None  # its rendering; None where the environment has already been reset
    end: End
    solved: bool | None  # None where the environment does not tell

    @property
    def episode_return(self) -> float:
        """The sum of the real rewards."""
        return sum(stage.reward for stage in self.stages)

    @property
    def outcome(self) -> str:
        """How the episode ended, in words."""
        return self.end if self.solved is None else "solved" if self.solved else "not solved"


@dataclass(frozen=True)
class RecordedPlanner:
    """A planner that acted: it searches by a fixed rule, without steps in the augmented MDP."""

    name: str
    simulations: int  # for each real step


@dataclass(frozen=True)
class Recording:
    """Episodes that one actor played in one kind of environment."""

    title: str
    environment: str
    actions: list[str]  # their names
    planner: RecordedPlanner | None  # None if the actor is none
    stage_length: int  # K; 1 for planners
    max_depth: int | None  # L, or that of the planner
    discount: float  # γ
    view: View
    frames: list[str | list[float]]
    renderings: Renderings | None
    episodes: list[Episode]
    notes: dict[str, str] = field(default_factory=dict)  # shown as they are: the run, the command, ...

    def to_dict(self) -> dict[str, Any]:
        """The document that `save` writes."""
        return {"format": FORMAT, "version": VERSION, **dataclasses.asdict(self)}

    @classmethod
    def from_dict(cls, document: Any) -> Recording:
        """Read a document made by `to_dict`; a `RecordingError` says what is wrong with any other."""
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise RecordingError(f'not a recording: it does not say "format": "{FORMAT}"')
        if document.get("version") != VERSION:
            raise RecordingError(
                f"the recording has format version {document.get('version')!r}, but this release of thinker reads only "
                f"version {VERSION}; record the episodes again"
            )
        values = {name: value for name, value in document.items() if name not in ("format", "version")}
        recording: Recording = _built(cls, values, "recording")
        _check(recording)
        return recording

    def save(self, path: str | PathLike[str]) -> None:
        """Write the recording to a JSON file."""
        text = json.dumps(self.to_dict(), separators=(",", ":"), allow_nan=False)
        Path(path).write_text(text, encoding="utf-8")

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Recording:
        """Read what `save` wrote. Nothing in the file is executed; a damaged file raises `RecordingError`."""
        try:
            document = json.loads(Path(path).read_bytes())
        except (ValueError, RecursionError) as error:
            raise RecordingError(f"{path} is not a recording, or only part of one: {error}") from error
        try:
            return cls.from_dict(document)
        except RecordingError as error:
            raise RecordingError(f"{path}: {error}") from error


def rounded(number: float) -> float:
    """Six significant digits, which keeps files small."""
    return float(f"{number:.6g}")


def _built(kind: Any, value: Any, where: str) -> Any:
    """Convert ``value``, as JSON gives it, to the type ``kind``, with all of its parts checked."""
    origin = get_origin(kind)
    if dataclasses.is_dataclass(kind):
        return _built_dataclass(kind, value, where)
    if origin in (Union, types.UnionType):
        return _built_union(get_args(kind), value, where)
    if origin is list and isinstance(value, list):
        (item,) = get_args(kind)
        if item in (int, float, str, bool):  # the long ones: no function call for each number
            for index, one in enumerate(value):
                if not _is_plain(item, one):
                    raise _wrong(item, one, f"{where}[{index}]")
            return value
        return [_built(item, one, f"{where}[{index}]") for index, one in enumerate(value)]
    if origin is dict and isinstance(value, dict):
        return {key: _built(get_args(kind)[1], item, f"{where}[{key!r}]") for key, item in value.items()}
    if origin is Literal and isinstance(value, str) and value in get_args(kind):
        return value
    if kind in (int, float, str, bool) and _is_plain(kind, value):
        return value
    raise _wrong(kind, value, where)


def _is_plain(kind: type, value: Any) -> bool:
    if kind is float:
        return type(value) in (int, float) and math.isfinite(value)
    return type(value) is kind


def _built_union(kinds: tuple[Any, ...], value: Any, where: str) -> Any:
    if value is None and type(None) in kinds:
        return None
    for kind in kinds:
        if isinstance(value, list) == (get_origin(kind) is list) and kind is not type(None):
            return _built(kind, value, where)
    raise _wrong(kinds[0], value, where)


def _built_dataclass(kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise _wrong(kind, value, where)
    hints = _hints(kind)
    missing, unknown = sorted(hints.keys() - value.keys()), sorted(value.keys() - hints.keys())
    if missing or unknown:
        raise RecordingError(
            f"{where} has {'no ' + ', '.join(missing) if missing else 'the unknown entry ' + ', '.join(unknown)}"
        )
    return kind(**{name: _built(hints[name], value[name], f"{where}.{name}") for name in hints})


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _wrong(kind: Any, value: Any, where: str) -> RecordingError:
    shown = repr(value) if len(repr(value)) < 60 else type(value).__name__
    return RecordingError(f"{where} is {shown}; expected {getattr(kind, '__name__', kind)}")


def _check(recording: Recording) -> None:
    """Refuse indices out of range, so that readers of a recording need not check them."""
    num_actions, num_frames, view = len(recording.actions), len(recording.frames), recording.view
    num_pictures = 0 if recording.renderings is None else len(recording.renderings.pictures)

    def index(value: int | None, size: int, where: str, lowest: int = 0) -> None:
        if value is not None and not lowest <= value < size:
            raise RecordingError(f"{where} is {value}; expected {lowest} .. {size - 1}")

    def policy(values: list[float] | None, where: str) -> None:
        if values is not None and len(values) != num_actions:
            raise RecordingError(f"{where} has {len(values)} numbers for {num_actions} actions")

    if num_actions == 0 or view.height < 1 or view.width < 1:
        raise RecordingError("the recording has no actions, or a view without size")
    for number, frame in enumerate(recording.frames):
        if isinstance(frame, str) == (view.kind == "vector"):
            raise RecordingError(f"frames[{number}] is not a frame of kind {view.kind}")
        if view.kind == "board" and len(frame) != view.height * view.width:
            raise RecordingError(f"frames[{number}] has {len(frame)} squares; expected {view.height} x {view.width}")
        if view.kind == "vector" and len(frame) != view.width:
            raise RecordingError(f"frames[{number}] has {len(frame)} numbers; expected {view.width}")
        if view.kind == "image" and not str(frame).startswith("data:image/"):
            raise RecordingError(f"frames[{number}] is not a picture")
    if view.names is not None and len(view.names) != view.width:
        raise RecordingError(f"view.names has {len(view.names)} names for {view.width} numbers")
    for name, colour in (view.colours or {}).items():
        if not re.fullmatch("#[0-9a-f]{6}", colour):
            raise RecordingError(f"view.colours[{name!r}] is {colour!r}; expected #rrggbb")
    if recording.renderings is not None:
        _check_renderings(recording.renderings)
    for e, episode in enumerate(recording.episodes):
        if not episode.stages:
            raise RecordingError(f"episodes[{e}] has no stages")
        index(episode.final_frame, num_frames, f"episodes[{e}].final_frame")
        index(episode.final_picture, num_pictures, f"episodes[{e}].final_picture")
        for s, stage in enumerate(episode.stages):
            where = f"episodes[{e}].stages[{s}]"
            tree, size = stage.tree, len(stage.tree)
            index(stage.frame, num_frames, f"{where}.frame")
            index(stage.picture, num_pictures, f"{where}.picture")
            index(stage.action, num_actions, f"{where}.action")
            policy(stage.agent_policy, f"{where}.agent_policy")
            if size == 0 or any(len(column) != size for column in vars(tree).values()):
                raise RecordingError(f"{where}.tree has columns of different lengths, or no root")
            for node in range(size):
                index(tree.parent[node], max(node, 0), f"{where}.tree.parent[{node}]", 0 if node else -1)
                index(tree.action[node], num_actions, f"{where}.tree.action[{node}]", 0 if node else -1)
                index(tree.frame[node], num_frames, f"{where}.tree.frame[{node}]")
                policy(tree.policy[node], f"{where}.tree.policy[{node}]")
            for i, step in enumerate(stage.steps):
                index(step.node, size, f"{where}.steps[{i}].node", 1)
                index(step.action, num_actions, f"{where}.steps[{i}].action")
                index(step.frame, num_frames, f"{where}.steps[{i}].frame")
                policy(step.base_policy, f"{where}.steps[{i}].base_policy")
                policy(step.agent_policy, f"{where}.steps[{i}].agent_policy")


def _check_renderings(renderings: Renderings) -> None:
    if renderings.height < 1 or renderings.width < 1:
        raise RecordingError("renderings have no size")
    for number, picture in enumerate(renderings.pictures):
        if not picture.startswith("data:image/"):
            raise RecordingError(f"renderings.pictures[{number}] is not a picture")
