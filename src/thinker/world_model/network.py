"""Base classes of all learned world models: how nodes are encoded, and what a training pass predicts."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from thinker.interfaces import NodeOutput
from thinker.nn.blocks import one_hot_action
from thinker.nn.centre import RunningCentre
from thinker.world_model.architecture import Decoder, ModelArchitecture
from thinker.world_model.batch import SequenceBatch
from thinker.world_model.heads import Head

StateLoss = Literal["feature", "l2", "none"]
"""The loss of predicted states: on the value-policy network's features of them, on the states themselves, or none."""
SingleStateLoss = Literal["l2", "none"]
"""The same for networks without a value-policy half."""


@dataclass(frozen=True)
class Predictions:
    """A network's predictions for N sequences of L steps, with gradients; None for what it does not predict."""

    head: Head  # says what values and rewards ``value_output`` and ``reward_output`` mean
    value_output: Tensor  # [N, L+1, H]
    policy_logits: Tensor  # [N, L+1, A]
    reward_output: Tensor | None = None  # [N, L, H]
    termination_logit: Tensor | None = None  # [N, L]
    state_error: Tensor | None = None  # [N, L]  mean squared error of the predicted states
    known: Tensor | None = None  # [N, L+1]  1 where the state was available; None: everywhere

    @property
    def value(self) -> Tensor:
        """The predicted values [N, L+1]."""
        return self.head.decode(self.value_output)

    @property
    def reward(self) -> Tensor | None:
        """The predicted rewards [N, L]."""
        return None if self.reward_output is None else self.head.decode(self.reward_output)


def to_rows(x: Tensor) -> Tensor:
    """[B, features] unchanged; [B, channels, height, width] flattened in channels_last order."""
    return x if x.ndim == 2 else x.permute(0, 2, 3, 1).flatten(1)


