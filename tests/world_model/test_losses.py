"""The losses of equations 2 and 3 against plain loops, and that no loss moves the other network's weights."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from tests.world_model.networks_support import (
    KINDS,
    NUM_ACTIONS,
    VARIANTS,
    losses_of,
    paper_scales,
    random_batch,
    small_model,
)
from thinker.nn.blocks import one_hot_action
from thinker.world_model.batch import SequenceBatch
from thinker.world_model.build import build_value_policy
from thinker.world_model.dual import DualNetwork
from thinker.world_model.heads import CategoricalHead, Head, ScalarHead
from thinker.world_model.losses import ALL_LOSSES, model_losses
from thinker.world_model.network import Predictions

TILES, TILES_SIZE = KINDS["tiles"]


HEADS = {"scalar": ScalarHead(), "categorical": CategoricalHead(size=21, limit=2.0)}


def random_predictions(num_sequences: int, unroll_length: int, seed: int, head: str = "scalar") -> Predictions:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    n, length = num_sequences, unroll_length
    return Predictions(
        head=HEADS[head],
        value_output=normal(n, length + 1, HEADS[head].outputs),
        policy_logits=normal(n, length + 1, NUM_ACTIONS),
        reward_output=normal(n, length, HEADS[head].outputs),
        termination_logit=normal(n, length),
        state_error=normal(n, length).square(),
        known=(normal(n, length + 1) > 0).float() if seed % 2 else None,
    )


def plain_loss(head: Head, output: torch.Tensor, target: torch.Tensor) -> float:
    """The squared error, or the cross-entropy of the bins' probabilities and the two-hot target."""
    if isinstance(head, ScalarHead):
        return (float(output) - float(target)) ** 2
    x = float(target)
    transformed = math.copysign(math.sqrt(abs(x) + 1) - 1, x) + 0.001 * x
    logits, bins = output.double().numpy(), np.linspace(-2, 2, 21)
    log_probability = logits - np.log(np.exp(logits).sum())
    shares = np.maximum(0, 1 - np.abs(bins - transformed) / 0.2)  # 0.2: the distance between bins
    return float(-(shares * log_probability).sum())


def plain_losses(predictions: Predictions, batch: SequenceBatch) -> dict[str, float]:
    """Equations 2 and 3 with their signs put right, one number at a time."""
    assert predictions.reward_output is not None
    assert predictions.termination_logit is not None
    assert predictions.state_error is not None
    num_sequences, unroll_length = batch.action.shape
    sums = dict.fromkeys(ALL_LOSSES, 0.0)
    for n in range(num_sequences):
        weight = float(batch.weight[n]) / num_sequences
        for step in range(unroll_length + 1):
            known = 1.0 if predictions.known is None else float(predictions.known[n, step])
            loss = plain_loss(predictions.head, predictions.value_output[n, step], batch.value_target[n, step])
            sums["value"] += weight * known * float(batch.value_mask[n, step]) * loss
            logits = predictions.policy_logits[n, step].double().numpy()
            log_policy = logits - np.log(np.exp(logits).sum())
            cross_entropy = -sum(float(batch.policy_target[n, step, a]) * log_policy[a] for a in range(NUM_ACTIONS))
            sums["policy"] += weight * known * float(batch.policy_mask[n, step]) * cross_entropy
        for step in range(unroll_length):
            mask = weight * float(batch.reward_mask[n, step])
            loss = plain_loss(predictions.head, predictions.reward_output[n, step], batch.reward[n, step])
            sums["reward"] += mask * loss
            probability = 1 / (1 + math.exp(-float(predictions.termination_logit[n, step])))
            ended, mask = float(batch.termination[n, step]), weight * float(batch.termination_mask[n, step])
            sums["termination"] -= mask * (ended * math.log(probability) + (1 - ended) * math.log(1 - probability))
            sums["state"] += weight * float(batch.state_mask[n, step]) * float(predictions.state_error[n, step])
    return sums


