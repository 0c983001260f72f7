"""The folder of a training run: its settings, checkpoints, metrics and summary, and the lock of the training process.

runs/NAME/config.json, checkpoints/, metrics.jsonl, tensorboard/, summary.json
runs/.NAME.lock
"""

from __future__ import annotations

import difflib
import json
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Literal

from thinker.errors import UserError
from thinker.runs.checkpoint import list_checkpoints, looks_whole, sync_folder

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

METRICS = "metrics.jsonl"

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+=-]*")
_ABSENT = "(absent)"
_MAX_DIFFERENCES = 20  # shown in an error message
_LOCK_TRIES = 10  # `list_runs` holds a lock for a moment to see whether it is free
_LOCK_WAIT = 0.05  # seconds between tries

RunStatus = Literal["running", "finished", "stopped", "damaged"]


class RunFolderError(UserError):
    """The folder of a run cannot be used as requested; the message says what to do."""


class RunLockedError(RunFolderError):
    """Another process is training the run."""


class RunFolder:
    """The folder ``root/name`` with all files of the run ``name``.

    Creating this object does not access the disk. To train, `open` it and use it as a context manager.
    """

    def __init__(self, root: Path | str, name: str) -> None:
        if not _NAME.fullmatch(name):
            raise RunFolderError(
                f"{name!r} cannot name a run; expected letters, digits and _.+=-, not starting with any of .+=-"
            )
        self.root = Path(root)
        self.name = name
        self.path = self.root / name
        self._lock: IO[str] | None = None

    @property
    def config_path(self) -> Path:
        return self.path / "config.json"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def metrics_path(self) -> Path:
        return self.path / METRICS

    @property
    def summary_path(self) -> Path:
        return self.path / "summary.json"

    @property
    def lock_path(self) -> Path:
        """Next to the folder, so that the lock stays with the name when `open` renames an old folder."""
        return self.root / f".{self.name}.lock"

    def open(self, config: Mapping[str, Any], fresh: bool = False) -> RunFolder:
        """Lock the folder for training with the settings ``config``; create it, or check that its settings match.

        With ``fresh``, an existing run is first renamed to NAME-1, NAME-2 and so on. Until `close` or the end of the
        process, no other process can open this run.
        """
        as_read_back = json.loads(json.dumps(config))
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            self._take_lock()
            return self._open(as_read_back, fresh)
        except OSError as error:
            raise RunFolderError(
                f"cannot write to {self.root}: {error.strerror or error}. Choose another folder with --root FOLDER, or "
                f"make this one writable"
            ) from error

    def _open(self, config: dict[str, Any], fresh: bool) -> RunFolder:
        try:
            if fresh and self.path.exists():
                os.rename(self.path, self._free_path())
            if self.config_path.exists():
                self._check_config(config)
            elif self.path.exists() and any(not path.name.startswith(".") for path in self.path.iterdir()):
                raise RunFolderError(
                    f"{self.path} is not the folder of a run: it has files but no config.json. Choose another name "
                    f"with --run OTHER, or use --fresh to rename it and start over"
                )
            else:
                self.path.mkdir(exist_ok=True)
                write_json(self.config_path, config)
            self.checkpoints.mkdir(exist_ok=True)
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """Release the lock, so that other processes can open the run."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def read_config(self) -> dict[str, Any]:
        """The content of config.json; if there is no such run, raises an error that suggests similar names."""
        if not self.config_path.exists():
            names = [run.name for run in list_runs(self.root)]
            similar = difflib.get_close_matches(self.name, names, n=3, cutoff=0.4) or names[:10]
            hint = (
                f"did you mean {' or '.join(similar)}?" if similar else "there are none yet; start with `thinker train`"
            )
            raise RunFolderError(f"there is no run {self.name!r} in {self.root}: {hint}")
        return _read_json(self.config_path)

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Write ``summary.json``, which marks the run as finished."""
        write_json(self.summary_path, summary)

    def read_summary(self) -> dict[str, Any] | None:
        """The summary of a finished run, or None."""
        return _read_json(self.summary_path) if self.summary_path.exists() else None

    def _take_lock(self) -> None:
        if self._lock is not None:
            raise RunFolderError(f"the run {self.name!r} is already open in this process")
        lock = open(self.lock_path, "a+", encoding="utf-8")  # noqa: SIM115  # held until close()
        for attempt in range(_LOCK_TRIES):
            if _try_lock(lock):
                break
            if attempt == _LOCK_TRIES - 1:
                lock.seek(0)
                owner = lock.read().strip() or "another process"
                lock.close()
                raise RunLockedError(
                    f"the run {self.name!r} is being trained by {owner}. Wait for it, stop it, or choose another "
                    f"name with --run OTHER"
                )
            time.sleep(_LOCK_WAIT)
        lock.truncate(0)
        lock.write(f"process {os.getpid()}\n")  # only for the message above: the system releases the lock itself
        lock.flush()
        self._lock = lock

    def _free_path(self) -> Path:
        number = 1
        while (path := self.root / f"{self.name}-{number}").exists():
            number += 1
        return path

    def _check_config(self, config: Mapping[str, Any]) -> None:
        saved = _read_json(self.config_path)
        differences = config_differences(saved.get("settings", saved), config["settings"])
        if not differences:
            return
        lines = [f"  {name}: {_short(old)} -> {_short(new)}" for name, (old, new) in differences.items()]
        if len(lines) > _MAX_DIFFERENCES:
            lines[_MAX_DIFFERENCES:] = [f"  and {len(lines) - _MAX_DIFFERENCES} more"]
        count = "1 setting" if len(differences) == 1 else f"{len(differences)} settings"
        raise RunFolderError(
            "\n".join(
                [
                    f"{self.path} contains a run that differs in {count} (saved -> requested):",
                    *lines,
                    "To continue that run, use its settings; for a new run, choose another name with --run OTHER, or "
                    "use --fresh to rename the old one and start over",
                ]
            )
        )


