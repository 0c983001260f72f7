"""Logging to Weights & Biases, in addition to metrics.jsonl and TensorBoard (extra ``[wandb]``)."""

from __future__ import annotations

import importlib.util
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from thinker.errors import UserError

PROJECT = "thinker"
IDENTITY = "wandb_id.txt"


def check_installed() -> None:
    """Raise an error if the package is missing."""
    if importlib.util.find_spec("wandb") is None:
        raise UserError('--wandb needs the package wandb; pip install "thinker[wandb]"')


def _identity(folder: Path) -> str:
    """The id of the W&B run, drawn once per run folder."""
    path = folder / IDENTITY
    if not path.exists():
        path.write_text(secrets.token_hex(8), encoding="ascii")
    return path.read_text(encoding="ascii").strip()


class WandbLogger:
    """Logs to a W&B run, which is continued when the training run is resumed.

    W&B's own environment variables apply: ``WANDB_MODE=offline`` keeps everything on this machine, ``WANDB_PROJECT``
    selects another project.
    """

    def __init__(self, name: str, folder: Path, config: Mapping[str, Any]) -> None:
        check_installed()
        import wandb

        settings = wandb.Settings(silent=True)
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=name,
            id=_identity(folder),
            resume="allow",
            dir=str(folder),
            config=dict(config),
            settings=settings,
        )
        self._run.define_metric("*", step_metric="step")

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """See `Logger`."""
        self._run.log({**values, "step": step})

    def close(self) -> None:
        """Finish the W&B run."""
        self._run.finish()
