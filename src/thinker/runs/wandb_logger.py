"""Logging to Weights & Biases, in addition to metrics.jsonl and TensorBoard (extra ``[wandb]``)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from thinker.errors import UserError

PROJECT = "thinker"


class WandbLogger:
    """Logs to a W&B run, which is continued when the training run is resumed.

    W&B's own environment variables apply: ``WANDB_MODE=offline`` keeps everything on this machine, ``WANDB_PROJECT``
    selects another project.
    """

    def __init__(self, name: str, folder: Path, config: Mapping[str, Any]) -> None:
        try:
            import wandb
        except ImportError as error:
            raise UserError('--wandb needs the package wandb; pip install "thinker[wandb]"') from error
        identity = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16]
        settings = wandb.Settings(silent=True)
        self._run = wandb.init(
            project=PROJECT,
            name=name,
            id=identity,
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
