"""The value-policy network: half of the dual network, or used with a perfect simulator (appendix C)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from thinker.nn.blocks import one_hot_action
from thinker.world_model.architecture import ModelArchitecture
from thinker.world_model.batch import SequenceBatch
from thinker.world_model.network import Predictions, TrainableNetwork, actions_of, batch_major, time_major, trainable


class ValuePolicyNetwork(TrainableNetwork):
    """Base policy and base value of states, and the hidden state h_vp that summarises the path to them."""

    def __init__(self, architecture: ModelArchitecture) -> None:
        super().__init__(architecture, ("value", "policy"))
        channels = architecture.layers.channels
        self.encoder = architecture.encoder()
        self.unroll_function = architecture.unroll_function(2 * channels)
        self.predictor = architecture.evaluation_predictor(channels)

    def begin(self, action: Tensor, encoded: Tensor) -> Tensor:
        """h_vp of a real state from one-hot ``action`` [B, A] and g(s) [B, *hidden_shape], without memory."""
        return self.advance(torch.zeros_like(encoded), action, encoded)

    def advance(self, hidden: Tensor, action: Tensor, encoded: Tensor) -> Tensor:
        """The next h_vp from the last one, the one-hot action and the encoded state it led to."""
        advanced: Tensor = self.unroll_function(torch.cat((hidden, encoded), 1).relu_(), action, encoded)
        return advanced

    def values(self, hidden: Tensor) -> dict[str, Tensor]:
        """The value [B, H] and the policy's logits [B, A] of hidden states h_vp."""
        outputs: dict[str, Tensor] = self.predictor(hidden.relu())
        return outputs

    def evaluate(self, observation: Tensor, last_action: Tensor) -> tuple[Tensor, Tensor]:
        """Policy [B, A] (probabilities) and value [B] of real observations, each without memory."""
        action = one_hot_action(last_action, self.num_actions)
        outputs = self.values(self.begin(action, self.encoder(self.codec.encode(observation), action)))
        return outputs["policy"].softmax(1), self.head.decode(outputs["value"])

    def predict(self, batch: SequenceBatch) -> Predictions:
        """The simulator returns true states, so every step of a sequence is evaluated separately."""
        action = actions_of(batch, self.num_actions).flatten(0, 1)  # [(L+1) * N, A]
        encoded = self.encoder(self.codec.encode(time_major(batch.observation)), action)
        outputs = self.values(self.begin(action, encoded))
        return Predictions(
            head=self.head,
            value_output=batch_major(outputs["value"], len(batch.last_action)),
            policy_logits=batch_major(outputs["policy"], len(batch.last_action)),
            known=torch.cat((torch.ones_like(batch.state_mask[:, :1]), batch.state_mask), 1),
        )

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        return {"value_policy": trainable(self)}
