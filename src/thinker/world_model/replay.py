"""Prioritised replay of sequences of real transitions, the paper's appendix B: collection of training samples."""

from __future__ import annotations

import json
from typing import Any

import numba
import numpy as np
import torch
from gymnasium.spaces import Box, MultiBinary

from thinker.world_model.protocol import EPISODE_START
from thinker.world_model.sum_tree import SumTree
from thinker.world_model.targets import CONTINUES, TERMINATED, TRANSITION, TRUNCATED, sequence_targets
from thinker.world_model.transition import RealTransition, SequenceBatch

PRIORITY_FLOOR = 1e-3
"""Value errors below this count as this much: nothing starves, and no importance weight explodes."""

FIRST_PRIORITY = 1.0
"""The priority of the first transition of all, when there is no maximum yet."""

SPARE_FRAME_BYTES = 64 * 2**20
"""How much memory beyond one frame per transition is spent on the extra frames of episode starts and ends."""


@numba.njit(cache=True)
def _first_row_out_of_step(
    frames: np.ndarray, frame_count: np.ndarray, check: np.ndarray, observation: np.ndarray
) -> int:
    """The first row of ``check`` [E] whose observation is not the frame stored last, or -1."""
    for row in range(check.shape[0]):
        if check[row]:
            stored, received = frames[row, (frame_count[row] - 1) % frames.shape[1]], observation[row, -1]
            difference = np.uint8(0)
            for k in range(stored.shape[0]):  # no early exit: this way the loop becomes vector instructions
                difference |= stored[k] ^ received[k]
            if difference != 0:
                return row
    return -1


