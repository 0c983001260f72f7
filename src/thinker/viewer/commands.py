"""`thinker watch | demo`: an agent at play, as a page that shows what it imagined."""

from __future__ import annotations

import time
import webbrowser
from dataclasses import dataclass
from pathlib import Path

import tyro
from rich.console import Console
from rich.table import Table

from thinker.runs.commands import ROOT, load_run
from thinker.runs.folder import RunFolder
from thinker.viewer import demo_agent
from thinker.viewer.page import write_page
from thinker.viewer.play import record_run
from thinker.viewer.recording import Recording
from thinker.viewer.video import check_video, write_video


@dataclass(frozen=True)
class Watch:
    """Let a trained agent play, and write a page that shows its plans."""

    run_name: tyro.conf.Positional[str]
    """The run."""
    episodes: int = 5
    """How many held-out levels to play; with --level, how often to play that one."""
    level: str | None = None
    """Play this one: the index of a held-out level, or FILE:INDEX of a level in a Boxoban file, counted from 0."""
    stage_length: int | None = None
    """K; default: the one it was trained with."""
    greedy: bool = False
    """Take the likeliest actions instead of drawing them."""
    seed: int | None = None
    """Of the agent's draws; default: that of the run's evaluation."""
    out: Path = Path("plan.html")
    """The page."""
    recording: Path | None = None
    """Also write the recording, for analysis; docs/plans.md describes the format."""
    video: Path | None = None
    """Also write a video, .mp4 or .gif. For .mp4 install thinker[video]."""
    open: tyro.conf.FlagCreatePairsOff[bool] = False
    """Open the page in a browser."""
    root: Path = ROOT
    """The folder of all runs."""

    def run(self) -> None:
        if self.video is not None:
            check_video(self.video)  # before the work, not after it
        run = load_run(RunFolder(self.root, self.run_name))
        recording = record_run(
            run,
            episodes=self.episodes,
            level=self.level,
            stage_length=self.stage_length,
            greedy=self.greedy,
            seed=self.seed,
            title=f"Plans of {self.run_name}",
            notes={"trained for": f"{run.real_steps:,} real steps"},
        )
        print_episodes(recording)
        if self.recording is not None:
            recording.save(self.recording)
            print(f"wrote {self.recording}")
        if self.video is not None:
            write_video(recording, self.video)
            print(f"wrote {self.video}")
        finish_page(recording, self.out, self.open)


@dataclass(frozen=True)
class Demo:
    """Show plans of the small trained agent that comes with the package; no training needed."""

    episodes: int = 4
    """How many held-out levels to play."""
    level: str | None = None
    """Play this held-out level, as in `thinker watch`."""
    stage_length: int | None = None
    """K; default: the one it was trained with."""
    out: Path = Path("demo.html")
    """The page."""
    open: bool = True
    """Open the page in a browser."""

    def run(self) -> None:
        start = time.perf_counter()
        run = demo_agent.load_demo()
        recording = record_run(
            run,
            episodes=self.episodes,
            level=self.level,
            stage_length=self.stage_length,
            title="Plans of the demo agent",
            notes={"trained by": str(demo_agent.demo_metrics()["command"])},
        )
        print_episodes(recording)
        print(f"{time.perf_counter() - start:.1f} s")
        finish_page(recording, self.out, self.open)


def print_episodes(recording: Recording) -> None:
    """One line for each episode."""
    table = Table("episode", "level", "outcome", "real steps", "return", title=recording.title)
    for number, episode in enumerate(recording.episodes, 1):
        outcome = episode.end if episode.solved is None else "solved" if episode.solved else "not solved"
        level = "" if episode.level is None else str(episode.level)
        table.add_row(str(number), level, outcome, str(len(episode.stages)), f"{episode.episode_return:.2f}")
    Console().print(table)


def finish_page(recording: Recording, path: Path, open_it: bool) -> None:
    """Write the page, say where it is, and open it if that was asked for."""
    write_page(recording, path)
    print(f"wrote {path} ({path.stat().st_size / 1e6:.1f} MB)")
    if open_it and not webbrowser.open(path.resolve().as_uri()):
        print(f"no browser could be opened; open {path} yourself")
