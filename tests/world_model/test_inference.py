"""The inference copies: the same numbers as the training network, in place, in either precision."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch
from networks_support import CARTPOLE, KINDS, NUM_ACTIONS, random_batch, random_observations

from thinker.world_model import EPISODE_START, WorldModel
from thinker.world_model.blocks import ActionLayer, OutputLayer
from thinker.world_model.build import VARIANTS, build_model, build_value_policy
from thinker.world_model.inference import InferenceModel, InferenceValuePolicy, fast_precision
from thinker.world_model.losses import default_scales, model_losses
from thinker.world_model.network import LearnedModel
from thinker.world_model.sizes import TilesSize, VectorSize

EVERY_KIND = pytest.mark.parametrize("kind", KINDS)


def train_a_step(model: torch.nn.Module, kind: str) -> None:
    """One training step that moves every weight a lot."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    batch = random_batch(KINDS[kind][0], 3, 2)
    model_losses(model, batch, default_scales(model)).total.backward()  # type: ignore[arg-type]
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


def walk(model: LearnedModel | InferenceModel, kind: str) -> list[torch.Tensor]:
    """Everything that a root and two unrolls say."""
    observation = random_observations(KINDS[kind][0], (4,), np.random.default_rng(0))
    node = model.root(observation, torch.tensor([0, EPISODE_START, 2, 1]))
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
    space, size = KINDS[kind]
    model = build_model(space, NUM_ACTIONS, variant=variant, size=size)
    acting = InferenceModel(model, "float32")
    assert isinstance(acting, WorldModel)
    everything = [*acting.network.parameters(), *acting.network.buffers()]
    before = [tensor.data_ptr() for tensor in everything]
    train_a_step(model, kind)
    stale = walk(acting, kind)
    acting.load_from(model)
    expected, found = walk(model, kind), walk(acting, kind)
    assert [tensor.data_ptr() for tensor in (*acting.network.parameters(), *acting.network.buffers())] == before
    for one, other in zip(found, expected):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    assert any(not torch.equal(one, other) for one, other in zip(stale, found))
    assert not any(tensor.requires_grad for tensor in found)


@EVERY_KIND
def test_bfloat16_stays_near_float32_and_gives_float32_out(kind: str) -> None:
    space, size = KINDS[kind]
    model = build_model(space, NUM_ACTIONS, size=size)
    train_a_step(model, kind)
    exact, coarse = InferenceModel(model, "float32"), InferenceModel(model, "bfloat16")
    assert (exact.precision, coarse.precision) == ("float32", "bfloat16")
    coarse.load_from(model)
    for module in coarse.network.modules():
        expected = torch.float32 if isinstance(module, OutputLayer) else torch.bfloat16
        assert all(parameter.dtype == expected for parameter in module.parameters(recurse=False))
        if isinstance(module, ActionLayer):
            assert module.table is not None
            assert module.table.dtype == torch.bfloat16
    for one, other in zip(walk(coarse, kind), walk(exact, kind)):
        assert one.dtype == torch.float32
        if one.numel() == 4 * np.prod(space.shape):
            continue  # states near a rounding edge may differ by one
        torch.testing.assert_close(one, other, rtol=0.1, atol=0.1)


def test_training_goes_on_undisturbed_by_the_copy() -> None:
    space, size = KINDS["tiles"]
    model = build_model(space, NUM_ACTIONS, size=size)
    before = [parameter.clone() for parameter in model.parameters()]
    acting = InferenceModel(model, "bfloat16")
    walk(acting, "tiles")
    acting.load_from(model)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters()))
    assert all(parameter.requires_grad and parameter.dtype == torch.float32 for parameter in model.parameters())
    assert all(module.table is None for module in model.modules() if isinstance(module, ActionLayer))


