"""The page in a real browser: every symbol has one meaning, and vectors have names, numbers and one baseline."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from gymnasium.vector import SyncVectorEnv

from tests.viewer.support import FickleModel, Pictures, RandomPolicy
from thinker.augmented import ThinkerEnv
from thinker.viewer import Recording, Stage, record


def shown(number: float) -> str:
    return f"{number:.2f}".replace("-0.00", "0.00").replace("-", "−")


def recorded(shape: tuple[int, ...] = (3,), render_mode: str | None = None, **options: Any) -> Recording:
    envs = SyncVectorEnv([lambda: Pictures(shape, length=20, render_mode=render_mode)])
    env = ThinkerEnv(envs, FickleModel(envs), stage_length=8, max_depth=4, keep_states=True)
    return record(env, RandomPolicy(env, 3), seed=1, **options)


@pytest.fixture(scope="module")
def recording() -> Recording:
    """Its model changes its mind, so that some best paths are carried over."""
    return recorded()


def best_of(stage: Stage) -> int:
    return stage.tree.rollout_return.index(max(stage.tree.rollout_return))


def place_of(recording: Recording, *, fresh: bool) -> int:
    """A stage whose best node was reached in the stage itself, or carried over from the one before."""
    stages = enumerate(recording.episodes[0].stages)
    return next(i for i, stage in stages if best_of(stage) != 0 and stage.tree.fresh[best_of(stage)] == fresh)


# --------------------------------------------------------------------------------------------------- one meaning each


def test_the_best_return_is_the_same_number_everywhere(show, recording):
    place = place_of(recording, fresh=True)
    stage = recording.episodes[0].stages[place]
    page = show(recording, place=f"#step={place + 1}")
    best = shown(max(stage.tree.rollout_return))
    starred = page.locator(".thought .best")
    assert starred.count() == sum(step.node == best_of(stage) for step in stage.steps)
    assert {text.split()[-1] for text in starred.all_inner_texts()} == {best}
    assert page.locator("#tree text.star").count() == 1
    assert page.locator("#tree-summary").inner_text() == f"{len(stage.tree)} nodes, ★ max g {best}"
    assert page.locator("#node dt:text-is('max g') + dd").inner_text() == best  # of the root
    in_table = page.locator("#actions td:nth-child(4)").all_inner_texts()
    assert best in in_table


def test_a_best_path_that_was_carried_over_is_marked_in_the_tree_alone(show, recording):
    place = place_of(recording, fresh=False)
    page = show(recording, place=f"#step={place + 1}")
    assert page.locator(".thought .best").count() == 0
    assert page.locator("#tree text.star").count() == 1
    assert page.locator("#tree-summary").inner_text().endswith("(carried over)")


def test_rollouts_and_table_agree(show, recording):
    page = show(recording)  # nothing is carried over into the first stage
    stage = recording.episodes[0].stages[0]
    for row in page.locator(".rollout").all():
        captions = row.locator(".thought .caption:last-child").all_inner_texts()
        assert row.locator(".return").inner_text().split()[-1] == captions[-1].split()[-1]
    returns: dict[int, list[float]] = {}
    first = stage.steps[0].action
    for step in stage.steps:
        first = step.action if step.depth == 1 else first
        returns.setdefault(first, []).append(step.rollout_return)
    cells = page.locator("#actions td:nth-child(4)").all_inner_texts()
    assert cells == [shown(max(returns[a])) if a in returns else "–" for a in range(3)]


def test_the_root_has_neither_visits_nor_a_reward(show, recording):
    page = show(recording, place="#step=3")
    assert page.locator("#node dt:text-is('path') + dd").inner_text() == "root"
    for name in ("n", "r"):
        assert page.locator(f"#node dt:text-is('{name}') + dd").inner_text() == "–"


def test_a_legend_explains_every_symbol(show, recording):
    page = show(recording)
    assert not page.locator("#legend").is_visible()
    page.locator("#help").click()
    terms = page.locator("#legend dt").all_inner_texts()
    used = {*page.locator("#actions th").all_inner_texts(), *page.locator("#node dt").all_inner_texts()}
    for symbol in used - {"action", "path"}:
        assert any(symbol in term.split(", ") for term in terms), symbol
    for symbol in ("r", "v", "g", "n", "π", "★", "root", "solved", "not solved", "wrong", "taken", "↺ reset"):
        assert symbol in terms
    page.keyboard.press("ArrowRight")  # the page below it stays where it is
    page.keyboard.press("Escape")
    assert not page.locator("#legend").is_visible()
    assert page.evaluate("() => location.hash") == "#episode=1&step=1"
    page.keyboard.press("?")
    assert page.locator("#legend").is_visible()
    page.keyboard.press("?")
    assert not page.locator("#legend").is_visible()


def test_failures_and_wrong_predictions_have_colours_of_their_own(show, recording):
    failed = [dataclasses.replace(episode, solved=False) for episode in recording.episodes]
    page = show(dataclasses.replace(recording, episodes=failed))
    colours = {
        kind: page.locator(f"#timeline [data-kind={kind}]").first.evaluate("(mark) => getComputedStyle(mark).fill")
        for kind in ("failed", "wrong")
    }
    assert colours["failed"] != colours["wrong"]
    keys = page.locator("#timeline-key .key").all_inner_texts()
    assert "not solved" in keys
    assert "wrong prediction" in keys
    assert "solved" not in keys  # no episode was


# ------------------------------------------------------------------------------------------------------------ vectors


NAMES = ["cart position", "cart velocity", "pole angle", "pole angular velocity"]


def test_numbers_of_a_vector_have_names_and_one_baseline(show):
    recording = recorded((4,), observation_names=NAMES, action_names=["left", "stay", "right"])
    page = show(recording)
    assert page.locator("#values .name").all_inner_texts() == NAMES
    numbers = [float(text.replace("−", "-")) for text in page.locator("#values .number").all_inner_texts()]
    assert numbers == pytest.approx(recording.frames[recording.episodes[0].stages[0].frame], rel=0.006)
    assert not page.locator("#real").is_visible()
    for box in ("#values .vector", ".thought .vector >> nth=0"):
        lines = page.locator(box).locator(".line").all()
        assert len(lines) == 4
        zeros = [line.locator("b").bounding_box()["x"] for line in lines]
        assert max(zeros) - min(zeros) < 1
        for line in lines:
            bar = line.locator("i").bounding_box()
            negative = line.locator(".number").inner_text().startswith("−")
            begins = bar["x"] + bar["width"] if negative else bar["x"]
            assert begins == pytest.approx(zeros[0], abs=1.5)
    assert [text.split()[-1] for text in page.locator("#actions td:first-child").all_inner_texts()] == [
        "left",
        "stay",
        "right",
    ]


def test_long_vectors_are_drawn_too(show):
    page = show(recorded((60,)))
    assert page.locator("#values .name").all_inner_texts() == [str(i) for i in range(60)]
    assert page.locator(".thought .vector.plain path").count() > 0
    assert page.evaluate("() => document.documentElement.scrollHeight") == 900


def test_the_environments_own_picture_is_shown(show):
    recording = recorded((4,), render_mode="rgb_array")
    page = show(recording)
    assert page.locator("#values .line").count() == 4
    pixel = "() => [...document.getElementById('real').getContext('2d').getImageData(50, 50, 1, 1).data.slice(0, 3)]"
    page.wait_for_timeout(500)  # the picture is decoded in the background
    env = Pictures((4,), render_mode="rgb_array")
    env.reset(seed=1)
    assert page.evaluate(pixel) == env.render()[0, 0].tolist()
    page.keyboard.press("End")
    assert page.locator("#no-picture").is_visible()  # the environment had begun the next episode by then
    assert not page.locator("#real").is_visible()


def test_few_rollouts_use_the_room(show, recording):
    page = show(recording)
    room = page.locator("#rollouts").bounding_box()
    for _ in range(8):
        rows = page.locator(".rollout").all()
        last = rows[-1].bounding_box()
        right = max(
            thought.bounding_box()["x"] + thought.bounding_box()["width"]
            for row in rows
            for thought in row.locator(".thought").all()
        )
        height = page.locator(".thought .vector").first.bounding_box()["height"]
        is_tall = last["y"] + last["height"] > room["y"] + 0.7 * room["height"]
        is_wide = right > room["x"] + 0.7 * room["width"]
        assert is_tall or is_wide or height >= 110
        page.keyboard.press("ArrowRight")
