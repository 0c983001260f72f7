"""`thinker improve`: compares learned and handcrafted searches with a fixed base policy (the paper's appendix H)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass(frozen=True)
class Improve:
    """Compare policy improvement by exhaustive search, by Monte Carlo tree search, and by agents that learn to search.

    All of them search the true dynamics with the same fixed base policy and value, slightly better than random play,
    which the command trains first and keeps. Agents see nothing but their tree, and there is no limit on depth, as in
    appendix H of the paper. Writes results.json, figure.png and report.md, which says whether the paper's order holds.

    You can stop it at any time, even with kill -9: the same command continues. More seeds, stage lengths, depths,
    simulations or other numbers of episodes can be asked for later; what exists is not repeated.
    """

    preset: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="PRESET")] = None
    """Preset with environment, agent and value-policy network; its model must be a simulator with learned values. The
    default is the one for small boards."""
    out: Path = Path("improvement")
    """The folder of all results."""
    episodes: int = 2_000
    """Number of test episodes of each evaluation."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Seeds of the agents; one agent is trained for each seed and stage length."""
    stage_lengths: tuple[int, ...] = (5, 10, 20, 40)
    """Stage lengths K of the agents."""
    depths: tuple[int, ...] = (1, 2, 3, 4, 5)
    """Depths n of the exhaustive searches."""
    simulations: tuple[int, ...] = (5, 10, 20, 40, 60, 120, 250, 1000)
    """Simulations of the Monte Carlo tree searches for each real step."""
    real_steps: int = 100_000
    """Real steps of training of each agent."""
    base_steps: int = 20_000
    """Real steps of training of the base policy; with too many, there is nothing left to improve."""
    base_seed: int = 0
    """Seed of the base policy."""
    threads: int = 0
    """Number of PyTorch threads; 0: one per core."""

    def run(self) -> None:
        """Make what is missing, and write the report."""
        from thinker.experiments.improvement_report import write_report
        from thinker.experiments.policy_improvement import Improvement, ImprovementSettings
        from thinker.runs.presets import SIMULATOR_PRESET

        settings = ImprovementSettings(
            out=self.out,
            preset=self.preset or SIMULATOR_PRESET,
            stage_lengths=self.stage_lengths,
            depths=self.depths,
            simulations=self.simulations,
            seeds=self.seeds,
            real_steps=self.real_steps,
            base_steps=self.base_steps,
            base_seed=self.base_seed,
            episodes=self.episodes,
            threads=self.threads,
        )
        statements = write_report(Improvement(settings, on_episodes=_every_minute(self.episodes)).run(), self.out)
        for statement in statements:
            print(f"{statement.text}: {statement.verdict} ({statement.evidence})")
        print(f"wrote {self.out / 'report.md'}, {self.out / 'figure.png'} and {self.out / 'results.json'}")


def _every_minute(episodes: int) -> Callable[[int], None]:
    """Prints how many episodes of an evaluation have been played, once a minute."""
    printed = time.monotonic()

    def played(count: int) -> None:
        nonlocal printed
        if time.monotonic() - printed > 60:
            printed = time.monotonic()
            print(f"  {count:,} of {episodes:,} episodes", flush=True)

    return played
