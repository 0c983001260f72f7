"""One Ray cluster for all tests of this folder, small and without a dashboard."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

STORE_BYTES = 80 << 20
"""Of the object store: nearly the smallest that Ray accepts."""


@pytest.fixture(scope="session")
def cluster() -> Iterator[None]:
    ray = pytest.importorskip("ray", reason="needs Ray: pip install 'thinker[ray]'")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray.init(
        "local",
        num_cpus=8,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        object_store_memory=STORE_BYTES,
    )
    yield
    ray.shutdown()
