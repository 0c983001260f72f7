"""What is set once per process, from the machine: threads, and how memory is given back."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # names of settings in glibc's malloc.h
_KEPT_BYTES, _LARGEST_ON_HEAP = 1 << 30, 1 << 25  # the second is the most that glibc allows


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def all_threads(threads: int = 0) -> Iterator[None]:
    """For a computation that has the machine for itself: ``threads`` threads, 0: one per core."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads or cores())
    try:
        yield
    finally:
        torch.set_num_threads(before)


def prepare(threads: int = 0, *, at_once: int = 1) -> None:
    """Share ``threads`` threads (0: one per core) among ``at_once`` computations, and keep freed memory.

    Networks on a CPU allocate and free megabytes at every layer. glibc returns them to the system each time and gets
    them back zeroed page by page, which costs up to a tenth of the time.
    """
    torch.set_num_threads(max(1, (threads or cores()) // at_once))
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # other C libraries have none
        if mallopt is not None:
            mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
            mallopt(_MMAP_THRESHOLD, _LARGEST_ON_HEAP)
