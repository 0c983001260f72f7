"""The environment of a run: how to create it, and which episodes are held out from training.

Environments describe themselves in entries of their ``metadata``. All entries are optional, and they also work for
environments without a spec:

* ``"success"``: the name of the info entry that reports, at the end of an episode, whether it was a success; default
  ``"is_success"``.
* ``"reported_reward"``: the name of the info entry with the reward that statistics of episodes are made of, where
  agents learn from another one (clipped rewards, for example).
* ``"unfinished"``: the name of the info entry that reports, at the end of an episode, whether its game goes on in the
  next episode (which started with the loss of a life, for example). Statistics and evaluations count whole games.
* ``"action_names"``: a sequence of A strings.
* ``"observation_names"``: for vector observations, a sequence of strings, one for each feature.
* ``"tile_pictures"``: uint8 [tiles, P, P, 3], a picture of each tile, for observations that are one-hot planes
  [tiles, H, W].
* ``"plane_colours"``: uint8 [planes, 3], the colour of each plane, for observations that are planes [planes, H, W] of
  which a square may have several or none; ``"plane_names"``: a string for each, what it stands for.
* ``"board"``: a `thinker.interfaces.BoardStructure`, for observations that are planes over a board: squares that never
  change, and what becomes of the actions when the board is turned or mirrored.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal

import numpy as np
from gymnasium.vector import VectorEnv

from thinker.errors import UserError

Split = Literal["validation", "test"]
"""Two kinds of held-out episodes: settings are chosen on the first, results are reported on the second."""


class EnvironmentSpec(ABC):
    """The real MDP of a run, as settings that can be saved; subclasses are frozen dataclasses."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The name to display; the Gymnasium id if there is one."""

    @abstractmethod
    def build(self, num_envs: int) -> VectorEnv:
        """The training environments, in autoreset mode SAME_STEP.

        They have ``snapshot()`` and ``restore(snapshot)``, see `thinker.envs.replayable.environments_state`.
        """

    @abstractmethod
    def held_out(self, split: Split, num_envs: int, count: int) -> VectorEnv:
        """Environments that play ``count`` held-out episodes, which are the same for every actor.

        Environment e plays the episodes e, e + num_envs, e + 2 num_envs and so on. What follows the last one below
        ``count`` is not defined: an environment may play more episodes or stay idle. Every ``reset()`` starts again
        with the first episodes, and a seed has no effect. Raises a `UserError` if there are fewer than ``count``
        episodes.
        """

    @abstractmethod
    def chosen_episode(self, episode: str, split: Split, num_envs: int) -> VectorEnv:
        """``num_envs`` environments that each play the same held-out episode, given by its number as text.

        As in `held_out`, every ``reset()`` starts it again, and what follows the episode is not defined.
        """

    def rendering(self) -> EnvironmentSpec:
        """The same environment with render mode "rgb_array" if it supports that; default: this spec itself."""
        return self

    def scores(self, returns: np.ndarray) -> dict[str, float]:
        """Further results of an evaluation, by name, from the ``returns`` [episodes] of its episodes; default: none."""
        return {}

    @abstractmethod
    def check(self) -> None:
        """Raise a `UserError` for every problem that can be detected before a run starts."""


def episode_number(text: str, count: int, what: str = "held-out episode") -> int:
    """Parse ``text`` as a number from 0 to ``count`` - 1; ``what`` names the counted things in the error message."""
    digits = text.lstrip("0") or text[-1:]
    number = int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= len(str(count)) else count
    if number >= count:
        raise UserError(f"{text!r} is not the number of a {what}; expected 0 to {count - 1}")
    return number


def check_counts(num_envs: int, count: int = 1) -> None:
    """Raise a `UserError` unless there is at least one environment and at least one episode."""
    if num_envs < 1 or count < 1:
        raise UserError(f"{num_envs} environments for {count} episodes; expected at least one of each")
