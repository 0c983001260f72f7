"""The small trained agent that comes with the package: its weights, its settings, and how it was made.

``python -m thinker.viewer.export_demo RUN`` makes the files out of a training run.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from thinker.runs.loop import Run, prepare_machine
from thinker.runs.presets import PRESETS, preset
from thinker.runs.settings import RunSettings, settings_from_dict

FOLDER = Path(__file__).parent / "demo"
WEIGHTS, SETTINGS, METRICS = "weights.safetensors", "settings.json", "metrics.json"
LARGEST_BYTES = 3 * 2**20
_EXPORT = "python -m thinker.viewer.export_demo RUN"


def export_demo(run: Run, folder: Path = FOLDER, metrics: dict[str, Any] | None = None) -> int:
    """Write what acting needs of ``run`` to ``folder``: no replay, no optimiser. Returns the weights' size in bytes."""
    tensors = {
        f"{part}/{name}": tensor.detach().cpu().contiguous().clone()
        for part, network in _networks(run).items()
        for name, tensor in network.state_dict().items()
    }
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    if size > LARGEST_BYTES:
        raise ValueError(
            f"the weights have {size / 2**20:.1f} MiB, but at most {LARGEST_BYTES / 2**20:.0f} MiB may be shipped; "
            f"train a run with smaller networks (model.size, agent.network_size)"
        )
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / WEIGHTS)
    (folder / WEIGHTS).chmod(0o644)  # safetensors lets only the owner read
    _write_json(folder / SETTINGS, run.settings.to_dict())
    _write_json(folder / METRICS, {"command": training_command(run.settings), **(metrics or {})})
    return size


def load_demo(folder: Path = FOLDER) -> Run:
    """The shipped agent, ready to act."""
    missing = [name for name in (WEIGHTS, SETTINGS, METRICS) if not (folder / name).exists()]
    if missing:
        raise FileNotFoundError(
            f"this copy of thinker comes without its demo agent ({', '.join(missing)} missing); make one with "
            f"`{_EXPORT}`, or watch a run of your own with `thinker watch RUN`"
        )
    try:
        tensors = load_file(folder / WEIGHTS)
        settings = settings_from_dict(json.loads((folder / SETTINGS).read_text(encoding="utf-8")))
    except (SafetensorError, ValueError, TypeError) as error:
        raise ValueError(f"the demo agent in {folder} is damaged: {error}; make it again with `{_EXPORT}`") from error
    settings = _small(settings)
    prepare_machine(settings)
    run = Run(settings)
    for part, network in _networks(run).items():
        mine = {name.removeprefix(f"{part}/"): t for name, t in tensors.items() if name.startswith(f"{part}/")}
        _load(network, mine, folder)
    if run.trainer is not None:
        run.trainer.publish()
    return run


def demo_metrics(folder: Path = FOLDER) -> dict[str, Any]:
    """The command that trained the shipped agent, and what it reached."""
    metrics: dict[str, Any] = json.loads((folder / METRICS).read_text(encoding="utf-8"))
    return metrics


def training_command(settings: RunSettings) -> str:
    """The `thinker train` command of a run: its preset, and every setting that differs from it."""
    words = ["thinker train", settings.preset or "sokoban-quick"]
    known = preset(settings.preset).to_dict() if settings.preset in PRESETS else RunSettings().to_dict()

    def compare(mine: dict[str, Any], default: dict[str, Any], prefix: str) -> None:
        for name, value in mine.items():
            if isinstance(value, dict):
                compare(value, default[name], f"{prefix}{name}.")
            elif value == default[name] or name == "preset":
                continue
            elif isinstance(value, bool):
                words.append(f"--{prefix}{'' if value else 'no-'}{name.replace('_', '-')}")
            else:
                shown = " ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
                words.append(f"--{prefix}{name.replace('_', '-')} {shown}")

    compare(settings.to_dict(), known, "")
    return " ".join(words)


def _networks(run: Run) -> dict[str, nn.Module]:
    """All networks that acting needs. The model's weights are the trainer's, in full precision."""
    networks: dict[str, nn.Module] = {"agent": run.network}
    if run.trainer is not None:
        networks["model"] = run.trainer.network
    return networks


def _load(network: nn.Module, tensors: dict[str, Tensor], folder: Path) -> None:
    try:
        network.load_state_dict(tensors)
    except RuntimeError as error:
        raise ValueError(
            f"the weights in {folder} do not fit this version of thinker; make them again with `{_EXPORT}`: {error}"
        ) from error


def _small(settings: RunSettings) -> RunSettings:
    """The same agent without what only training needs: one environment, a small replay, one thread."""
    training = dataclasses.replace(settings.model.training, warm_up_transitions=0)
    model = dataclasses.replace(settings.model, replay_capacity=1_000, training=training)
    return dataclasses.replace(settings, num_envs=1, threads=1, model=model)


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
