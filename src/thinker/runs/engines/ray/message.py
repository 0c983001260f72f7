"""Data on its way from process to process: arrays and tensors are stored beside a small pickled header.

Ray puts the arrays into its object store and maps them into the memory of every reader on the same machine, without
copying them. By itself it would do so for NumPy arrays only, not for tensors.
"""

from __future__ import annotations

import io
import pickle
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from ray.cloudpickle import Pickler
from torch import Tensor


@dataclass(frozen=True)
class Message:
    """Any object; `unpack` returns it."""

    header: bytes
    buffers: list[np.ndarray]  # each [bytes] uint8, views of the object's memory

    @property
    def nbytes(self) -> int:
        return len(self.header) + sum(buffer.nbytes for buffer in self.buffers)


def pack(item: Any) -> Message:
    """A message with ``item``. It shares its memory, so it must be sent before ``item`` changes."""
    header, buffers = io.BytesIO(), list[np.ndarray]()

    def keep(buffer: pickle.PickleBuffer) -> None:
        buffers.append(np.asarray(buffer.raw()))

    _TensorPickler(header, protocol=5, buffer_callback=keep).dump(item)
    return Message(header.getvalue(), buffers)


def unpack(message: Message, device: torch.device | None = None) -> Any:
    """The object of ``message``, its tensors on ``device``. It shares the message's memory, which is read-only."""
    loader = _TensorUnpickler(io.BytesIO(message.header), buffers=message.buffers)
    loader.device = device
    return loader.load()


def unpack_copy(message: Message) -> Any:
    """The object of ``message``, with memory of its own."""
    return unpack(Message(message.header, [buffer.copy() for buffer in message.buffers]))


class _TensorPickler(Pickler):
    def persistent_id(self, item: Any) -> Any:
        if not isinstance(item, Tensor):
            return None
        tensor = item.detach().cpu().contiguous()
        if tensor.dtype == torch.bfloat16:  # which NumPy does not have
            return "bfloat16", tensor.view(torch.int16).numpy()
        return "", tensor.numpy()


class _TensorUnpickler(pickle.Unpickler):
    device: torch.device | None = None

    def persistent_load(self, stored: Any) -> Tensor:
        kind, array = stored
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # read-only memory, which nobody here writes to
            tensor = torch.from_numpy(array)
        if kind == "bfloat16":
            tensor = tensor.view(torch.bfloat16)
        return tensor if self.device is None else tensor.to(self.device)
