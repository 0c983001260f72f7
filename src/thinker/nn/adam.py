"""Adam, fused where PyTorch has that, with a state that can be saved by parameter name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

FUSED_DEVICES = ("cpu", "cuda")
"""Devices with fused Adam in PyTorch 2.4 and later."""


def make_adam(parameters: Iterable[Any], device: torch.device, **options: Any) -> torch.optim.Adam:
    """Adam for ``parameters`` (or groups of them) on ``device``."""
    return torch.optim.Adam(parameters, fused=device.type in FUSED_DEVICES, **options)


def adam_state(optimizer: torch.optim.Adam, module: nn.Module) -> dict[str, dict[str, Tensor]]:
    """The optimizer's state of each parameter of ``module`` that has one, by name. The tensors are not copies."""
    return {
        name: dict(optimizer.state[parameter])
        for name, parameter in module.named_parameters()
        if parameter in optimizer.state
    }


def load_adam_state(optimizer: torch.optim.Adam, module: nn.Module, state: Mapping[str, Mapping[str, Tensor]]) -> None:
    """Load a state of `adam_state`; tensors are copied."""
    optimizer.state.clear()
    for name, parameter in module.named_parameters():
        saved = state.get(name)
        if saved:
            counter_device = parameter.device if parameter.device.type in FUSED_DEVICES else torch.device("cpu")
            optimizer.state[parameter] = {
                # The averages in the parameter's memory format, which fused Adam needs.
                part: torch.empty_like(parameter).copy_(value) if value.ndim else value.to(counter_device, copy=True)
                for part, value in saved.items()
            }
