"""What an experiment is: runs that differ in some settings, what is measured of them, and the paper's claims."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from thinker.errors import UserError
from thinker.experiments.measurements import Measurement
from thinker.runs.folder import RunFolder
from thinker.runs.presets import preset
from thinker.runs.settings import RunSettings

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from thinker.experiments.claims import Claim
    from thinker.experiments.results import Results

Scale = Literal["tiny", "laptop", "paper"]
"""How large an experiment is: a smoke test of minutes, an effect that two cores can show within an hour, or the paper's
settings."""

_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")


@dataclass(frozen=True)
class Variant:
    """Runs that differ only in their seed."""

    name: str  # part of the names of its runs: small letters, digits and hyphens
    label: str  # in tables and pictures
    preset: str
    changes: Mapping[str, Any]  # of the preset's settings, by dotted names
    measurements: tuple[Measurement, ...]  # what is measured of every finished run
    game: str = ""  # on which it is trained, in experiments with several

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"{self.name!r} cannot name a variant; use small letters, digits and hyphens")

    @property
    def full_name(self) -> str:
        """With the game: unique among all variants of an experiment."""
        return "-".join((self.name, *filter(None, [self.game.replace("_", "-")])))

    def settings(self, seed: int) -> RunSettings:
        """The settings of one run."""
        return changed(preset(self.preset), {**self.changes, "seed": seed})


@dataclass(frozen=True)
class Job:
    """One run of an experiment: it is trained, then measured."""

    variant: Variant
    seed: int

    @property
    def name(self) -> str:
        return f"{self.variant.full_name}-{self.seed}"

    @functools.cached_property
    def settings(self) -> RunSettings:
        return self.variant.settings(self.seed)

    @functools.cached_property
    def settings_hash(self) -> str:
        """SHA-256 of all settings: equal for runs that are the same."""
        return hashlib.sha256(json.dumps(self.settings.to_dict(), sort_keys=True).encode()).hexdigest()

    def is_done(self, folder: Path) -> bool:
        """Whether the run in ``folder`` is finished and everything is measured."""
        run = RunFolder(folder.parent, folder.name)
        return run.summary_path.exists() and all(one.is_stored(folder) for one in self.variant.measurements)


@dataclass(frozen=True)
class Games:
    """The games of an experiment: each of its variants is trained on each of them."""

    known: tuple[str, ...]  # all that can be chosen, as the setting ``environment.game``
    usual: Mapping[Scale, tuple[str, ...]]  # those that are played unless others are chosen
    chosen: tuple[str, ...] | None = None

    def at(self, scale: Scale) -> tuple[str, ...]:
        """Those that are played."""
        return self.usual[scale] if self.chosen is None else self.chosen

    def find(self, name: str) -> str:
        """The game of this name, whatever its capitals, hyphens and underscores."""
        known = {_letters(game): game for game in self.known}
        if _letters(name) not in known:
            near = [known[one] for one in difflib.get_close_matches(_letters(name), known, n=3)]
            hint = f"did you mean {' or '.join(near)}? " if near else ""
            raise UserError(f"there is no game {name!r}; {hint}games are {', '.join(self.known)}")
        return known[_letters(name)]


@dataclass(frozen=True)
class Experiment:
    """A figure or table of the paper.

    Every experiment is a module with an `EXPERIMENT`: a process that trains one of its runs imports it by this name.
    """

    module: str  # ``__name__`` of the module
    name: str  # on the command line
    title: str
    paper: str  # the figure, table or appendix
    question: str  # one sentence
    variants: Callable[[Scale], Sequence[Variant]]
    draw: Callable[[Results, Figure], None]  # draws the picture
    caption: str  # of the picture
    claims: tuple[Claim, ...]
    table: Callable[[Results], Iterable[str]] | None = None  # lines of Markdown; None: test episodes of all variants
    notes: str = ""  # how laptop scale differs from the paper, and choices that the paper leaves open
    seeds: Mapping[Scale, int] = field(default_factory=lambda: {"tiny": 2, "laptop": 3, "paper": 5})
    games: Games | None = None  # None: the variants say what they play

    def on(self, games: Sequence[str] | None) -> Experiment:
        """The same experiment on these games; None: on its usual ones."""
        if games is None:
            return self
        if self.games is None:
            raise UserError(f"--games {' '.join(games)}: {self.name} has no games to choose from; leave the option out")
        if not games:
            raise UserError("--games: give at least one game")
        chosen = tuple(dict.fromkeys(self.games.find(name) for name in games))
        return dataclasses.replace(self, games=dataclasses.replace(self.games, chosen=chosen))

    def variants_by_game(self, scale: Scale) -> list[Variant]:
        """All variants; in an experiment with games, once for each of them."""
        if self.games is None:
            return list(self.variants(scale))
        return [
            dataclasses.replace(variant, game=game, changes={**variant.changes, "environment.game": game})
            for game in self.games.at(scale)
            for variant in self.variants(scale)
        ]

    def jobs(self, scale: Scale, seeds: int | None = None) -> list[Job]:
        """All runs, seed by seed, so that an experiment that is stopped has whole comparisons."""
        count = self.seeds[scale] if seeds is None else seeds
        if count < 1:
            raise UserError(f"--seeds {count}: it must be at least 1")
        variants = self.variants_by_game(scale)
        names = [variant.full_name for variant in variants]
        if len(set(names)) != len(names):
            raise ValueError(f"two variants of {self.name} have the same name: {', '.join(names)}")
        return [Job(variant, seed) for seed in range(count) for variant in variants]

    def folder(self, root: Path, scale: Scale) -> Path:
        """Where its runs are: a folder that `thinker eval --root` and the like can open."""
        return root / scale / self.name


def locate(experiment: Experiment, scale: Scale, root: Path, job: Job) -> Path:
    """The folder of a job's run: one that another experiment has finished with the same settings, or its own."""
    own = experiment.folder(root, scale) / job.name
    if own.exists():
        return own
    wanted = json.loads(json.dumps(job.settings.to_dict()))
    for summary in sorted((root / scale).glob("*/*/summary.json")):
        try:
            config = json.loads((summary.parent / "config.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if config.get("settings") == wanted:
            return summary.parent
    return own


def _letters(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


def changed(settings: Any, changes: Mapping[str, Any]) -> Any:
    """``settings``, a dataclass of dataclasses, with new values for dotted names: {"search.stage_length": 5}."""
    nested: dict[str, Any] = {}
    for name, value in changes.items():
        first, _, rest = name.partition(".")
        if not has_setting(settings, name):
            raise UserError(f"{type(settings).__name__} has no setting {name!r}")
        if not rest:
            nested[first] = value
        else:
            nested[first] = changed(nested.get(first, getattr(settings, first)), {rest: value})
    return dataclasses.replace(settings, **nested)


def has_setting(settings: Any, name: str) -> bool:
    """Whether ``settings`` has a setting of this dotted name."""
    first, _, rest = name.partition(".")
    if not dataclasses.is_dataclass(settings) or first not in {one.name for one in dataclasses.fields(settings)}:
        return False
    return not rest or has_setting(getattr(settings, first), rest)