@settings(max_examples=30, deadline=None)
@given(
    num_sequences=st.integers(1, 5),
    unroll_length=st.integers(1, 6),
    seed=st.integers(0, 10_000),
    head=st.sampled_from(sorted(HEADS)),
)
def test_losses_equal_a_plain_loop(num_sequences: int, unroll_length: int, seed: int, head: str) -> None:
    batch = random_batch(TILES, num_sequences, unroll_length, seed=seed)
    predictions = random_predictions(num_sequences, unroll_length, seed, head)
    scales = {"reward": 1.0, "termination": 2.0, "state": 3.0, "value": 4.0, "policy": 5.0}
    output = model_losses(predictions, batch, scales)
    expected = plain_losses(predictions, batch)
    assert {name: float(value) for name, value in output.losses.items()} == pytest.approx(expected, rel=1e-4, abs=1e-5)
    state_reward = sum(scales[name] * expected[name] for name in ("reward", "termination", "state"))
    value_policy = sum(scales[name] * expected[name] for name in ("value", "policy"))
    assert float(output.state_reward) == pytest.approx(state_reward, rel=1e-4, abs=1e-5)
    assert float(output.value_policy) == pytest.approx(value_policy, rel=1e-4, abs=1e-5)
    assert float(output.total) == pytest.approx(state_reward + value_policy, rel=1e-4, abs=1e-5)
    torch.testing.assert_close(output.value_error, (predictions.value - batch.value_target)[:, 0].abs())


def test_cross_entropies_fall_towards_their_targets() -> None:
    batch = random_batch(TILES, 2, 1)
    ones = torch.ones(2, 1)
    batch = replace(
        batch, termination_mask=ones, policy_mask=torch.ones(2, 2), termination=torch.tensor([[1.0], [0.0]])
    )
    right, wrong = torch.tensor([[4.0], [-4.0]]), torch.tensor([[-4.0], [4.0]])
    base = random_predictions(2, 1, seed=0)
    towards = batch.policy_target.log()
    losses = [
        model_losses(
            replace(base, termination_logit=logit, policy_logits=policy), batch, dict.fromkeys(ALL_LOSSES, 1.0)
        ).losses
        for logit, policy in ((right, towards), (wrong, -towards))
    ]
    for name in ("termination", "policy"):
        assert 0 < losses[0][name] < losses[1][name]


@pytest.mark.parametrize("kind", KINDS)
def test_state_errors_are_means_over_the_features_of_what_unroll_predicts(kind: str) -> None:
    batch = random_batch(KINDS[kind][0], num_sequences=2, unroll_length=2)
    features, plain = (small_model(kind, variant).double() for variant in ("dual-feature", "dual-l2"))
    assert isinstance(features, DualNetwork)
    assert isinstance(plain, DualNetwork)
    for model in (features, plain):
        errors = model.predict(batch).state_error
        assert errors is not None
        network, codec = model.state_reward, model.codec
        for n in range(2):
            action = one_hot_action(batch.last_action[n : n + 1], NUM_ACTIONS).double()
            state = codec.encode(batch.observation[n, :1]).double()
            hidden = network.encoder(state, action)
            for step in range(2):
                action = one_hot_action(batch.action[n, step : step + 1], NUM_ACTIONS).double()
                previous = network.decoder.carry(state)
                hidden = network.advance(hidden, action, previous)
                state = network.decoder(hidden, previous)
                true = codec.encode(batch.observation[n, step + 1 : step + 2]).double()
                if model is features:
                    difference = model.value_policy.encoder(state, action) - model.value_policy.encoder(true, action)
                else:
                    difference = state - true
                numbers = difference.flatten().tolist()
                expected = sum(x * x for x in numbers) / len(numbers)
                assert errors[n, step].item() == pytest.approx(expected, rel=1e-4, abs=1e-9)


