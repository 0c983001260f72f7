"""A dual network without memory, for boards: a node is fully described by its board.

The state-reward half predicts the next board, reward and termination from one board and one action; the value-policy
half evaluates single boards. Sequences therefore need no recurrence: all their steps are trained in one batch. Boards
must contain the whole state of the MDP, which the paper's recurrent networks do not assume.
"""

from __future__ import annotations

import dataclasses
from typing import Literal, NamedTuple

import gymnasium as gym
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from thinker.errors import UnsupportedError
from thinker.nn.blocks import OutputLayer, Predictor
from thinker.nn.board_features import FEATURES, BoardFeatures
from thinker.nn.sizes import TilesSize
from thinker.world_model.architecture import BoardDecoder, ModelArchitecture
from thinker.world_model.batch import SequenceBatch
from thinker.world_model.network import (
    Predictions,
    TrainableNetwork,
    actions_of,
    batch_major,
    squared_error,
    time_major,
    trainable,
)

BoardStateLoss = Literal["cross-entropy", "feature"]
"""The loss of predicted boards: on each square of each plane, or on the value-policy half's features of them."""
SHARPNESS = 8.0
"""A predicted 1 has the probability sigmoid(SHARPNESS / 2) = 0.98, a predicted 0.5 is undecided."""


class NotBoardsError(UnsupportedError):
    """Observations are not boards."""

    def __init__(self, space: gym.Space) -> None:
        super().__init__(
            f"networks for boards need observations that are boards of 0s and 1s, which {space} are not; use a preset "
            "with another model, or DualModelSpec"
        )


def check_boards(architecture: ModelArchitecture) -> None:
    """Raise an error if observations are not boards."""
    if not isinstance(architecture.size, TilesSize):
        raise NotBoardsError(architecture.observation_space)


class Evaluation(NamedTuple):
    """What the value-policy half says about boards."""

    features: Tensor  # [B, FEATURES]  what the agent sees of a node
    value_output: Tensor  # [B, H]  for the network's head
    policy_logits: Tensor  # [B, A]


class Transition(NamedTuple):
    """What the state-reward half predicts for boards and actions."""

    state: Tensor  # [B, *state_shape]  real numbers near 0 and 1
    reward_output: Tensor  # [B, H]  for the network's head
    termination_logit: Tensor  # [B]


class BoardEvaluator(BoardFeatures):
    """The value-policy half: base policy and value of boards, by one layer from their features."""

    def __init__(self, architecture: ModelArchitecture, player_planes: tuple[int, ...] | None) -> None:
        super().__init__(architecture, player_planes)
        self.widths = architecture.head.outputs, architecture.num_actions
        self.output = OutputLayer(FEATURES, sum(self.widths))

    def forward(self, state: Tensor) -> Evaluation:
        """Boards [B, *state_shape] to their evaluation."""
        features = self.features(state)
        value_output, policy_logits = self.output(features).split(self.widths, 1)
        return Evaluation(features, value_output, policy_logits)


class BoardDynamics(nn.Module):
    """The state-reward half: the next board, reward and termination of one step."""

    def __init__(self, architecture: ModelArchitecture) -> None:
        super().__init__()
        layers, state_channels = architecture.layers, architecture.codec.state_shape[0]
        channels = layers.channels
        self.first = layers.action_layer(state_channels, channels)
        self.second = layers.layer(channels, channels)
        self.decoder = BoardDecoder(layers, architecture.codec.state_shape, blocks=0)
        outputs = {"reward": architecture.head.outputs, "termination": 1}
        self.predictor = Predictor(layers, (channels + state_channels, channels), outputs, positions="pool")

    def forward(self, state: Tensor, action: Tensor) -> Transition:
        """Boards of 0s and 1s [B, *state_shape] and one-hot actions [B, A] to what follows."""
        state = state.to(self.second.weight.dtype)
        hidden = self.second(self.first(state, action)).relu_()
        following = self.decoder(hidden, state)
        # Reward and termination are read from the predicted board, which the loss of states alone trains.
        seen = torch.cat((hidden, self.decoder.carry(following.detach())), 1)
        outputs = self.predictor(seen)
        return Transition(following, outputs["reward"], outputs["termination"].squeeze(1))


