"""What `thinker watch` and `thinker demo` write and print."""

from __future__ import annotations

import webbrowser
from pathlib import Path

from rich.console import Console
from rich.table import Table

from thinker.viewer.page import write_page
from thinker.viewer.recording import Recording


def print_episodes(recording: Recording) -> None:
    """Print one line for each episode."""
    table = Table("episode", "index", "outcome", "real steps", "return", title=recording.title)
    for number, episode in enumerate(recording.episodes, 1):
        index = "" if episode.level is None else str(episode.level)
        steps, total = str(len(episode.stages)), f"{episode.episode_return:.2f}"
        table.add_row(str(number), index, episode.outcome, steps, total)
    Console().print(table)


def finish_page(recording: Recording, path: Path, *, open_browser: bool) -> None:
    """Write the page, print where it is, and open it on request."""
    write_page(recording, path)
    print(f"wrote {path} ({path.stat().st_size / 1e6:.1f} MB)")
    if open_browser and not webbrowser.open(path.resolve().as_uri()):
        print(f"no browser could be opened; open {path} yourself")
