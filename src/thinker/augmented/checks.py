"""Checks of the settings, the caller's actions and the model's outputs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from thinker.augmented.tree import NOTHING_WRONG, first_wrong_action
from thinker.errors import UnsupportedError, UserError
from thinker.interfaces import NodeOutput

Name = TypeVar("Name", bound=str)


def check_settings(stage_length: int, max_depth: int | None, discount: float, output: str) -> None:
    """Raise an error for invalid settings of `ThinkerEnv`."""
    if isinstance(stage_length, bool) or not isinstance(stage_length, int | np.integer) or stage_length < 1:
        raise UserError(f"stage_length is {stage_length!r}; it must be an integer of at least 1 (1: no planning)")
    if max_depth is not None and (not isinstance(max_depth, int | np.integer) or max_depth < 1):
        raise UserError(f"max_depth is {max_depth!r}; it must be an integer of at least 1, or None for no limit")
    if not 0 <= discount <= 1:
        raise UserError(f"discount is {discount!r}; it must lie between 0 and 1")
    if output not in ("torch", "numpy"):
        raise UserError(f"output is {output!r}; it must be 'torch' or 'numpy'")


def check_names(argument: str, names: Iterable[Name], known: tuple[str, ...]) -> tuple[Name, ...]:
    """``names`` as a tuple; raises an error that lists the ``known`` names if one is unknown."""
    if isinstance(names, str):
        raise UnsupportedError(
            f"{argument} is a collection of names, not the string {names!r}; write {argument}=({names!r},)"
        )
    names = tuple(names)
    for name in names:
        if name not in known:
            raise UserError(f"{argument} has the unknown name {name!r}; known are {', '.join(map(repr, known))}")
    return names


def checked_actions(actions: np.ndarray | Tensor, num_envs: int, num_actions: int) -> np.ndarray:
    """The caller's ``actions`` as int64 [E, 2], checked. They are never modified."""
    pairs = actions.detach().cpu().numpy() if isinstance(actions, Tensor) else np.asarray(actions)
    if pairs.shape != (num_envs, 2) or pairs.dtype.kind not in "iu":
        raise UserError(
            f"actions must be integers of shape ({num_envs}, 2): for each environment, the imaginary or real action "
            f"and the reset action; got shape {pairs.shape} and dtype {pairs.dtype}"
        )
    pairs = np.ascontiguousarray(pairs, np.int64)
    wrong = first_wrong_action(pairs, num_actions)
    if wrong != NOTHING_WRONG:
        raise UserError(
            f"the actions of environment {wrong} are {pairs[wrong].tolist()}; the first must be 0 to "
            f"{num_actions - 1}, the second (reset) 0 or 1"
        )
    return pairs


def checked_targets(
    policy: np.ndarray | Tensor | None, root_value: np.ndarray | Tensor | None, num_envs: int, num_actions: int
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """What the agent says about a real step, checked: its distribution as float32 [E, A], values as float32 [E]."""
    return _checked_policy(policy, num_envs, num_actions), _checked_root_value(root_value, num_envs)


def _checked_policy(policy: np.ndarray | Tensor | None, num_envs: int, num_actions: int) -> np.ndarray | None:
    if policy is None:
        return None
    rows = policy.detach().cpu().numpy() if isinstance(policy, Tensor) else np.asarray(policy)
    rows = rows.astype(np.float32)
    if rows.shape != (num_envs, num_actions) or (rows < 0).any() or not np.allclose(rows.sum(1), 1, atol=1e-3):
        raise UserError(
            f"policy must contain probabilities of shape ({num_envs}, {num_actions}) whose rows sum to 1; got shape "
            f"{rows.shape}, minimum {rows.min()}, sums {rows.sum(-1)}"
        )
    return rows


def _checked_root_value(values: np.ndarray | Tensor | None, num_envs: int) -> np.ndarray | None:
    if values is None:
        return None
    found = values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
    if found.shape != (num_envs,) or not np.isfinite(found).all():
        raise UserError(f"root_value must contain finite numbers of shape ({num_envs},); got {found!r}")
    return found.astype(np.float32)


def checked_output(
    output: NodeOutput,
    count: int,
    num_actions: int,
    hidden_shape: tuple[int, ...] | None,
    observation_shape: tuple[int, ...],
    call: str,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Value, policy, reward and termination of ``count`` nodes as float32 NumPy arrays, after checking all shapes."""
    if (
        output.value.shape != (count,)
        or output.policy.shape != (count, num_actions)
        or output.reward.shape != (count,)
        or output.termination.shape != (count,)
    ):
        shapes = {name: tuple(getattr(output, name).shape) for name in ("value", "policy", "reward", "termination")}
        raise UserError(
            f"the model's {call}() returned {shapes} for {count} nodes; value, reward and termination must be of shape "
            f"({count},) and policy of shape ({count}, {num_actions})"
        )
    if output.hidden.shape[0] != count or (hidden_shape is not None and output.hidden.shape[1:] != hidden_shape):
        raise UserError(
            f"the model's {call}() returned hidden of shape {tuple(output.hidden.shape)} for {count} nodes; expected "
            f"{(count, *(('...',) if hidden_shape is None else hidden_shape))}, the same from root() and unroll()"
        )
    if output.state is not None and output.state.shape != (count, *observation_shape):
        raise UserError(
            f"the model's {call}() returned state of shape {tuple(output.state.shape)} for {count} nodes; expected "
            f"{(count, *observation_shape)}, the shape of the observations"
        )
    return _numpy(output.value), _numpy(output.policy), _numpy(output.reward), _numpy(output.termination)


def _numpy(tensor: Tensor) -> np.ndarray:
    if tensor.requires_grad or not tensor.is_cpu or tensor.dtype != torch.float32:
        tensor = tensor.detach().float().cpu()
    array: np.ndarray = tensor.contiguous().numpy()
    return array


def not_finite(call: str, environment: int) -> UserError:
    """The error for a model that returned a non-finite value."""
    return UserError(
        f"the model's {call}() returned NaN or infinity for environment {environment}. If the model is being trained, "
        f"lower its learning rate or check the rewards; if it is your own model, check its outputs"
    )
