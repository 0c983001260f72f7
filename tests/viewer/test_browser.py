"""The page in a real browser: the system's Chromium, without a window, driven by Playwright."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from gymnasium.vector import SyncVectorEnv

from tests.viewer.support import Pictures, RandomPolicy, sokoban_recording
from tests.viewer.test_page import HOSTILE
from thinker.augmented import ThinkerEnv
from thinker.viewer import Recording, record, write_page
from thinker.world_model.simulator import EnvSimulator

LAPTOP, PHONE = {"width": 1440, "height": 900}, {"width": 390, "height": 844}
PIXELS = "((c) => c.getContext('2d').getImageData(0, 0, c.width, c.height).data)(document.getElementById('real'))"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (pip install .[dev])")
    names = ("chromium", "chromium-browser", "google-chrome")
    path = next((found for found in map(shutil.which, names) if found), None)
    if path is None:
        pytest.skip("there is no Chromium on this machine (apt-get install chromium)")
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def show(browser, tmp_path) -> Iterator[Callable[..., Any]]:
    """Opens a recording's page from disk; at the end nothing may have been complained about or asked of a network."""
    complaints: list[str] = []
    pages = []

    def open_page(recording: Recording, size: dict = LAPTOP, place: str = "", **options: Any) -> Any:
        path = Path(tmp_path) / "plan.html"
        write_page(recording, path)
        page = browser.new_page(viewport=size, **options)
        pages.append(page)
        page.on("console", lambda message: complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: (complaints.append("a dialog"), dialog.dismiss()))
        page.on(
            "request", lambda request: None if request.url[:5] in ("file:", "data:") else complaints.append(request.url)
        )
        page.goto(path.as_uri() + place)
        return page

    yield open_page
    for page in pages:
        page.close()
    assert complaints == []


@pytest.fixture(scope="module")
def recording() -> Recording:
    return sokoban_recording(4, title="Plans", seed=4, max_steps=20, stage_length=12, max_depth=4)


def fact(page: Any, name: str) -> str:
    return page.locator(f"#facts dt:text-is('{name}') + dd").inner_text()


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
    assert fact(page, "real step") == "after the last"
    assert page.locator(".empty").inner_text() == "The episode is over."


def test_a_clicked_node_shows_its_numbers(show, recording):
    page = show(recording)
    tree = recording.episodes[0].stages[0].tree
    node = len(tree) - 1
    page.locator(f'#tree circle[data-node="{node}"]').last.click()
    shown = page.locator("#node .facts").inner_text().replace("−", "-")
    for number in (tree.reward[node], tree.value[node], tree.rollout_return[node], tree.mean_return[node]):
        assert f"{number:.2f}".replace("-0.00", "0.00") in shown
    assert shown.split()[-1] == str(tree.visits[node])
    assert page.locator("#node .mini div").count() == 5
    page.locator("#tree circle[data-node='0']").last.click()
    assert "root" in page.locator("#node .facts").inner_text()


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


@pytest.mark.parametrize("size", [LAPTOP, PHONE], ids=["laptop", "phone"])
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


@pytest.mark.parametrize("shape", [(4,), (3, 40, 60)], ids=["vector", "image"])
def test_other_environments_are_drawn_too(show, shape):
    envs = SyncVectorEnv([lambda: Pictures(shape)])
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
