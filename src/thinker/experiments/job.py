"""The process of one job: trains a run of an experiment, or resumes it, and measures it.

python -m thinker.experiments.job MODULE SCALE VARIANT GAME SEED FOLDER ENGINE
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import get_args

from thinker.errors import UserError
from thinker.experiments.experiment import Experiment, Job, Scale
from thinker.experiments.provenance import provenance
from thinker.experiments.results import PROVENANCE
from thinker.runs.engines.engine import EngineSpec
from thinker.runs.engines.specs import engine_from_dict
from thinker.runs.folder import RunFolder, RunLockedError, write_json
from thinker.runs.load import load_run
from thinker.runs.train import InterruptedRunError, train

FAILED, STOPPED, LOCKED = 1, 3, 75
"""Exit codes: the run failed, was stopped and saved, or is being trained by another process."""


def command(experiment: Experiment, scale: Scale, job: Job, folder: Path, engine: EngineSpec) -> list[str]:
    """The command line of a job's process."""
    words = (experiment.module, scale, job.variant.name, job.variant.game, str(job.seed), str(folder))
    return [sys.executable, "-m", __name__, *words, json.dumps(engine.describe())]


def do(job: Job, folder: Path, engine: EngineSpec | None = None) -> None:
    """Train the run in ``folder`` to its end and measure what has not been measured yet."""
    train(job.settings, folder.parent, folder.name, preset=job.variant.preset, engine=engine)
    if not (folder / PROVENANCE).exists():
        write_json(folder / PROVENANCE, provenance())
    due = [one for one in job.variant.measurements if not one.is_stored(folder)]
    if due:
        run = load_run(RunFolder(folder.parent, folder.name))
        for measurement in due:
            measurement.store(folder, run)
            print(f"measured {measurement.name}", flush=True)


def main(words: list[str]) -> int:
    """Do the job that the command line describes; returns the exit code."""
    module, scale, variant, game, seed, folder, engine = words
    if scale not in get_args(Scale):
        raise ValueError(f"scale {scale!r} is unknown")
    _stop_with_parent()
    experiment: Experiment = importlib.import_module(module).EXPERIMENT
    played = experiment.on([game] if game else None).variants_by_game(scale)  # type: ignore[arg-type]
    chosen = next(one for one in played if one.name == variant)
    try:
        do(Job(chosen, int(seed)), Path(folder), engine_from_dict(json.loads(engine)))
    except RunLockedError as error:
        print(error, flush=True)
        return LOCKED
    except InterruptedRunError as error:
        print(error, flush=True)
        return STOPPED
    except UserError as error:
        print(f"error: {error}", flush=True)
        return FAILED
    return 0


def _stop_with_parent(every: float = 1.0) -> None:
    """Stop and save when the process that started this one is gone, even if it was killed."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(every)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
