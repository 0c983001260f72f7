"""Checkpoints of training runs: nested states of tensors, arrays and plain values, written atomically.

A checkpoint is a folder ``NUMBER-step-STEP`` with tensors (safetensors), arrays (npy, concatenated in one file), the
rest of the state as JSON, and a manifest of sizes and hashes. Loading verifies these first and executes no code.
"""

from __future__ import annotations

import hashlib
import json
import math
import operator
import os
import re
import shutil
import struct
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from thinker.errors import UserError

LAYOUT = 3
"""The version of the layout; checkpoints of other versions are rejected."""

TENSORS, ARRAYS, STATE, MANIFEST = "tensors.safetensors", "arrays.npy", "state.json", "manifest.json"

_TEMPORARY = ".tmp-"  # prefix of folders that are being written or removed; other processes ignore them
_NAME = re.compile(r"(\d+)-step-\d+")  # the number counts the saves: the newest may not have the most steps
_CHUNK_BYTES = 1 << 20
_TENSOR_TYPES = {
    torch.bool, torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.int8, torch.int16, torch.int32,
    torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64,
}  # fmt: skip


class CheckpointError(UserError, RuntimeError):
    """A checkpoint could not be written or read."""


class DamagedCheckpointError(CheckpointError):
    """A file of the checkpoint is missing, truncated or modified."""


class LayoutError(CheckpointError):
    """The checkpoint was written by a version of the library with another layout."""


def save(folder: Path, step: int, state: Mapping[str, Any], keep: int = 3) -> Path:
    """Write ``state`` as the newest checkpoint in ``folder`` and remove all but the newest ``keep``.

    The state consists of dicts with string keys, lists and tuples of torch tensors, NumPy arrays and scalars, numbers,
    strings, booleans and None. All are restored bit for bit; tensors on the CPU and contiguous. If this function fails
    or is interrupted, earlier checkpoints stay usable: they are removed only after the new one is on disk.
    """
    step = operator.index(step)
    if step < 0 or keep < 1:
        raise ValueError(f"step={step}, keep={keep}: expected a step of 0 or more and at least 1 checkpoint to keep")
    parts = _Parts(state)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for leftover in folder.glob(f"{_TEMPORARY}*"):  # from a process that was killed
            shutil.rmtree(leftover, ignore_errors=True)
        number = 1 + max((_number(path) for path in list_checkpoints(folder)), default=0)
        path = folder / f"{number:06d}-step-{step}"
        temporary = folder / f"{_TEMPORARY}{path.name}"
        try:
            temporary.mkdir()
            _write(temporary, step, parts)
            os.rename(temporary, path)
            sync_folder(folder)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
    except (OSError, SafetensorError) as error:
        raise CheckpointError(
            f"the checkpoint of step {step} could not be written to {folder}: {error}. {_free_space(folder)}Earlier "
            f"checkpoints are unchanged; free some space or make the folder writable, then run the same command again "
            f"to continue from the last one"
        ) from error
    _prune(folder, keep)
    return path


def load_latest(folder: Path) -> tuple[int, dict[str, Any]] | None:
    """Step and state of the newest intact checkpoint, with a warning for each newer one that is damaged.

    None if nothing was ever saved in ``folder``; raises an error if there are checkpoints but all are damaged.
    """
    paths = list_checkpoints(folder)
    for path in reversed(paths):
        try:
            return load(path)
        except DamagedCheckpointError as error:
            warnings.warn(f"{error}. Using the previous checkpoint, if there is one", stacklevel=2)
    if paths:
        raise CheckpointError(
            f"there is no usable checkpoint in {folder}: all of {', '.join(path.name for path in paths)} are damaged "
            f"(see the warnings above). Restore a copy of one, or start over with --fresh"
        )
    return None


def load(path: Path) -> tuple[int, dict[str, Any]]:
    """Step and state of the checkpoint in the folder ``path``, after checking that it is intact."""
    step = _check(path)
    try:
        tensors = {name: tensor.clone() for name, tensor in load_file(path / TENSORS).items()}  # no memory-mapped views
        document = json.loads((path / STATE).read_bytes())
        with open(path / ARRAYS, "rb") as file:
            arrays = [np.lib.format.read_array(file, allow_pickle=False) for _ in range(document["arrays"])]
        return step, _decode(document["state"], tensors, arrays)
    except (OSError, SafetensorError, ValueError, LookupError, TypeError, struct.error) as error:
        raise DamagedCheckpointError(f"the checkpoint {path} cannot be read: {error}") from error


