"""A browser for the tests of the page: the system's Chromium, without a window, driven by Playwright."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.viewer.support import LAPTOP, sokoban_recording
from thinker.viewer import Recording, write_page


@pytest.fixture(scope="package")
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


@pytest.fixture(scope="package")
def plans() -> Recording:
    """Four episodes of random play."""
    return sokoban_recording(4, title="Plans", seed=4, max_steps=20, stage_length=12, max_depth=4)
