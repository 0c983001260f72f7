"""`thinker demo`: shows plans of the small trained agent that comes with the package."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from thinker.cli.options import DeviceOption, writable_file


@dataclass(frozen=True)
class Demo:
    """Show plans of the small trained agent that comes with the package; no training needed."""

    episodes: int = 4
    """Number of held-out episodes to play; with --episode, how often to play that one."""
    episode: str | None = None
    """Play only this episode, as in `thinker watch`."""
    split: Literal["test", "validation"] = "test"
    """The set of held-out episodes."""
    who: Literal["agent", "base-policy"] = "agent"
    """The actor: the agent, or the world model's base policy."""
    stage_length: int | None = None
    """K, augmented steps per real step; default: as trained."""
    out: Path = Path("demo.html")
    """The page to write."""
    open: bool = True
    """Open the page in a browser."""
    device: DeviceOption | None = None
    """Where networks compute; default: a GPU if there is one."""

    def run(self) -> None:
        """Play the episodes and write the page."""
        from thinker.viewer.demo_agent import demo_metrics, load_demo
        from thinker.viewer.output import finish_page, print_episodes
        from thinker.viewer.play import record_run

        writable_file(self.out, "--out")
        start = time.perf_counter()
        run = load_demo(device=self.device)
        recording = record_run(
            run,
            episodes=self.episodes,
            episode=self.episode,
            stage_length=self.stage_length,
            who=self.who,
            split=self.split,
            title="Plans of the demo agent",
            notes={"trained by": str(demo_metrics()["command"])},
        )
        print_episodes(recording)
        print(f"{time.perf_counter() - start:.1f} s")
        finish_page(recording, self.out, open_browser=self.open)
