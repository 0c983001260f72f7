"""Storage for the nodes' hidden and predicted states: rows of one tensor that is allocated once."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


class Rows:
    """``num_rows`` tensors of the same shape, written and read in batches.

    Tensors in channels_last memory are stored in that order, so that a row is contiguous and needs no conversion when
    it is passed back to the model.
    """

    def __init__(self, like: Tensor, num_rows: int) -> None:
        """Allocate zeros for rows of the same shape, dtype and device as those of ``like`` [B, ...]."""
        self._channels_last = _is_channels_last(like)
        self.shape = like.shape[1:]
        stored = self._to_storage(like)
        self._storage = torch.zeros((num_rows, *stored.shape[1:]), dtype=like.dtype, device=like.device)
        self.device = like.device

    def fits(self, like: Tensor, num_rows: int) -> bool:
        """Whether ``num_rows`` rows like those of ``like`` [B, ...] can be stored here."""
        return (
            like.shape[1:] == self.shape
            and like.dtype == self._storage.dtype
            and like.device == self.device
            and _is_channels_last(like) == self._channels_last
            and len(self._storage) >= num_rows
        )

    @property
    def num_bytes(self) -> int:
        """The size of the storage."""
        return self._storage.numel() * self._storage.element_size()

    def write(self, rows: np.ndarray, values: Tensor) -> None:
        """Write ``values`` [n, ...] to ``rows`` [n]."""
        self._storage.index_copy_(0, self._index(rows), self._to_storage(values).to(self._storage.dtype))

    def write_from(self, first: int, values: Tensor) -> None:
        """Write ``values`` [n, ...] to the n rows from ``first`` on."""
        self._storage.narrow(0, first, len(values)).copy_(self._to_storage(values))

    def read(self, rows: np.ndarray) -> Tensor:
        """A new tensor [n, ...] with the given ``rows`` [n]."""
        values = self._storage.index_select(0, self._index(rows))
        return values.permute(0, 3, 1, 2) if self._channels_last else values

    def state_dict(self) -> dict[str, Tensor]:
        """All rows in their memory order; not a copy."""
        return {"storage": self._storage}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restore all rows."""
        self._storage.copy_(state["storage"])

    def _to_storage(self, values: Tensor) -> Tensor:
        return values.permute(0, 2, 3, 1) if self._channels_last else values

    def _index(self, rows: np.ndarray) -> Tensor:
        return torch.from_numpy(rows).to(self.device)


def _is_channels_last(tensor: Tensor) -> bool:
    return tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last) and not tensor.is_contiguous()
