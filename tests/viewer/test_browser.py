"""The page in a real browser: it shows the recording, can be moved through, and stays within the screen."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from gymnasium.vector import SyncVectorEnv

from tests.viewer.support import LAPTOP, PHONE, TABLET, Pictures, RandomPolicy, fact, sokoban_recording
from tests.viewer.test_page import HOSTILE
from thinker.augmented import ThinkerEnv
from thinker.viewer import Recording, record
from thinker.world_model.simulator import EnvSimulator

PIXELS = "((c) => c.getContext('2d').getImageData(0, 0, c.width, c.height).data)(document.getElementById('real'))"


@pytest.fixture
def recording(plans) -> Recording:
    return plans


def boxes(page: Any) -> dict[str, Any]:
    """Where the lasting parts of the page are."""
    names = ["real", "timeline", "play", "facts", "stage", "rollouts", "search", "tree", "node", "actions"]
    return {name: page.locator(f"#{name}").bounding_box() for name in names}


def rows_of(stage: Any) -> int:
    return 1 + sum(step.reset != "none" for step in stage.steps[:-1])


def test_it_opens_from_disk_and_shows_the_first_stage(show, recording):
    page = show(recording)
    stage = recording.episodes[0].stages[0]
    assert page.locator("h1").inner_text() == "Plans"
    assert page.locator(".episode").count() == 4
    assert page.locator(".rollout").count() == rows_of(stage)
    assert page.locator(".thought").count() == len(stage.steps)
    assert page.locator("#tree .node").count() == len(stage.tree)
    taken = [step.action == stage.action for step in stage.steps if step.depth == 1]
    assert page.locator(".rollout.taken").count() == sum(taken)
    for kind in ("forced", "chosen"):
        count = sum(step.reset == kind for step in stage.steps)
        assert page.locator(f'.rollout[data-reset="{kind}"]').count() == count
    drawn = page.evaluate(f"() => new Set({PIXELS}).size")
    assert drawn > 20  # a picture, not an empty canvas


def test_arrows_step_through_the_game_and_the_stage(show, recording):
    page = show(recording)
    episode = recording.episodes[0]
    assert fact(page, "real step") == f"1 of {len(episode.stages)}"
    page.keyboard.press("ArrowRight")
    assert fact(page, "real step") == f"2 of {len(episode.stages)}"
    stage = episode.stages[1]
    for number, step in enumerate(stage.steps):
        page.keyboard.press("ArrowDown")
        assert page.locator(".thought.selected").get_attribute("data-index") == str(number)
        assert page.locator(".thought.later").count() == len(stage.steps) - number - 1
        assert page.locator("#tree .node.selected").get_attribute("data-node") == str(step.node)
    page.keyboard.press("ArrowUp")
    assert page.locator(".thought.later").count() == 1
    page.keyboard.press("ArrowLeft")
    assert fact(page, "real step") == f"1 of {len(episode.stages)}"
    page.keyboard.press("ArrowLeft")
    assert fact(page, "real step") == f"1 of {len(episode.stages)}"
    page.keyboard.press("End")
    assert fact(page, "real step") == "final state"
    assert page.locator(".empty").inner_text() == "The episode is over."


def test_a_clicked_node_shows_its_numbers(show, recording):
    page = show(recording)
    tree = recording.episodes[0].stages[0].tree
    node = len(tree) - 1
    page.locator(f'#tree circle[data-node="{node}"]').last.click()
    shown = page.locator("#node .facts").inner_text().replace("−", "-")
    columns = {"r": tree.reward, "v": tree.value, "g": tree.rollout_return}
    columns |= {"mean g": tree.mean_return, "max g": tree.max_return}
    lines = shown.split("\n")
    told = dict(zip(lines[::2], lines[1::2]))
    for name, column in columns.items():
        assert told[name] == f"{column[node]:.2f}".replace("-0.00", "0.00")
    assert told["n"] == str(tree.visits[node])
    assert page.locator("#node .mini div").count() == 5
    page.locator("#tree circle[data-node='0']").last.click()
    assert page.locator("#node dt:text-is('path') + dd").inner_text() == "root"


def test_episodes_are_marked_and_can_be_switched(show, recording):
    marked = [dataclasses.replace(episode, solved=i % 2 == 0) for i, episode in enumerate(recording.episodes)]
    page = show(dataclasses.replace(recording, episodes=marked))
    assert page.locator(".episode.solved").count() == page.locator(".episode.failed").count() == 2
    page.locator(".episode").nth(2).click()
    assert page.locator(".episode[aria-pressed=true]").inner_text().split()[1] == "3"
    assert fact(page, "real step").endswith(f"of {len(marked[2].stages)}")
    page.keyboard.press("]")
    assert page.locator(".episode[aria-pressed=true]").inner_text().split()[1] == "4"
    page.keyboard.press("]")
    page.keyboard.press("[")
    assert page.locator(".episode[aria-pressed=true]").inner_text().split()[1] == "3"


def test_the_chosen_episode_is_always_in_sight(show, recording):
    page = show(dataclasses.replace(recording, episodes=recording.episodes * 6))
    for key in ["]"] * 24 + ["["] * 24:
        page.keyboard.press(key)
        outer = page.locator("#episodes").bounding_box()
        inner = page.locator(".episode[aria-pressed=true]").bounding_box()
        assert outer["x"] <= inner["x"]
        assert inner["x"] + inner["width"] <= outer["x"] + outer["width"]


def test_it_plays_and_pauses(show, recording):
    page = show(recording, place="#episode=2&step=3")
    total = len(recording.episodes[1].stages)
    assert fact(page, "real step") == f"3 of {total}"
    page.locator("#speed").select_option("8")
    page.locator("#thoughts").uncheck()
    page.keyboard.press(" ")
    page.wait_for_function(f"() => document.querySelector('#facts dd').textContent === '5 of {total}'", timeout=5000)
    page.keyboard.press(" ")
    assert page.locator("#play").inner_text() == "Play"
    page.locator("#thoughts").check()
    page.locator("#play").click()
    page.wait_for_selector(".thought.selected", timeout=5000)


def test_right_and_wrong_predictions_are_told_apart(show, recording):
    def judged(stage: Any, error: float) -> Any:
        tree = dataclasses.replace(stage.tree, error=[None if e is None else error for e in stage.tree.error])
        return dataclasses.replace(stage, tree=tree)

    first = recording.episodes[0]
    place = next(i for i, s in enumerate(first.stages) if any(s.tree.error[step.node] is not None for step in s.steps))
    known = {step.node for step in first.stages[place].steps if first.stages[place].tree.error[step.node] is not None}
    for error, name in ((0.0, "right"), (0.1, "wrong")):
        changed = dataclasses.replace(first, stages=[judged(stage, error) for stage in first.stages])
        page = show(dataclasses.replace(recording, episodes=[changed]), place=f"#step={place + 1}")
        assert page.locator(f".thought.{name}").count() >= len(known)
        other = "right" if name == "wrong" else "wrong"
        assert page.locator(f".thought.{other}").count() == 0
        assert (page.locator("#timeline [data-kind=wrong]").count() > 0) == (name == "wrong")


@pytest.mark.parametrize("size", [LAPTOP, TABLET, PHONE], ids=["laptop", "tablet", "phone"])
def test_nothing_jumps_and_nothing_sticks_out(show, recording, size):
    page = show(recording, size)
    before = boxes(page)
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "End", "Home", "]"):
        page.keyboard.press(key)
        assert boxes(page) == before, key
    width = page.evaluate("() => document.documentElement.scrollWidth")
    assert width == size["width"]
    if size is LAPTOP:  # all of it is on the screen
        assert page.evaluate("() => document.documentElement.scrollHeight") == size["height"]


def test_hostile_texts_are_shown_and_not_executed(show, recording):
    hostile = dataclasses.replace(
        recording, title=HOSTILE, environment=HOSTILE, actions=[HOSTILE] * 5, notes={HOSTILE: HOSTILE}
    )
    page = show(hostile, color_scheme="dark")
    for key in ("ArrowDown", "ArrowRight", "]", "End"):
        page.keyboard.press(key)
    assert page.locator("h1").text_content() == HOSTILE
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 2


def test_pictures_are_drawn(show):
    envs = SyncVectorEnv([lambda: Pictures((3, 40, 60))])
    env = ThinkerEnv(envs, EnvSimulator(envs), stage_length=4, max_depth=2, keep_states=True)
    page = show(record(env, RandomPolicy(env, 0), seed=1))
    page.wait_for_function(f"() => {PIXELS}.some((x) => x > 0)", timeout=5000)
    page.keyboard.press("ArrowRight")
    assert fact(page, "real step") == "2 of 5"


def test_it_opens_within_two_seconds(show):
    recording = sokoban_recording(1, max_steps=100, stage_length=20, max_depth=5, seed=2)
    page = show(recording)
    milliseconds = page.evaluate("() => performance.getEntriesByType('navigation')[0].loadEventEnd")
    assert milliseconds < 2000
