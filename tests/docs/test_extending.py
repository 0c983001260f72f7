"""The examples of docs/extending.md are complete, short, and work as printed."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[2] / "docs" / "extending.md"
LONGEST = 60
EXPECTED = {
    "A new agent": "mean return of held-out episodes:",
    "A new planner": "mean return with planning:",
    "A new world model": "mean return of held-out episodes:",
    "A new environment": "solved",
}


def example(title: str) -> str:
    section = re.search(rf"^## {title}$(.*?)(?=^## |\Z)", GUIDE.read_text(encoding="utf-8"), re.M | re.S)
    assert section is not None, f"{GUIDE} has no section {title!r}"
    (code,) = re.findall(r"^```python\n(.*?)^```$", section.group(1), re.M | re.S)
    return code


@pytest.mark.parametrize("title", EXPECTED)
def test_an_example_has_at_most_60_lines(title):
    assert len(example(title).splitlines()) <= LONGEST


@pytest.mark.slow
@pytest.mark.parametrize("title", EXPECTED)
def test_an_example_runs_as_printed(title, tmp_path):
    (tmp_path / "example.py").write_text(example(title), encoding="utf-8")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "example.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert EXPECTED[title] in done.stdout
    if title == "A new agent":
        command = [sys.executable, "-m", "thinker", "--plugin", "example", "eval", "tiny-agent", "--episodes", "4"]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        assert "4 test episodes" in done.stdout