@pytest.mark.parametrize("supported", [False, True])
def test_auto_takes_bfloat16_only_for_convolutions_on_hardware_that_has_it(
    monkeypatch: pytest.MonkeyPatch, supported: bool
) -> None:
    for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"):
        monkeypatch.setattr(torch.cpu, name, lambda: supported, raising=False)
    tiles, vector = (build_model(KINDS[k][0], NUM_ACTIONS, size=KINDS[k][1]) for k in ("tiles", "vector"))
    assert fast_precision(tiles) == (torch.bfloat16 if supported else torch.float32)
    assert fast_precision(vector) == torch.float32
    assert InferenceModel(tiles).precision == ("bfloat16" if supported else "float32")


def test_auto_is_float32_where_pytorch_cannot_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"):
        monkeypatch.delattr(torch.cpu, name, raising=False)
    assert fast_precision(build_model(*_tiles())) == torch.float32


def _tiles() -> tuple[gym.Space, int]:
    return KINDS["tiles"][0], NUM_ACTIONS


def test_states_are_left_out_where_nobody_looks() -> None:
    model = build_model(*_tiles())
    acting = InferenceModel(model, give_states=False)
    observation = random_observations(KINDS["tiles"][0], (2,), np.random.default_rng(0))
    root = acting.root(observation, torch.tensor([0, 1]))
    assert root.state is observation
    assert acting.unroll(root.hidden, torch.tensor([0, 1])).state is None
    assert model.unroll(root.hidden, torch.tensor([0, 1])).state is not None


@EVERY_KIND
def test_value_policy_copies_evaluate_like_their_network(kind: str) -> None:
    space, size = KINDS[kind]
    network = build_value_policy(space, NUM_ACTIONS, size=size)
    acting = InferenceValuePolicy(network, "float32")
    train_a_step(network, kind)
    acting.load_from(network)
    observation = random_observations(space, (4,), np.random.default_rng(0))
    last_action = torch.tensor([0, EPISODE_START, 2, 1])
    with torch.no_grad():
        expected = network.evaluate(observation, last_action)
    for found, wanted in zip(acting(observation, last_action), expected):
        torch.testing.assert_close(found, wanted)
        assert not found.requires_grad


def test_weights_of_another_size_are_refused() -> None:
    space, size = KINDS["tiles"]
    acting = InferenceModel(build_model(space, NUM_ACTIONS, size=size))
    with pytest.raises(ValueError, match="names and shapes"):
        acting.load_from(build_model(space, NUM_ACTIONS, size=TilesSize(channels=9)))
    with pytest.raises(ValueError, match="names and shapes"):
        acting.load_from(build_model(space, NUM_ACTIONS, size=size, variant="single-l2"))
    with pytest.raises(ValueError, match="precision must be one of auto, float32, bfloat16, got 'half'"):
        InferenceModel(build_model(space, NUM_ACTIONS, size=size), "half")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: x.index_fill(1, torch.tensor(2), float("nan")), "NaN or infinity"),
        (lambda x: x.index_fill(1, torch.tensor(1), float("inf")), "NaN or infinity"),
        (lambda x: x.index_fill(1, torch.tensor(0), 4.9), r"holds 4\.9.*outside of the bounds"),
        (lambda x: x[:, :3], r"got \(2, 3\)"),
        (lambda x: x.double(), "got .* of torch.float64"),
    ],
)
def test_vectors_that_are_not_what_their_space_says_are_errors(change, message: str) -> None:  # type: ignore[no-untyped-def]
    acting = InferenceModel(build_model(CARTPOLE, 2, size=VectorSize(channels=4)))
    action = torch.tensor([0, 1])
    acting.root(torch.zeros(2, 4), action)
    with pytest.raises(ValueError, match=message):
        acting.root(change(torch.zeros(2, 4)), action)


def test_boards_with_other_values_than_0_and_1_are_errors() -> None:
    acting = InferenceModel(build_model(*_tiles()))
    board = torch.zeros(1, 3, 4, 5, dtype=torch.uint8)
    board[0, 0, 0, 0] = 2
    with pytest.raises(ValueError, match="an observation holds 2, outside of the bounds"):
        acting.root(board, torch.tensor([0]))