def config_differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """The settings that differ: dotted names to (old, new)."""
    before, after = dict(_flat(old)), dict(_flat(new))
    names = sorted(before.keys() | after.keys())
    pairs = {name: (before.get(name, _ABSENT), after.get(name, _ABSENT)) for name in names}
    return {name: pair for name, pair in pairs.items() if json.dumps(pair[0]) != json.dumps(pair[1])}


@dataclass(frozen=True)
class RunInfo:
    """One line of `thinker runs`."""

    name: str
    path: Path
    config: dict[str, Any]  # empty if it cannot be read
    status: RunStatus
    step: int  # of the newest checkpoint, or of the summary if there is none
    summary: dict[str, Any] | None
    changed: float  # seconds since 1970
    problem: str = ""  # what is wrong with its files


def list_runs(root: Path | str) -> list[RunInfo]:
    """All runs in ``root``, the most recently changed first; other folders are left out."""
    paths = Path(root).glob("*/config.json")
    runs = [_info(RunFolder(root, path.parent.name)) for path in paths if _NAME.fullmatch(path.parent.name)]
    return sorted(runs, key=lambda run: (-run.changed, run.name))


def _info(run: RunFolder) -> RunInfo:
    saved = list_checkpoints(run.checkpoints)
    files = run.config_path, run.metrics_path, run.summary_path
    changed = max(path.stat().st_mtime for path in files if path.exists())
    step = int(saved[-1].name.rsplit("-", 1)[1]) if saved else 0
    try:
        config, summary = _read_json(run.config_path), run.read_summary()
    except RunFolderError as error:
        return RunInfo(run.name, run.path, {}, "damaged", step, None, changed, str(error))
    status: RunStatus = "running" if _is_locked(run.lock_path) else "stopped" if summary is None else "finished"
    problem = ""
    if summary is not None and not any(map(looks_whole, saved)):
        problem = "its checkpoints are damaged" if saved else "its checkpoints are missing"
    if summary is not None and not saved:
        step = int(summary.get("real_steps", 0))
    return RunInfo(run.name, run.path, config, status, step, summary, changed, problem)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON file atomically."""
    temporary = path.with_name(f".{path.name}.tmp")
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(json.dumps(value, indent=2) + "\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    sync_folder(path.parent)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise RunFolderError(f"{path} is damaged: {error}. Fix it, or start over with --fresh") from error
    if not isinstance(value, dict):
        raise RunFolderError(f"{path} is damaged: expected a JSON object, found {_short(value)}")
    return value


def _flat(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in config.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _short(value: Any) -> str:
    text = value if value is _ABSENT else json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _try_lock(file: IO[str], shared: bool = False) -> bool:
    """Lock ``file`` until it is closed; the system closes it even if the process is killed."""
    try:
        if sys.platform == "win32":
            file.seek(1 << 20)  # a byte beyond the text, which stays readable
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


def _is_locked(path: Path) -> bool:
    if not path.exists():
        return False
    with open(path, encoding="utf-8") as file:
        return not _try_lock(file, shared=True)
