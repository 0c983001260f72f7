"""`thinker levels generate | show | stats`: Sokoban levels from the command line."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro
from rich.console import Console
from rich.progress import track

from thinker.envs.sokoban.generator import DEFAULT_REVERSE_MOVES, Boxes, box_range, generate_levels
from thinker.envs.sokoban.levels import LevelError, LevelSet, counted
from thinker.envs.sokoban.rendering import render_board, save_png
from thinker.envs.sokoban.solver import DEFAULT_MAX_STATES, solve


@dataclass(frozen=True)
class Generate:
    """Generate levels and write them to a Boxoban text file."""

    out: Path
    """The file to write."""
    count: int = 100
    """Number of levels."""
    size: int = 10
    """Height and width of the boards, including walls: 5 to 20."""
    width: int | None = None
    """Width, if it differs from the height."""
    boxes: Boxes = 4
    """Boxes per level: 1 to 8, or a range from which each level's number is sampled, such as 1 4."""
    seed: int = 0
    """The same seed and settings give the same levels."""
    reverse_moves: tuple[int, int] = DEFAULT_REVERSE_MOVES
    """Difficulty: how often each box is pulled away from its target, sampled from this range for each level."""

    def run(self) -> None:
        size = (self.size, self.size if self.width is None else self.width)
        levels = generate_levels(self.count, size, self.boxes, self.seed, self.reverse_moves)
        levels.save(self.out)
        boxes = _range_text(self.boxes)
        print(f"wrote {counted(len(levels), 'level')}, {size[0]}x{size[1]}, boxes: {boxes}, to {self.out}")


@dataclass(frozen=True)
class Show:
    """Print one level, and optionally draw it."""

    path: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="PATH")]
    """A Boxoban file, or a folder of them."""
    index: int = 0
    """Index of the level, from 0."""
    png: Path | None = None
    """Also draw the level to this PNG file."""

    def run(self) -> None:
        levels = LevelSet.load(self.path)
        if not 0 <= self.index < len(levels):
            found = f"{self.path} has {counted(len(levels), 'level')}, 0 to {len(levels) - 1}"
            raise LevelError(f"--index {self.index}: {found}")
        print(levels.text(self.index))
        if self.png is not None:
            save_png(render_board(levels.boards[self.index]), self.png)


@dataclass(frozen=True)
class Stats:
    """Count levels and measure the lengths of their shortest solutions."""

    path: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="PATH")]
    """A Boxoban file, or a folder of them."""
    sample: int | None = None
    """Solve only this many levels, spread evenly over the set."""
    max_states: int = DEFAULT_MAX_STATES
    """States that the solver visits before it gives up on a level."""

    def run(self) -> None:
        levels = LevelSet.load(self.path)
        total = len(levels)
        if self.sample is not None and not 1 <= self.sample <= total:
            found = f"{self.path} has {counted(total, 'level')}; expected 1 to {total}"
            raise LevelError(f"--sample {self.sample}: {found}")
        tried = np.linspace(0, total - 1, self.sample or total).astype(int)
        progress = track(tried, "solving", console=Console(stderr=True), transient=True)
        solutions = [solve(levels.boards[index], self.max_states) for index in progress]

        outcomes = Counter(solution.outcome for solution in solutions)
        solved = [solution for solution in solutions if solution.outcome == "solved"]
        by_boxes = sorted(Counter(levels.boxes.tolist()).items())
        boxes_text = [f"{boxes} ({counted(count, 'level')})" for boxes, count in by_boxes]
        print(f"levels       {total}")
        print(f"size         {levels.size[0]}x{levels.size[1]}")
        print(f"boxes        {', '.join(boxes_text)}")
        print(f"tried        {len(tried)}, with at most {self.max_states} states each")
        print(f"solved       {outcomes['solved']}")
        print(f"unsolvable   {outcomes['unsolvable']}")
        print(f"given up     {outcomes['state limit']} (not solved within the state limit, excluded below)")
        if solved:
            print(f"steps        {_spread([len(solution.actions) for solution in solved])}")
            print(f"pushes       {_spread([solution.pushes for solution in solved])}")


def _range_text(boxes: Boxes) -> str:
    fewest, most = box_range(boxes)
    return str(most) if fewest == most else f"{fewest} to {most}"


def _spread(values: list[int]) -> str:
    low, quarter, median, three_quarters, high = np.percentile(values, [0, 25, 50, 75, 100])
    return (
        f"{low:.0f} to {high:.0f}, mean {np.mean(values):.1f}, "
        f"quartiles {quarter:.0f} {median:.0f} {three_quarters:.0f}"
    )


@dataclass(frozen=True)
class Levels:
    """Generate, show and measure Sokoban levels."""

    command: (
        Annotated[Generate, tyro.conf.subcommand("generate")]
        | Annotated[Show, tyro.conf.subcommand("show")]
        | Annotated[Stats, tyro.conf.subcommand("stats")]
    )

    def run(self) -> None:
        self.command.run()
