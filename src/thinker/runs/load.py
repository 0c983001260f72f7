"""Loads a run from its last checkpoint."""

from __future__ import annotations

from thinker.runs import checkpoint
from thinker.runs.build import build_run
from thinker.runs.folder import RunFolder, RunFolderError
from thinker.runs.run import Run
from thinker.runs.settings import settings_from_dict


def load_run(folder: RunFolder, *, device: str | None = None) -> Run:
    """The run in ``folder`` with the weights of its last checkpoint, to evaluate or watch it; `train` resumes it.

    ``device`` overrides the one it was trained on.
    """
    config = folder.read_config()
    if "settings" not in config:
        raise RunFolderError(f"{folder.config_path} has no settings; was this run created by another version?")
    settings = settings_from_dict(config["settings"])
    saved = checkpoint.load_latest(folder.checkpoints)
    if saved is None and folder.read_summary() is not None:
        raise RunFolderError(
            f"the run {folder.name!r} is finished, but its checkpoints are missing; restore {folder.checkpoints}, or "
            f"train again with --fresh"
        )
    if saved is None:
        raise RunFolderError(f"{folder.path} has no checkpoint yet; let `thinker train` run a little longer")
    run = build_run(settings, device=device)
    run.load_weights(saved[1])
    return run
