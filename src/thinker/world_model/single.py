"""One network for everything: the paper's ablations "single network", with predicted states or without (MuZero's)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from thinker.world_model.architecture import Architecture, Decoder
from thinker.world_model.network import (
    LearnedModel,
    Predictions,
    actions_of,
    batch_major,
    squared_error,
    time_major,
)
from thinker.world_model.protocol import NodeOutput
from thinker.world_model.transition import SequenceBatch


class SingleNetwork(LearnedModel):
    """One recurrent network for rewards, termination, values, policies and, with "l2", states."""

    def __init__(self, architecture: Architecture, *, state_loss: Literal["l2"] | None) -> None:
        super().__init__(architecture, hidden_channels=(architecture.layers.channels,), state_loss=state_loss)
        self.encoder = architecture.encoder()
        self.unroll_function = architecture.unroll_function(takes_encoded=False)
        self.transition_predictor = architecture.predictor({"reward": 1, "termination": 1})
        self.evaluation_predictor = architecture.predictor({"value": 1, "policy": architecture.num_actions})
        self.state_decoder = None if state_loss is None else architecture.decoder()

    @property
    def decoder(self) -> Decoder | None:
        return self.state_decoder

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        return {"single": list(self.parameters())}

    @torch.no_grad()
    def root(self, observation: Tensor, last_action: Tensor) -> NodeOutput:
        state = self.codec.encode(observation)
        hidden = self.encoder(state, self._one_hot(last_action))
        shown = None if self.decoder is None else observation
        return self._node((hidden,), state, shown, self.evaluation_predictor(hidden))

    @torch.no_grad()
    def unroll(self, hidden: Tensor, action: Tensor) -> NodeOutput:
        (part,), previous = self._split(hidden)
        part = self.unroll_function(part, self._one_hot(action))
        outputs = self.transition_predictor(part) | self.evaluation_predictor(part)
        if self.decoder is None:
            return self._node((part,), previous, None, outputs)
        state = self.decoder(part, previous)
        shown = self.codec.decode(state) if self.give_states else None
        return self._node((part,), state, shown, outputs)

    def predict(self, batch: SequenceBatch) -> Predictions:
        num_sequences, unroll_length = batch.action.shape
        action = actions_of(batch, self.num_actions)  # [L+1, N, A]
        true_states = self.codec.encode(time_major(batch.observation))  # [(L+1) * N, *state_shape]
        state = true_states[:num_sequences]
        hiddens = [self.encoder(state, action[0])]
        states = []
        for step in range(1, unroll_length + 1):
            hiddens.append(self.unroll_function(hiddens[-1], action[step]))
            if self.decoder is not None:
                state = self.decoder(hiddens[-1], self.decoder.carry(state))
                states.append(state)
        evaluation = self.evaluation_predictor(torch.cat(hiddens))
        transition = self.transition_predictor(torch.cat(hiddens[1:]))
        state_error = None
        if states:
            state_error = batch_major(squared_error(torch.cat(states), true_states[num_sequences:]), num_sequences)
        return Predictions(
            value=batch_major(evaluation["value"].squeeze(1), num_sequences),
            policy_logits=batch_major(evaluation["policy"], num_sequences),
            reward=batch_major(transition["reward"].squeeze(1), num_sequences),
            termination_logit=batch_major(transition["termination"].squeeze(1), num_sequences),
            state_error=state_error,
        )
