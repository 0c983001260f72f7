"""The eight symmetries of a square board, applied to observations, actions and policies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import torch
from torch import Tensor

from thinker.errors import UserError
from thinker.interfaces import NO_ACTION, BoardStructure

_TURNS: Final = 4


class BoardSymmetries:
    """Turns and mirrors whatever belongs to a board.

    Symmetry ``which`` = 0 .. 7 mirrors the board, left for right, if ``which`` >= 4, and then turns it by ``which`` % 4
    quarter turns; 0 changes nothing. A tensor ``which`` int64 [N] applies one symmetry to each entry of the first
    dimension.
    """

    COUNT: Final = 8

    def __init__(self, structure: BoardStructure | None, num_actions: int, channels_last: bool) -> None:
        """Raise a `UserError` unless ``structure`` declares all eight symmetries for ``num_actions`` actions.

        Args:
            structure: ``metadata["board"]`` of the environments, if present
            num_actions: A
            channels_last: observations are [H, W, C] rather than [C, H, W]
        """
        if structure is None or structure.turned_actions is None or structure.mirrored_actions is None:
            raise UserError(
                'the environments do not declare the symmetries of a square board; set metadata["board"] to a '
                "BoardStructure with turned_actions and mirrored_actions, or train without symmetries"
            )
        for name in ("turned_actions", "mirrored_actions"):
            declared = getattr(structure, name)
            if sorted(declared) != list(range(num_actions)):
                raise UserError(
                    f'{name} of metadata["board"] is {declared}; expected each action from 0 to {num_actions - 1} once'
                )
        self._dims = (-3, -2) if channels_last else (-2, -1)
        turned, mirrored = torch.tensor(structure.turned_actions), torch.tensor(structure.mirrored_actions)
        permutations = []
        for which in range(self.COUNT):
            actions = mirrored if which >= _TURNS else torch.arange(num_actions)
            for _ in range(which % _TURNS):
                actions = turned[actions]
            permutations.append(actions)
        self._actions = torch.stack(permutations)  # [8, A]
        self._inverse_actions = self._actions.argsort(-1)  # [8, A]

    @staticmethod
    def inverse(which: int) -> int:
        """The symmetry that undoes ``which``."""
        return which if which >= _TURNS else -which % _TURNS

    def observation(self, x: Tensor, which: int | Tensor) -> Tensor:
        """Turn and mirror boards [..., C, H, W], or [..., H, W, C] with channels last."""
        height, width = (x.shape[dim] for dim in self._dims)
        if height != width:
            raise UserError(f"boards of {height}x{width} squares do not have eight symmetries; only square boards have")
        return self._each(self._turn, x, which)

    def action(self, a: Tensor, which: int | Tensor) -> Tensor:
        """What actions int64 [...] become; `NO_ACTION` stays."""
        return self._each(self._act, a, which)

    def policy(self, p: Tensor, which: int | Tensor) -> Tensor:
        """What policies [..., A], or any numbers for each action, become."""
        return self._each(self._permute, p, which)

    def _turn(self, x: Tensor, which: int) -> Tensor:
        mirrored = x.flip(self._dims[1]) if which >= _TURNS else x
        return mirrored.rot90(which % _TURNS, self._dims)

    def _act(self, a: Tensor, which: int) -> Tensor:
        return torch.where(a == NO_ACTION, a, self._actions[which].to(a.device)[a])

    def _permute(self, p: Tensor, which: int) -> Tensor:
        return p[..., self._inverse_actions[which].to(p.device)]

    def _each(self, apply: Callable[[Tensor, int], Tensor], x: Tensor, which: int | Tensor) -> Tensor:
        """Apply one symmetry to all of ``x``, or its own to each entry of the first dimension."""
        if not isinstance(which, Tensor):
            if not 0 <= which < self.COUNT:
                raise IndexError(f"there is no symmetry {which}; expected 0 .. {self.COUNT - 1}")
            return apply(x, which)
        result = torch.empty_like(x)
        for chosen in which.unique().tolist():
            rows = (which == chosen).to(x.device)
            result[rows] = self._each(apply, x[rows], chosen)
        return result
