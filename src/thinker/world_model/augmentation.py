"""Random symmetries of the board for the sequences that a world model is trained on."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import numpy as np
import torch

from thinker.interfaces import NO_ACTION
from thinker.nn.symmetry import BoardSymmetries
from thinker.world_model.batch import SequenceBatch


class SymmetricBatches:
    """Turns and mirrors every sequence of a batch by a random one of the board's symmetries.

    Each symmetry permutes the numbers of an observation and the actions. The permutations are computed once, so that a
    batch takes one lookup for each of its fields.
    """

    def __init__(
        self, symmetries: BoardSymmetries, observation_shape: tuple[int, ...], num_actions: int, seed: int
    ) -> None:
        numbers = torch.arange(math.prod(observation_shape)).reshape(observation_shape)
        actions = torch.arange(num_actions)
        every = range(symmetries.COUNT)
        # Entry i of a turned observation or policy is entry source[which, i] of the original one.
        self._number_source = torch.stack([symmetries.observation(numbers, which).flatten() for which in every])
        self._policy_source = torch.stack([symmetries.policy(actions, which) for which in every])
        # The last column, which the index -1 means, is for NO_ACTION.
        with_none = torch.cat((actions, torch.tensor([NO_ACTION])))
        self._turned_action = torch.stack([symmetries.action(with_none, which) for which in every])
        self._generator = np.random.Generator(np.random.PCG64(seed))

    def __call__(self, batch: SequenceBatch) -> SequenceBatch:
        """A batch on the CPU with new observations, actions and policies; all else is shared."""
        number = len(batch.last_action)
        which = torch.from_numpy(self._generator.integers(len(self._number_source), size=number))
        return self.transformed(batch, which)

    def transformed(self, batch: SequenceBatch, which: torch.Tensor) -> SequenceBatch:
        """Apply symmetry ``which[n]`` to sequence n."""
        numbers, row = batch.observation.flatten(2), which.unsqueeze(1)
        source = self._number_source[row].expand_as(numbers)
        policy_source = self._policy_source[row].expand_as(batch.policy_target)
        return dataclasses.replace(
            batch,
            observation=numbers.gather(2, source).view_as(batch.observation),
            last_action=self._turned_action[which, batch.last_action],
            action=self._turned_action[row, batch.action],
            policy_target=batch.policy_target.gather(2, policy_source),
        )

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to continue exactly."""
        return {"generator": json.dumps(self._generator.bit_generator.state)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from ``state``."""
        self._generator.bit_generator.state = json.loads(state["generator"])