class BoardEvaluation(TrainableNetwork):
    """Base class of the networks whose value-policy half evaluates single boards."""

    value_policy: BoardEvaluator

    def predict_values(self, batch: SequenceBatch) -> Predictions:
        """Values and policies of the states where either is trained, and never of the last."""
        return self._evaluate(self._states(batch)[: -len(batch.last_action)], batch)

    def _states(self, batch: SequenceBatch) -> Tensor:
        """[(L+1) * N, *state_shape]"""
        return self.codec.encode(time_major(batch.observation))

    def _evaluate(self, states: Tensor, batch: SequenceBatch) -> Predictions:
        """`predict_values` for the encoded states [L * N, *state_shape]."""
        mask = (batch.value_mask + batch.policy_mask)[:, :-1]
        chosen = time_major(mask).nonzero().squeeze(1)
        value = states.new_zeros(len(states), self.head.outputs)
        policy_logits = states.new_zeros(len(states), self.num_actions)
        if len(chosen):
            evaluation = self.value_policy(states if len(chosen) == len(states) else states[chosen])
            value = value.index_copy(0, chosen, evaluation.value_output)
            policy_logits = policy_logits.index_copy(0, chosen, evaluation.policy_logits)
        return Predictions(
            head=self.head,
            value_output=F.pad(batch_major(value, len(mask)), (0, 0, 0, 1)),
            policy_logits=F.pad(batch_major(policy_logits, len(mask)), (0, 0, 0, 1)),
            known=F.pad((mask != 0).to(value.dtype), (0, 1)),
        )


class BoardValueNetwork(BoardEvaluation):
    """The value-policy half alone, to be trained for use with a perfect simulator."""

    def __init__(self, architecture: ModelArchitecture, player_planes: tuple[int, ...] | None = None) -> None:
        super().__init__(architecture, ("value", "policy"))
        check_boards(architecture)
        self.value_policy = BoardEvaluator(architecture, player_planes)

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        return {"value_policy": trainable(self)}

    def predict(self, batch: SequenceBatch) -> Predictions:
        return self.predict_values(batch)

    def evaluate(self, observation: Tensor, last_action: Tensor) -> tuple[Tensor, Tensor]:
        """Policy [B, A] (probabilities) and value [B] of real observations; ``last_action`` does not matter."""
        evaluation = self.value_policy(self.codec.encode(observation))
        return evaluation.policy_logits.softmax(1), self.head.decode(evaluation.value_output)


class BoardNetwork(BoardEvaluation):
    """Both halves. Search uses it through `thinker.world_model.board_model.BoardModel`.

    ``state_loss`` is the loss of predicted boards: the cross-entropy of their squares, or the squared difference of
    their features under the value-policy half's encoder; a mean over squares or features in both cases.
    """

    separable = True

    def __init__(
        self,
        architecture: ModelArchitecture,
        state_loss: BoardStateLoss,
        player_planes: tuple[int, ...] | None = None,
    ) -> None:
        super().__init__(architecture, ("reward", "termination", "state", "value", "policy"))
        check_boards(architecture)
        self.state_loss = state_loss
        self.state_reward = BoardDynamics(architecture.of_state_reward())
        self.value_policy = BoardEvaluator(architecture, player_planes)

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        return {
            "state_reward": trainable(self.state_reward),
            "value_policy": trainable(self.value_policy),
        }

    def predict(self, batch: SequenceBatch) -> Predictions:
        """All steps at once."""
        num_sequences = len(batch.last_action)
        states = self._states(batch)
        before, after = states[:-num_sequences], states[num_sequences:]
        transition = self.state_reward(before, actions_of(batch, self.num_actions)[1:].flatten(0, 1))
        return dataclasses.replace(
            self._evaluate(before, batch),
            reward_output=batch_major(transition.reward_output, num_sequences),
            termination_logit=batch_major(transition.termination_logit, num_sequences),
            state_error=batch_major(self._state_error(transition.state, after), num_sequences),
        )

    def _state_error(self, predicted: Tensor, true: Tensor) -> Tensor:
        """Predicted and true boards [L * N, *state_shape] to [L * N]."""
        if self.state_loss == "cross-entropy":
            logits = SHARPNESS * (predicted - 0.5)
            return F.binary_cross_entropy_with_logits(logits, true, reduction="none").flatten(1).mean(1)
        encoder = self.value_policy.encoder
        # Frozen: the gradient flows through the encoder to the predicted board, but not to the encoder's weights.
        frozen = {name: parameter.detach() for name, parameter in encoder.named_parameters()}
        with torch.no_grad():
            target = encoder(true).relu_()
        return squared_error(functional_call(encoder, frozen, (predicted,)).relu(), target)
