"""The order of unrolls bounds how old their weights are, whoever is fast or slow and whoever fails."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("ray", reason="needs Ray: pip install 'thinker[ray]'")

from ray.exceptions import RayError

from tests.runs.support import tiny
from thinker.errors import UserError
from thinker.runs.engines.ray import pool as pool_module
from thinker.runs.engines.ray.parts import Weights
from thinker.runs.engines.ray.pool import WorkerPool, worker_seed
from thinker.runs.engines.ray.spec import RaySpec
from thinker.runs.settings import LARGEST_SEED


class FakeRay:
    """References are numbers; some of them fail."""

    def __init__(self) -> None:
        self.started, self.failing = 0, set[int]()

    def get(self, reference: int) -> str:
        if reference in self.failing:
            raise RayError("gone")
        return "report"

    def kill(self, actor: object) -> None:
        pass

    def call(self, actor: object) -> tuple[int, str, str]:
        self.started += 1
        return self.started, "trajectory", "transitions"


class FakePool(WorkerPool):
    def _new(self, index: int) -> object:  # type: ignore[override]
        return object()


def make_pool(workers: int, monkeypatch, retries: int = 1000) -> tuple[WorkerPool, FakeRay]:
    fake = FakeRay()
    monkeypatch.setattr(pool_module, "ray", fake)
    return FakePool(tiny("sokoban-raw"), RaySpec(workers=workers, worker_retries=retries)), fake


@given(st.integers(1, 5), st.integers(0, 3), st.lists(st.tuples(st.integers(0, 10**6), st.booleans()), max_size=200))
def test_weights_are_never_older_than_the_bound(workers, staleness, events):
    with pytest.MonkeyPatch.context() as monkeypatch:
        pool, fake = make_pool(workers, monkeypatch)
        version, learning, delivered = 0, None, []
        for choice, fails in events:
            # As in the engine: while a batch is learned from, fewer unrolls may be pending.
            limit = (staleness + (learning is None)) * workers
            pool.start(limit, Weights(version, 0), fake.call)
            assert len(pool.pending) <= (staleness + 1) * workers
            if learning is None and (learning := pool.take(workers)) is not None:
                assert all(0 <= version - unroll.weights.agent_version <= staleness for unroll in learning)
                delivered += [unroll.references[0] for unroll in learning]
            options = [*pool.running, *(["learned"] if learning is not None else [])]
            if not options:
                continue
            event = options[choice % len(options)]
            if event == "learned":
                version, learning = version + 1, None
                continue
            if fails:
                fake.failing.add(event)
            pool.receive(event)
        assert len(delivered) == len(set(delivered))
        assert not fake.failing & set(delivered)
        assert pool.lost_unrolls == len(fake.failing)


def test_a_worker_that_always_fails_ends_the_run_and_one_success_is_enough_to_go_on(monkeypatch):
    pool, fake = make_pool(1, monkeypatch, retries=2)
    for reference in range(1, 9):
        pool.start(1, Weights(0, 0), fake.call)
        if reference % 3:  # two failures, then a success
            fake.failing.add(reference)
        pool.receive(reference)
        if reference % 3 == 0:
            assert pool.take(1) is not None
    assert pool.lost_unrolls == 6
    pool.start(1, Weights(0, 0), fake.call)
    fake.failing.add(9)
    with pytest.raises(UserError, match="worker 0 failed 3 times in a row"):
        pool.receive(9)


def test_workers_and_their_replacements_see_different_episodes():
    seeds = [worker_seed(7, index, incarnation) for index in range(20) for incarnation in range(5)]
    assert worker_seed(7, 0, 0) == 7  # the run of one worker is that of the local engine
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < LARGEST_SEED for seed in seeds)
