"""Settings of the process that depend on the machine: device, threads and memory allocation."""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Literal

import torch

from thinker.errors import UserError

Device = Literal["auto", "cpu", "cuda", "mps"]

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # names of settings in glibc's malloc.h
_KEPT_BYTES, _LARGEST_ON_HEAP = 1 << 30, 1 << 25  # the second is the maximum that glibc allows


def choose_device(name: str) -> torch.device:
    """The device called ``name``; "auto" is the fastest one available."""
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        name = next(kind for kind, is_available in available.items() if is_available)
    if name not in available:
        raise UserError(f"device {name!r} is unknown; choose auto, cpu, cuda or mps")
    if not available[name]:
        raise UserError(f"device {name!r} is not available on this machine; choose auto or cpu")
    return torch.device(name)


def cores() -> int:
    """The number of cores that this process may use: those of its affinity, at most OMP_NUM_THREADS if that is set."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit = os.environ.get("OMP_NUM_THREADS", "")
    return min(available, int(limit)) if limit.isdecimal() and int(limit) > 0 else available


def prepare(threads: int = 0, *, concurrent: int = 1) -> None:
    """Divide ``threads`` threads (0: one per core) among ``concurrent`` computations, and keep freed memory.

    Networks on a CPU allocate and free megabytes at every layer. By default, glibc returns them to the system each time
    and gets them back zeroed page by page, which costs up to a tenth of the time.
    """
    # Virtual machines may advertise AMX tiles and emulate them: four times slower, or an illegal instruction. The
    # networks here are too small to gain much from them. A value set by the user takes precedence.
    os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
    torch.set_num_threads(max(1, (threads or cores()) // concurrent))
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # missing in other C libraries
        if mallopt is not None:
            mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
            mallopt(_MMAP_THRESHOLD, _LARGEST_ON_HEAP)
