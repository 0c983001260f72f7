"""Messages return what was sent, share its memory, and transitions of several workers are stored as if of one."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

pytest.importorskip("ray", reason="needs Ray: pip install 'thinker[ray]'")

from tests.runs.support import differences, tiny
from thinker.interfaces import RealTransition
from thinker.runs.build import build_run
from thinker.runs.engines.ray.message import Message, pack, unpack, unpack_copy
from thinker.runs.engines.ray.parts import merged, store_merged
from thinker.runs.worker import TransitionBuffer


def test_all_kinds_of_tensors_and_arrays_come_back():
    sent = {
        "half": torch.arange(6, dtype=torch.float16).reshape(2, 3),
        "bfloat16": torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
        "channels_last": torch.rand(2, 3, 4, 5).contiguous(memory_format=torch.channels_last),
        "number": torch.tensor(3),
        "empty": torch.zeros(0, 4),
        "parameter": torch.nn.Parameter(torch.ones(3)),
        "array": np.arange(12, dtype=np.int64).reshape(3, 4),
        "nothing": np.zeros(0, np.float32),
        "rest": (1, "two", None, [True]),
    }
    for received in (unpack(pack(sent)), unpack_copy(pack(sent))):
        assert received.keys() == sent.keys()
        for name, value in sent.items():
            if isinstance(value, torch.Tensor):
                assert received[name].dtype == value.dtype, name
                assert torch.equal(received[name], value.detach()), name
                assert not received[name].requires_grad
            elif isinstance(value, np.ndarray):
                assert np.array_equal(received[name], value)
            else:
                assert received[name] == value


def test_large_data_is_not_copied_into_the_header_but_copies_are_independent():
    tensor, array = torch.zeros(10_000), np.zeros(10_000)
    message = pack([tensor, array])
    assert len(message.header) < 1000
    assert message.nbytes == pytest.approx(tensor.nbytes + array.nbytes, rel=0.02)
    shared, copied = unpack(message), unpack_copy(message)
    tensor += 1
    array += 1
    assert shared[0].sum() == shared[1].sum() == 10_000
    assert copied[0].sum() == copied[1].sum() == 0
    copied[0] += 1  # memory of its own, which can be written to


def test_the_memory_of_ray_is_read_only_and_still_readable():
    message = pack(torch.ones(4))
    frozen = [buffer.copy() for buffer in message.buffers]
    for buffer in frozen:
        buffer.flags.writeable = False
    assert unpack(Message(message.header, frozen)).sum() == 4


def transition(number: int, envs: int, first_env: int = 0) -> RealTransition:
    """Step ``number`` of environments that count the steps of their episodes, of four steps each."""
    which = np.arange(first_env, first_env + envs)
    seen = np.stack((which, np.full(envs, number % 4), np.zeros(envs), np.zeros(envs)), 1).astype(np.float32)
    after = seen + np.array([0, 1, 0, 0], np.float32)
    return RealTransition(
        observation=seen,
        action=which % 2,
        policy=np.full((envs, 2), 0.5, np.float32),
        root_value=which.astype(np.float32),
        reward=np.full(envs, number, np.float32),
        terminated=np.full(envs, number % 4 == 3),
        truncated=np.zeros(envs, bool),
        next_observation=after,
        final_value=np.zeros(envs, np.float32),
        valid=np.ones(envs, bool),
    )


def rows_of(item: RealTransition, rows: slice) -> RealTransition:
    fields = [name for name in RealTransition.__dataclass_fields__ if name != "random_play"]
    return dataclasses.replace(item, **{name: getattr(item, name)[rows] for name in fields})


def test_the_steps_of_two_workers_are_stored_as_those_of_one():
    settings = dataclasses.replace(tiny("cartpole", device="cpu"), num_envs=4)
    whole, parts = (build_run(settings, num_envs=1).trainer for _ in range(2))
    steps = [transition(number, 4) for number in range(12)]
    for step in steps:
        whole.store(step)
    halves = {
        worker: (
            np.arange(2 * worker, 2 * worker + 2),
            [None, *(rows_of(one, slice(2 * worker, 2 * worker + 2)) for one in steps)],
        )
        for worker in range(2)
    }
    store_merged(parts, halves)
    assert differences(whole.state_dict(), parts.state_dict()) == []
    # One worker is ahead, and the other one starts again in the middle of its episodes.
    store_merged(parts, {1: (np.arange(2, 4), [transition(0, 2, 2), None, transition(0, 2, 2)])})
    assert parts.collected_transitions == 4 * 12 + 2 * 2


def test_rows_that_no_worker_sent_are_not_valid():
    step = merged([(np.array([2, 3]), transition(1, 2, 2))], 6)
    assert step.valid.tolist() == [False, False, True, True, False, False]
    assert step.observation.shape == (6, 4)
    assert step.observation[3, 0] == 3


def test_a_buffer_survives_the_way():
    buffer = TransitionBuffer()
    buffer.abandon_episodes()
    buffer.add(transition(0, 3))
    received: list = []
    unpack(pack(buffer)).deliver(received.append, lambda: received.append(None))
    assert received[0] is None
    assert np.array_equal(received[1].reward, transition(0, 3).reward)