def list_checkpoints(folder: Path) -> list[Path]:
    """The checkpoints in ``folder``, intact or not, oldest first; empty if the folder does not exist."""
    if not folder.is_dir():
        return []
    return sorted((path for path in folder.iterdir() if _NAME.fullmatch(path.name) and path.is_dir()), key=_number)


def looks_whole(path: Path) -> bool:
    """Whether all files of the checkpoint ``path`` exist and have the right size; their content is not read."""
    try:
        files = json.loads((path / MANIFEST).read_bytes())["files"]
        return all((path / name).stat().st_size == size for name, (size, _) in files.items())
    except (OSError, ValueError, LookupError, TypeError):
        return False


def sync_folder(folder: Path) -> None:
    """Flush the entries of ``folder`` to disk, so that they survive a power failure, where the system supports it."""
    if os.name == "nt":  # Windows cannot open folders
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class _Parts:
    """A state split into tensors by name, arrays by index, and a JSON document that refers to them."""

    def __init__(self, state: Mapping[str, Any]) -> None:
        self.tensors: dict[str, torch.Tensor] = {}
        self.arrays: list[np.ndarray] = []
        self._storages: set[int] = set()
        self.document = {"state": self._encode(state, ()), "arrays": len(self.arrays)}

    def _encode(self, value: Any, where: tuple[str | int, ...]) -> Any:
        """``value`` as JSON. Types that JSON lacks become ``{"$kind": ...}``; the leading $ of a key is doubled."""
        if isinstance(value, Mapping):
            wrong = [key for key in value if not isinstance(key, str)]
            if wrong:
                raise TypeError(f"{_place(where)} has the key {wrong[0]!r}; the keys of a checkpoint must be strings")
            return {
                f"${key}" if key.startswith("$") else key: self._encode(item, (*where, key))
                for key, item in value.items()
            }
        if isinstance(value, (list, tuple)):
            items = [self._encode(item, (*where, index)) for index, item in enumerate(value)]
            return items if isinstance(value, list) else {"$tuple": items}
        if isinstance(value, torch.Tensor):
            return {"$tensor": self._add_tensor(value, where)}
        if isinstance(value, np.ndarray):
            return {"$array": self._add_array(value, where)}
        if value is None or isinstance(value, (bool, str)):
            return value
        if isinstance(value, np.generic):  # before float, which np.float64 is as well
            return {"$scalar": self._add_array(np.asarray(value), where)}
        if isinstance(value, int):
            return int(value)
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else {"$float": struct.pack(">d", value).hex()}
        raise TypeError(
            f"{_place(where)} is a {type(value).__name__}; a checkpoint can contain dicts, lists, tuples, tensors, "
            f"NumPy arrays, numbers, strings, booleans and None. Convert it to one of these"
        )

    def _add_tensor(self, tensor: torch.Tensor, where: tuple[str | int, ...]) -> str:
        if tensor.dtype not in _TENSOR_TYPES or tensor.layout != torch.strided:
            expected = ", ".join(sorted(str(dtype).removeprefix("torch.") for dtype in _TENSOR_TYPES))
            raise TypeError(
                f"{_place(where)} is a tensor of {tensor.dtype} and layout {tensor.layout}; expected a dense tensor of "
                f"{expected}"
            )
        tensor = tensor.detach().cpu().contiguous()
        storage = tensor.untyped_storage().data_ptr()
        if storage in self._storages:  # safetensors rejects tensors that share memory
            tensor = tensor.clone()
        self._storages.add(storage)
        name = "/".join(map(str, where))
        while name in self.tensors or name == "__metadata__":
            name += "_"
        self.tensors[name] = tensor
        return name

    def _add_array(self, array: np.ndarray, where: tuple[str | int, ...]) -> int:
        array, layout = np.asarray(array), np.lib.format
        if array.dtype.hasobject or layout.descr_to_dtype(layout.dtype_to_descr(array.dtype)) != array.dtype:
            raise TypeError(f"{_place(where)} is an array of {array.dtype}, which cannot be saved without pickle")
        self.arrays.append(array)
        return len(self.arrays) - 1


