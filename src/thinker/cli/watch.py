"""`thinker watch RUN`: writes a page that shows the plans of an agent."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from thinker.cli.options import RUNS, DeviceOption, writable_file


@dataclass(frozen=True)
class Watch:
    """Let a trained agent play held-out episodes, and write a page that shows its plans."""

    run_name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Name of the run."""
    episodes: int = 5
    """Number of held-out episodes to play; with --episode, how often to play that one."""
    episode: str | None = None
    """Play only this episode: the index of a held-out episode, or FILE:INDEX if episodes come from files."""
    split: Literal["test", "validation"] = "test"
    """The set of held-out episodes."""
    who: Literal["agent", "base-policy"] = "agent"
    """The actor: the agent, or the world model's base policy."""
    stage_length: int | None = None
    """K, augmented steps per real step; default: as trained."""
    greedy: bool = False
    """Take the most likely actions instead of sampling."""
    seed: int | None = None
    """Seed of the sampled actions; default: that of the run's evaluations."""
    out: Path = Path("plan.html")
    """The page to write."""
    recording: Path | None = None
    """Also write the recording as JSON, for analysis; docs/plans.md describes the format."""
    video: Path | None = None
    """Also write a video, .mp4 or .gif. For .mp4, install thinker[video]."""
    open: tyro.conf.FlagCreatePairsOff[bool] = False
    """Open the page in a browser."""
    device: DeviceOption | None = None
    """Where networks compute; default: as in training."""
    root: Path = RUNS
    """The folder of all runs."""

    def run(self) -> None:
        """Play the episodes and write the files."""
        from thinker.errors import UserError
        from thinker.runs.folder import RunFolder
        from thinker.runs.load import load_run
        from thinker.viewer.output import finish_page, print_episodes
        from thinker.viewer.play import record_run
        from thinker.viewer.video import check_video, write_video

        outputs = {"--out": self.out, "--recording": self.recording, "--video": self.video}
        files = [writable_file(path, option).resolve() for option, path in outputs.items() if path is not None]
        if len(set(files)) < len(files):
            raise UserError(f"two of {', '.join(outputs)} name the same file; use different files")
        if self.video is not None:
            check_video(self.video)
        run = load_run(RunFolder(self.root, self.run_name), device=self.device)
        recording = record_run(
            run,
            episodes=self.episodes,
            episode=self.episode,
            stage_length=self.stage_length,
            greedy=self.greedy,
            seed=self.seed,
            who=self.who,
            split=self.split,
            title=f"Plans of {self.run_name}",
            notes={"trained for": f"{run.real_steps:,} real steps", "acts": self.who},
        )
        print_episodes(recording)
        if self.recording is not None:
            recording.save(self.recording)
            print(f"wrote {self.recording}")
        if self.video is not None:
            write_video(recording, self.video)
            print(f"wrote {self.video}")
        finish_page(recording, self.out, open_browser=self.open)
