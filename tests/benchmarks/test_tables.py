"""The tables of learning curves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.tables import interval, table


def write_run(root: Path, name: str, values: list[float]) -> None:
    (root / name).mkdir()
    lines = [{"step": 100 * (i + 1) + 4, "eval/solved": v, "time/core_minutes": i} for i, v in enumerate(values)]
    lines.insert(1, {"step": 150, "loss/policy": 1.0})
    (root / name / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_a_row_has_every_seed_their_mean_and_its_interval(tmp_path: Path) -> None:
    for name, values in {"a": [0.1, 0.3], "b": [0.2, 0.5], "c": [0.3, 0.7, 0.9]}.items():
        write_run(tmp_path, name, values)
    rows = table(["a", "b", "c"], tmp_path, "eval/solved", 100).splitlines()
    assert rows[0] == "| real steps | a | b | c | mean | core-minutes |"
    assert rows[2:] == [
        "| 100 | 0.10 | 0.20 | 0.30 | 0.20 ± 0.25 | 0.0 |",
        "| 200 | 0.30 | 0.50 | 0.70 | 0.50 ± 0.50 | 1.0 |",
    ]


def test_the_interval_is_that_of_students_t() -> None:
    mean, half = interval([0.8, 0.9, 1.0])
    assert mean == pytest.approx(0.9)
    assert half == pytest.approx(4.303 * 0.1 / 3**0.5)