def _decode(value: Any, tensors: Mapping[str, torch.Tensor], arrays: list[np.ndarray]) -> Any:
    """The inverse of `_Parts._encode`."""
    if isinstance(value, list):
        return [_decode(item, tensors, arrays) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((kind, content),) = value.items()
        if kind == "$tuple":
            return tuple(_decode(item, tensors, arrays) for item in content)
        if kind == "$tensor":
            return tensors[content]
        if kind == "$array":
            return arrays[content]
        if kind == "$scalar":
            return arrays[content][()]
        if kind == "$float":
            return struct.unpack(">d", bytes.fromhex(content))[0]
    return {key[1:] if key.startswith("$") else key: _decode(item, tensors, arrays) for key, item in value.items()}


def _place(where: tuple[str | int, ...]) -> str:
    return "state" + "".join(f"[{key!r}]" for key in where)


def _write(folder: Path, step: int, parts: _Parts) -> None:
    """Write all files of a checkpoint to ``folder`` and flush them to disk."""
    _write_file(folder / STATE, lambda file: file.write(json.dumps(parts.document, indent=1).encode()))
    _write_file(folder / ARRAYS, lambda file: _write_arrays(file, parts.arrays))
    save_file(parts.tensors, folder / TENSORS)
    shutil.copymode(folder / STATE, folder / TENSORS)  # safetensors makes files readable only for the owner
    with open(folder / TENSORS, "rb+") as tensors:
        os.fsync(tensors.fileno())
    files = {name: _fingerprint(folder / name) for name in (STATE, ARRAYS, TENSORS)}
    content = {"layout": LAYOUT, "step": step, "files": files}
    manifest = {**content, "sha256": _content_hash(content)}
    _write_file(folder / MANIFEST, lambda file: file.write(json.dumps(manifest, indent=1).encode()))
    sync_folder(folder)


def _write_file(path: Path, write: Callable[[BinaryIO], Any]) -> None:
    with open(path, "wb") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())


def _write_arrays(file: BinaryIO, arrays: list[np.ndarray]) -> None:
    for array in arrays:
        np.lib.format.write_array(file, array, allow_pickle=False)  # without a copy


def _check(path: Path) -> int:
    """The step of the checkpoint ``path``; raises an error if its layout is another one or a file is not intact."""
    try:
        manifest = json.loads((path / MANIFEST).read_bytes())
        content = {name: manifest[name] for name in ("layout", "step", "files")}
        intact = manifest["sha256"] == _content_hash(content)
    except FileNotFoundError as error:
        raise DamagedCheckpointError(f"the checkpoint {path} has no {MANIFEST}") from error
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise DamagedCheckpointError(f"the checkpoint {path} is damaged: {MANIFEST} is unreadable ({error})") from error
    if not intact:
        raise DamagedCheckpointError(f"the checkpoint {path} is damaged: {MANIFEST} was changed")
    if content["layout"] != LAYOUT:
        raise LayoutError(
            f"the checkpoint {path} has layout {content['layout']}, but this version of thinker reads and writes "
            f"layout {LAYOUT}; use the version that wrote it, or start over with --fresh"
        )
    for name, (size, digest) in content["files"].items():
        try:
            found_size, found_digest = _fingerprint(path / name)
        except FileNotFoundError as error:
            raise DamagedCheckpointError(f"the checkpoint {path} is damaged: {name} is missing") from error
        except OSError as error:
            raise DamagedCheckpointError(f"the checkpoint {path} is damaged: {name}: {error}") from error
        if found_size != size:
            raise DamagedCheckpointError(
                f"the checkpoint {path} is damaged: {name} has {found_size} bytes instead of {size}"
            )
        if found_digest != digest:
            raise DamagedCheckpointError(f"the checkpoint {path} is damaged: the content of {name} was changed")
    return content["step"]


def _fingerprint(path: Path) -> tuple[int, str]:
    """Size in bytes and SHA-256 of a file."""
    digest, size = hashlib.sha256(), 0
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
            size += len(chunk)
    return size, digest.hexdigest()


def _content_hash(content: Mapping[str, Any]) -> str:
    """A hash of the manifest itself, which detects a modified step or layout."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _number(path: Path) -> int:
    return int(path.name.split("-")[0])


def _prune(folder: Path, keep: int) -> None:
    """Remove all but the newest ``keep`` checkpoints; renamed first, so that none is ever partially removed."""
    for path in list_checkpoints(folder)[:-keep]:
        try:
            removed = path.with_name(f"{_TEMPORARY}{path.name}")
            os.rename(path, removed)
            shutil.rmtree(removed)
        except OSError as error:  # only a warning: the new checkpoint has been saved
            warnings.warn(f"the old checkpoint {path} could not be removed: {error}", stacklevel=3)


def _free_space(folder: Path) -> str:
    existing = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    return f"{shutil.disk_usage(existing).free / 2**20:,.0f} MiB are free there. "
