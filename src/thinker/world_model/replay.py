"""Prioritised replay of sequences of real transitions (the paper's appendix B, collection of training samples)."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import torch
from gymnasium import Space

from thinker.errors import UserError
from thinker.interfaces import NO_ACTION, RealTransition
from thinker.world_model.batch import SequenceBatch
from thinker.world_model.rings import NOTHING_WRONG, Step, first_row_out_of_step, make_rings, write_step
from thinker.world_model.sum_tree import SumTree
from thinker.world_model.targets import TRANSITION, sequence_targets
from thinker.world_model.transition_checks import TransitionChecks

PRIORITY_FLOOR = 1e-3
"""Smallest value error: with it every sequence can be sampled and importance weights stay bounded."""

FIRST_PRIORITY = 1.0
"""The priority of the first transition, when there is no maximum yet."""

SPARE_FRAME_BYTES = 64 * 2**20
"""Memory for the extra frames of episode starts and ends, beyond one frame per transition."""

COUNTERS = ("transition_count", "frame_count", "oldest", "ready", "last_action")
"""The fields of `Rings` with one number per environment."""


class Replay:
    """First-in-first-out buffer of real transitions, sampled as sequences by priority.

    Every environment has its own ring of ``capacity // num_envs`` transitions. A transition can be the start of a
    sampled sequence once all its targets are known: when the transition ``return_length`` steps later (default 2L,
    L = ``unroll_length``, as in the paper) or the last one of its episode has been added. ``len()`` counts these
    transitions, and is the N of the importance weights.

    Frames are stored once, in their own dtype. With ``frame_stack`` S > 1 the observation's channels are S frames,
    oldest first, and only the newest is stored per step. An episode of T steps takes T + S frames. The extra S frames
    per episode get `SPARE_FRAME_BYTES`, at least a sixteenth of the frames; only if very short episodes of large frames
    need more are the oldest transitions dropped before ``capacity`` is reached.

    Not thread-safe.
    """

    def __init__(
        self,
        capacity: int = 200_000,
        *,
        num_envs: int,
        observation_space: Space,
        num_actions: int,
        discount: float,
        unroll_length: int = 5,
        return_length: int | None = None,
        frame_stack: int = 1,
        seed: int = 0,
        priority_exponent: float = 0.6,
    ) -> None:
        self._checks = TransitionChecks(observation_space, num_envs, num_actions)
        for name, number in [("num_envs", num_envs), ("num_actions", num_actions), ("unroll_length", unroll_length)]:
            if number < 1:
                raise UserError(f"{name}={number}: must be at least 1")
        if not 0.0 <= discount <= 1.0:
            raise UserError(f"discount={discount}: must lie in [0, 1]")
        if priority_exponent < 0.0:
            raise UserError(f"priority_exponent={priority_exponent}: must not be negative")
        shape = self._checks.shape
        if frame_stack < 1 or (frame_stack > 1 and (len(shape) == 0 or shape[0] % frame_stack != 0)):
            raise UserError(
                f"frame_stack={frame_stack} does not divide observations of shape {shape}: the first dimension must "
                "be frame_stack times the channels of a frame"
            )
        return_length = 2 * unroll_length if return_length is None else return_length
        if return_length <= unroll_length:
            raise UserError(
                f"return_length={return_length}: must be above unroll_length={unroll_length}, so that the value "
                "target of every state of a sequence contains at least one reward"
            )
        length = capacity // num_envs
        if length < return_length + 1:
            raise UserError(
                f"capacity={capacity} gives each of {num_envs} environments room for {length} transitions, fewer than "
                f"the {return_length + 1} that the targets of unroll_length={unroll_length} and "
                f"return_length={return_length} span: set capacity to {num_envs * (return_length + 1)} or more"
            )
        self.capacity = num_envs * length
        self.num_envs = num_envs
        self.num_actions = num_actions
        self.observation_shape = shape
        self.unroll_length = unroll_length
        self.return_length = return_length
        self.discount = discount
        self.frame_stack = frame_stack
        self.priority_exponent = priority_exponent
        self._generator = np.random.Generator(np.random.PCG64(seed))

        frame_bytes = int(np.prod(shape)) * self._checks.dtype.itemsize // frame_stack
        affordable = SPARE_FRAME_BYTES // (num_envs * frame_bytes)
        spare = frame_stack + max(length // 16, min(affordable, length * frame_stack))
        self._length = length
        self._rings = make_rings(num_envs, length, length + spare, frame_bytes, num_actions)
        self._tree = SumTree(self.capacity)
        self._observation_buffer = np.zeros(0, np.uint8)
        self._layout = {
            "num_envs": num_envs,
            "transitions_per_env": length,
            "frames_per_env": length + spare,
            "frame_bytes": frame_bytes,
            "frame_stack": frame_stack,
            "num_actions": num_actions,
            "unroll_length": unroll_length,
            "return_length": return_length,
        }

    def __len__(self) -> int:
        """The number of transitions that can be sampled as the start of a sequence."""
        return len(self._tree)

    def add(self, transition: RealTransition) -> None:
        """Store one transition of every environment whose row is valid. On an error nothing is stored."""
        valid, rings = transition.valid, self._rings
        if valid.shape != (self.num_envs,) or valid.dtype != np.bool_:
            raise UserError(f"valid has shape {valid.shape}, dtype {valid.dtype}, expected ({self.num_envs},), bool")
        starts = valid & (rings.last_action == NO_ACTION)
        self._checks.check(transition, starts)
        stack = (self.num_envs, self.frame_stack, -1)
        step = Step(
            valid=valid,
            observation=np.ascontiguousarray(transition.observation).view(np.uint8).reshape(stack),
            next_observation=np.ascontiguousarray(transition.next_observation).view(np.uint8).reshape(stack),
            action=transition.action.astype(np.int64),
            reward=transition.reward.astype(np.float32),
            root_value=transition.root_value.astype(np.float32),
            final_value=transition.final_value.astype(np.float32),
            terminated=transition.terminated.astype(np.bool_),
            truncated=transition.truncated.astype(np.bool_),
            random_play=transition.random_play,
        )
        row = first_row_out_of_step(rings, valid & ~starts, step.observation)
        if row != NOTHING_WRONG:
            raise UserError(
                f"row {row}: the observation is not the next_observation of the previous transition. If the "
                "environment was reset before its episode ended, call abandon_episodes first"
            )
        if not np.array_equal(step.observation[starts, 1:], step.next_observation[starts, :-1]):
            raise UserError(
                f"frame_stack={self.frame_stack}, but the older frames of next_observation are not the newer ones of "
                "observation: the first dimension must contain the frames in order, oldest first"
            )

        rows = np.flatnonzero(valid)
        slots = rings.transition_count[rows] % self._length
        if transition.policy is None:
            rings.policies[rows, slots] = 0.0
            rings.policies[rows, slots, transition.action[rows]] = 1.0
        else:
            rings.policies[rows, slots] = transition.policy[rows]
        overwritten, became_ready = write_step(rings, step, self.return_length)
        self._tree.update(overwritten, np.zeros(len(overwritten)))
        self._tree.update(became_ready, np.full(len(became_ready), self._tree.maximum or FIRST_PRIORITY))

    @property
    def nbytes(self) -> int:
        """The memory of the stored frames and transitions, which is reserved from the start."""
        return sum(array.nbytes for array in (*self._rings, self._tree.leaves))

    def abandon_episodes(self, rows: np.ndarray | None = None) -> None:
        """Call this when the environments ``rows`` (indices or a mask; default all) are reset during an episode.

        Their next transition starts a new episode. Transitions whose targets are still incomplete are never sampled.
        """
        chosen: Any = slice(None) if rows is None else rows
        self._rings.ready[chosen] = self._rings.transition_count[chosen]
        self._rings.last_action[chosen] = NO_ACTION

    def sample(self, batch_size: int, importance_exponent: float) -> SequenceBatch:
        """Sample sequences by priority, with importance weights (N P(i))^-β, β = ``importance_exponent``.

        The same sequence may be sampled more than once. The next call overwrites the buffer of ``batch.observation``;
        all other tensors are new.
        """
        if not 1 <= batch_size <= len(self):
            raise ValueError(
                f"batch_size={batch_size}, but the replay holds {len(self)} transitions whose targets are known: "
                "use at least 1 and at most that many, or collect more first"
            )
        leaf, probability = self._tree.sample(batch_size, self._generator)
        row, slot = np.divmod(leaf, self._length)
        oldest = self._rings.oldest[row]
        start = oldest + (slot - oldest) % self._length
        padding_action = self._generator.integers(self.num_actions, size=(batch_size, self.unroll_length))
        targets = sequence_targets(
            self._rings.transitions,
            self._rings.policies,
            row,
            start,
            self.unroll_length,
            self.return_length,
            self.discount,
            padding_action,
        )
        weight = (len(self) * probability) ** -importance_exponent
        tensors = {name: torch.from_numpy(array) for name, array in targets._asdict().items() if name != "frame"}
        return SequenceBatch(
            observation=self._stacks(row, targets.frame),
            weight=torch.from_numpy(weight.astype(np.float32)),
            index=start * self.num_envs + row,
            **tensors,
        )

    def update_priorities(self, index: np.ndarray, value_error: torch.Tensor | np.ndarray) -> None:
        """Set the priorities of sampled sequences from their value errors [N].

        Overwritten sequences are ignored. Sequences of random play, whose values are not trained, keep their priority.
        """
        error = np.abs(torch.as_tensor(value_error).detach().cpu().numpy().astype(np.float64))
        if error.shape != np.shape(index):
            raise ValueError(f"value_error has shape {error.shape}, expected one per index: {np.shape(index)}")
        if not np.isfinite(error).all():
            raise ValueError(f"value_error {error[~np.isfinite(error)][0]} is not finite: the model has diverged")
        number, row = np.divmod(index, self.num_envs)
        known = number < self._rings.ready[row]
        if not known.all():
            raise ValueError(f"index {index[~known][0]} has never been sampled from this replay")
        leaf = row * self._length + number % self._length
        held = (number >= self._rings.oldest[row]) & (self._tree.leaves[leaf] > 0.0)
        held &= ~self._rings.transitions["random_play"].ravel()[leaf]
        priority = np.maximum(error, PRIORITY_FLOOR) ** self.priority_exponent
        self._tree.update(leaf[held], priority[held])

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to continue exactly. The arrays are not copies: copy or save them before the next call."""
        rings = self._rings
        used = min(int(rings.transition_count.max()), self._length)
        used_frames = min(int(rings.frame_count.max()), rings.frames.shape[1])
        return {
            "layout": dict(self._layout),
            "tree": self._tree.state_dict(),
            "ring": {name: rings.transitions[name][:, :used] for name in TRANSITION.names or ()},
            "policies": rings.policies[:, :used],
            "frames": rings.frames[:, :used_frames],
            **{name: getattr(rings, name) for name in COUNTERS},
            "generator": json.dumps(self._generator.bit_generator.state),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from ``state``, saved by a replay with the same arguments."""
        if state["layout"] != self._layout:
            raise UserError(
                f"a replay of layout {self._layout} cannot load a state of layout {state['layout']}: create it with "
                "the arguments of the saved replay"
            )
        rings = self._rings
        self._tree.load_state_dict(state["tree"])
        pairs = [(rings.transitions[name], state["ring"][name]) for name in TRANSITION.names or ()]
        for own, saved in [*pairs, (rings.policies, state["policies"]), (rings.frames, state["frames"])]:
            own[:, : saved.shape[1]] = saved
        for name in COUNTERS:
            getattr(rings, name)[:] = state[name]
        self._generator.bit_generator.state = json.loads(state["generator"])

    def _stacks(self, row: np.ndarray, frame: np.ndarray) -> torch.Tensor:
        """The observations [N, L+1, *observation_shape] whose newest frames have the numbers ``frame`` [N, L+1]."""
        num_frames, frame_bytes = self._rings.frames.shape[1:]
        number = frame[..., None] + np.arange(1 - self.frame_stack, 1)  # [N, L+1, S]
        position = row[:, None, None] * num_frames + number % num_frames
        if len(self._observation_buffer) != position.size:
            self._observation_buffer = np.empty((position.size, frame_bytes), np.uint8)
        # mode="clip" lets NumPy write directly into the buffer; every position is in range.
        self._rings.frames.reshape(-1, frame_bytes).take(position.ravel(), 0, self._observation_buffer, "clip")
        stacks = self._observation_buffer.view(self._checks.dtype).reshape(*frame.shape, *self._checks.shape)
        return torch.from_numpy(stacks)
