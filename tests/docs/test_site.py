"""The documentation site: every page is in it, links lead somewhere, the reference has every public name.

`mkdocs build --strict` in CI checks the rest.
"""

import importlib.util
from pathlib import Path

import pytest

import thinker
import thinker.planners

pytest.importorskip("mkdocs", reason="the extra [docs] is not installed")
yaml = pytest.importorskip("yaml", reason="the extra [docs] is not installed")
griffe = pytest.importorskip("griffe", reason="the extra [docs] is not installed")

ROOT = Path(__file__).parents[2]
REPOSITORY = "https://example.org/thinker"
spec = importlib.util.spec_from_file_location("hooks", ROOT / "docs" / "hooks.py")
hooks = importlib.util.module_from_spec(spec)
spec.loader.exec_module(hooks)


def pages_of(nav) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    return [page for entry in (nav.values() if isinstance(nav, dict) else nav) for page in pages_of(entry)]


def test_every_page_is_in_the_navigation():
    nav = pages_of(yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"])
    docs = ROOT / "docs"
    written = {page.relative_to(docs).as_posix() for page in docs.rglob("*.md")} | set(hooks.FROM_ROOT)
    assert written == set(nav)
    assert len(nav) == len(set(nav))


@pytest.mark.parametrize(
    ("place", "page", "text", "expected"),
    [
        ("docs/plans.md", "plans.md", "[more](agents.md#drc)", "[more](agents.md#drc)"),
        ("docs/plans.md", "plans.md", "[agents.md](agents.md)", "[Agents](agents.md)"),
        ("docs/plans.md", "plans.md", "[code](../src/thinker/a.py)", "[code](https://example.org/thinker/blob/main/src/thinker/a.py)"),
        ("docs/plans.md", "plans.md", "[log](../CHANGELOG.md)", "[log](changelog.md)"),
        ("docs/results/a.md", "results/a.md", "![a](a.png), [b](../paper.md)", "![a](a.png), [b](../paper.md)"),
        ("README.md", "index.md", "![a](docs/pictures/a.png)", "![a](pictures/a.png)"),
        ("README.md", "index.md", "[docs/agents.md](docs/agents.md)", "[Agents](agents.md)"),
        ("README.md", "index.md", "[paper](https://arxiv.org/abs/1)", "[paper](https://arxiv.org/abs/1)"),
        ("README.md", "index.md", "```\n[a](docs/b.md)\n```\n", "```\n[a](docs/b.md)\n```\n"),
    ],
)  # fmt: skip
def test_links_work_in_the_repository_and_on_the_site(place, page, text, expected):
    assert hooks.rewritten(text, place, page, REPOSITORY) == expected


def test_without_an_address_of_the_repository_links_to_files_become_text():
    assert hooks.rewritten("see [`a.py`](../src/a.py)", "docs/plans.md", "plans.md", None) == "see `a.py`"


def test_the_reference_has_every_public_name():
    listed = [name for package in hooks.REFERENCE for name in hooks.public_names(package)]
    assert len(listed) == len(set(listed))
    short = {name.rpartition(".")[2] for name in listed}
    assert short == ({*thinker.__all__, *thinker.planners.__all__} - {"__version__"})


def test_the_reference_shows_the_comments_of_fields():
    extensions = griffe.load_extensions(str(ROOT / "docs" / "field_comments.py"))
    loaded = griffe.load("thinker.interfaces", search_paths=[ROOT / "src"], extensions=extensions)
    shown = loaded["NodeOutput"].docstring.value
    assert "Attributes:" in shown
    assert "    policy: [B, A] probabilities" in shown
    assert "Attributes:" not in loaded["BoardStructure"].docstring.value  # its fields have docstrings
