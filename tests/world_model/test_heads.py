"""Values and rewards as numbers or as distributions over bins: the transform, the two heads, and what they learn."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.world_model.networks_support import (
    KINDS,
    NUM_ACTIONS,
    VARIANTS,
    losses_of,
    random_batch,
    random_observations,
)
from thinker.envs.sokoban.spec import SokobanSpec
from thinker.errors import UserError
from thinker.nn.sizes import TilesSize
from thinker.world_model.acting import ActingCopy, ActingModel, ActingValues
from thinker.world_model.board_model import BoardModel
from thinker.world_model.build import build_board, build_value_policy
from thinker.world_model.heads import CategoricalHead, Head, ScalarHead, inverse_transform, transform
from thinker.world_model.losses import model_losses
from thinker.world_model.network import Predictions, TrainableNetwork
from thinker.world_model.spec import BoardModelSpec, DualModelSpec, LearnedValuesSimulatorSpec, SingleModelSpec

FINE = {"size": 41, "limit": 4.0}
VALUES = st.floats(-1e4, 1e4, allow_nan=False)

# ------------------------------------------------------------------------------------------------- the transform


def plain_transform(x: float) -> float:
    return math.copysign(math.sqrt(abs(x) + 1) - 1, x) + 0.001 * x


@given(x=VALUES)
def test_the_transform_is_the_usual_one_and_odd(x: float) -> None:
    given_ = torch.tensor([x, -x], dtype=torch.float64)
    there = transform(given_)
    assert there[0].item() == pytest.approx(plain_transform(x), rel=1e-9, abs=1e-12)
    assert there[1].item() == -there[0].item()


@given(x=VALUES)
def test_the_inverse_transform_returns_in_float32_as_well(x: float) -> None:
    for dtype, precision in ((torch.float64, 1e-9), (torch.float32, 1e-5)):
        number = torch.tensor(x, dtype=dtype)
        assert inverse_transform(transform(number)).item() == pytest.approx(number.item(), rel=precision, abs=1e-30)
        assert transform(inverse_transform(number)).item() == pytest.approx(number.item(), rel=precision, abs=1e-30)


@given(x=VALUES, y=VALUES)
def test_the_transform_keeps_the_order(x: float, y: float) -> None:
    one, other = transform(torch.tensor([x, y], dtype=torch.float64)).tolist()
    assert (x < y) == (one < other) or math.isclose(x, y, rel_tol=1e-12, abs_tol=1e-12)


# ----------------------------------------------------------------------------------------------------- the heads


@settings(deadline=None)
@example(value=-7.0, size=51, limit=1.69921875)  # where rounding leads out of the range
@given(value=st.floats(-20, 20), size=st.integers(1, 40).map(lambda n: 2 * n + 1), limit=st.floats(0.5, 10))
def test_a_two_hot_distribution_stands_for_its_value_or_for_the_nearest_in_range(
    value: float, size: int, limit: float
) -> None:
    head = CategoricalHead(size, limit).double()
    distribution = head.encode(torch.tensor([value], dtype=torch.float64))[0]
    assert distribution.sum().item() == pytest.approx(1)
    assert (distribution >= 0).all()
    used = distribution.nonzero().flatten().tolist()
    assert len(used) <= 2
    assert used[-1] - used[0] <= 1
    largest = inverse_transform(torch.tensor(limit, dtype=torch.float64)).item()
    expected = min(max(value, -largest), largest)
    decoded = head.decode(distribution.clamp(min=1e-300).log().unsqueeze(0)).item()
    assert decoded == pytest.approx(expected, rel=1e-6, abs=1e-6)


@settings(deadline=None)
@given(seed=st.integers(0, 1000), target=st.floats(-10, 10))
def test_the_categorical_loss_is_the_cross_entropy_with_the_two_hot_target(seed: int, target: float) -> None:
    head = CategoricalHead(**FINE)
    logits = torch.randn(3, head.outputs, generator=torch.Generator().manual_seed(seed))
    targets = torch.tensor([target, -target, target / 2])
    expected = -(head.encode(targets) * logits.log_softmax(-1)).sum(-1)
    torch.testing.assert_close(head.loss(logits, targets), expected)


def test_muzeros_support_has_601_bins_at_the_whole_numbers() -> None:
    support = CategoricalHead().support
    assert support.tolist() == list(range(-300, 301))


def test_equal_logits_mean_exactly_nothing() -> None:
    for size in (3, 21, 601):
        assert CategoricalHead(size, 7.3).decode(torch.full((4, size), 0.3)).tolist() == [0.0] * 4


def test_heads_have_no_weights_and_leave_no_trace_in_checkpoints() -> None:
    for head in (ScalarHead(), CategoricalHead(**FINE)):
        assert list(head.parameters()) == []
        assert head.state_dict() == {}


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"value_head": "bins"}, "must be one of scalar, categorical"),
        ({"value_head": "categorical", "support_size": 600}, "support_size=600: must be an odd number"),
        ({"value_head": "categorical", "support_size": 1}, "support_size=1: must be an odd number"),
        ({"value_head": "categorical", "support_limit": 0.0}, "support_limit=0.0: must be above 0"),
        ({"value_head": "categorical", "support_limit": math.inf}, "support_limit=inf: must be above 0 and finite"),
    ],
)
def test_wrong_heads_are_refused(settings: dict, problem: str) -> None:
    with pytest.raises(UserError, match=problem):
        SingleModelSpec(**settings)


@pytest.mark.parametrize("spec", [SingleModelSpec, DualModelSpec, BoardModelSpec, LearnedValuesSimulatorSpec])
def test_specs_make_their_head(spec: type) -> None:
    assert isinstance(spec().head(), ScalarHead)
    head = spec(value_head="categorical", support_size=11, support_limit=2.0).head()
    assert isinstance(head, CategoricalHead)
    assert (head.outputs, head.support.tolist()) == (11, pytest.approx(np.linspace(-2, 2, 11).tolist()))


# ------------------------------------------------------------------------------------------ networks with a head


def boards() -> tuple[TrainableNetwork, object]:
    envs = SokobanSpec(size=5, boxes=1).build(2)
    size = TilesSize(channels=8, state_reward_channels=4, blocks=1)
    space = envs.single_observation_space
    head = CategoricalHead(**FINE)
    return build_board(space, NUM_ACTIONS, size=size, head=head), space


def network_of(kind: str) -> tuple[TrainableNetwork, object]:
    """A network with a categorical head, and its observation space."""
    if kind == "board":
        return boards()
    space, size = KINDS["tiles"]
    build = build_value_policy if kind == "value-policy" else VARIANTS[kind]
    return build(space, NUM_ACTIONS, size=size, head=CategoricalHead(**FINE)), space


NETWORKS = [*VARIANTS, "value-policy", "board"]


def shaken(network: TrainableNetwork) -> TrainableNetwork:
    """With random outputs instead of zeros."""
    with torch.no_grad():
        generator = torch.Generator().manual_seed(1)
        for parameter in network.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    return network


@pytest.mark.parametrize("kind", NETWORKS)
def test_acting_gives_the_values_and_rewards_that_are_trained(kind: str) -> None:
    network, space = network_of(kind)
    network = shaken(network)
    batch = random_batch(space, num_sequences=3, unroll_length=1)
    batch = replace(batch, value_mask=torch.ones(3, 2), policy_mask=torch.ones(3, 2))
    predictions = network.predict(batch)
    assert predictions.value_output.shape == (3, 2, FINE["size"])
    assert predictions.value.shape == (3, 2)
    assert predictions.value.abs().max() > 0.01
    copy = ActingCopy(network, "float32")
    if kind == "value-policy":
        _, value = ActingValues(copy)(batch.observation[:, 0], batch.last_action)
        torch.testing.assert_close(value, predictions.value[:, 0].detach(), rtol=1e-4, atol=1e-4)
        return
    model = BoardModel(copy) if kind == "board" else ActingModel(copy)
    root = model.root(batch.observation[:, 0], batch.last_action)
    node = model.unroll(root.hidden, batch.action[:, 0])
    torch.testing.assert_close(root.value, predictions.value[:, 0].detach(), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(node.reward, predictions.reward[:, 0].detach(), rtol=1e-4, atol=1e-4)
    assert root.value.shape == node.reward.shape == (3,)
    assert root.value.dtype == node.reward.dtype == torch.float32


@pytest.mark.parametrize("kind", NETWORKS)
def test_new_networks_say_that_values_and_rewards_are_zero(kind: str) -> None:
    network, space = network_of(kind)
    predictions = network.predict(random_batch(space, num_sequences=2, unroll_length=2))
    assert not predictions.value.any()
    assert predictions.reward is None or not predictions.reward.any()


@pytest.mark.parametrize("kind", NETWORKS)
def test_networks_learn_the_values_and_rewards_of_one_batch_by_heart(kind: str) -> None:
    network, space = network_of(kind)
    batch = random_batch(space, num_sequences=3, unroll_length=1)
    ones = torch.ones(3, 2)
    batch = replace(
        batch,
        value_mask=ones,
        state_mask=ones[:, 1:],
        reward_mask=ones[:, 1:],
        weight=torch.ones(3),
        value_target=10 * batch.value_target,
        reward=10 * batch.reward,
    )
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
    for _ in range(150):
        optimizer.zero_grad()
        losses_of(network, batch).total.backward()
        optimizer.step()
    predictions = network.predict(batch)
    known = torch.ones(3, 2) if predictions.known is None else predictions.known
    torch.testing.assert_close(predictions.value * known, batch.value_target * known, rtol=0.1, atol=0.2)
    if predictions.reward is not None:
        torch.testing.assert_close(predictions.reward, batch.reward, rtol=0.1, atol=0.2)


@pytest.mark.parametrize("head", [ScalarHead(), CategoricalHead(**FINE)], ids=["scalar", "categorical"])
def test_value_errors_are_in_units_of_values(head: Head) -> None:
    batch = random_batch(KINDS["tiles"][0], num_sequences=2, unroll_length=1)
    batch = replace(batch, value_target=torch.tensor([[3.0, 0.0], [-1.0, 0.0]]))
    said = torch.tensor([[5.0, 9.0], [-1.5, 9.0]])
    output = said.unsqueeze(-1) if isinstance(head, ScalarHead) else head.encode(said).clamp(min=1e-30).log()
    predictions = Predictions(head=head, value_output=output, policy_logits=torch.zeros(2, 2, NUM_ACTIONS))
    error = model_losses(predictions, batch, {"value": 1.0, "policy": 1.0}).value_error
    torch.testing.assert_close(error, torch.tensor([2.0, 0.5]), rtol=1e-3, atol=1e-3)


def learned(head: Head, samples: torch.Tensor, steps: int = 600) -> torch.Tensor:
    """The head's outputs after training on samples [N] of one number."""
    output = torch.zeros(head.outputs, requires_grad=True)
    optimizer = torch.optim.Adam([output], lr=5e-2)
    for _ in range(steps):
        optimizer.zero_grad()
        head.loss(output.expand(len(samples), -1), samples).mean().backward()
        optimizer.step()
    return output.detach()


