"""The native engine against the plain-Python rules, and the pictures that it draws."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.envs.sokoban_reference import SYMBOLS, ReferenceSokoban
from thinker.envs.sokoban import (
    LevelSet,
    SokobanVectorEnv,
    draw_boards,
    engine,
    generate_levels,
    observation_sprites,
    step_boards,
)
from thinker.envs.sokoban.levels import board_text
from thinker.envs.sokoban.rendering import ObservationKind


@st.composite
def boards_and_actions(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Rows that all differ: any tiles anywhere, the outer squares too, but exactly one player."""
    batch, steps = draw(st.integers(1, 6)), draw(st.integers(1, 30))
    height, width = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    weights = np.array([draw(st.integers(0, 3)), 4, 2, 3, 1], float)
    boards = random.choice(5, size=(batch, height, width), p=weights / weights.sum()).astype(np.uint8)
    for board in boards:
        board[random.integers(height), random.integers(width)] = random.choice([5, 6])
    return boards, random.integers(0, 5, size=(steps, batch))


@settings(max_examples=200, deadline=None)
@given(boards_and_actions())
def test_step_boards_equals_the_reference_on_every_row(case: tuple[np.ndarray, np.ndarray]) -> None:
    boards, actions = case
    references = [ReferenceSokoban(board_text(board)) for board in boards]
    rewards, solved = np.empty(len(boards), np.float32), np.empty(len(boards), np.bool_)
    for row in actions:
        step_boards(boards, row, rewards, solved)
        expected = [reference.step(int(action)) for reference, action in zip(references, row)]
        assert [board_text(board) for board in boards] == [reference.text() for reference in references]
        np.testing.assert_allclose(rewards, [reward for reward, _ in expected], atol=1e-6)
        assert solved.tolist() == [is_solved for _, is_solved in expected]


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), num_envs=st.integers(1, 5), size=st.sampled_from([5, 6, (5, 8), (7, 6)]))
def test_vector_env_equals_the_reference_step_by_step(seed: int, num_envs: int, size: int | tuple[int, int]) -> None:
    max_steps = 12
    envs = SokobanVectorEnv(num_envs, size=size, boxes=1, reverse_moves=(1, 2), max_steps=max_steps, render_mode="ansi")
    observations, _ = envs.reset(seed=seed)
    texts = envs.render()
    assert texts is not None
    references = [ReferenceSokoban(text) for text in texts]
    played = [0] * num_envs
    random = np.random.default_rng(seed)
    for _ in range(40):
        actions = random.integers(0, 5, num_envs)
        observations, rewards, terminated, truncated, info = envs.step(actions)
        texts = envs.render()
        assert texts is not None
        for index, reference in enumerate(references):
            reward, solved = reference.step(int(actions[index]))
            played[index] += 1
            assert rewards[index] == pytest.approx(reward, abs=1e-12)
            assert terminated[index] == solved == info["solved"][index]
            assert truncated[index] == (played[index] == max_steps and not solved)
            if terminated[index] or truncated[index]:
                np.testing.assert_array_equal(info["final_obs"][index], reference.planes())
                assert info["final_info"]["boxes_on_target"][index] == len(reference.boxes & reference.targets)
                references[index] = ReferenceSokoban(texts[index])
                played[index] = 0
            assert texts[index] == references[index].text()
            np.testing.assert_array_equal(observations[index], references[index].planes())
            assert info["boxes_on_target"][index] == len(references[index].boxes & references[index].targets)


