"""The copies for acting: the same numbers as the training network, in place, in either precision."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.world_model.networks_support import (
    CARTPOLE,
    KINDS,
    NUM_ACTIONS,
    VARIANTS,
    losses_of,
    random_batch,
    random_observations,
    small_model,
)
from thinker.errors import UserError
from thinker.interfaces import NO_ACTION, WorldModel
from thinker.nn.blocks import ActionLayer, OutputLayer
from thinker.nn.centre import RunningCentre
from thinker.nn.sizes import TilesSize, VectorSize
from thinker.world_model.acting import ActingCopy, ActingModel, ActingValues, fast_precision
from thinker.world_model.build import build_dual, build_value_policy
from thinker.world_model.network import LearnedModel, TrainableNetwork

EVERY_KIND = pytest.mark.parametrize("kind", KINDS)


def train_a_step(model: TrainableNetwork, kind: str) -> None:
    """One training step that moves every weight a lot."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    batch = random_batch(KINDS[kind][0], 3, 2)
    losses_of(model, batch).total.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


def walk(model: LearnedModel | ActingModel, kind: str) -> list[torch.Tensor]:
    """Everything that a root and two unrolls say."""
    observation = random_observations(KINDS[kind][0], (4,), np.random.default_rng(0))
    node = model.root(observation, torch.tensor([0, NO_ACTION, 2, 1]))
    said = []
    for action in ([0, 1, 2, 1], [2, 2, 0, 1], None):
        said += [node.hidden, node.value, node.policy, node.reward, node.termination]
        said += [] if node.state is None else [node.state.float()]
        if action is not None:
            node = model.unroll(node.hidden, torch.tensor(action))
    return said


@EVERY_KIND
@pytest.mark.parametrize("variant", VARIANTS)
def test_new_weights_arrive_in_place_and_give_the_training_networks_outputs(kind: str, variant: str) -> None:
    model = small_model(kind, variant)
    copy = ActingCopy(model, "float32")
    acting = ActingModel(copy)
    assert isinstance(acting, WorldModel)
    before = [tensor.data_ptr() for tensor in (*copy.network.parameters(), *copy.network.buffers())]
    train_a_step(model, kind)
    stale = walk(acting, kind)
    copy.load_from(model)
    expected, found = walk(model, kind), walk(acting, kind)
    assert [tensor.data_ptr() for tensor in (*copy.network.parameters(), *copy.network.buffers())] == before
    for one, other in zip(found, expected):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    assert any(not torch.equal(one, other) for one, other in zip(stale, found))
    assert not any(tensor.requires_grad for tensor in found)


@EVERY_KIND
def test_bfloat16_stays_near_float32_and_gives_float32_out(kind: str) -> None:
    space, model = KINDS[kind][0], small_model(kind)
    train_a_step(model, kind)
    exact, coarse = ActingCopy(model, "float32"), ActingCopy(model, "bfloat16")
    assert (exact.precision, coarse.precision) == ("float32", "bfloat16")
    coarse.load_from(model)
    for module in coarse.network.modules():
        expected = torch.float32 if isinstance(module, OutputLayer | RunningCentre) else torch.bfloat16
        assert all(parameter.dtype == expected for parameter in module.parameters(recurse=False))
        if isinstance(module, ActionLayer):
            assert module.table is not None
            assert module.table.dtype == torch.bfloat16
    for one, other in zip(walk(ActingModel(coarse), kind), walk(ActingModel(exact), kind)):
        assert one.dtype == torch.float32
        if one.numel() == 4 * np.prod(space.shape):
            continue  # states near a rounding edge may differ by one
        torch.testing.assert_close(one, other, rtol=0.1, atol=0.1)


def test_training_goes_on_undisturbed_by_the_copy() -> None:
    model = small_model("tiles")
    before = [parameter.clone() for parameter in model.parameters()]
    acting = ActingCopy(model, "bfloat16")
    walk(ActingModel(acting), "tiles")
    acting.load_from(model)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters()))
    assert all(parameter.requires_grad and parameter.dtype == torch.float32 for parameter in model.parameters())
    assert all(module.table is None for module in model.modules() if isinstance(module, ActionLayer))


