"""Copies of the networks for acting: no autograd, channels_last, bfloat16 where the hardware is fast at it."""

from __future__ import annotations

import copy
from typing import Generic, Literal, TypeVar, get_args

import torch
from torch import Tensor, nn

from thinker.world_model.blocks import ActionLayer, OutputLayer
from thinker.world_model.network import LearnedModel
from thinker.world_model.protocol import NodeOutput
from thinker.world_model.value_policy import ValuePolicyNetwork

Precision = Literal["auto", "float32", "bfloat16"]
Network = TypeVar("Network", LearnedModel, ValuePolicyNetwork)


def fast_precision(network: nn.Module) -> torch.dtype:
    """bfloat16 where the network has convolutions and its device has instructions for it, else float32."""
    if not any(isinstance(module, nn.Conv2d) for module in network.modules()):
        return torch.float32
    device = next(network.parameters()).device
    if device.type == "cuda":
        fast = torch.cuda.get_device_capability(device) >= (8, 0)
    elif device.type == "cpu":
        # Without one of these, bfloat16 is emulated and slower than float32. The names are those of PyTorch 2.4 on.
        checks = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
        fast = any(getattr(torch.cpu, check, bool)() for check in checks)
    else:
        fast = False
    return torch.bfloat16 if fast else torch.float32


class InferenceCopy(Generic[Network]):
    """A copy of ``network`` that only predicts. `load_from` brings new weights into it, in place."""

    def __init__(self, network: Network, precision: Precision = "auto") -> None:
        if precision not in get_args(Precision):
            raise ValueError(f"precision must be one of {', '.join(get_args(Precision))}, got {precision!r}")
        self.network: Network = copy.deepcopy(network).requires_grad_(False)
        dtype = fast_precision(network) if precision == "auto" else getattr(torch, precision)
        self.precision: str = str(dtype).removeprefix("torch.")
        for module in self.network.modules():
            if not isinstance(module, OutputLayer):
                for parameter in module.parameters(recurse=False):
                    parameter.data = parameter.data.to(dtype)
        self._keep_tables()

    @property
    def num_actions(self) -> int:
        return self.network.num_actions

    @property
    def hidden_shape(self) -> tuple[int, ...]:
        return self.network.hidden_shape

    @torch.no_grad()
    def load_from(self, network: Network) -> None:
        """Take over the weights of ``network``, which must be of the same kind and size. Nothing is allocated."""
        mine, theirs = dict(self.network.named_parameters()), dict(network.named_parameters())
        if {name: value.shape for name, value in mine.items()} != {name: value.shape for name, value in theirs.items()}:
            raise ValueError(
                f"the weights of {type(network).__name__} do not have the names and shapes of this inference copy of "
                f"{type(self.network).__name__}; make a new copy for a network of another kind or size"
            )
        for name, value in theirs.items():
            mine[name].copy_(value)
        self._keep_tables()

    def _keep_tables(self) -> None:
        for module in self.network.modules():
            if isinstance(module, ActionLayer):
                module.keep_table()


class InferenceModel(InferenceCopy[LearnedModel]):
    """A `WorldModel` for acting. ``give_states=False`` leaves ``NodeOutput.state`` of unrolled nodes out, which saves
    turning them into observations where nobody looks at them.
    """

    def __init__(self, network: LearnedModel, precision: Precision = "auto", *, give_states: bool = True) -> None:
        super().__init__(network, precision)
        self.network.give_states = give_states

    @torch.no_grad()
    def root(self, observation: Tensor, last_action: Tensor) -> NodeOutput:
        """See `WorldModel`. Raises where an observation is not what the observation space declares."""
        self.network.codec.check(observation)
        return self.network.root(observation, last_action)

    @torch.no_grad()
    def unroll(self, hidden: Tensor, action: Tensor) -> NodeOutput:
        """See `WorldModel`."""
        return self.network.unroll(hidden, action)

    def observe_hidden(self, hidden: Tensor) -> Tensor:
        """What the agent sees of hidden states: a view [B, *hidden_shape]."""
        return self.network.observe_hidden(hidden)


class InferenceValuePolicy(InferenceCopy[ValuePolicyNetwork]):
    """Base policy and value for a simulator: called with observations [B, ...] and last actions [B]."""

    @torch.no_grad()
    def __call__(self, observation: Tensor, last_action: Tensor) -> tuple[Tensor, Tensor]:
        """Policy [B, A] (probabilities) and value [B]."""
        self.network.codec.check(observation)
        return self.network.evaluate(observation, last_action)
