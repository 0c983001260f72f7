"""The networks of appendix C: shapes, beginnings, and that training and acting see the same model."""

from __future__ import annotations

from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.world_model.networks_support import (
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
from thinker.nn.blocks import Predictor
from thinker.nn.sizes import SIZES, ImageSize, SmallImageSize, TilesSize
from thinker.world_model.board import BoardValueNetwork
from thinker.world_model.build import build_dual, build_single, build_value_policy
from thinker.world_model.dual import DualNetwork
from thinker.world_model.network import LearnedModel, TrainableNetwork

EVERY_KIND = pytest.mark.parametrize("kind", KINDS)
EVERY_VARIANT = pytest.mark.parametrize("variant", VARIANTS)


def build(kind: str, variant: str = "dual-feature", *, trained: bool = False) -> LearnedModel:
    """A small model; ``trained`` gives its zero layers random weights, as if it had learned something."""
    model = small_model(kind, variant)
    if trained:
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for parameter in model.parameters():
                if not parameter.any():
                    parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
    return model


@EVERY_KIND
@EVERY_VARIANT
def test_training_unroll_equals_root_and_unroll_step_by_step(kind: str, variant: str) -> None:
    model = build(kind, variant, trained=True)
    batch = random_batch(KINDS[kind][0], num_sequences=3, unroll_length=4)
    predictions = model.predict(batch)
    node = model.root(batch.observation[:, 0], batch.last_action)
    assert not node.reward.any()
    assert not node.termination.any()
    for step in range(5):
        if step > 0:
            node = model.unroll(node.hidden, batch.action[:, step - 1])
            assert predictions.reward is not None
            assert predictions.termination_logit is not None
            torch.testing.assert_close(node.reward, predictions.reward[:, step - 1])
            torch.testing.assert_close(node.termination, predictions.termination_logit[:, step - 1].sigmoid())
        torch.testing.assert_close(node.value, predictions.value[:, step])
        torch.testing.assert_close(node.policy, predictions.policy_logits[:, step].softmax(-1))


def inputs_of_predictors(network: nn.Module) -> list[Tensor]:
    """A list that receives what the network's predictors read from now on."""
    inputs: list[Tensor] = []
    for module in network.modules():
        if isinstance(module, Predictor):
            module.register_forward_pre_hook(lambda _, arguments: inputs.append(arguments[0]))
    return inputs


@EVERY_KIND
@EVERY_VARIANT
def test_predictors_read_activated_features(kind: str, variant: str) -> None:
    """Hidden states end with a linear layer: without a ReLU, two linear layers would follow each other."""
    model = build(kind, variant, trained=True)
    inputs = inputs_of_predictors(model)
    batch = random_batch(KINDS[kind][0], num_sequences=3, unroll_length=2)
    node = model.root(batch.observation[:, 0], batch.last_action)
    node = model.unroll(node.hidden, batch.action[:, 0])
    assert (model.visible_hidden(node.hidden) < 0).any()
    model.predict(batch)
    assert len(inputs) == 5
    assert all((x >= 0).all() for x in inputs)


@EVERY_KIND
def test_the_predictor_of_the_value_policy_network_alone_reads_activated_features(kind: str) -> None:
    space, size = KINDS[kind]
    network = build_value_policy(space, NUM_ACTIONS, size=size)
    inputs = inputs_of_predictors(network)
    batch = random_batch(space, num_sequences=3, unroll_length=2)
    network.predict(batch)
    network.evaluate(batch.observation[:, 0], batch.last_action)
    assert len(inputs) == 2
    assert all((x >= 0).all() for x in inputs)


def test_the_state_reward_half_of_a_board_has_its_own_width() -> None:
    model = build("tiles")
    assert isinstance(model, DualNetwork)
    assert model.hidden_shape == (4 + 8, 4, 5)
    assert model.state_reward.unroll_function.second.weight.shape[:2] == (4, 4)
    assert model.value_policy.unroll_function.second.weight.shape[:2] == (8, 8)


def test_pictures_with_their_channels_last_are_the_same_pictures() -> None:
    first, last = (gym.spaces.Box(0, 255, shape, np.uint8) for shape in ((3, 9, 16), (9, 16, 3)))
    size = KINDS["image"][1]
    models = [build_dual(space, NUM_ACTIONS, size=size) for space in (first, last)]
    observation = random_observations(first, (2,), np.random.default_rng(0))
    action = torch.tensor([0, 2])
    nodes = [
        model.unroll(model.root(seen, action).hidden, action)
        for model, seen in zip(models, (observation, observation.permute(0, 2, 3, 1)))
    ]
    assert nodes[0].state is not None
    assert nodes[1].state is not None
    torch.testing.assert_close(nodes[0].hidden, nodes[1].hidden)
    assert torch.equal(nodes[0].state, nodes[1].state.permute(0, 3, 1, 2))


@EVERY_KIND
@EVERY_VARIANT
def test_nodes_have_the_shapes_and_types_of_the_protocol(kind: str, variant: str) -> None:
    space, model = KINDS[kind][0], build(kind, variant)
    assert isinstance(model, WorldModel)
    observation = random_observations(space, (5,), np.random.default_rng(0))
    root = model.root(observation, torch.full((5,), NO_ACTION))
    node = model.unroll(root.hidden, torch.arange(5) % NUM_ACTIONS)
    for output in (root, node):
        assert model.visible_hidden(output.hidden).shape == (5, *model.hidden_shape)
        assert output.hidden.dtype == output.value.dtype == output.policy.dtype == torch.float32
        assert output.value.shape == output.reward.shape == output.termination.shape == (5,)
        assert output.policy.shape == (5, NUM_ACTIONS)
        if not model.predicts_states:
            assert output.state is None
        else:
            assert output.state is not None
            assert output.state.shape == observation.shape
            assert output.state.dtype == observation.dtype
    assert root.hidden.shape == node.hidden.shape
    if model.predicts_states:
        assert root.state is observation


@EVERY_KIND
@EVERY_VARIANT
def test_fresh_models_have_uniform_policies_and_zero_values_and_rewards(kind: str, variant: str) -> None:
    model = build(kind, variant)
    observation = random_observations(KINDS[kind][0], (4,), np.random.default_rng(0))
    root = model.root(observation, torch.arange(4) % NUM_ACTIONS)
    node = model.unroll(root.hidden, torch.arange(4) % NUM_ACTIONS)
    for output in (root, node):
        assert not output.value.any()
        assert not output.reward.any()
        torch.testing.assert_close(output.policy, torch.full((4, NUM_ACTIONS), 1 / NUM_ACTIONS))


@pytest.mark.parametrize("kind", ["tiles", "vector"])
def test_fresh_models_of_boards_and_vectors_predict_no_change(kind: str) -> None:
    model = build(kind)
    observation = random_observations(KINDS[kind][0], (4,), np.random.default_rng(0))
    node = model.root(observation, torch.zeros(4, dtype=torch.int64))
    for _ in range(3):
        node = model.unroll(node.hidden, torch.zeros(4, dtype=torch.int64))
        torch.testing.assert_close(node.state, observation)


@EVERY_KIND
def test_rows_of_a_batch_do_not_touch_each_other(kind: str) -> None:
    model = build(kind, trained=True)
    observation = random_observations(KINDS[kind][0], (4,), np.random.default_rng(0))
    action = torch.tensor([0, 2, 1, 0])
    root = model.root(observation, action)
    node = model.unroll(root.hidden, action)
    for row in range(4):
        only = slice(row, row + 1)
        alone = model.unroll(model.root(observation[only], action[only]).hidden, action[only])
        torch.testing.assert_close(alone.hidden, node.hidden[only], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(alone.value, node.value[only], rtol=1e-4, atol=1e-5)


@EVERY_KIND
def test_no_nodes_give_no_outputs(kind: str) -> None:
    model = build(kind)
    observation = random_observations(KINDS[kind][0], (0,), np.random.default_rng(0))
    none = torch.zeros(0, dtype=torch.int64)
    assert model.unroll(model.root(observation, none).hidden, none).policy.shape == (0, NUM_ACTIONS)


@pytest.mark.parametrize("kind", ["stacked", "small-stacked"])
def test_older_frames_are_shifted_and_only_the_newest_is_predicted(kind: str) -> None:
    model = build(kind, trained=True)
    observation = random_observations(KINDS[kind][0], (3,), np.random.default_rng(0))
    first = model.unroll(model.root(observation, torch.zeros(3, dtype=torch.int64)).hidden, torch.tensor([0, 1, 2]))
    second = model.unroll(first.hidden, torch.tensor([0, 1, 2]))
    assert first.state is not None
    assert second.state is not None
    assert torch.equal(first.state[:, :3], observation[:, 1:])
    assert torch.equal(second.state[:, :3], first.state[:, 1:])


@pytest.mark.parametrize("spatial", [(80, 80), (84, 84), (96, 96), (2, 2), (5, 7), (15, 16), (17, 33), (37, 50)])
@pytest.mark.parametrize(("channels", "stacked_frames"), [(1, 1), (2, 2), (9, 3)])
@pytest.mark.parametrize(("kind", "factor"), [(ImageSize, 16), (SmallImageSize, 8)])
def test_pictures_of_any_height_and_width_come_back_in_their_size(
    spatial: tuple[int, int], channels: int, stacked_frames: int, kind: type[ImageSize], factor: int
) -> None:
    shape = (channels, *spatial)
    space = gym.spaces.Box(0, 255, shape, np.uint8)
    size = kind(channels=2, unroll_blocks=1, stacked_frames=stacked_frames)
    model = build_dual(space, NUM_ACTIONS, size=size)
    batch = random_batch(space, num_sequences=2, unroll_length=1)
    root = model.root(batch.observation[:, 0], batch.last_action)
    node = model.unroll(root.hidden, batch.action[:, 0])
    assert node.state is not None
    assert node.state.shape == (2, *shape)
    assert model.hidden_shape[1:] == tuple(-(-side // factor) for side in spatial)  # rounded up
    losses_of(model, batch).total.backward()


@pytest.mark.parametrize("kind", ["small-image", "small-stacked"])
def test_a_new_small_model_of_images_predicts_no_change(kind: str) -> None:
    model = build(kind)
    observation = random_observations(KINDS[kind][0], (3,), np.random.default_rng(0))
    root = model.root(observation, torch.zeros(3, dtype=torch.int64))
    node = model.unroll(root.hidden, torch.tensor([0, 1, 2]))
    assert node.state is not None
    frame = 3 if kind == "small-image" else 1
    assert torch.equal(node.state[:, -frame:], observation[:, -frame:])


def test_paper_sizes_have_the_shapes_of_appendix_c_with_80_pixels_giving_5() -> None:
    plain = build_dual(gym.spaces.Box(0, 255, (3, 80, 80), np.uint8), 5, size="paper")
    assert plain.hidden_shape == (256, 5, 5)
    stacked = build_dual(gym.spaces.Box(0, 255, (12, 84, 84), np.uint8), 4, size="paper-stacked")
    assert stacked.hidden_shape == (256, 6, 6)
    for model, size in ((plain, SIZES["paper"]), (stacked, SIZES["paper-stacked"])):
        assert isinstance(size, ImageSize)
        assert size.unroll_blocks == 4 * size.blocks + 1
        # encoder: 3 residual stages of D blocks with 2 convolutions, and 2 of its own; see appendix C for the others
        convolutions = 2 * (6 * size.blocks + 2) + 2 * 2 * size.unroll_blocks + 2 * 2 + (6 * size.blocks + 4)
        found = [m for m in model.modules() if isinstance(m, nn.Conv2d | nn.ConvTranspose2d)]
        assert len(found) == convolutions


def learn_one_batch(model: TrainableNetwork, kind: str) -> dict[str, float]:
    """Train on one small batch and give each loss over what it was at the beginning."""
    steps, learning_rate = {"tiles": (200, 1e-2), "vector": (200, 1e-2)}.get(kind, (300, 3e-3))
    batch = random_batch(KINDS[kind][0], num_sequences=2, unroll_length=2)
    if kind.endswith("stacked"):  # each observation shares three frames with the one before
        frames = batch.observation.flatten(1, 2)[:, :6]
        batch = replace(batch, observation=torch.stack([frames[:, step : step + 4] for step in range(3)], 1))
    greedy = F.one_hot(batch.policy_target.argmax(-1), NUM_ACTIONS).float()
    batch = replace(batch, policy_target=greedy)  # so that the cross-entropy can reach zero
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=learning_rate)
    first: dict[str, Tensor] = {}
    for _ in range(steps):
        output = losses_of(model, batch)
        first = first or output.losses
        optimizer.zero_grad()
        output.total.backward()
        optimizer.step()
    return {name: (value / first[name]).item() for name, value in output.losses.items()}


@pytest.mark.parametrize(
    ("kind", "variant"),
    [
        *((kind, variant) for kind in ("tiles", "vector") for variant in VARIANTS),
        *(("image", variant) for variant in ("dual-l2", "single-l2")),
        ("stacked", "dual-l2"),
        ("small-stacked", "dual-l2"),
    ],
)
def test_variants_learn_one_batch_by_heart(kind: str, variant: str) -> None:
    shares = learn_one_batch(build(kind, variant), kind)
    assert max(shares.values()) < 0.15, shares
    assert sum(share < 0.05 for share in shares.values()) >= len(shares) - 1, shares


@pytest.mark.parametrize("kind", ["image", "tiles", "vector"])
def test_the_feature_loss_is_learned_while_the_value_policy_network_stands_still(kind: str) -> None:
    model = build(kind)
    assert isinstance(model, DualNetwork)
    model.value_policy.requires_grad_(False)
    shares = learn_one_batch(model, kind)
    assert shares["state"] < 0.3, shares
    assert shares["value"] == pytest.approx(1)


@pytest.mark.parametrize("kind", ["image", "tiles", "vector"])
def test_the_value_policy_network_alone_learns_one_batch_by_heart(kind: str) -> None:
    space, size = KINDS[kind]
    shares = learn_one_batch(build_value_policy(space, NUM_ACTIONS, size=size), kind)
    assert set(shares) == {"value", "policy"}
    assert max(shares.values()) < 0.05, shares


@EVERY_KIND
def test_the_value_policy_network_evaluates_states_as_it_was_trained_on_them(kind: str) -> None:
    space, size = KINDS[kind]
    network = build_value_policy(space, NUM_ACTIONS, size=size)
    nn.init.normal_(network.predictor.output.weight, generator=torch.Generator().manual_seed(0))
    batch = random_batch(space, num_sequences=3, unroll_length=2)
    predictions = network.predict(batch)
    for step in range(3):
        last_action = batch.last_action if step == 0 else batch.action[:, step - 1]
        policy, value = network.evaluate(batch.observation[:, step], last_action)
        torch.testing.assert_close(value, predictions.value[:, step])
        torch.testing.assert_close(policy, predictions.policy_logits[:, step].softmax(-1))


def board_values() -> BoardValueNetwork:
    space = KINDS["tiles"][0]
    network = build_value_policy(space, NUM_ACTIONS, network="board")
    assert isinstance(network, BoardValueNetwork)
    return network


def test_the_value_policy_half_for_boards_learns_one_batch_by_heart() -> None:
    shares = learn_one_batch(board_values(), "tiles")
    assert set(shares) == {"value", "policy"}
    assert max(shares.values()) < 0.05, shares


def test_the_value_policy_half_for_boards_evaluates_states_as_it_was_trained_on_them() -> None:
    network = board_values()
    nn.init.normal_(network.value_policy.output.weight, generator=torch.Generator().manual_seed(0))
    batch = random_batch(KINDS["tiles"][0], num_sequences=3, unroll_length=2)
    predictions = network.predict(batch)
    for step in range(2):  # the last state has no target
        policy, value = network.evaluate(batch.observation[:, step], batch.last_action)
        known = predictions.known[:, step] > 0
        assert known.any()
        torch.testing.assert_close(value[known], predictions.value[known, step])
        torch.testing.assert_close(policy[known], predictions.policy_logits[known, step].softmax(-1))


def test_weights_depend_on_the_seed_alone_and_leave_the_global_generator_alone() -> None:
    torch.manual_seed(123)
    before = torch.get_rng_state()
    one = small_model("tiles", seed=7)
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(3)
    two = small_model("tiles", seed=7)
    other = small_model("tiles", seed=8)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters()))
    assert any(not torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters()))


@pytest.mark.parametrize("kind", ["tiles", "small-image"])
def test_parameter_groups_hold_every_trainable_parameter_once(kind: str) -> None:
    for variant in VARIANTS:
        model = build(kind, variant)
        grouped = [parameter for group in model.parameter_groups().values() for parameter in group]
        assert len(grouped) == len({id(parameter) for parameter in grouped})
        trainable = {id(parameter) for parameter in model.parameters() if parameter.requires_grad}
        assert {id(parameter) for parameter in grouped} == trainable


def test_unknown_sizes_and_impossible_numbers_are_errors_that_say_what_to_do() -> None:
    space = KINDS["tiles"][0]
    with pytest.raises(UserError, match="unknown size 'huge'; choose one of paper, paper-stacked, image-small, "):
        build_dual(space, NUM_ACTIONS, size="huge")
    with pytest.raises(UserError, match="num_actions must be at least 1, got 0"):
        build_single(space, 0)
    with pytest.raises(UserError, match="channels must be at least 1, got 0"):
        TilesSize(channels=0)
