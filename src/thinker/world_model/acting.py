"""Copies of the networks for acting: no autograd, channels_last, bfloat16 where the hardware supports it natively."""

from __future__ import annotations

import copy
from typing import Generic, Literal, TypeVar, get_args

import torch
from torch import Tensor, nn

from thinker.errors import UserError
from thinker.interfaces import NodeOutput
from thinker.nn.blocks import ActionLayer, OutputLayer
from thinker.nn.centre import RunningCentre
from thinker.world_model.board import BoardValueNetwork
from thinker.world_model.network import LearnedModel, TrainableNetwork
from thinker.world_model.value_policy import ValuePolicyNetwork

Precision = Literal["auto", "float32", "bfloat16"]
Network = TypeVar("Network", bound=TrainableNetwork)


def fast_precision(network: nn.Module) -> torch.dtype:
    """bfloat16 if the network has convolutions and its device supports bfloat16 natively, else float32."""
    if not any(isinstance(module, nn.Conv2d) for module in network.modules()):
        return torch.float32
    device = next(network.parameters()).device
    if device.type == "cuda":
        fast = torch.cuda.get_device_capability(device) >= (8, 0)
    else:
        fast = device.type == "cpu" and _cpu_is_fast_at_bfloat16()
    return torch.bfloat16 if fast else torch.float32


def _cpu_is_fast_at_bfloat16() -> bool:
    # Without AVX512-BF16, bfloat16 is emulated and slower than float32. These functions exist since PyTorch 2.4.
    if not getattr(torch.cpu, "_is_avx512_bf16_supported", bool)():
        return False
    # Processors with AMX tiles are fast at bfloat16 only with them: without, their AVX512-BF16 is slower than float32,
    # and some virtual machines advertise AMX but trap it (4 times slower, or SIGILL), which cannot be detected.
    return not getattr(torch.cpu, "_is_amx_tile_supported", bool)()


class ActingCopy(Generic[Network]):
    """A copy of ``network`` on the same device, for inference only. `load_from` updates its weights in place."""

    def __init__(self, network: Network, precision: Precision = "auto") -> None:
        if precision not in get_args(Precision):
            raise UserError(f"precision must be one of {', '.join(get_args(Precision))}, got {precision!r}")
        self.network: Network = copy.deepcopy(network).requires_grad_(False)
        dtype = fast_precision(network) if precision == "auto" else getattr(torch, precision)
        self.precision: str = str(dtype).removeprefix("torch.")
        self.version = 0  # changes with the weights
        for module in self.network.modules():
            if not isinstance(module, OutputLayer | RunningCentre):
                for parameter in module.parameters(recurse=False):
                    parameter.data = parameter.data.to(dtype)
        self._keep_tables()

    @torch.no_grad()
    def load_from(self, network: Network) -> None:
        """Load the weights of ``network``, which must have the same type and size. Nothing is allocated."""
        mine, theirs = dict(self.network.named_parameters()), dict(network.named_parameters())
        if {name: value.shape for name, value in mine.items()} != {name: value.shape for name, value in theirs.items()}:
            raise ValueError(
                f"the weights of {type(network).__name__} do not have the names and shapes of this acting copy of "
                f"{type(self.network).__name__}; create a new copy for a network of another type or size"
            )
        for name, value in theirs.items():
            mine[name].copy_(value)
        self._keep_tables()
        self.version += 1

    def _keep_tables(self) -> None:
        for module in self.network.modules():
            if isinstance(module, ActionLayer):
                module.keep_table()


class ActingModel:
    """A `WorldModel` for acting: a view of the weights of an acting copy, which any number of views can share.

    Without ``predict_states`` the ``NodeOutput.state`` of unrolled nodes is None, which saves the conversion of unused
    states to observations.
    """

    def __init__(self, acting: ActingCopy[LearnedModel], *, predict_states: bool = True) -> None:
        self._network = acting.network
        self._predict_states = predict_states
        self.num_actions = acting.network.num_actions
        self.hidden_shape = acting.network.hidden_shape
        self.device = acting.network.device

    @torch.no_grad()
    def root(self, observation: Tensor, last_action: Tensor) -> NodeOutput:
        """See `WorldModel`. Raises an error if an observation does not lie in the declared observation space."""
        self._network.codec.check(observation)
        return self._network.root(observation, last_action)

    @torch.no_grad()
    def unroll(self, hidden: Tensor, action: Tensor) -> NodeOutput:
        """See `WorldModel`."""
        return self._network.unroll(hidden, action, predict_states=self._predict_states)

    def visible_hidden(self, hidden: Tensor) -> Tensor:
        """The part of hidden states that the agent sees: a view [B, *hidden_shape]."""
        return self._network.visible_hidden(hidden)


class ActingValues:
    """Base policy and value for a simulator (a `PolicyAndValue`): a view of the weights of an acting copy."""

    def __init__(self, acting: ActingCopy[ValuePolicyNetwork | BoardValueNetwork]) -> None:
        self._network = acting.network

    @property
    def device(self) -> torch.device:
        return self._network.device

    @torch.no_grad()
    def __call__(self, observation: Tensor, last_action: Tensor) -> tuple[Tensor, Tensor]:
        """Policy [B, A] (probabilities) and value [B], on the device of ``observation``."""
        here, there = self.device, observation.device
        observation = observation.to(here)
        self._network.codec.check(observation)
        policy, value = self._network.evaluate(observation, last_action.to(here))
        return policy.to(there), value.to(there)
