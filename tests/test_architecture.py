"""Rules of the layout that import-linter cannot see."""

import ast
import importlib
from pathlib import Path

import pytest

import thinker

SOURCE = Path(thinker.__file__).parent
FAMILIES = ("sokoban", "boxoban")
MAY_NAME_A_FAMILY = (
    "envs/",
    "runs/presets.py",
    "runs/registry.py",
    "viewer/demo",
    "viewer/export_demo.py",
    "experiments/catalogue/",  # the paper's experiments are about these
)
REGISTRIES = {"cli/__init__.py": 2}  # lines that name the command of a family
LONGEST_FILE = 450


def sources(suffixes=(".py", ".js", ".html", ".css")):
    return [path for path in SOURCE.rglob("*") if path.suffix in suffixes]


def test_only_their_own_rooms_presets_and_the_demo_mention_an_environment_family():
    for path in sources():
        name = path.relative_to(SOURCE).as_posix()
        if name.startswith(MAY_NAME_A_FAMILY):
            continue
        lines = [
            line for line in path.read_text(encoding="utf-8").lower().splitlines() if any(f in line for f in FAMILIES)
        ]
        assert len(lines) <= REGISTRIES.get(name, 0), f"{name}: {lines}"


def test_no_file_has_grown_past_one_sitting():
    assert {
        path.name: lines for path in sources((".py",)) if (lines := len(path.read_text().splitlines())) > LONGEST_FILE
    } == {}


def test_every_public_name_can_be_imported_and_no_other():
    assert set(thinker.__all__) <= set(dir(thinker))
    for name in thinker.__all__:
        assert getattr(thinker, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = thinker.nothing


@pytest.mark.parametrize(
    "room", ["agents", "augmented", "cli", "envs", "experiments", "nn", "planners", "runs", "viewer", "world_model"]
)
def test_every_room_says_what_it_is(room):
    assert importlib.import_module(f"thinker.{room}").__doc__


def test_every_module_begins_with_what_lives_there():
    for path in sources((".py",)):
        assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), path
