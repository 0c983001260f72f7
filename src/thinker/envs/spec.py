"""What a run must know of its environment: how to make it, and which episodes training never sees.

Environments describe themselves in entries of their ``metadata``. All are optional, and they count wherever an
environment comes from, with a spec or without:

* ``"success"``: the name of the info entry that tells, at the end of an episode, whether it was a success; default
  ``"is_success"``.
* ``"action_names"``: a sequence of A strings.
* ``"observation_names"``: for observations that are vectors, a sequence of strings that name their numbers.
* ``"tile_pictures"``: uint8 [tiles, P, P, 3], for observations that are one-hot planes [tiles, H, W]: how to draw each
  kind of tile.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal

from gymnasium.vector import VectorEnv

from thinker.errors import UserError

Split = Literal["validation", "test"]
"""Two kinds of held-out episodes: settings are chosen on the first, results are reported on the second."""


class EnvironmentSpec(ABC):
    """The real MDP of a run, as settings that can be saved; subclasses are frozen dataclasses."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Shown to people; the Gymnasium id where there is one."""

    @abstractmethod
    def build(self, num_envs: int) -> VectorEnv:
        """The training environments, in autoreset mode SAME_STEP.

        They have ``snapshot()`` and ``restore(snapshot)``, see `thinker.envs.replayable.environments_state`.
        """

    @abstractmethod
    def held_out(self, split: Split, num_envs: int, count: int) -> VectorEnv:
        """Environments that play ``count`` held-out episodes, which are the same ones whoever acts.

        Environment e plays the episodes e, e + num_envs, e + 2 num_envs and so on. What follows the last one below
        ``count`` is not defined: an environment may play on or stand still. Every ``reset()`` begins with the first
        episodes again, and a seed makes no difference. A `UserError` where there are fewer than ``count`` episodes.
        """

    @abstractmethod
    def chosen_episode(self, episode: str, split: Split, num_envs: int) -> VectorEnv:
        """``num_envs`` environments that each play one held-out episode, named by its number as text.

        As in `held_out`, every ``reset()`` begins it again, and what follows the episode is not defined.
        """

    def rendering(self) -> EnvironmentSpec:
        """The same environments made with render mode "rgb_array" where they support it; default: this spec itself."""
        return self

    @abstractmethod
    def check(self) -> None:
        """Raise a `UserError` for everything that can be known to be wrong before a run starts."""


def episode_number(text: str, count: int, what: str = "held-out episode") -> int:
    """The number that ``text`` gives, one of 0 .. ``count`` - 1; ``what`` is counted, for the error message."""
    digits = text.lstrip("0") or text[-1:]
    number = int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= len(str(count)) else count
    if number >= count:
        raise UserError(f"{text!r} is not the number of a {what}; expected 0 to {count - 1}")
    return number


def check_counts(num_envs: int, count: int = 1) -> None:
    """Raise a `UserError` unless there is at least one environment and at least one episode."""
    if num_envs < 1 or count < 1:
        raise UserError(f"{num_envs} environments for {count} episodes; expected at least one of each")