@pytest.mark.parametrize(
    ("bfloat16", "amx", "expected"),
    [
        (False, False, torch.float32),
        (False, True, torch.float32),
        (True, False, torch.bfloat16),
        (True, True, torch.float32),
    ],
)
@pytest.mark.parametrize("limit", [None, "ALL", "AVX512_CORE_AMX", "AVX512_CORE_BF16"])
def test_auto_takes_bfloat16_on_cpus_that_have_it_unless_they_have_amx(
    monkeypatch: pytest.MonkeyPatch, bfloat16: bool, amx: bool, limit: str | None, expected: torch.dtype
) -> None:
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: bfloat16, raising=False)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx, raising=False)
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    if limit is not None:
        monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", limit)
    tiles = small_model("tiles")
    assert fast_precision(tiles) == expected
    assert fast_precision(small_model("vector")) == torch.float32  # nothing to gain without convolutions
    assert ActingCopy(tiles).precision == str(expected).removeprefix("torch.")


def test_auto_is_float32_where_pytorch_cannot_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"):
        monkeypatch.delattr(torch.cpu, name, raising=False)
    assert fast_precision(small_model("tiles")) == torch.float32


@pytest.mark.parametrize("variant", VARIANTS)
def test_views_with_and_without_states_share_the_weights_of_one_copy(variant: str) -> None:
    model = small_model("tiles", variant)
    copy = ActingCopy(model, "float32")
    with_states, without = ActingModel(copy), ActingModel(copy, predict_states=False)
    observation = random_observations(KINDS["tiles"][0], (2,), np.random.default_rng(0))
    action = torch.tensor([0, 1])
    for _ in range(2):
        root = without.root(observation, action)
        assert (root.state is observation) == model.predicts_states
        one, other = with_states.unroll(root.hidden, action), without.unroll(root.hidden, action)
        assert (one.state is not None) == model.predicts_states
        assert other.state is None
        assert torch.equal(one.hidden, other.hidden)
        assert torch.equal(one.value, other.value)
        assert torch.equal(with_states.visible_hidden(one.hidden), without.visible_hidden(other.hidden))
        train_a_step(model, "tiles")
        copy.load_from(model)
    assert one.value.any()  # the new weights have arrived in both


@EVERY_KIND
def test_acting_values_evaluate_like_their_network(kind: str) -> None:
    space, size = KINDS[kind]
    network = build_value_policy(space, NUM_ACTIONS, size=size)
    copy = ActingCopy(network, "float32")
    train_a_step(network, kind)
    copy.load_from(network)
    observation = random_observations(space, (4,), np.random.default_rng(0))
    last_action = torch.tensor([0, NO_ACTION, 2, 1])
    with torch.no_grad():
        expected = network.evaluate(observation, last_action)
    for found, wanted in zip(ActingValues(copy)(observation, last_action), expected):
        torch.testing.assert_close(found, wanted)
        assert not found.requires_grad


def test_weights_of_another_size_are_refused() -> None:
    acting = ActingCopy(small_model("tiles"))
    with pytest.raises(ValueError, match="names and shapes"):
        acting.load_from(build_dual(KINDS["tiles"][0], NUM_ACTIONS, size=TilesSize(channels=9)))
    with pytest.raises(ValueError, match="names and shapes"):
        acting.load_from(small_model("tiles", "single-l2"))
    with pytest.raises(UserError, match="precision must be one of auto, float32, bfloat16, got 'half'"):
        ActingCopy(small_model("tiles"), "half")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: x.index_fill(1, torch.tensor(2), float("nan")), "NaN or infinity"),
        (lambda x: x.index_fill(1, torch.tensor(1), float("inf")), "NaN or infinity"),
        (lambda x: x.index_fill(1, torch.tensor(0), 4.9), r"contains 4\.9.*outside of the bounds"),
        (lambda x: x[:, :3], r"got \(2, 3\)"),
        (lambda x: x.double(), "got .* of torch.float64"),
    ],
)
def test_vectors_that_are_not_what_their_space_says_are_errors(change, message: str) -> None:
    acting = ActingModel(ActingCopy(build_dual(CARTPOLE, 2, size=VectorSize(channels=4))))
    action = torch.tensor([0, 1])
    acting.root(torch.zeros(2, 4), action)
    with pytest.raises(UserError, match=message):
        acting.root(change(torch.zeros(2, 4)), action)


def test_boards_with_other_values_than_0_and_1_are_errors() -> None:
    acting = ActingModel(ActingCopy(small_model("tiles")))
    board = torch.zeros(1, 3, 4, 5, dtype=torch.uint8)
    board[0, 0, 0, 0] = 2
    with pytest.raises(UserError, match="an observation contains 2, outside of the bounds"):
        acting.root(board, torch.tensor([0]))
