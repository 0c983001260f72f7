"""`thinker watch RUN`: writes a page that shows the plans of an agent."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from thinker.cli.options import RUNS, DeviceOption, writable_file
from thinker.cli.planners import PlannerName, check_budgets, planner_specs


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
    planner: PlannerName | None = None
    """Show the plans of this planner, which searches the run's model by a fixed rule, instead of the agent's."""
    simulations: int | None = None
    """Simulations per real step of the planners mcts, gumbel and random; default: 50."""
    depth: int | None = None
    """Depth of the exhaustive search; default: 3."""
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
        names = () if self.planner is None else (self.planner,)
        simulations = () if self.simulations is None else (self.simulations,)
        depths = () if self.depth is None else (self.depth,)
        check_budgets(names, simulations, depths)
        if self.planner is not None and (self.who != "agent" or self.stage_length is not None):
            raise UserError("--planner replaces the agent; leave out --who and --stage-length")
        run = load_run(RunFolder(self.root, self.run_name), device=self.device)
        planners = planner_specs(run, names, simulations, depths)
        recording = record_run(
            run,
            episodes=self.episodes,
            episode=self.episode,
            stage_length=self.stage_length,
            greedy=self.greedy,
            seed=self.seed,
            who=planners[0][1] if planners else self.who,
            split=self.split,
            title=f"Plans of {self.run_name}",
            notes={"trained for": f"{run.real_steps:,} real steps", "acts": self.planner or self.who},
        )
        print_episodes(recording)
        if self.recording is not None:
            recording.save(self.recording)
            print(f"wrote {self.recording}")
        if self.video is not None:
            write_video(recording, self.video)
            print(f"wrote {self.video}")
        finish_page(recording, self.out, open_browser=self.open)
