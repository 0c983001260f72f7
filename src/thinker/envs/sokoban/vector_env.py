"""Sokoban as a Gymnasium vector environment: all boards in one native call (the paper's section 5.1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import error
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from thinker.envs.sokoban import engine, generator
from thinker.envs.sokoban.feed import Augmentation, LevelSource, Order, SequentialLevels, Streams, choose_feed
from thinker.envs.sokoban.generator import Boxes
from thinker.envs.sokoban.levels import board_text
from thinker.envs.sokoban.rendering import ObservationKind, observation_sprites, render_board, tile_pictures
from thinker.errors import UserError
from thinker.interfaces import BoardStructure

if TYPE_CHECKING:  # the simulator needs PyTorch, the environment does not
    from thinker.envs.sokoban.simulator import SokobanSimulator
    from thinker.interfaces import PolicyAndValue

NO_LEVEL = -1
"""``info["level"]`` of a board that has no level to play in evaluation mode."""
RENDER_MODES = ("rgb_array", "ansi")


class SokobanVectorEnv(VectorEnv[np.ndarray, np.ndarray, np.ndarray]):
    """``num_envs`` boards of Sokoban, stepped together.

    Actions: 0 no-op, 1 up, 2 down, 3 left, 4 right. Rewards are summed: -0.01 for every step, +1 for a box pushed onto
    a target, -1 for one pushed off it, +10 for solving the level; the solving step gives 10.99. Solving terminates an
    episode, the step limit truncates it (solving in the very last step only terminates it).

    ``info`` always contains arrays over the boards, each with Gymnasium's ``_name`` mask: ``solved`` (this step solved
    a level, in every autoreset mode), ``level`` (the index in the level set, or the running count of this board's
    levels if they are generated, which in a mix is added to the length of the set) and ``boxes_on_target`` (both of
    the board that is now observed). Where an episode ends in autoreset mode SAME_STEP, ``final_obs`` and ``final_info``
    describe its end, in the format of Gymnasium's `SyncVectorEnv`.

    Evaluation mode, ``order="sequential"``: every level of the set is played exactly once. Board i plays the levels i,
    i + num_envs, i + 2 num_envs and so on; then it idles (reward 0, never ends again, ``info["evaluating"]`` False).
    When all boards idle, ``evaluation_done`` is True. ``reset()`` of all boards starts over.

    Args:
        num_envs: number of boards
        size: height and width of generated boards, including walls, or (height, width); 5 to 20, default 10
        boxes: boxes per generated level, 1 to 8, or a range such as (1, 4) from which each level's number is sampled;
            default 4
        levels: "generated", or a Boxoban file, a folder or a list of them, or a `LevelSet`
        observation: "tiles", one-hot planes uint8 (7, H, W) in the order wall, floor, target, box, box on target,
            player, player on target; or "rgb", uint8 (3, 8 H, 8 W)
        max_steps: steps after which an episode is truncated
        order: "random" samples levels with each board's own seeded generator; "sequential" is evaluation mode
        reverse_moves: difficulty of generated levels, see `generate_levels`; default (2, 10)
        generated_share: probability that an episode plays a generated level (of ``boxes`` and ``reverse_moves``) when
            ``levels`` is a set
        augmentation: "symmetries" turns and mirrors the level of each episode by one of the eight symmetries of a
            square, sampled with the board's generator
        autoreset_mode: SAME_STEP, NEXT_STEP or DISABLED, as in Gymnasium
        copy: False returns the internal arrays, which the next step overwrites
        render_mode: None, "rgb_array" or "ansi"
    """

    single_observation_space: Box

    def __init__(
        self,
        num_envs: int = 1,
        *,
        size: int | tuple[int, int] | None = None,
        boxes: Boxes | None = None,
        levels: LevelSource = "generated",
        observation: ObservationKind = "tiles",
        max_steps: int = 120,
        order: Order = "random",
        reverse_moves: tuple[int, int] | None = None,
        generated_share: float = 0.0,
        augmentation: Augmentation = "none",
        autoreset_mode: AutoresetMode | str = AutoresetMode.SAME_STEP,
        copy: bool = True,
        render_mode: str | None = None,
    ) -> None:
        if num_envs < 1:
            raise UserError(f"num_envs={num_envs}; expected at least 1")
        if max_steps < 1:
            raise UserError(f"max_steps={max_steps}; expected at least 1")
        if render_mode is not None and render_mode not in RENDER_MODES:
            raise UserError(f"render_mode={render_mode!r} is unknown; expected None or one of {RENDER_MODES}")
        self.num_envs = num_envs
        self.max_steps = max_steps
        self.order = order
        self.copy = copy
        self.render_mode = render_mode
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.metadata = {
            "render_modes": list(RENDER_MODES),
            "autoreset_mode": self.autoreset_mode,
            "success": "solved",
            "action_names": engine.ACTION_NAMES,
            "tile_pictures": tile_pictures(),
        }
        self._feed = choose_feed(
            levels,
            order,
            num_envs,
            size=size,
            boxes=boxes,
            reverse_moves=reverse_moves,
            generated_share=generated_share,
            augmentation=augmentation,
        )
        self._sequence = self._feed if isinstance(self._feed, SequentialLevels) else None  # evaluation mode
        self.levels = self._feed.levels
        self.size = self._feed.size
        if observation == "tiles":
            self.metadata["board"] = _board_structure(self.size, self.levels is None or self.levels.walled)

        self._sprites = observation_sprites(observation)
        self._boards = engine.make_boards(num_envs, *self.size, self._sprites)
        highest = 1 if observation == "tiles" else 255
        self.single_observation_space = Box(0, highest, self._boards.pictures.shape[1:], np.uint8)
        self.single_action_space = Discrete(engine.NUM_ACTIONS)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

        self._streams = Streams(np.zeros(num_envs, np.uint64), np.zeros(num_envs, np.int64))
        self._level = np.full(num_envs, NO_LEVEL, np.int64)
        self._actions = np.zeros(num_envs, np.int64)
        self._present = np.ones(num_envs, np.bool_)  # Gymnasium's mask for an info that every board has
        self._ready = False
        self._some_ended = False  # an episode has ended and its board has not been reset yet

    @property
    def evaluation_done(self) -> bool:
        """Whether evaluation mode has played every level of the set."""
        return bool((self._boards.status == engine.IDLE).all())

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start new episodes on all boards, or on those of ``options={"reset_mask": bool [B]}``.

        Board i gets the seed ``seed + i``, or the i-th of a list of seeds; without a seed the generators continue.
        """
        self._check_open()
        mask = self._reset_mask(options)
        self._seed_generators(seed, mask)
        super().reset(seed=int(seed) if isinstance(seed, (int, np.integer)) else None)
        if self._sequence is not None and not (options and self._ready):
            self._streams.number[:] = 0
        self._ready = True
        self._begin(np.flatnonzero(mask))
        info = self._info(solved=np.zeros(self.num_envs, np.bool_))
        if not mask.all():  # as in Gymnasium, boards that were not reset are masked out
            info = {name: mask.copy() if name.startswith("_") else values * mask for name, values in info.items()}
        return self._copied(self._boards.pictures), info

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Play one action on every board; ``actions``: integers, shape (num_envs,)."""
        self._check_actions(actions)
        waiting = np.flatnonzero(self._boards.status == engine.ENDED) if self._some_ended else None
        ended = engine.step_environments(self._boards, self._actions, self.max_steps, self._sprites)
        info: dict[str, Any] = {}
        if waiting is not None:  # autoreset mode NEXT_STEP: this step was their reset
            self._begin(waiting)
        if ended:
            mask = self._boards.terminated | self._boards.truncated
            finished = mask.nonzero()[0]
            if self.autoreset_mode is AutoresetMode.SAME_STEP:
                info = self._final_info(finished, mask)
                self._begin(finished)
            elif self._sequence is not None:
                self._idle_without_levels(self._sequence, finished)
        self._some_ended = ended > 0 and self.autoreset_mode is not AutoresetMode.SAME_STEP
        info.update(self._info(self._boards.terminated))
        return (
            self._copied(self._boards.pictures),
            self._copied(self._boards.reward),
            self._copied(self._boards.terminated),
            self._copied(self._boards.truncated),
            info,
        )

    def snapshot(self, indices: Sequence[int] | np.ndarray | None = None) -> dict[str, np.ndarray]:
        """The exact state of all boards, or of those at ``indices``, as arrays with one row per board.

        It contains boards, step counts, levels and generators; after `restore` everything continues in the same way.
        """
        self._check_ready()
        return {name: array[self._board_indices(indices)].copy() for name, array in self._state().items()}

    def restore(self, snapshot: dict[str, np.ndarray], indices: Sequence[int] | np.ndarray | None = None) -> None:
        """Restore the rows of a `snapshot` to all boards or those at ``indices``, which may be other boards."""
        self._check_open()
        chosen = self._board_indices(indices)
        if not self._ready and len(np.unique(chosen)) < self.num_envs:
            raise error.ResetNeeded("call reset() before restoring only some of the boards")
        state = self._state()
        if snapshot.keys() != state.keys():
            raise UserError(f"not a snapshot of Sokoban: it has {sorted(snapshot)}, expected {sorted(state)}")
        for name, array in state.items():
            expected = (len(chosen), *array.shape[1:])
            if snapshot[name].shape != expected or snapshot[name].dtype != array.dtype:
                raise UserError(
                    f"snapshot[{name!r}] has shape {snapshot[name].shape} and dtype {snapshot[name].dtype}; "
                    f"expected {expected} and {array.dtype} (boards of the same size, one row for each index)"
                )
        for name, array in state.items():
            array[chosen] = snapshot[name]
        self._ready = True
        self._some_ended = bool((self._boards.status == engine.ENDED).any())
        engine.place_boards(self._boards, chosen, self._sprites)

    def render(self) -> tuple[Any, ...] | None:
        """One picture (rgb_array, uint8 [32 H, 32 W, 3]) or Boxoban text (ansi) for each board."""
        self._check_ready()
        if self.render_mode == "rgb_array":
            return tuple(render_board(board) for board in self._boards.tiles)
        if self.render_mode == "ansi":
            return tuple(board_text(board) for board in self._boards.tiles)
        return None

    def simulator(self, policy_and_value: PolicyAndValue | None = None) -> SokobanSimulator:
        """Sokoban's rules as a perfect world model; by default with a uniform policy and values of 0."""
        from thinker.envs.sokoban.simulator import SokobanSimulator

        return SokobanSimulator(self.single_observation_space, policy_and_value)

    def _state(self) -> dict[str, np.ndarray]:
        return {
            "boards": self._boards.tiles,
            "steps": self._boards.steps,
            "status": self._boards.status,
            "level": self._level,
            "episodes": self._streams.number,
            "keys": self._streams.key,
        }

    def _board_indices(self, indices: Sequence[int] | np.ndarray | None) -> np.ndarray:
        if indices is None:
            return np.arange(self.num_envs)
        chosen = np.asarray(indices, dtype=np.int64).reshape(-1)
        if ((chosen < 0) | (chosen >= self.num_envs)).any():
            raise IndexError(f"indices {chosen.tolist()} are not all boards; expected 0 .. {self.num_envs - 1}")
        return chosen

    def _begin(self, indices: np.ndarray) -> None:
        """Start the next episode on the boards at ``indices``; in evaluation mode, idle if no level is left."""
        if self._sequence is not None:
            indices = self._idle_without_levels(self._sequence, indices)
        self._feed.deal(indices, self._streams, self._boards.tiles, self._level)
        engine.begin_episodes(self._boards, indices, self._sprites)

    def _idle_without_levels(self, sequence: SequentialLevels, indices: np.ndarray) -> np.ndarray:
        """Let boards without a next level idle; returns the others."""
        has_next = sequence.has_next(indices, self._streams)
        without = indices[~has_next]
        self._boards.status[without] = engine.IDLE
        fresh = without[self._streams.number[without] == 0]  # more boards than levels: show the first level
        self._level[fresh] = NO_LEVEL
        self._boards.tiles[fresh] = sequence.first
        self._boards.steps[fresh] = 0
        engine.place_boards(self._boards, fresh, self._sprites)
        return indices[has_next]

    def _info(self, solved: np.ndarray) -> dict[str, Any]:
        info = {
            "solved": self._copied(solved),
            "_solved": self._copied(self._present),
            "level": self._copied(self._level),
            "_level": self._copied(self._present),
            "boxes_on_target": self._copied(self._boards.boxes_on_target),
            "_boxes_on_target": self._copied(self._present),
        }
        if self._sequence is not None:
            info["evaluating"] = self._boards.status != engine.IDLE
            info["_evaluating"] = self._copied(self._present)
        return info

    def _final_info(self, finished: np.ndarray, mask: np.ndarray) -> dict[str, Any]:
        """The final infos of ended episodes in the format of Gymnasium's SyncVectorEnv, before their boards reset."""
        final_obs = np.empty(self.num_envs, dtype=object)  # of None
        for index in finished.tolist():
            final_obs[index] = self._boards.pictures[index].copy()
        final_info = {
            "solved": self._boards.terminated.copy(),
            "_solved": self._copied(mask),
            "level": self._level * mask,
            "_level": self._copied(mask),
            "boxes_on_target": self._boards.boxes_on_target * mask,
            "_boxes_on_target": self._copied(mask),
        }
        return {
            "final_obs": final_obs,
            "_final_obs": self._copied(mask),
            "final_info": final_info,
            "_final_info": mask,
        }

    def _copied(self, array: np.ndarray) -> np.ndarray:
        return array.copy() if self.copy else array

    def _seed_generators(self, seed: int | Sequence[int | None] | None, mask: np.ndarray) -> None:
        if seed is None:
            seeds: Sequence[int | None] = [None] * self.num_envs
        elif isinstance(seed, (int, np.integer)):
            seeds = [int(seed) + index for index in range(self.num_envs)]
        else:
            seeds = seed
        if len(seeds) != self.num_envs:
            raise UserError(f"{len(seeds)} seeds for {self.num_envs} boards; expected one for each, or one number")
        chosen = [index for index in np.flatnonzero(mask).tolist() if seeds[index] is not None or not self._ready]
        keys = [generator.stream_key(seeds[index]) for index in chosen]
        self._streams.key[chosen] = np.array(keys, np.uint64)
        self._streams.number[chosen] = 0

    def _reset_mask(self, options: dict[str, Any] | None) -> np.ndarray:
        unknown = set(options or ()) - {"reset_mask"}
        if unknown:
            raise UserError(f"unknown reset options {sorted(unknown)}; expected only 'reset_mask'")
        if not options:
            return np.ones(self.num_envs, np.bool_)
        mask = np.asarray(options["reset_mask"])
        if mask.shape != (self.num_envs,) or mask.dtype != np.bool_ or not mask.any():
            raise UserError(
                f"options['reset_mask'] must be booleans of shape ({self.num_envs},) with at least one True; "
                f"got dtype {mask.dtype}, shape {mask.shape}, {int(mask.sum())} True"
            )
        if not self._ready and not mask.all():
            raise error.ResetNeeded("reset all boards once before resetting some of them by a reset_mask")
        return mask

    def _check_actions(self, actions: np.ndarray) -> None:
        """Check the actions and copy them to ``self._actions`` before anything changes."""
        self._check_ready()
        actions = np.asarray(actions)
        if actions.shape != (self.num_envs,) or actions.dtype.kind not in "iu":
            raise error.InvalidAction(
                f"actions have shape {actions.shape} and dtype {actions.dtype}; expected integers of shape "
                f"({self.num_envs},), one action from 0 to {engine.NUM_ACTIONS - 1} for each board"
            )
        self._actions[:] = actions
        bad = engine.first_bad_action(self._actions)
        if bad >= 0:
            raise error.InvalidAction(
                f"action {actions[bad]} of board {bad} is out of range; expected 0 to {engine.NUM_ACTIONS - 1} "
                f"({', '.join(engine.ACTION_NAMES)})"
            )
        if self._some_ended and self.autoreset_mode is AutoresetMode.DISABLED:
            ended = np.flatnonzero(self._boards.status == engine.ENDED)
            if len(ended):
                raise error.ResetNeeded(
                    f"the episodes of boards {ended.tolist()} have ended and autoreset is disabled; "
                    f"call reset() first, for these boards only with options={{'reset_mask': terminated | truncated}}"
                )

    def _check_open(self) -> None:
        if self.closed:
            raise error.ClosedEnvironmentError("this environment was closed; create a new one")

    def _check_ready(self) -> None:
        self._check_open()
        if not self._ready:
            raise error.ResetNeeded("call reset() before anything else")


def _board_structure(size: tuple[int, int], walled: bool) -> BoardStructure:
    """The structure of the planes of boards of ``size``; ``walled``: the outermost squares are walls."""
    wall = tuple(int(tile == engine.WALL) for tile in range(engine.NUM_TILES))
    square = size[0] == size[1]
    return BoardStructure(
        border=wall if walled else None,
        turned_actions=engine.TURNED_ACTIONS if square else None,
        mirrored_actions=engine.MIRRORED_ACTIONS,
        player_planes=(engine.PLAYER, engine.PLAYER_ON_TARGET),
    )
