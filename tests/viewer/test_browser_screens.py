"""The page in a real browser: nothing is cut off on small screens, and a moment has an address."""

from __future__ import annotations

import dataclasses

import pytest

from tests.viewer.support import LAPTOP, PHONE, TABLET, fact, sokoban_recording
from thinker.viewer import Recording

CUT_OFF = """(selector) => [...document.querySelectorAll(selector)]
    .filter((e) => e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).display !== "inline")
    .map((e) => e.textContent)"""


@pytest.fixture(scope="module")
def many() -> Recording:
    """Many episodes, and stages with many rollouts."""
    recording = sokoban_recording(3, title="Plans", seed=4, max_steps=6, stage_length=20, max_depth=5)
    return dataclasses.replace(recording, episodes=recording.episodes * 8)


@pytest.mark.parametrize("size", [LAPTOP, TABLET, PHONE], ids=["laptop", "tablet", "phone"])
def test_no_number_is_cut_off(show, plans, size):
    page = show(plans, size)
    for _ in range(8):
        for selector in ("dt, dd", "td, td *, th", ".caption, .caption *", ".return", ".badge", "#tree-key .key"):
            assert page.evaluate(CUT_OFF, selector) == []
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowRight")


@pytest.mark.parametrize("size", [LAPTOP, TABLET, PHONE], ids=["laptop", "tablet", "phone"])
def test_rollouts_below_the_edge_are_announced(show, many, size):
    page = show(many, size)
    for _ in many.episodes[0].stages:
        outer = page.locator("#rollouts").bounding_box()
        rows = [row.bounding_box() for row in page.locator(".rollout").all()]
        below = sum(row["y"] + row["height"] > outer["y"] + outer["height"] + 8 for row in rows)
        assert page.locator("#more").is_visible() == (below > 0)
        if below:
            assert page.locator("#more").inner_text() == f"↓ {below} more rollout{'s' if below > 1 else ''}"
        for thought in page.locator(".thought").all():  # nothing hangs over the side
            box = thought.bounding_box()
            assert outer["x"] <= box["x"]
            assert box["x"] + box["width"] <= outer["x"] + outer["width"]
        page.keyboard.press("ArrowRight")
    page.keyboard.press("Home")
    if size is PHONE:
        for _ in range(20):
            if not page.locator("#more").is_visible():
                break
            page.locator("#more").click()
            page.wait_for_timeout(50)
        assert not page.locator("#more").is_visible()


@pytest.mark.parametrize("size", [LAPTOP, TABLET, PHONE], ids=["laptop", "tablet", "phone"])
def test_more_episodes_than_fit_are_announced(show, many, size):
    page = show(many, size)
    left, right = page.locator("#episodes-left"), page.locator("#episodes-right")
    assert left.is_disabled()
    assert right.is_enabled()
    for _ in range(20):
        if right.is_disabled():
            break
        right.click()
        page.wait_for_timeout(50)
    assert right.is_disabled()
    assert left.is_enabled()
    last = page.locator(".episode").last.bounding_box()
    assert last["x"] + last["width"] <= right.bounding_box()["x"] + 1


def test_a_few_episodes_need_no_arrows(show, plans):
    page = show(plans)
    assert not page.locator("#episodes-left").is_visible()
    assert not page.locator("#episodes-right").is_visible()


def at(page) -> tuple[str, str]:
    return page.locator(".episode[aria-pressed=true]").inner_text().split()[1], fact(page, "real step")


def test_a_reload_stays_where_it_is(show, plans):
    page = show(plans)
    page.keyboard.press("]")
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    page.wait_for_function("() => location.hash === '#episode=2&step=4'", timeout=3000)
    before = at(page)
    assert before == ("2", f"4 of {len(plans.episodes[1].stages)}")
    page.reload()
    assert at(page) == before
    page.keyboard.press("End")
    page.wait_for_function(f"() => location.hash === '#episode=2&step={len(plans.episodes[1].stages) + 1}'")
    page.reload()
    assert at(page) == ("2", "final state")


def test_an_address_leads_to_a_moment(show, plans):
    page = show(plans, place="#episode=3&step=2")
    assert at(page) == ("3", f"2 of {len(plans.episodes[2].stages)}")
    page.evaluate("() => { location.hash = 'episode=2&step=1'; }")
    page.wait_for_function("() => document.querySelector('.episode[aria-pressed=true]').textContent.includes('2')")
    assert at(page) == ("2", f"1 of {len(plans.episodes[1].stages)}")


@pytest.mark.parametrize(
    "place",
    [
        "#",
        "#nonsense",
        "#episode=99",
        "#episode=0",
        "#episode=-1&step=2",
        "#step=1e1",
        "#episode=2&step=100000",
        "#step=x",
    ],
)
def test_addresses_of_nowhere_are_ignored(show, plans, place):
    page = show(plans, place=place)
    assert at(page) == ("1", f"1 of {len(plans.episodes[0].stages)}")