@numba.njit(cache=True)
def _write(
    ring: np.ndarray,  # [E, C] TRANSITION
    frames: np.ndarray,  # [E, F, bytes of a frame]
    count: np.ndarray,  # [E]
    frame_count: np.ndarray,  # [E]
    oldest: np.ndarray,  # [E]
    ready: np.ndarray,  # [E]
    last_action: np.ndarray,  # [E]
    valid: np.ndarray,  # [E]
    observation: np.ndarray,  # [E, S, bytes of a frame]
    next_observation: np.ndarray,  # [E, S, bytes of a frame]
    action: np.ndarray,  # [E]
    reward: np.ndarray,  # [E]
    root_value: np.ndarray,  # [E]
    final_value: np.ndarray,  # [E]
    terminated: np.ndarray,  # [E]
    truncated: np.ndarray,  # [E]
    horizon: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Append one transition per valid row; return the leaves that were overwritten and those that became ready."""
    num_envs, length = ring.shape
    num_frames, stack = frames.shape[1], observation.shape[1]
    overwritten = np.empty(num_envs * (stack + 1), np.int64)
    became_ready = np.empty(num_envs * (horizon + 1), np.int64)
    num_overwritten = num_ready = 0
    for row in range(num_envs):
        if not valid[row]:
            continue
        if last_action[row] == EPISODE_START:  # the whole first stack, so that every later one can be rebuilt
            for k in range(stack):
                frames[row, (frame_count[row] + k) % num_frames] = observation[row, k]
            frame_count[row] += stack
        frames[row, frame_count[row] % num_frames] = next_observation[row, stack - 1]
        frame_count[row] += 1

        number = count[row]
        record = ring[row, number % length]
        record.frame = frame_count[row] - 2
        record.action = action[row]
        record.last_action = last_action[row]
        record.reward = reward[row]
        record.root_value = root_value[row]
        record.final_value = final_value[row]
        record.outcome = TERMINATED if terminated[row] else TRUNCATED if truncated[row] else CONTINUES
        ended = record.outcome != CONTINUES
        last_action[row] = EPISODE_START if ended else action[row]
        count[row] += 1

        # The oldest go whose slot, or the oldest frame of whose stack, has just been written over.
        while oldest[row] <= number - length or (
            ring[row, oldest[row] % length].frame - (stack - 1) < frame_count[row] - num_frames
        ):
            overwritten[num_overwritten] = row * length + oldest[row] % length
            num_overwritten += 1
            oldest[row] += 1
        # Targets are known once the transition return_length steps later, or the episode's last, is stored.
        while ready[row] <= (number if ended else number - horizon):
            became_ready[num_ready] = row * length + ready[row] % length
            num_ready += 1
            ready[row] += 1
    return overwritten[:num_overwritten], became_ready[:num_ready]


class Replay:
    """First-in-first-out store of real transitions, sampled as sequences by priority.

    Every environment is a ring of its own, ``capacity // num_envs`` transitions long. A transition can be the start
    of a sampled sequence once all its targets are known: when the transition ``return_length`` steps later has been
    added (default 2L, L = ``unroll_length``, as in the paper), or its episode's last. ``len()`` counts those, and it is
    the N of the importance weights.

    Frames are kept once, in their own dtype. With ``frame_stack`` S > 1 the observation's channels are S frames,
    oldest first, and only the newest is kept per step. An episode of T steps takes T + S frames. The room for these
    extra S frames per episode is `SPARE_FRAME_BYTES`, at least a sixteenth of the frames; only where very short
    episodes of large frames need more do the oldest transitions go before ``capacity`` is reached.

    Not for use from several threads.
    """

    def __init__(
        self,
        capacity: int = 200_000,
        *,
        num_envs: int,
        observation_space: Box | MultiBinary,
        num_actions: int,
        discount: float,
        unroll_length: int = 5,
        return_length: int | None = None,
        frame_stack: int = 1,
        seed: int = 0,
        priority_exponent: float = 0.6,
    ) -> None:
        if not isinstance(observation_space, (Box, MultiBinary)):
            raise TypeError(f"observation_space={observation_space}: the replay stores Box or MultiBinary observations")
        for name, number in [("num_envs", num_envs), ("num_actions", num_actions), ("unroll_length", unroll_length)]:
            if number < 1:
                raise ValueError(f"{name}={number}: must be at least 1")
        if not 0.0 <= discount <= 1.0:
            raise ValueError(f"discount={discount}: must lie in [0, 1]")
        if priority_exponent < 0.0:
            raise ValueError(f"priority_exponent={priority_exponent}: must not be negative")
        shape = observation_space.shape
        if frame_stack < 1 or (frame_stack > 1 and (len(shape) == 0 or shape[0] % frame_stack != 0)):
            raise ValueError(
                f"frame_stack={frame_stack} does not divide observations of shape {shape}: the first dimension must "
                "be frame_stack times the channels of a frame"
            )
        return_length = 2 * unroll_length if return_length is None else return_length
        if return_length <= unroll_length:
            raise ValueError(
                f"return_length={return_length}: must be above unroll_length={unroll_length}, so that the value "
                "targets of all states of a sequence look ahead"
            )
        length = capacity // num_envs
        if length < return_length + 1:
            raise ValueError(
                f"capacity={capacity} gives each of {num_envs} environments room for {length} transitions, fewer than "
                f"the {return_length + 1} that the targets of unroll_length={unroll_length} and "
                f"return_length={return_length} span: set capacity to {num_envs * (return_length + 1)} or more"
            )
        self.capacity = num_envs * length
        self.num_envs = num_envs
        self.num_actions = num_actions
        self.unroll_length = unroll_length
        self.return_length = return_length
        self.discount = discount
        self.frame_stack = frame_stack
        self.priority_exponent = priority_exponent
        self._shape, self._dtype = shape, observation_space.dtype
        self._bounds = _bounds_to_check(observation_space)
        self._generator = np.random.Generator(np.random.PCG64(seed))

        frame_bytes = int(np.prod(shape)) * self._dtype.itemsize // frame_stack
        affordable = SPARE_FRAME_BYTES // (num_envs * frame_bytes)
        spare = frame_stack + max(length // 16, min(affordable, length * frame_stack))
        self._length = length
        self._ring = np.zeros((num_envs, length), TRANSITION)
        self._policies = np.zeros((num_envs, length, num_actions), np.float32)
        self._frames = np.zeros((num_envs, length + spare, frame_bytes), np.uint8)
        self._tree = SumTree(self.capacity)
        # Transitions and frames are numbered from 0 in each environment; slot = number % length of the ring.
        self._count = np.zeros(num_envs, np.int64)  # transitions added
        self._frame_count = np.zeros(num_envs, np.int64)  # frames added
        self._oldest = np.zeros(num_envs, np.int64)  # the oldest transition still held
        self._ready = np.zeros(num_envs, np.int64)  # the first transition whose targets are not yet known
        self._last_action = np.full(num_envs, EPISODE_START, np.int64)
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
        """How many transitions can be sampled as the start of a sequence."""
        return len(self._tree)

    @property
    def nbytes(self) -> int:
        """Bytes set aside, whether already in use or not."""
        return self._frames.nbytes + self._ring.nbytes + self._policies.nbytes + self._tree.nbytes

    def add(self, transition: RealTransition) -> None:
        """Store one transition of every environment whose row is valid. On an error nothing is stored."""
        valid = transition.valid
        if valid.shape != (self.num_envs,) or valid.dtype != np.bool_:
            raise ValueError(f"valid has shape {valid.shape}, dtype {valid.dtype}, expected ({self.num_envs},), bool")
        starts = valid & (self._last_action == EPISODE_START)
        self._check(transition, starts)
        stack = (self.num_envs, self.frame_stack, -1)
        observation = np.ascontiguousarray(transition.observation).view(np.uint8).reshape(stack)
        next_observation = np.ascontiguousarray(transition.next_observation).view(np.uint8).reshape(stack)
        row = _first_row_out_of_step(self._frames, self._frame_count, valid & ~starts, observation)
        if row >= 0:
            raise ValueError(
                f"row {row}: the observation is not the next_observation of the transition before. If the environment "
                "was reset before its episode ended, call abandon_episodes first"
            )
        if self.frame_stack > 1 and not np.array_equal(observation[starts, 1:], next_observation[starts, :-1]):
            raise ValueError(
                f"frame_stack={self.frame_stack}, but the older frames of next_observation are not the newer ones of "
                "observation: the first dimension must hold the frames one after the other, oldest first"
            )

        rows = np.flatnonzero(valid)
        slots = self._count[rows] % self._length
        if transition.policy is None:
            self._policies[rows, slots] = 0.0
            self._policies[rows, slots, transition.action[rows]] = 1.0
        else:
            self._policies[rows, slots] = transition.policy[rows]
        overwritten, became_ready = _write(
            self._ring,
            self._frames,
            self._count,
            self._frame_count,
            self._oldest,
            self._ready,
            self._last_action,
            valid,
            observation,
            next_observation,
            transition.action.astype(np.int64),
            transition.reward.astype(np.float32),
            transition.root_value.astype(np.float32),
            transition.final_value.astype(np.float32),
            transition.terminated.astype(np.bool_),
            transition.truncated.astype(np.bool_),
            self.return_length,
        )
        self._tree.update(overwritten, np.zeros(len(overwritten)))
        self._tree.update(became_ready, np.full(len(became_ready), self._tree.maximum or FIRST_PRIORITY))

    def abandon_episodes(self, rows: np.ndarray | None = None) -> None:
        """Say that the environments ``rows`` (indices or a mask; default all) are reset before their episodes ended.

        The next transition begins an episode there. Transitions whose targets needed what would have come are
        never sampled.
        """
        chosen: Any = slice(None) if rows is None else rows
        self._ready[chosen] = self._count[chosen]
        self._last_action[chosen] = EPISODE_START

    def sample(self, batch_size: int, importance_exponent: float) -> SequenceBatch:
        """Draw sequences by priority, with importance weights (N P(i))^-β, β = ``importance_exponent``.

        The same sequence may be drawn more than once. ``batch.observation`` lies in a buffer that the next call
        writes over; everything else is the caller's to keep.
        """
        if not 1 <= batch_size <= len(self):
            raise ValueError(
                f"batch_size={batch_size}, but the replay holds {len(self)} transitions whose targets are known: "
                "ask for at least 1 and at most that many, or collect more first"
            )
        leaf, probability = self._tree.sample(batch_size, self._generator)
        row, slot = np.divmod(leaf, self._length)
        start = self._oldest[row] + (slot - self._oldest[row]) % self._length
        padding_action = self._generator.integers(self.num_actions, size=(batch_size, self.unroll_length))
        targets = sequence_targets(
            self._ring,
            self._policies,
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
        """Set the priorities of sampled starts to their absolute value errors [N]; those gone since are ignored."""
        error = np.abs(torch.as_tensor(value_error).detach().cpu().numpy().astype(np.float64))
        if error.shape != np.shape(index):
            raise ValueError(f"value_error has shape {error.shape}, expected one per index: {np.shape(index)}")
        if not np.isfinite(error).all():
            raise ValueError(f"value_error {error[~np.isfinite(error)][0]} is not finite: the model has diverged")
        number, row = np.divmod(index, self.num_envs)
        if not (number < self._ready[row]).all():
            raise ValueError(f"index {index[number >= self._ready[row]][0]} has never been sampled from this replay")
        leaf = row * self._length + number % self._length
        held = (number >= self._oldest[row]) & (self._tree.leaves[leaf] > 0.0)
        priority = np.maximum(error, PRIORITY_FLOOR) ** self.priority_exponent
        self._tree.update(leaf[held], priority[held])

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on exactly. The arrays are live views of what is in use: write them out or copy them
        before the replay goes on."""
        used = min(int(self._count.max()), self._length)
        used_frames = min(int(self._frame_count.max()), self._frames.shape[1])
        return {
            "layout": dict(self._layout),
            "tree": self._tree.state_dict(),
            "ring": {name: self._ring[name][:, :used] for name in TRANSITION.names or ()},
            "policies": self._policies[:, :used],
            "frames": self._frames[:, :used_frames],
            "count": self._count,
            "frame_count": self._frame_count,
            "oldest": self._oldest,
            "ready": self._ready,
            "last_action": self._last_action,
            "generator": json.dumps(self._generator.bit_generator.state),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from ``state``, saved by a replay that was made with the same arguments."""
        if state["layout"] != self._layout:
            raise ValueError(
                f"a replay of layout {self._layout} cannot load a state of layout {state['layout']}: make it with the "
                "arguments of the saved one"
            )
        self._tree.load_state_dict(state["tree"])
        pairs = [(self._ring[name], state["ring"][name]) for name in TRANSITION.names or ()]
        for own, saved in [*pairs, (self._policies, state["policies"]), (self._frames, state["frames"])]:
            own[:, : saved.shape[1]] = saved
        for name in ("count", "frame_count", "oldest", "ready", "last_action"):
            getattr(self, f"_{name}")[:] = state[name]
        self._generator.bit_generator.state = json.loads(state["generator"])

    def _stacks(self, row: np.ndarray, frame: np.ndarray) -> torch.Tensor:
        """The observations [N, L+1, *observation_shape] whose newest frames are the numbers ``frame`` [N, L+1]."""
        num_frames, frame_bytes = self._frames.shape[1:]
        number = frame[..., None] + np.arange(1 - self.frame_stack, 1)  # [N, L+1, S]
        position = row[:, None, None] * num_frames + number % num_frames
        if len(self._observation_buffer) != position.size:
            self._observation_buffer = np.empty((position.size, frame_bytes), np.uint8)
        # mode="clip" lets NumPy write straight into the buffer; every position is in range.
        self._frames.reshape(-1, frame_bytes).take(position.ravel(), 0, self._observation_buffer, "clip")
        return torch.from_numpy(self._observation_buffer.view(self._dtype).reshape(*frame.shape, *self._shape))

    def _check(self, transition: RealTransition, starts: np.ndarray) -> None:
        """Raise an error that names what is wrong with ``transition``, in the rows where it is valid.

        Of the observations only those of ``starts`` [E] are looked into: the others have been seen before.
        """
        valid = transition.valid
        rows = (self.num_envs,)
        for name, used in (("observation", starts), ("next_observation", valid)):
            array, expected = getattr(transition, name), (self.num_envs, *self._shape)
            if array.shape != expected or array.dtype != self._dtype:
                raise ValueError(
                    f"{name} has shape {array.shape} and dtype {array.dtype}, expected {expected} and {self._dtype} "
                    "as in the observation space"
                )
            if self._bounds is not None and used.any():
                low, high = self._bounds
                array = array if used.all() else array[used]
                inside = (array >= low) & (array <= high)  # False for NaN
                if not inside.all():
                    raise ValueError(
                        f"{name} contains {array[~inside][0]}, outside the bounds that the observation space declares "
                        f"(low {low.min()}, high {high.max()}), or not finite: correct the environment or its space"
                    )
        for name in ("action", "root_value", "reward", "terminated", "truncated", "final_value"):
            array = getattr(transition, name)
            if array.shape != rows:
                raise ValueError(f"{name} has shape {array.shape}, expected one per environment: {rows}")
        for name in ("root_value", "reward", "final_value"):
            array = getattr(transition, name)
            if not np.isfinite(array[valid]).all():
                raise ValueError(f"{name} is not finite: {array}")
        action = transition.action
        if action.dtype.kind not in "iu" or ((action < 0) | (action >= self.num_actions))[valid].any():
            raise ValueError(f"action must hold integers from 0 to {self.num_actions - 1}, got {action.dtype} {action}")
        policy = transition.policy
        if policy is not None:
            if policy.shape != (self.num_envs, self.num_actions):
                raise ValueError(f"policy has shape {policy.shape}, expected {(self.num_envs, self.num_actions)}")
            total = policy.sum(axis=1)
            # Not (a & b) rather than a | b, so that NaN is caught.
            if not ((policy.min(axis=1) >= 0.0) & (np.abs(total - 1.0) < 1e-3))[valid].all():
                raise ValueError(f"policy must hold probabilities that sum to 1 in every row, got sums {total}")


def _bounds_to_check(space: Box | MultiBinary) -> tuple[np.ndarray, np.ndarray] | None:
    """The bounds that an observation of the right dtype could still violate, or None."""
    dtype: Any = space.dtype
    if isinstance(space, MultiBinary):
        return np.zeros(space.shape, dtype), np.ones(space.shape, dtype)
    limits: Any = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
    # Clipped to finite numbers, so that an unbounded space still refuses infinity.
    low, high = np.clip(space.low, limits.min, limits.max), np.clip(space.high, limits.min, limits.max)
    if dtype.kind != "f" and (low == limits.min).all() and (high == limits.max).all():
        return None
    return low, high
