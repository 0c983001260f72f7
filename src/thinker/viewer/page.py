"""The page that shows a recording: one HTML file that needs neither a network nor a server."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from importlib import resources
from os import PathLike
from pathlib import Path

from thinker.viewer.frames import PALETTE
from thinker.viewer.recording import Recording

_TEMPLATE, _STYLE = "page.html", "page.css"
_SCRIPTS = ("recording.js", "frames.js", "vectors.js", "header.js", "game.js", "stage.js", "tree.js", "playback.js")
"""One script on the page: each file uses what those before it define."""


def write_page(recording: Recording, path: str | PathLike[str]) -> None:
    """Write ``recording`` as a page to open in a browser."""
    Path(path).write_text(page_text(recording), encoding="utf-8")


def page_text(recording: Recording) -> str:
    """The HTML document.

    The recording is data in it, never markup: whatever its texts contain, nothing of them is executed. The page's
    content security policy allows this one script by its hash, and no address but ``data:`` pictures.
    """
    palette = f"const palette = {json.dumps(PALETTE)};"
    script = "\n".join(['"use strict";', "(() => {", palette, *map(_asset, _SCRIPTS), "})();"])
    parts = {
        "title": html.escape(recording.title or "Plans"),
        "style": _asset(_STYLE),
        "script": script,
        "script_hash": base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        "recording": _as_script_data(recording),
    }
    # One pass over the template: what is put in is not looked at again.
    pieces = _asset(_TEMPLATE).split("{{")
    text = [pieces[0]]
    for piece in pieces[1:]:
        name, _, rest = piece.partition("}}")
        text += [parts[name.strip()], rest]
    return "".join(text)


def _asset(name: str) -> str:
    return resources.files("thinker.viewer").joinpath("assets").joinpath(name).read_text(encoding="utf-8")


def _as_script_data(recording: Recording) -> str:
    """JSON in pure ASCII without the characters that could end a script element or begin a comment."""
    text = json.dumps(recording.to_dict(), separators=(",", ":"), allow_nan=False, ensure_ascii=True)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
