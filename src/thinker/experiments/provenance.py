"""Where numbers come from: versions, commit and machine."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

from thinker.runs.machine import cores

_PACKAGES = ("thinker", "torch", "numpy", "numba", "gymnasium", "rliable")


def provenance() -> dict[str, Any]:
    """What a number depends on besides its settings."""
    return {
        "versions": {"python": platform.python_version(), **_versions()},
        "commit": commit(),
        "machine": {"system": platform.system(), "processor": _processor(), "cores": cores()},
    }


def commit() -> str | None:
    """The commit of the source code, with a plus if files have changed since; None outside of a repository."""
    here = Path(__file__).parent

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", *words], cwd=here, capture_output=True, text=True, check=True, timeout=20
        ).stdout.strip()

    try:
        if Path(git("rev-parse", "--show-toplevel")) / "src" / "thinker" / "experiments" != here:
            return None  # installed inside another repository
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain", "--", str(here.parent)) else "")
    except (OSError, subprocess.SubprocessError):
        return None


def _versions() -> dict[str, str]:
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def _processor() -> str:
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