def gradients(loss: torch.Tensor, parameters: list[nn.Parameter]) -> list[torch.Tensor | None]:
    return list(torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("variant", ["dual-feature", "dual-l2", "dual-no-state"])
def test_neither_half_of_the_dual_network_is_moved_by_the_loss_of_the_other(kind: str, variant: str) -> None:
    model = small_model(kind, variant)
    with torch.no_grad():
        for parameter in model.parameters():  # zero layers would hide a leak behind them
            parameter.add_(0.05)
    output = losses_of(model, random_batch(KINDS[kind][0], 3, 2))
    groups = model.parameter_groups()
    assert all(g is None for g in gradients(output.state_reward, groups["value_policy"]))
    assert all(g is None for g in gradients(output.value_policy, groups["state_reward"]))
    own = gradients(output.state_reward, groups["state_reward"])
    assert sum(g is not None and bool(g.any()) for g in own) > len(own) / 2
    own = gradients(output.value_policy, groups["value_policy"])
    assert sum(g is not None and bool(g.any()) for g in own) > len(own) / 2


def test_the_feature_loss_teaches_the_decoder_through_the_frozen_encoder() -> None:
    model = small_model("tiles")
    assert isinstance(model, DualNetwork)
    output = losses_of(model, random_batch(TILES, 3, 2))
    gradient = gradients(output.losses["state"], list(model.decoder.parameters()))
    assert any(g is not None and bool(g.any()) for g in gradient)


@pytest.mark.parametrize("variant", VARIANTS)
def test_masked_and_weightless_steps_teach_nothing(variant: str) -> None:
    model = small_model("tiles", variant)
    batch = random_batch(TILES, num_sequences=4, unroll_length=3)
    changed = random_batch(TILES, num_sequences=4, unroll_length=3, seed=1)
    weight = torch.tensor([1.0, 1.0, 0.0, 1.0])
    batch = replace(batch, weight=weight)
    state_known = torch.cat((torch.ones(4, 1), batch.state_mask), 1).bool()

    def where(mask: torch.Tensor, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        kept = mask.bool() & (weight > 0).unsqueeze(1)
        return torch.where(kept.reshape(*kept.shape, *[1] * (one.ndim - kept.ndim)), one, other)

    noisy = replace(
        batch,
        observation=where(state_known, batch.observation, changed.observation),
        reward=where(batch.reward_mask, batch.reward, changed.reward),
        termination=where(batch.termination_mask, batch.termination, changed.termination),
        value_target=where(batch.value_mask, batch.value_target, changed.value_target),
        policy_target=where(batch.policy_mask, batch.policy_target, changed.policy_target),
    )
    expected, found = (losses_of(model, b).losses for b in (batch, noisy))
    torch.testing.assert_close(found, expected)


def test_the_value_policy_network_alone_learns_nothing_from_states_it_does_not_know() -> None:
    network = build_value_policy(TILES, NUM_ACTIONS, size=TILES_SIZE)
    nn.init.normal_(network.predictor.output.weight, generator=torch.Generator().manual_seed(0))
    batch = random_batch(TILES, num_sequences=4, unroll_length=3)
    known = torch.cat((torch.ones(4, 1), batch.state_mask), 1).bool()[:, :, None, None, None]
    other = replace(batch, observation=torch.where(known, batch.observation, 1 - batch.observation))
    one, two = (losses_of(network, b) for b in (batch, other))
    assert set(one.losses) == {"value", "policy"}
    torch.testing.assert_close(one.losses, two.losses)
    assert float(one.state_reward) == 0


def test_every_loss_needs_a_scale_and_every_scale_a_loss() -> None:
    model = small_model("tiles", "single-no-state")
    batch = random_batch(TILES, 2, 1)
    predictions, scales = model.predict(batch), paper_scales(model)
    with pytest.raises(ValueError, match="must have the same names"):
        model_losses(predictions, batch, {**scales, "state": 10.0})  # states are not predicted
    del scales["policy"]
    with pytest.raises(ValueError, match="must have the same names"):
        model_losses(predictions, batch, scales)
