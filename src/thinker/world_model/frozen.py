"""A perfect simulator with a given base policy and value that are never trained (the paper's appendix H)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from gymnasium.vector import VectorEnv
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from thinker.errors import UserError
from thinker.interfaces import NodeOutput, PolicyAndValue, WorldModel
from thinker.world_model.acting import ActingCopy, ActingValues, Precision
from thinker.world_model.board_table import UNKNOWN, find_or_add, make_table
from thinker.world_model.build import ValueNetwork, ValueNetworkName, build_value_policy
from thinker.world_model.heads import HeadName
from thinker.world_model.simulator import simulator
from thinker.world_model.spec import (
    BuiltModel,
    LearnedValuesSimulatorSpec,
    ModelContext,
    ModelSpec,
    SizeOption,
    num_actions_of,
)

KeepValues = Literal["stage", "always"]
"""How long the values of states are kept: for the search of one real step, or as long as there is room for them."""
_MOST_STATES, _MOST_BYTES = 1 << 17, 1 << 26
"""Bounds on the states whose values are kept, by number and by memory."""


@dataclass(frozen=True)
class FrozenValuesSimulatorSpec(ModelSpec):
    """The real dynamics as a perfect model, with a base policy and value from a file, which are never trained."""

    weights: str = ""  # safetensors file of a value-policy network, written by save_values
    network: ValueNetworkName = "dual"  # the model whose value-policy half it is
    size: SizeOption = None  # size of that network; None: chosen from the observation space
    precision: Precision = (
        "auto"  # precision of its evaluations; auto: bfloat16 where the hardware supports it natively
    )
    value_head: HeadName = "scalar"  # how it predicts values
    support_size: int = 601  # categorical: number of bins, odd
    support_limit: float = 300.0  # categorical: bins from minus this to this, of h(x) = sign(x)(√(|x|+1)-1) + 0.001 x
    keep_values: KeepValues = "stage"  # of known states; always: faster, but resumed runs are exact up to rounding only

    def __post_init__(self) -> None:
        self._trained()  # raises an error for wrong settings of the network
        if self.keep_values not in get_args(KeepValues):
            known = " or ".join(map(repr, get_args(KeepValues)))
            raise UserError(f"keep_values is {self.keep_values!r}; it must be {known}")

    @staticmethod
    def frozen(model: LearnedValuesSimulatorSpec, weights: Path) -> FrozenValuesSimulatorSpec:
        """The spec of a network that was trained as ``model`` and saved in ``weights``."""
        return FrozenValuesSimulatorSpec(
            weights=str(weights),
            network=model.network,
            size=model.size,
            precision=model.precision,
            value_head=model.value_head,
            support_size=model.support_size,
            support_limit=model.support_limit,
        )

    def _trained(self) -> LearnedValuesSimulatorSpec:
        """The spec with which the same network is trained."""
        return LearnedValuesSimulatorSpec(
            network=self.network,
            size=self.size,
            precision=self.precision,
            value_head=self.value_head,
            support_size=self.support_size,
            support_limit=self.support_limit,
        )

    @property
    def predicts_states(self) -> bool:
        return True

    def build(self, context: ModelContext) -> BuiltModel:
        network = build_value_policy(
            context.observation_space,
            num_actions_of(context.action_space),
            network=self.network,
            size=self.size,
            board=context.board,
            head=self._trained().head(),
            device=context.device,
        )
        load_values(network, Path(self.weights))
        values = ActingValues(ActingCopy(network, self.precision))
        return _BuiltFrozenValues(values, network.num_actions, self.keep_values)


def save_values(network: ValueNetwork, path: Path) -> None:
    """Write the weights of ``network`` to the safetensors file ``path``, atomically."""
    temporary = path.with_name(f".{path.name}.tmp")
    save_file({name: value.detach().cpu().contiguous() for name, value in network.state_dict().items()}, temporary)
    os.replace(temporary, path)


def load_values(network: ValueNetwork, path: Path) -> None:
    """Load the weights that `save_values` wrote to ``path``; raises an error if they do not fit."""
    if not path.is_file():
        raise UserError(
            f"model.weights is {str(path)!r}, and there is no such file; give the safetensors file of a value-policy "
            f"network, such as base-policy.safetensors in the folder of `thinker improve`"
        )
    try:
        weights = load_file(path)
    except (OSError, SafetensorError) as error:
        raise UserError(f"model.weights {path} cannot be read as a safetensors file: {error}") from error
    mine = {name: tuple(value.shape) for name, value in network.state_dict().items()}
    theirs = {name: tuple(value.shape) for name, value in weights.items()}
    for name in sorted(mine.keys() | theirs.keys()):
        if mine.get(name) != theirs.get(name):
            raise UserError(
                f"the weights in {path} do not fit the value-policy network of this environment, size and value head: "
                f"{name} has the shape {theirs.get(name, 'missing')} in the file, but must have "
                f"{mine.get(name, 'none')}; use the environment and settings with which they were trained"
            )
    network.load_state_dict(weights)


class KnownValues:
    """A `PolicyAndValue` that evaluates every state only once between two calls of `clear`.

    Different paths of a search often lead to the same state. The memory for states is bounded: when it is full, it is
    cleared as well.
    """

    def __init__(self, values: PolicyAndValue, num_actions: int, most_states: int = _MOST_STATES) -> None:
        """``values`` evaluates states that are not known; ``num_actions`` is A."""
        self._values = values
        self._num_actions = num_actions
        self._most_states = most_states
        self._count = 0
        self._capacity = 0  # until the first call, when the size of a state is known

    def clear(self) -> None:
        """Forget all states."""
        if self._count:
            self._table.slots.fill(UNKNOWN)
            self._count = 0

    def __call__(self, observation: Tensor, last_action: Tensor) -> tuple[Tensor, Tensor]:
        """Policy [B, A] (probabilities) and value [B] of ``observation`` [B, ...] after ``last_action`` [B]."""
        words = _words(observation, last_action)
        if not self._capacity:
            self._capacity = max(1, min(self._most_states, _MOST_BYTES // words[0].nbytes))
            self._table = make_table(self._capacity, words.shape[1], self._num_actions)
        policy = np.empty((len(words), self._num_actions), np.float32)
        value = np.empty(len(words), np.float32)
        for first in range(0, len(words), self._capacity):
            part = slice(first, first + self._capacity)
            numbers = self._numbers(words[part], observation[part], last_action[part])
            policy[part], value[part] = self._table.policy[numbers], self._table.value[numbers]
        device = observation.device
        return torch.from_numpy(policy).to(device), torch.from_numpy(value).to(device)

    def _numbers(self, words: np.ndarray, observation: Tensor, last_action: Tensor) -> np.ndarray:
        """The numbers [B] of the states ``words`` [B, W] in the table; those that are new are evaluated."""
        if self._count + len(words) > self._capacity:
            self.clear()
        numbers = np.empty(len(words), np.int64)
        before, self._count = self._count, find_or_add(self._table, self._count, words, numbers)
        if self._count > before:
            new = np.flatnonzero(numbers >= before)
            rows = torch.from_numpy(new[np.unique(numbers[new], return_index=True)[1]]).to(observation.device)
            policy, value = self._values(observation[rows], last_action[rows])
            self._table.policy[before : self._count] = policy.float().cpu().numpy()
            self._table.value[before : self._count] = value.float().cpu().numpy()
        return numbers


def _words(observation: Tensor, last_action: Tensor) -> np.ndarray:
    """The bytes of states and actions, [B, ...] and [B], as words [B, W] int64."""
    raw = np.ascontiguousarray(observation.cpu().numpy()).reshape(len(observation), -1).view(np.uint8)
    words = np.zeros((len(raw), 1 + -(-raw.shape[1] // 8)), np.int64)
    words[:, 0] = last_action.cpu().numpy()
    words.view(np.uint8)[:, 8 : 8 + raw.shape[1]] = raw
    return words


class FrozenModel:
    """A simulator that knows the values of states it has met before.

    With ``keep_values="stage"`` they are forgotten whenever new roots are planted, so that what a search sees does not
    depend on the searches before it: a state's value can differ by rounding if it is evaluated in another batch, and
    resumed runs must be exact.
    """

    def __init__(self, envs: VectorEnv, values: PolicyAndValue, num_actions: int, keep_values: KeepValues) -> None:
        """``envs`` are simulated; ``values`` evaluates their states; ``num_actions`` is A."""
        self.num_actions = num_actions
        self._keep_values = keep_values
        self._values = KnownValues(values, num_actions)
        self._simulator = simulator(envs, self._values)

    def root(self, observation: Tensor, last_action: Tensor) -> NodeOutput:
        """See `WorldModel`."""
        self._begin_stage()
        output = self._simulator.root(observation, last_action)
        self._begin_stage()
        return output

    def _begin_stage(self) -> None:
        if self._keep_values == "stage":
            self._values.clear()

    def unroll(self, hidden: Tensor, action: Tensor) -> NodeOutput:
        """See `WorldModel`."""
        return self._simulator.unroll(hidden, action)

    def __getattr__(self, name: str) -> Any:
        """Everything else, such as ``device`` and ``visible_hidden``, is the simulator's."""
        return getattr(self._simulator, name)


class _BuiltFrozenValues(BuiltModel):
    trainer = None

    def __init__(self, values: PolicyAndValue, num_actions: int, keep_values: KeepValues) -> None:
        self._values, self._num_actions, self._keep_values = values, num_actions, keep_values

    def for_envs(self, envs: VectorEnv, *, predict_states: bool = False) -> WorldModel:
        return FrozenModel(envs, self._values, self._num_actions, self._keep_values)
