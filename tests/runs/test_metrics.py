"""A resumed run's metrics are those of an unbroken one, and can be read at any moment."""

import json
import math

import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.summary.writer import event_file_writer

from thinker.runs.metrics import MetricsWriter, read_metrics


def values(step):
    return {"loss/model": step / 7, "episode/solved": 1 / (1 + step), "count": step}


def without_clock(lines):
    return [{name: value for name, value in line.items() if name != "minutes"} for line in lines]


def scalars(folder, name):
    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    return [(event.step, pytest.approx(event.value, rel=1e-6)) for event in events.Scalars(name)]


def test_lines_are_on_the_disk_at_once_and_floats_are_exact(tmp_path):
    with MetricsWriter(tmp_path) as writer:
        writer.write(5, {"a": 0.1, "b": np.float32(0.1), "c": torch.tensor(2.5), "d": np.int64(3), "e": 4})
        (line,) = read_metrics(tmp_path)
        assert list(line) == ["step", "minutes", "a", "b", "c", "d", "e"]
        assert without_clock([line]) == [{"step": 5, "a": 0.1, "b": float(np.float32(0.1)), "c": 2.5, "d": 3.0, "e": 4}]
    assert scalars(tmp_path, "c") == [(5, 2.5)]


def test_a_resumed_run_has_the_lines_of_an_unbroken_one(tmp_path, monkeypatch):
    # TensorBoard sorts the files of one second and one process by a counter, as text: 10 comes before 9.
    monkeypatch.setattr(event_file_writer, "_global_uid", event_file_writer.AtomicCounter(100))
    unbroken, broken = tmp_path / "unbroken", tmp_path / "broken"
    steps = [0, 10, 20, 20, 30, 40, 50, 60]
    with MetricsWriter(unbroken) as writer:
        for step in steps:
            writer.write(step, values(step))
    for start, resume_step, stop in [(0, None, 4), (0, None, 6), (4, 25, 7), (4, 20, 5), (5, 30, 8)]:
        with MetricsWriter(broken, resume_step) as writer:
            for step in steps[start:stop]:
                writer.write(step, values(step))
    assert without_clock(read_metrics(broken)) == without_clock(read_metrics(unbroken))
    with open(broken / "metrics.jsonl", "rb") as left, open(unbroken / "metrics.jsonl", "rb") as right:
        assert len(left.readlines()) == len(right.readlines())
    assert [step for step, _ in scalars(broken, "count")] == steps
    assert scalars(broken, "loss/model") == [(step, step / 7) for step in steps]


def test_minutes_go_on_over_a_resume_and_may_be_given(tmp_path, monkeypatch):
    clock = [1000.0]
    monkeypatch.setattr("thinker.runs.metrics.time.monotonic", lambda: clock[0])
    with MetricsWriter(tmp_path) as writer:
        for step in (1, 2, 3):
            clock[0] += 60
            writer.write(step, {})
    clock[0] += 5000
    with MetricsWriter(tmp_path, resume_step=2) as writer:
        clock[0] += 30
        writer.write(3, {})
        writer.write(4, {"minutes": 77.0})
    assert [line["minutes"] for line in read_metrics(tmp_path)] == [1, 2, 2.5, 77]


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_half_written_last_line_is_ignored_and_removed_by_the_resumed_run(tmp_path, cut):
    with MetricsWriter(tmp_path) as writer:
        for step in (1, 2, 3):
            writer.write(step, {})
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(path.read_bytes()[:-cut])
    assert [line["step"] for line in read_metrics(tmp_path)] == [1, 2]
    with MetricsWriter(tmp_path, resume_step=3) as writer:
        writer.write(4, {})
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [1, 2, 4]


def test_numbers_that_json_does_not_know_are_null_in_the_file_and_nan_when_read(tmp_path):
    with MetricsWriter(tmp_path) as writer:
        writer.write(1, {"a": math.nan, "b": math.inf, "c": 1.0})
    text = (tmp_path / "metrics.jsonl").read_text()
    assert json.loads(text, parse_constant=pytest.fail)["a"] is None
    (line,) = read_metrics(tmp_path)
    assert math.isnan(line["a"])
    assert math.isnan(line["b"])
    assert line["c"] == 1.0


def test_a_damaged_line_in_the_middle_is_named(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "minutes": 0}\n{"ste\n{"step": 3, "minutes": 0}\n')
    with pytest.raises(ValueError, match=r"line 2 of .*metrics.jsonl is damaged"):
        read_metrics(tmp_path)


def test_steps_that_fall_and_the_name_step_are_refused(tmp_path):
    with MetricsWriter(tmp_path) as writer:
        writer.write(5, {})
        with pytest.raises(ValueError, match="step=4 comes after step 5"):
            writer.write(4, {})
        with pytest.raises(ValueError, match="'step' cannot be the name of a metric"):
            writer.write(6, {"step": 1})
    with MetricsWriter(tmp_path, resume_step=5) as writer, pytest.raises(ValueError, match="after step 5"):
        writer.write(4, {})


def test_a_run_without_metrics_has_none(tmp_path):
    assert read_metrics(tmp_path) == []
