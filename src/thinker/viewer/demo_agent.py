"""The small trained agent that comes with the package: its weights, its settings, and how it was trained.

``python -m thinker.viewer.export_demo RUN`` makes the files from a training run.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from thinker.errors import UserError
from thinker.runs.build import build_run
from thinker.runs.presets import training_command
from thinker.runs.run import Run
from thinker.runs.settings import RunSettings, settings_from_dict
from thinker.world_model.spec import LearnedSpec

FOLDER = Path(__file__).parent / "demo"
WEIGHTS, SETTINGS, METRICS = "weights.safetensors", "settings.json", "metrics.json"
LARGEST_BYTES = 3 * 2**20
_EXPORT = "python -m thinker.viewer.export_demo RUN"


def export_demo(run: Run, folder: Path, *, preset: str, metrics: dict[str, Any] | None = None) -> int:
    """Write to ``folder`` what acting needs of ``run``: neither replay nor optimiser. Returns the weights' bytes.

    ``preset`` is the one that the run started from, and ``metrics`` what it reached.
    """
    tensors = {
        f"{part}/{name}": tensor.detach().cpu().contiguous().clone()
        for part, network in run.networks().items()
        for name, tensor in network.state_dict().items()
    }
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    if size > LARGEST_BYTES:
        raise UserError(
            f"the weights have {size / 2**20:.1f} MiB, but at most {LARGEST_BYTES / 2**20:.0f} MiB may be shipped; "
            f"train a run with smaller networks"
        )
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / WEIGHTS)
    (folder / WEIGHTS).chmod(0o644)  # safetensors lets only the owner read
    _write_json(folder / SETTINGS, run.settings.to_dict())
    _write_json(folder / METRICS, {"command": training_command(preset, run.settings), **(metrics or {})})
    return size


def load_demo(folder: Path | None = None, *, device: str | None = None) -> Run:
    """The agent in ``folder`` (default: the shipped one), ready to act."""
    folder = FOLDER if folder is None else folder
    missing = [name for name in (WEIGHTS, SETTINGS, METRICS) if not (folder / name).exists()]
    if missing:
        raise UserError(
            f"this copy of thinker comes without its demo agent ({', '.join(missing)} missing); make one with "
            f"`{_EXPORT}`, or watch a run of your own with `thinker watch RUN`"
        )
    try:
        tensors = load_file(folder / WEIGHTS)
        settings = settings_from_dict(json.loads((folder / SETTINGS).read_text(encoding="utf-8")))
    except (SafetensorError, ValueError, TypeError) as error:
        raise UserError(f"the demo agent in {folder} is damaged: {error}; make it again with `{_EXPORT}`") from error
    run = build_run(_for_acting(settings), device=device)
    for part, network in run.networks().items():
        mine = {name.removeprefix(f"{part}/"): t for name, t in tensors.items() if name.startswith(f"{part}/")}
        _load(network, mine, folder)
    run.publish()
    return run


def demo_metrics(folder: Path | None = None) -> dict[str, Any]:
    """The command that trained the agent in ``folder`` (default: the shipped one), and what it reached."""
    metrics: dict[str, Any] = json.loads(((FOLDER if folder is None else folder) / METRICS).read_text(encoding="utf-8"))
    return metrics


def _load(network: nn.Module, tensors: dict[str, Tensor], folder: Path) -> None:
    try:
        network.load_state_dict(tensors)
    except RuntimeError as error:
        raise UserError(
            f"the weights in {folder} do not fit this version of thinker; make them again with `{_EXPORT}`: {error}"
        ) from error


def _for_acting(settings: RunSettings) -> RunSettings:
    """The same agent without what only training needs: one environment, a small replay, one thread."""
    model = settings.model
    if isinstance(model, LearnedSpec):
        model = dataclasses.replace(model, replay_capacity=1_000)
    return dataclasses.replace(settings, num_envs=1, threads=1, model=model)


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