def test_the_categorical_head_learns_a_distribution_whose_mean_is_that_of_the_transformed_values() -> None:
    values = torch.tensor([10.0] * 25 + [-0.5] * 75)  # solved now and then
    head = CategoricalHead(size=61, limit=3.0)
    output = learned(head, values)
    expected = head.encode(values).mean(0)
    torch.testing.assert_close(output.softmax(0), expected, atol=0.01, rtol=0)
    mean = inverse_transform(transform(values).mean())
    assert head.decode(output).item() == pytest.approx(mean.item(), abs=0.05)
    assert learned(ScalarHead(), values).item() == pytest.approx(values.mean().item(), abs=0.05)


@settings(max_examples=10, deadline=None)
@given(value=st.floats(-12, 12))
def test_both_heads_learn_the_same_value_where_there_is_only_one(value: float) -> None:
    for head in (ScalarHead(), CategoricalHead(size=61, limit=4.0)):
        found = head.decode(learned(head, torch.tensor([value]), steps=800)).item()
        assert found == pytest.approx(value, abs=0.15)


def test_both_heads_give_nodes_of_the_same_form() -> None:
    space, size = KINDS["tiles"]
    observation = random_observations(space, (2,), np.random.default_rng(0))
    action = torch.tensor([0, 2])
    for head in (ScalarHead(), CategoricalHead(**FINE)):
        model = ActingModel(ActingCopy(VARIANTS["single-no-state"](space, NUM_ACTIONS, size=size, head=head)))
        node = model.unroll(model.root(observation, action).hidden, action)
        assert node.value.shape == node.reward.shape == node.termination.shape == (2,)
        assert node.state is None
