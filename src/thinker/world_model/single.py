"""The single network of the paper's ablations, with predicted states or without (as in MuZero)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from thinker.interfaces import NodeOutput
from thinker.world_model.architecture import Decoder, ModelArchitecture
from thinker.world_model.batch import SequenceBatch
from thinker.world_model.network import (
    LearnedModel,
    Predictions,
    SingleStateLoss,
    actions_of,
    batch_major,
    squared_error,
    time_major,
    trainable,
)


class SingleNetwork(LearnedModel):
    """One recurrent network for rewards, termination, values, policies and, with "l2", states."""

    def __init__(self, architecture: ModelArchitecture, state_loss: SingleStateLoss) -> None:
        channels = architecture.layers.channels
        super().__init__(architecture, hidden_channels=(channels,), state_loss=state_loss)
        self.encoder = architecture.encoder()
        self.unroll_function = architecture.unroll_function(channels)
        self.transition_predictor = architecture.transition_predictor(channels)
        self.evaluation_predictor = architecture.evaluation_predictor(channels)
        self.state_decoder = architecture.decoder() if self.predicts_states else None

    @property
    def decoder(self) -> Decoder | None:
        return self.state_decoder

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        return {"single": trainable(self)}

    @torch.no_grad()
    def root(self, observation: Tensor, last_action: Tensor) -> NodeOutput:
        state = self.codec.encode(observation)
        hidden = self.encoder(state, self._one_hot(last_action))
        shown = observation if self.predicts_states else None
        return self._node((hidden,), state, shown, self.evaluation_predictor(hidden.relu()))

    @torch.no_grad()
    def unroll(self, hidden: Tensor, action: Tensor, *, predict_states: bool = True) -> NodeOutput:
        (part,), previous = self._split(hidden)
        part = self._advance(part, self._one_hot(action))
        activated = part.relu()
        outputs = self.transition_predictor(activated) | self.evaluation_predictor(activated)
        if self.decoder is None:
            return self._node((part,), previous, None, outputs)
        state = self.decoder(part, previous)
        shown = self.codec.decode(state) if predict_states else None
        return self._node((part,), state, shown, outputs)

    def predict(self, batch: SequenceBatch) -> Predictions:
        num_sequences, unroll_length = batch.action.shape
        action = actions_of(batch, self.num_actions)  # [L+1, N, A]
        true_states = self.codec.encode(time_major(batch.observation))  # [(L+1) * N, *state_shape]
        state = true_states[:num_sequences]
        hiddens = [self.encoder(state, action[0])]
        states = []
        for step in range(1, unroll_length + 1):
            hiddens.append(self._advance(hiddens[-1], action[step]))
            if self.decoder is not None:
                state = self.decoder(hiddens[-1], self.decoder.carry(state))
                states.append(state)
        activated = torch.cat(hiddens).relu_()
        evaluation = self.evaluation_predictor(activated)
        transition = self.transition_predictor(activated[num_sequences:])
        state_error = None
        if states:
            state_error = batch_major(squared_error(torch.cat(states), true_states[num_sequences:]), num_sequences)
        return Predictions(
            head=self.head,
            value_output=batch_major(evaluation["value"], num_sequences),
            policy_logits=batch_major(evaluation["policy"], num_sequences),
            reward_output=batch_major(transition["reward"], num_sequences),
            termination_logit=batch_major(transition["termination"].squeeze(1), num_sequences),
            state_error=state_error,
        )

    def _advance(self, hidden: Tensor, action: Tensor) -> Tensor:
        """The next hidden state [B, *hidden_shape] from the last one and the one-hot action [B, A]."""
        advanced: Tensor = self.unroll_function(hidden.relu(), action, hidden)
        return advanced