def from_rows(rows: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The inverse of `to_rows` for one row's ``shape``; a view."""
    return rows if len(shape) == 1 else rows.unflatten(1, (*shape[1:], shape[0])).permute(0, 3, 1, 2)


def trainable(module: nn.Module) -> list[nn.Parameter]:
    """The parameters of ``module`` that gradients change."""
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


def time_major(x: Tensor) -> Tensor:
    """[N, L, ...] to [L * N, ...], so that the sequences of each step are contiguous."""
    return x.transpose(0, 1).flatten(0, 1)


def batch_major(x: Tensor, batch: int) -> Tensor:
    """The inverse of `time_major`: [L * N, ...] to [N, L, ...]."""
    return x.unflatten(0, (-1, batch)).transpose(0, 1)


def squared_error(predicted: Tensor, target: Tensor) -> Tensor:
    """[B, ...] and [B, ...] to [B]: the mean over all features of the squared difference."""
    return (predicted - target).square().mean(tuple(range(1, predicted.ndim)))


def actions_of(batch: SequenceBatch, num_actions: int) -> Tensor:
    """One-hot [L+1, N, A]: entry l is the action that led to s_{t+l}; zeros where an episode started."""
    return one_hot_action(torch.cat((batch.last_action.unsqueeze(0), batch.action.t())), num_actions)


class TrainableNetwork(nn.Module, ABC):
    """A network that a `ModelTrainer` can train: it makes the `Predictions` that `model_losses` needs."""

    separable = False  # whether the value-policy half can be trained without the state-reward half

    def __init__(self, architecture: ModelArchitecture, loss_names: tuple[str, ...]) -> None:
        super().__init__()
        self.codec = architecture.codec
        self.num_actions = architecture.num_actions
        self.head = architecture.head
        self.loss_names = loss_names

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    @abstractmethod
    def predict(self, batch: SequenceBatch) -> Predictions:
        """All predictions for the sequences, with gradients."""

    @torch.no_grad()
    def update_centres(self, batch: SequenceBatch) -> None:
        """Update the running means that encoders of pictures subtract, if there are any, with the first states."""
        centres = [module for module in self.modules() if isinstance(module, RunningCentre)]
        if centres:
            states = self.codec.encode(batch.observation[:, 0])
            for centre in centres:
                centre.update(states)

    def predict_values(self, batch: SequenceBatch) -> Predictions:
        """The value-policy half's predictions alone; only if the network is ``separable``."""
        raise NotImplementedError(f"{type(self).__name__} has no value-policy half that can be trained alone")

    @abstractmethod
    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        """All trainable parameters, by the sub-network that may have its own learning rate."""


class LearnedModel(TrainableNetwork):
    """A network that is a `WorldModel`; `predict` unrolls it from the first state of each sequence along its actions.

    A node's hidden state is one row: the hidden states of the sub-networks, channel-wise, followed by the part of the
    node's state that the decoder needs. The agent sees only the former, as [B, *hidden_shape].
    """

    def __init__(
        self, architecture: ModelArchitecture, *, hidden_channels: tuple[int, ...], state_loss: StateLoss
    ) -> None:
        state = () if state_loss == "none" else ("state",)
        super().__init__(architecture, ("reward", "termination", *state, "value", "policy"))
        self.state_loss = state_loss
        self.hidden_channels = hidden_channels
        self.hidden_shape = (sum(hidden_channels), *architecture.layers.shape[1:])

    @property
    def predicts_states(self) -> bool:
        """Whether predicted states are trained, and therefore available."""
        return self.state_loss != "none"

    @abstractmethod
    def root(self, observation: Tensor, last_action: Tensor) -> NodeOutput:
        """See `WorldModel`."""

    @abstractmethod
    def unroll(self, hidden: Tensor, action: Tensor, *, predict_states: bool = True) -> NodeOutput:
        """See `WorldModel`. Without ``predict_states`` the ``state`` of the nodes is None."""

    @property
    @abstractmethod
    def decoder(self) -> Decoder | None:
        """The decoder that `root` and `unroll` use, if any."""

    def visible_hidden(self, hidden: Tensor) -> Tensor:
        """The part of hidden states that the agent sees: a view [B, *hidden_shape]."""
        return from_rows(hidden[:, : math.prod(self.hidden_shape)], self.hidden_shape)

    def _one_hot(self, action: Tensor) -> Tensor:
        return one_hot_action(action, self.num_actions)

    def _parts(self, hidden: Tensor) -> list[Tensor]:
        """The sub-networks' hidden states within rows of hidden states, as views."""
        return list(self.visible_hidden(hidden).split(self.hidden_channels, 1))

    def _split(self, hidden: Tensor) -> tuple[list[Tensor], Tensor]:
        """Split rows into the sub-networks' hidden states (in the weights' dtype) and the decoder's carried part."""
        dtype = next(self.parameters()).dtype  # the first one is an encoder's first layer
        parts = [part.to(dtype) for part in self._parts(hidden)]
        carried = hidden[:, math.prod(self.hidden_shape) :]
        return parts, carried if self.decoder is None else from_rows(carried, self.decoder.carried_shape)

    def _node(
        self,
        hidden: Sequence[Tensor],
        state: Tensor,
        observation: Tensor | None,
        outputs: dict[str, Tensor],
    ) -> NodeOutput:
        """``hidden``: of the sub-networks. ``state``: encoded, for the networks. ``observation``: for the agent."""
        batch = hidden[0].shape[0]
        visible = math.prod(self.hidden_shape)
        carried = None if self.decoder is None else to_rows(self.decoder.carry(state))
        rows = hidden[0].new_empty(batch, visible + (0 if carried is None else carried.shape[1]), dtype=torch.float32)
        for target, part in zip(self._parts(rows), hidden):
            target.copy_(part)
        if carried is not None:
            rows[:, visible:] = carried
        value = self.head.decode(outputs["value"])
        zeros = torch.zeros_like(value) if "reward" not in outputs else None
        return NodeOutput(
            hidden=rows,
            value=value,
            policy=outputs["policy"].softmax(1),
            reward=self.head.decode(outputs["reward"]) if zeros is None else zeros,
            termination=outputs["termination"].squeeze(1).sigmoid() if zeros is None else zeros,
            state=observation,
        )
