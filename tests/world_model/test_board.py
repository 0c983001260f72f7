"""The dual network without memory: its table of boards, its halves, and boards without their border."""

from __future__ import annotations

import copy
import dataclasses

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.world_model.networks_support import NUM_ACTIONS as BATCH_ACTIONS
from tests.world_model.networks_support import losses_of, random_batch
from tests.world_model.replay_reference import transition
from thinker.augmented import ThinkerEnv
from thinker.envs.replayable import environments_state, restore_environments
from thinker.envs.sokoban.vector_env import SokobanVectorEnv
from thinker.errors import UserError
from thinker.interfaces import NO_ACTION, WorldModel
from thinker.nn.blocks import one_hot_action
from thinker.nn.codec import ObservationCodec
from thinker.nn.sizes import SIZES, TilesSize
from thinker.world_model.acting import ActingCopy
from thinker.world_model.board import FEATURES, BoardNetwork
from thinker.world_model.board_model import BoardModel
from thinker.world_model.board_table import find_or_add, make_table, pack, unpack
from thinker.world_model.build import build_board, build_dual
from thinker.world_model.replay import Replay
from thinker.world_model.trainer import ModelTrainer, TrainerSettings

SMALL = TilesSize(channels=8, state_reward_channels=8, blocks=1)
NUM_ACTIONS = 5


def sokoban(num_envs: int = 6) -> SokobanVectorEnv:
    return SokobanVectorEnv(num_envs, size=6, boxes=1, max_steps=9)


def network(*, seed: int = 0, **options) -> BoardNetwork:
    """A network whose zero layers have random weights, as if it had learned something."""
    env = sokoban()
    board = options.pop("board", env.metadata["board"])
    num_actions = options.pop("num_actions", NUM_ACTIONS)
    built = build_board(env.single_observation_space, num_actions, size=SMALL, board=board, seed=seed, **options)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in built.parameters():
            if not parameter.any():
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
    return built


class Counting(BoardModel):
    """Counts the boards and steps that are computed."""

    boards = steps = 0

    def _states(self, words: np.ndarray) -> Tensor:
        self.boards += len(words)
        return super()._states(words)

    def _predict(self, numbers: np.ndarray, actions: np.ndarray) -> None:
        self.boards -= len(numbers)
        self.steps += len(numbers)
        super()._predict(numbers, actions)


def acting(built: BoardNetwork, **options) -> Counting:
    return Counting(ActingCopy(built, "float32"), **options)


def no_action(count: int) -> Tensor:
    return torch.full((count,), NO_ACTION)


# ------------------------------------------------------------------------------------------------ the table


@settings(deadline=None)
@given(st.integers(0, 5), st.integers(1, 200), st.integers(0, 2**32 - 1))
def test_boards_are_packed_without_loss(count: int, num_bits: int, seed: int) -> None:
    bits = np.random.default_rng(seed).integers(0, 2, (count, num_bits), np.uint8)
    words = pack(bits)
    assert words.shape == (count, -(-num_bits // 64))
    np.testing.assert_array_equal(unpack(words, num_bits), bits)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-(2**63), 2**63 - 1)), max_size=40), st.integers(1, 5))
def test_equal_boards_have_equal_numbers_in_the_order_of_arrival(boards: list[tuple[int, int]], parts: int) -> None:
    table = make_table(40, 2, NUM_ACTIONS)
    expected: dict[tuple[int, int], int] = {}
    count = 0
    for part in np.array_split(np.array(boards, np.int64).reshape(-1, 2), parts):
        numbers = np.empty(len(part), np.int64)
        count = find_or_add(table, count, part, numbers)
        for board, number in zip(part.tolist(), numbers):
            assert expected.setdefault(tuple(board), len(expected)) == number
    assert count == len(expected)


# ------------------------------------------------------------------------------------------------ the model


