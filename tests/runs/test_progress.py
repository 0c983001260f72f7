"""The panel lives in a terminal and leaves it clean; elsewhere there are plain lines."""

import io
import logging
import re
import sys

import pytest
from rich.console import Console

from thinker.runs import progress
from thinker.runs.progress import Progress

SHOW_CURSOR, HIDE_CURSOR = "\x1b[?25h", "\x1b[?25l"


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def plain(console_text):
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", console_text)


def terminal():
    return Console(file=io.StringIO(), force_terminal=True, width=100)


def test_the_panel_shows_everything_and_the_cursor_comes_back(clock):
    console = terminal()
    with Progress(10_000, "my-run", console=console) as shown:
        shown.update(0)
        clock[0] = 10
        shown.update(
            2_500, {"solve rate": "61 %", "loss/model": 0.0123456, "loss/agent": 12345.6, "steps/s/act": 800.0}
        )
    text = console.file.getvalue()
    assert text.index(HIDE_CURSOR) < text.index(SHOW_CURSOR)
    last = plain(text).split("my-run")[-1]
    for part in ("2,500 of 10,000 real steps", "25%", "0:10 so far, 0:30 left (250 steps/s)", "61 %", "MiB"):
        assert part in last
    assert re.search(r"loss +model 0.0123 +agent 12,346 ", last)
    assert re.search(r"steps/s +act 800", last)


def test_a_pause_does_not_count_as_time_of_training(clock):
    console = Console(file=io.StringIO())
    with Progress(1_000, "run", every=1.0, console=console) as shown:
        shown.update(0, {"phase": "training"})
        clock[0] = 10
        shown.update(100)
        with shown.pause("evaluation"):
            assert "phase evaluation" in console.file.getvalue().splitlines()[-1]
            clock[0] = 500
        clock[0] = 510
        shown.update(200)
        assert shown.steps_per_second == pytest.approx(10)
        assert shown.seconds_left == pytest.approx(80)
    assert "phase training" in console.file.getvalue().splitlines()[-1]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_an_exception_restores_the_terminal_and_passes_on(error):
    console, streams = terminal(), (sys.stdout, sys.stderr)
    with pytest.raises(error), Progress(10, "run", console=console) as shown:
        shown.update(1)
        raise error
    assert console.file.getvalue().rstrip().endswith(SHOW_CURSOR)
    assert (sys.stdout, sys.stderr) == streams


def test_log_messages_appear_above_the_panel_even_from_handlers_made_before():
    console = terminal()
    logger, handler = logging.getLogger(), logging.StreamHandler(sys.stderr)
    stream = handler.stream
    logger.addHandler(handler)
    try:
        with Progress(10, "run", console=console) as shown:
            shown.update(1)
            logger.warning("look here")
            print("and here")
        assert handler.stream is stream
    finally:
        logger.removeHandler(handler)
    text = plain(console.file.getvalue())
    assert "look here" in text
    assert "and here" in text


def test_without_a_terminal_there_is_a_line_every_so_often_and_one_at_the_end(clock):
    file = io.StringIO()
    with Progress(1000, "run", every=10, console=Console(file=file)) as shown:
        for second in range(25):
            clock[0] = second
            shown.update(second * 10, {"episode/return": 1.5})
    lines = file.getvalue().splitlines()
    assert "\x1b" not in file.getvalue()
    assert [re.search(r"run: (\d+) of 1,000", line).group(1) for line in lines] == ["0", "100", "200", "240"]
    assert "time left unknown" in lines[0]
    assert "1:30 left (10 steps/s) | episode/return 1.5 | memory" in lines[1]


def test_the_time_left_follows_the_recent_speed(clock):
    shown = Progress(100_000, "run", console=Console(file=io.StringIO()))
    step = 0
    for second in range(600):
        clock[0] = float(second)
        step += 100 if second < 300 else 10
        shown.update(step)
    assert shown.steps_per_second == pytest.approx(10)
    assert shown.seconds_left == pytest.approx((100_000 - step) / 10)
    assert len(shown._recent) < 100, "memory must not grow"


def test_a_resumed_run_does_not_count_the_steps_before_it(clock):
    shown = Progress(1000, "run", console=Console(file=io.StringIO()))
    shown.update(900)
    clock[0] = 10.0
    shown.update(910)
    assert shown.steps_per_second == pytest.approx(1)
    shown.update(1000)
    assert shown.seconds_left == 0


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (-0.5, "-0.5"), (1234567.8, "1,234,568"), (1e-5, "1.0e-05"), (float("nan"), "nan"), ("61 %", "61 %")],
)
def test_numbers_are_short(value, text):
    assert progress._format(value) == text


def test_durations_are_readable():
    assert [progress._duration(s) for s in (0, 59.6, 600, 36_061)] == ["0:00", "1:00", "10:00", "10:01:01"]
