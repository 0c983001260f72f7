"""What is set once per process, from the machine: threads, and how memory is given back."""

from __future__ import annotations

import ctypes
import os
import sys

import torch

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # names of settings in glibc's malloc.h
_KEPT_BYTES, _LARGEST_ON_HEAP = 1 << 30, 1 << 25  # the second is the most that glibc allows


def prepare(threads: int = 0, *, at_once: int = 1) -> None:
    """Share ``threads`` threads (0: one per core) among ``at_once`` computations, and keep freed memory.

    Networks on a CPU allocate and free megabytes at every layer. glibc returns them to the system each time and gets
    them back zeroed page by page, which costs up to a tenth of the time.
    """
    threads = threads or len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    torch.set_num_threads(max(1, threads // at_once))
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # other C libraries have none
        if mallopt is not None:
            mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
            mallopt(_MMAP_THRESHOLD, _LARGEST_ON_HEAP)
