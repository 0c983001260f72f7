"""Preallocated storage for one unroll of all environments, written by an actor and read by a learner.

A trajectory holds no state between updates: the actor keeps its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from thinker.agents.network import AgentInput, Memory
from thinker.errors import UserError
from thinker.interfaces import Decision


@dataclass(frozen=True)
class Unroll:
    """T consecutive steps of B environments, and one more step to bootstrap from. R: number of kinds of reward."""

    given: AgentInput  # [T + 1, B, ...]
    value: Tensor  # [T + 1, B, R] float32   predicted by the behaviour network
    action: Tensor  # [T, B, 2] int64        primary action, reset action
    log_prob: Tensor  # [T, B, 2] float32    of both actions under the behaviour policy
    reset_acts: Tensor  # [T, B] bool        imaginary steps on which the reset was not forced
    reward: Tensor  # [T, B, R] float32      for the action: real, planning
    terminated: Tensor  # [T, B] bool
    truncated: Tensor  # [T, B] bool
    final_value: Tensor  # [T, B, R] float32 value of the final observation where truncated, else 0
    memory: Memory  # [B, ...]               before the first step


class Trajectory:
    """Storage for unrolls of ``num_steps`` augmented steps of ``num_envs`` environments.

    Storage for observations is allocated on the first write, in their own dtype. Planes are stored channels-last, as
    the convolutions expect them.
    """

    def __init__(self, num_steps: int, num_envs: int, num_rewards: int, device: torch.device | None = None) -> None:
        if num_steps < 1:
            raise UserError(f"a trajectory needs at least one step, not {num_steps}")
        self.num_steps, self.num_envs = num_steps, num_envs
        self._written = 0

        def zeros(time: int, *shape: int, dtype: torch.dtype) -> Tensor:
            return torch.zeros(time, num_envs, *shape, dtype=dtype, device=device)

        steps, rows = num_steps, num_steps + 1
        self._observation: dict[str, Tensor] = {}
        self._unroll = Unroll(
            given=AgentInput(
                observation={},
                episode_start=zeros(rows, dtype=torch.bool),
                next_is_real=zeros(rows, dtype=torch.bool),
                last_action=zeros(rows, 3, dtype=torch.int64),
                last_reward=zeros(rows, num_rewards, dtype=torch.float32),
            ),
            value=zeros(rows, num_rewards, dtype=torch.float32),
            action=zeros(steps, 2, dtype=torch.int64),
            log_prob=zeros(steps, 2, dtype=torch.float32),
            reset_acts=zeros(steps, dtype=torch.bool),
            reward=zeros(steps, num_rewards, dtype=torch.float32),
            terminated=zeros(steps, dtype=torch.bool),
            truncated=zeros(steps, dtype=torch.bool),
            final_value=zeros(steps, num_rewards, dtype=torch.float32),
            memory={},
        )

    @classmethod
    def joined(cls, parts: Sequence[Trajectory]) -> Trajectory:
        """One complete trajectory with the environments of all ``parts``, which are complete and equally long."""
        if len(parts) == 1:
            return parts[0]
        if not all(part.is_complete and part.num_steps == parts[0].num_steps for part in parts):
            raise ValueError("only complete trajectories of the same length can be joined")
        whole = cls.__new__(cls)
        whole.num_steps, whole.num_envs = parts[0].num_steps, sum(part.num_envs for part in parts)
        whole._written = whole.num_steps
        unrolls = [part._unroll for part in parts]

        def join(tensors: Sequence[Tensor], dim: int = 1) -> Tensor:
            return torch.cat(tuple(tensors), dim)

        whole._observation = {key: join([part._observation[key] for part in parts]) for key in parts[0]._observation}
        inputs = [unroll.given for unroll in unrolls]
        names = [field.name for field in dataclasses.fields(AgentInput) if field.name != "observation"]
        rest = [field.name for field in dataclasses.fields(Unroll) if field.name not in ("given", "memory")]
        whole._unroll = Unroll(
            given=AgentInput(
                observation={}, **{name: join([getattr(given, name) for given in inputs]) for name in names}
            ),
            memory={key: join([unroll.memory[key] for unroll in unrolls], 0) for key in unrolls[0].memory},
            **{name: join([getattr(unroll, name) for unroll in unrolls]) for name in rest},
        )
        return whole

    @property
    def is_complete(self) -> bool:
        """Whether all steps of the unroll have been written; the next write starts a new unroll."""
        return self._written == self.num_steps

    def restart(self) -> None:
        """Discard the steps of an incomplete unroll: the next step does not follow them."""
        self._written = 0

    def write(
        self,
        given: AgentInput,
        memory: Memory,
        decision: Decision,
        *,
        reset_acts: Tensor,
        reward: Tensor,
        terminated: Tensor,
        truncated: Tensor,
        final_value: Tensor,
    ) -> None:
        """Add one step: the network's input, its ``memory`` before the step, its ``decision``, and the outcome."""
        if decision.log_prob is None or decision.value is None:
            raise UserError("only decisions with log_prob and value can be learned from; this actor provides none")
        if self.is_complete:
            self._written = 0
        if self._written == 0:
            self._unroll.memory.clear()
            self._unroll.memory.update(memory)
        t, unroll = self._written, self._unroll
        self._write_input(t, given, decision.value)
        unroll.action[t] = decision.actions
        unroll.log_prob[t] = decision.log_prob
        unroll.reset_acts[t] = reset_acts
        unroll.reward[t] = reward
        unroll.terminated[t] = terminated
        unroll.truncated[t] = truncated
        unroll.final_value[t] = final_value
        self._written += 1

    def write_last(self, given: AgentInput, value: Tensor) -> None:
        """Add the network's input after the last step and its value, to bootstrap from."""
        self._write_input(self.num_steps, given, value)

    def _write_input(self, t: int, given: AgentInput, value: Tensor) -> None:
        for key, seen in given.observation.items():
            stored_value = _stored(seen)
            if key not in self._observation:
                size = (self.num_steps + 1, *stored_value.shape)
                self._observation[key] = torch.zeros(size, dtype=seen.dtype, device=seen.device)
            self._observation[key][t].copy_(stored_value)
        stored = self._unroll.given
        stored.episode_start[t] = given.episode_start
        stored.next_is_real[t] = given.next_is_real
        stored.last_action[t] = given.last_action
        stored.last_reward[t] = given.last_reward
        self._unroll.value[t] = value

    def read(self, environments: Tensor | None = None) -> Unroll:
        """The unrolls of the ``environments`` [B], or of all (without copying)."""

        def chosen(x: Tensor) -> Tensor:
            return x if environments is None else x.index_select(1, environments)

        unroll = self._unroll
        given = unroll.given.map(chosen)
        given.observation.update({key: _seen(chosen(x)) for key, x in self._observation.items()})
        memory = unroll.memory
        return Unroll(
            given=given,
            value=chosen(unroll.value),
            action=chosen(unroll.action),
            log_prob=chosen(unroll.log_prob),
            reset_acts=chosen(unroll.reset_acts),
            reward=chosen(unroll.reward),
            terminated=chosen(unroll.terminated),
            truncated=chosen(unroll.truncated),
            final_value=chosen(unroll.final_value),
            memory=memory if environments is None else {key: x[environments] for key, x in memory.items()},
        )


def _stored(seen: Tensor) -> Tensor:
    """Planes [..., C, H, W] as stored, [..., H, W, C]; everything else unchanged."""
    return seen.movedim(-3, -1) if seen.ndim >= 4 else seen


def _seen(stored: Tensor) -> Tensor:
    return stored.movedim(-1, -3) if stored.ndim >= 5 else stored