@settings(max_examples=100, deadline=None)
@given(boards_and_actions(), st.integers(1, 20))
def test_kernels_on_boards_equal_the_reference_and_leave_boards_alone_that_do_not_run(
    case: tuple[np.ndarray, np.ndarray], max_steps: int
) -> None:
    tiles, actions = case
    sprites = observation_sprites("tiles")
    boards = engine.make_boards(*tiles.shape, sprites)
    boards.tiles[:] = tiles
    engine.place_boards(boards, np.arange(len(tiles)), sprites)
    before = [array.copy() for array in boards]
    assert engine.step_environments(boards, actions[0], max_steps, sprites) == 0  # no episode has begun
    for array, old in zip(boards, before):
        np.testing.assert_array_equal(array, old)

    running = np.arange(0, len(tiles), 2)
    engine.begin_episodes(boards, running, sprites)
    references = {index: ReferenceSokoban(board_text(tiles[index])) for index in running}
    for played, row in enumerate(actions, 1):
        expected_ends = 0
        was_running = boards.status == engine.RUNNING
        ended = engine.step_environments(boards, row, max_steps, sprites)
        for index, reference in references.items():
            if not was_running[index]:
                assert boards.reward[index] == 0
                assert not boards.terminated[index]
                assert not boards.truncated[index]
                continue
            reward, solved = reference.step(int(row[index]))
            assert boards.reward[index] == pytest.approx(reward, abs=1e-12)
            assert boards.terminated[index] == solved
            assert boards.truncated[index] == (played >= max_steps and not solved)
            assert boards.steps[index] == played
            assert tuple(boards.player[index]) == reference.player
            assert boards.boxes_on_target[index] == len(reference.boxes & reference.targets)
            np.testing.assert_array_equal(boards.pictures[index], reference.planes())
            expected_ends += boards.terminated[index] or boards.truncated[index]
        assert ended == expected_ends
        np.testing.assert_array_equal(boards.tiles[1::2], tiles[1::2])


@pytest.mark.parametrize("kind", ["tiles", "rgb"])
def test_incremental_drawing_equals_drawing_the_whole_board(kind: ObservationKind) -> None:
    envs = SokobanVectorEnv(8, observation=kind, max_steps=50, size=(7, 9), boxes=2)
    envs.reset(seed=3)
    random = np.random.default_rng(3)
    sprites = observation_sprites(kind)
    for _ in range(120):
        observations = envs.step(random.integers(0, 5, 8))[0]
        boards = envs.snapshot()["boards"]
        whole = np.empty_like(observations)
        draw_boards(boards, sprites, whole)
        np.testing.assert_array_equal(observations, whole)


def test_rgb_observation_is_made_of_the_eight_pixel_sprites_channel_first() -> None:
    board = generate_levels(1, size=(6, 9), boxes=2, seed=1).boards[0]
    sprites = observation_sprites("rgb")
    picture = np.empty((1, 3, 48, 72), np.uint8)
    draw_boards(board[None], sprites, picture)
    for row in range(6):
        for column in range(9):
            square = picture[0, :, 8 * row : 8 * row + 8, 8 * column : 8 * column + 8]
            np.testing.assert_array_equal(square, sprites[board[row, column]])
    assert len({sprite.tobytes() for sprite in sprites}) == len(SYMBOLS)


def test_rewards_add_up_to_10_99_on_the_solving_step_and_to_minus_1_01_when_a_box_leaves_its_target() -> None:
    envs = SokobanVectorEnv(1, levels=LevelSet.parse("######\n#@$. #\n######"))
    envs.reset(seed=0)
    _, reward, terminated, truncated, _ = envs.step(np.array([4]))
    assert reward[0] == pytest.approx(10.99, abs=1e-12)
    assert terminated[0]
    assert not truncated[0]

    envs = SokobanVectorEnv(1, levels=LevelSet.parse("#######\n#@* $.#\n#######"))
    envs.reset(seed=0)
    assert envs.step(np.array([4]))[1][0] == pytest.approx(-1.01, abs=1e-12)
    assert envs.step(np.array([0]))[1][0] == pytest.approx(-0.01, abs=1e-12)


def test_solving_on_the_very_last_step_terminates_and_does_not_truncate() -> None:
    levels = LevelSet.parse("######\n#@$. #\n######")
    envs = SokobanVectorEnv(2, levels=levels, max_steps=3)
    envs.reset(seed=0)
    for actions in ([0, 0], [0, 0]):
        _, _, terminated, truncated, _ = envs.step(np.array(actions))
        assert not terminated.any()
        assert not truncated.any()
    _, _, terminated, truncated, _ = envs.step(np.array([4, 0]))
    assert terminated.tolist() == [True, False]
    assert truncated.tolist() == [False, True]
