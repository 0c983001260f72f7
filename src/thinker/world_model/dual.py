"""The dual network: a state-reward network and a value-policy network with separate losses (section 4.4)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call

from thinker.interfaces import NodeOutput
from thinker.world_model.architecture import Decoder, ModelArchitecture
from thinker.world_model.batch import SequenceBatch
from thinker.world_model.network import (
    LearnedModel,
    Predictions,
    StateLoss,
    actions_of,
    batch_major,
    squared_error,
    time_major,
    trainable,
)
from thinker.world_model.value_policy import ValuePolicyNetwork


class StateRewardNetwork(nn.Module):
    """Predicts states, rewards and termination from a real state and the actions taken after it.

    Where the network sees the last state next to the hidden state (boards), the hidden state need not encode all of it
    and ends with a ReLU.
    """

    def __init__(self, architecture: ModelArchitecture) -> None:
        super().__init__()
        self.sees_state = architecture.seen_state_channels > 0
        inputs = architecture.layers.channels + architecture.seen_state_channels
        self.encoder = architecture.encoder()
        self.unroll_function = architecture.unroll_function(inputs)
        self.predictor = architecture.transition_predictor(inputs)
        self.decoder = architecture.decoder()

    def advance(self, hidden: Tensor, action: Tensor, previous: Tensor) -> Tensor:
        """The next hidden state from the last one [B, *hidden_shape], the one-hot action and the last state."""
        advanced: Tensor = self.unroll_function(self._seen(hidden.relu(), previous), action, hidden)
        return advanced.relu_() if self.sees_state else advanced

    def transition(self, hidden: Tensor, state: Tensor) -> dict[str, Tensor]:
        """Reward [B, H] and termination logit [B, 1] on reaching states [B, *state_shape] with ``hidden`` states."""
        activated = hidden if self.sees_state else hidden.relu()
        outputs: dict[str, Tensor] = self.predictor(self._seen(activated, self.decoder.carry(state)))
        return outputs

    def _seen(self, hidden: Tensor, state: Tensor) -> Tensor:
        return torch.cat((hidden, state.detach().to(hidden.dtype)), 1) if self.sees_state else hidden


class DualNetwork(LearnedModel):
    """Both networks; the states predicted by the first are the inputs of the second.

    ``state_loss`` is the loss of predicted states: the squared difference of their features under the value-policy
    network's encoder ("feature"), the squared difference of the states themselves ("l2"), or "none".
    """

    def __init__(self, architecture: ModelArchitecture, state_loss: StateLoss) -> None:
        of_state_reward = architecture.of_state_reward()
        channels = of_state_reward.layers.channels, architecture.layers.channels
        super().__init__(architecture, hidden_channels=channels, state_loss=state_loss)
        self.state_reward = StateRewardNetwork(of_state_reward)
        self.value_policy = ValuePolicyNetwork(architecture)

    @property
    def decoder(self) -> Decoder:
        return self.state_reward.decoder

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        return {
            "state_reward": trainable(self.state_reward),
            "value_policy": trainable(self.value_policy),
        }

    @torch.no_grad()
    def root(self, observation: Tensor, last_action: Tensor) -> NodeOutput:
        action, state = self._one_hot(last_action), self.codec.encode(observation)
        state_reward = self.state_reward.encoder(state, action)
        value_policy = self.value_policy.begin(action, self.value_policy.encoder(state, action))
        outputs = self.value_policy.values(value_policy)
        shown = observation if self.predicts_states else None
        return self._node((state_reward, value_policy), state, shown, outputs)

    @torch.no_grad()
    def unroll(self, hidden: Tensor, action: Tensor, *, predict_states: bool = True) -> NodeOutput:
        (state_reward, value_policy), previous = self._split(hidden)
        action = self._one_hot(action)
        state_reward = self.state_reward.advance(state_reward, action, previous)
        state = self.decoder(state_reward, previous)
        value_policy = self.value_policy.advance(value_policy, action, self.value_policy.encoder(state, action))
        outputs = self.state_reward.transition(state_reward, state)
        outputs |= self.value_policy.values(value_policy)
        shown = self.codec.decode(state) if self.predicts_states and predict_states else None
        return self._node((state_reward, value_policy), state, shown, outputs)

    def predict(self, batch: SequenceBatch) -> Predictions:
        num_sequences, unroll_length = batch.action.shape
        action = actions_of(batch, self.num_actions)  # [L+1, N, A]
        true_states = self.codec.encode(time_major(batch.observation))  # [(L+1) * N, *state_shape]

        # State-reward network: its only input state is the first true one.
        state = true_states[:num_sequences]
        hidden = self.state_reward.encoder(state, action[0])
        states, hiddens = [state], []
        for step in range(1, unroll_length + 1):
            previous = self.decoder.carry(state)
            hidden = self.state_reward.advance(hidden, action[step], previous)
            state = self.decoder(hidden, previous)
            hiddens.append(hidden)
            states.append(state)
        transition = self.state_reward.transition(torch.cat(hiddens), torch.cat(states[1:]))

        # Value-policy network: its inputs are the predicted states, detached.
        seen = torch.cat(states).detach()
        encoded = self.value_policy.encoder(seen, action.flatten(0, 1)).chunk(unroll_length + 1)
        hidden = self.value_policy.begin(action[0], encoded[0])
        hiddens = [hidden]
        for step in range(1, unroll_length + 1):
            hidden = self.value_policy.advance(hidden, action[step], encoded[step])
            hiddens.append(hidden)
        evaluation = self.value_policy.values(torch.cat(hiddens))

        state_error = None
        if self.predicts_states:
            state_error = self._state_error(torch.cat(states[1:]), true_states[num_sequences:], action[1:])
            state_error = batch_major(state_error, num_sequences)
        return Predictions(
            head=self.head,
            value_output=batch_major(evaluation["value"], num_sequences),
            policy_logits=batch_major(evaluation["policy"], num_sequences),
            reward_output=batch_major(transition["reward"], num_sequences),
            termination_logit=batch_major(transition["termination"].squeeze(1), num_sequences),
            state_error=state_error,
        )

    def _state_error(self, predicted: Tensor, true: Tensor, action: Tensor) -> Tensor:
        """Predicted and true states [L * N, *state_shape], the actions that led to them [L, N, A], to [L * N]."""
        if self.state_loss == "l2":
            return squared_error(predicted, true)
        encoder, action = self.value_policy.encoder, action.flatten(0, 1)
        # Frozen: the gradient flows through the encoder to the predicted state, but not to the encoder's weights.
        frozen = {name: parameter.detach() for name, parameter in encoder.named_parameters()}
        with torch.no_grad():
            target = encoder(true, action)
        return squared_error(functional_call(encoder, frozen, (predicted, action)), target)