def plain(built: BoardNetwork, boards: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The next observations, rewards and terminations, without a table."""
    step = built.state_reward(built.codec.encode(boards), one_hot_action(action, built.num_actions))
    return built.codec.decode(step.state), built.head.decode(step.reward_output), step.termination_logit.sigmoid()


@pytest.mark.parametrize("capacity", [12, 1000])  # 12: emptied again and again
def test_search_sees_what_the_network_computes(capacity: int) -> None:
    built = network()
    model = acting(built, capacity=capacity)
    assert isinstance(model, WorldModel)
    random = np.random.default_rng(0)
    observation = torch.from_numpy(sokoban().reset(seed=0)[0])
    node = model.root(observation, no_action(6))
    boards = observation
    with torch.no_grad():
        for _ in range(6):
            evaluation = built.value_policy(built.codec.encode(boards))
            assert node.state is not None
            assert torch.equal(node.state, boards)
            torch.testing.assert_close(node.value, built.head.decode(evaluation.value_output))
            torch.testing.assert_close(node.policy, evaluation.policy_logits.softmax(1))
            torch.testing.assert_close(model.visible_hidden(node.hidden), evaluation.features)
            action = torch.from_numpy(random.integers(0, NUM_ACTIONS, 6))
            boards, reward, termination = plain(built, boards, action)
            node = model.unroll(node.hidden, action)
            torch.testing.assert_close(node.reward, reward)
            torch.testing.assert_close(node.termination, termination)
    assert model.hidden_shape == (FEATURES,)


def test_nothing_is_computed_twice_until_new_weights_are_published() -> None:
    built = network()
    weights = ActingCopy(built, "float32")
    model = Counting(weights, predict_states=False)
    observation = torch.from_numpy(sokoban().reset(seed=0)[0])
    action = torch.arange(6) % NUM_ACTIONS
    root = model.root(observation, no_action(6))
    node = model.unroll(root.hidden, action)
    steps, boards = model.steps, model.boards
    assert steps == 6
    again = model.unroll(model.root(observation.clone(), no_action(6)).hidden, action)
    twice = torch.cat((root.hidden, root.hidden))
    model.unroll(twice, torch.cat((action, (action + 1) % NUM_ACTIONS)))
    assert (model.steps, model.boards >= boards) == (steps + 6, True)
    assert torch.equal(again.value, node.value)
    weights.load_from(network(seed=1))
    renewed = model.root(observation, no_action(6))
    assert not torch.equal(renewed.value, root.value)
    assert model.boards > boards


def test_the_same_step_is_computed_once_in_a_batch() -> None:
    model = acting(network(), predict_states=False)
    observation = torch.from_numpy(sokoban().reset(seed=0)[0])[:1].repeat(4, 1, 1, 1)
    root = model.root(observation, no_action(4))
    assert model.boards == 1
    nodes = model.unroll(root.hidden, torch.tensor([1, 1, 2, 1]))
    assert model.steps == 2
    assert nodes.value[0] == nodes.value[1] == nodes.value[3]


def test_it_searches_in_the_augmented_mdp_and_resumes_exactly() -> None:
    def start() -> ThinkerEnv:
        model = acting(network(), predict_states=False)
        observe = ("tree", "hidden", "root_hidden")
        return ThinkerEnv(sokoban(), model, stage_length=4, max_depth=3, observe=observe, seed=3)

    def play(env: ThinkerEnv, steps: int, seed: int) -> list[dict]:
        random = np.random.default_rng(seed)
        return [env.step(random.integers(0, (NUM_ACTIONS, 2), (6, 2)))[0] for _ in range(steps)]

    env = start()
    env.reset()
    play(env, 8, 0)
    saved = {"augmented": env.state_dict(), "boards": environments_state(env.envs)}
    saved = copy.deepcopy(saved)
    env.refresh()
    expected = play(env, 13, 1)
    other = start()
    other.reset()
    restore_environments(other.envs, saved["boards"])
    other.load_state_dict(saved["augmented"])
    other.refresh()
    for mine, theirs in zip(play(other, 13, 1), expected):
        for key in mine:
            torch.testing.assert_close(mine[key], theirs[key])


# --------------------------------------------------------------------------------------------------- training


@pytest.mark.parametrize("state_loss", ["cross-entropy", "feature"])
def test_neither_half_is_moved_by_the_loss_of_the_other(state_loss: str) -> None:
    built = network(state_loss=state_loss, num_actions=BATCH_ACTIONS)
    batch = random_batch(sokoban().single_observation_space, num_sequences=3, unroll_length=2)
    output = losses_of(built, batch)
    output.state_reward.backward(retain_graph=True)
    assert all(parameter.grad is None for parameter in built.value_policy.parameters())
    moved = {name for name, parameter in built.state_reward.named_parameters() if parameter.grad is not None}
    assert moved == {name for name, _ in built.state_reward.named_parameters()}
    built.zero_grad()
    output.value_policy.backward()
    assert all(parameter.grad is None for parameter in built.state_reward.parameters())
    assert all(parameter.grad is not None for parameter in built.value_policy.parameters())


@pytest.mark.parametrize("state_loss", ["cross-entropy", "feature"])
def test_it_learns_one_batch_by_heart(state_loss: str) -> None:
    built = network(state_loss=state_loss, num_actions=BATCH_ACTIONS)
    env = sokoban()
    batch = random_batch(env.single_observation_space, num_sequences=4, unroll_length=2)
    first = losses_of(built, batch)
    optimiser = torch.optim.Adam(built.parameters(), lr=5e-3)
    for _ in range(150):
        optimiser.zero_grad()
        losses_of(built, batch).total.backward()
        optimiser.step()
    last = losses_of(built, batch)
    for name in ("reward", "termination", "state", "value"):
        assert last.losses[name] < 0.2 * first.losses[name], name


def test_steps_of_a_sequence_are_predicted_from_the_true_boards() -> None:
    built = network(num_actions=BATCH_ACTIONS)
    batch = random_batch(sokoban().single_observation_space, num_sequences=3, unroll_length=2)
    predictions = built.predict(batch)
    assert predictions.reward is not None
    for step in range(2):
        _, reward, _ = plain(built, batch.observation[:, step], batch.action[:, step])
        torch.testing.assert_close(predictions.reward[:, step], reward)
    assert predictions.known is not None
    trained = (batch.value_mask + batch.policy_mask)[:, :-1] > 0
    assert predictions.known.tolist() == [[*map(float, row), 0.0] for row in trained.tolist()]
    for step in range(2):
        evaluation = built.value_policy(built.codec.encode(batch.observation[:, step]))
        rows = trained[:, step]
        torch.testing.assert_close(predictions.value[rows, step], built.head.decode(evaluation.value_output)[rows])
        torch.testing.assert_close(predictions.policy_logits[rows, step], evaluation.policy_logits[rows])


def test_random_play_costs_no_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    built = network(num_actions=BATCH_ACTIONS)
    batch = random_batch(sokoban().single_observation_space, num_sequences=3, unroll_length=2)
    nothing = torch.zeros_like(batch.value_mask)
    batch = dataclasses.replace(batch, value_mask=nothing, policy_mask=nothing)
    monkeypatch.setattr(built.value_policy, "forward", None)
    output = losses_of(built, batch)
    assert output.losses["value"] == output.losses["policy"] == 0
    output.total.backward()
    assert all(parameter.grad is None for parameter in built.value_policy.parameters())


@pytest.mark.parametrize("random_play", [False, True])
def test_the_state_reward_half_may_be_trained_on_some_batches_only(random_play: bool) -> None:
    built, env = network(), sokoban(2)
    replay = Replay(
        64,
        num_envs=2,
        observation_space=env.single_observation_space,
        num_actions=NUM_ACTIONS,
        discount=0.9,
        unroll_length=1,
    )
    settings = TrainerSettings(
        batch_size=2, unroll_length=1, warm_up_transitions=0, replay_ratio=1.0, state_reward_interval=3
    )
    trainer = ModelTrainer(built, replay, settings, None)
    observation = env.reset(seed=1)[0]
    changed = []
    for step in range(8):
        following = env.step(np.full(2, step % 5))[0]
        before = copy.deepcopy(built.state_dict())
        trainer.add(
            transition(
                observation=observation,
                action=np.full(2, step % 5),
                next_observation=following,
                random_play=random_play,
            )
        )
        after = built.state_dict()
        changed.append(
            tuple(
                any(not torch.equal(before[name], after[name]) for name in before if name.startswith(half))
                for half in ("state_reward", "value_policy")
            )
        )
        observation = following
    trained = changed[changed.index((True, not random_play)) :]
    assert len(trained) >= 4
    assert trained == [(batch % 3 == 0, not random_play) for batch in range(len(trained))]
    assert "loss/state" in trainer.metrics
    weight = built.state_dict()["state_reward.first.layer.weight"].clone()
    trainer.train_more(2)
    assert not torch.equal(weight, built.state_dict()["state_reward.first.layer.weight"])


def test_only_boards_have_such_a_network() -> None:
    with pytest.raises(UserError, match="boards of 0s and 1s"):
        build_board(Box(0, 255, (3, 80, 80), np.uint8), 4, size="paper")


# ------------------------------------------------------------------------------------------------- the border


def test_the_border_is_left_out_of_states_and_added_to_observations() -> None:
    env = sokoban()
    observation = torch.from_numpy(env.reset(seed=1)[0])
    whole = ObservationCodec(env.single_observation_space, SIZES["tiles"])
    cropped = ObservationCodec(env.single_observation_space, SIZES["tiles"], env.metadata["board"].border)
    assert cropped.state_shape == (7, 4, 4)
    state = cropped.encode(observation)
    assert torch.equal(state, whole.encode(observation)[:, :, 1:-1, 1:-1])
    assert state.is_contiguous(memory_format=torch.channels_last)
    cropped.check(observation)
    assert torch.equal(cropped.decode(state), observation)
    assert cropped.decode(state).dtype == observation.dtype


@pytest.mark.parametrize("square", [(0, 2), (5, 1), (3, 0), (2, 5)])
def test_a_border_that_is_not_the_declared_one_is_an_error(square: tuple[int, int]) -> None:
    env = sokoban()
    codec = ObservationCodec(env.single_observation_space, SIZES["tiles"], env.metadata["board"].border)
    observation = torch.from_numpy(env.reset(seed=1)[0])
    observation[4, :, square[0], square[1]] = torch.tensor([0, 1, 0, 0, 0, 0, 0])
    with pytest.raises(UserError, match="differ from the border"):
        codec.check(observation)


def test_a_border_with_another_number_of_channels_is_an_error() -> None:
    with pytest.raises(UserError, match="one value for each channel"):
        ObservationCodec(sokoban().single_observation_space, SIZES["tiles"], (1, 0))


def test_the_papers_network_for_boards_predicts_whole_boards_without_computing_their_border() -> None:
    env = sokoban()
    model = build_dual(env.single_observation_space, NUM_ACTIONS, board=env.metadata["board"])
    assert model.hidden_shape[1:] == (4, 4)
    observation = torch.from_numpy(env.reset(seed=1)[0])
    node = model.unroll(model.root(observation, no_action(6)).hidden, torch.zeros(6, dtype=torch.int64))
    assert node.state is not None
    assert torch.equal(node.state, observation)  # a new model predicts no change
