"""An Atari game as the environment of a run."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from thinker.envs.atari.env import Actions, AtariEnv, Colours, Fire, LifeLoss, Rewards, rom_name
from thinker.envs.atari.scores import benchmark_games, human_normalised
from thinker.envs.gymnasium import SingleEnvironmentsSpec
from thinker.envs.replayable import SnapshotEnvs
from thinker.envs.spec import check_counts


@dataclass(frozen=True)
class AtariSpec(SingleEnvironmentsSpec):
    """A game of the Atari 2600. The defaults are the paper's."""

    game: str = "pong"  # its name, such as ms_pacman
    size: int = 80  # height and width of an observation, in pixels: 16 to 160
    colours: Colours = "rgb"  # three channels for each frame, or one
    frame_stack: int = 4  # frames in an observation
    action_repeat: int = 4  # frames of the emulator in a real step
    life_loss: LifeLoss = "ends-episode"  # what it does to an episode; scores are always those of whole games
    rewards: Rewards = "clipped"  # to -1 .. 1, for learning; scores are always raw
    max_no_ops: int = 30  # a game starts with 1 to so many no-ops; 0: with none
    fire: Fire = "at-start"  # press the button at the start of every episode, if the game has one
    actions: Actions = "minimal"  # only those that have an effect in the game, or all 18
    sticky_action_probability: float = 0.0  # with which the emulator repeats its last action
    max_frames: int = 108_000  # frames of the emulator after which a game is truncated

    @property
    def name(self) -> str:
        return f"Atari {self.game}"

    def make_env(self) -> AtariEnv:
        """A new environment."""
        return AtariEnv(**{field.name: getattr(self, field.name) for field in dataclasses.fields(self)})

    def check(self) -> None:
        super().check()
        benchmark_games()  # evaluations need them

    def build(self, num_envs: int) -> SnapshotEnvs:
        check_counts(num_envs)
        return SnapshotEnvs([self.make_env] * num_envs)

    def scores(self, returns: np.ndarray) -> dict[str, float]:
        """The mean human-normalised score, for the 57 games where it is known."""
        if rom_name(self.game) not in benchmark_games():
            return {}
        return {"human_normalised": human_normalised(self.game, float(returns.mean()))}
