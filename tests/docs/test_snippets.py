"""What README and docs show works: code runs, commands parse, and files that are mentioned exist."""

import functools
import inspect
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import tyro

from thinker.cli import main

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
OLD_COMMANDS = ("notebook.md",)  # commands as they were at the time
OWN_TEST = ("extending.md",)  # its code is run by test_extending.py
PLACEHOLDERS = {"S": "0", "K": "5", "PRESET": "cartpole"}
NOT_IN_SOURCE = ("tests/", "examples/", "benchmarks/", "docs/")


def name_of(page: Path) -> str:
    return page.name


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(encoding="utf-8"), re.M | re.S)


def inline_code(page: Path) -> list[str]:
    without_blocks = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    return [re.sub(r"\s+", " ", code) for code in re.findall(r"`([^`]+)`", without_blocks)]


# ---------------------------------------------------------------------------------------------------------- Python

PAGES_WITH_CODE = [page for page in PAGES if page.name not in OWN_TEST and blocks(page, "python")]
EXPECTED_OUTPUT = {
    "README.md": "loss/",
    "own_environment.md": "base policy: mean return",
    "own_algorithm.md": "loss/",
    "planners.md": "square 8: go right",
}


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES_WITH_CODE, ids=name_of)
def test_the_code_of_a_page_runs_from_top_to_bottom(page, tmp_path):
    script = []
    for code in blocks(page, "python"):
        file = re.match(r"# (\w+\.py)\n", code)
        if file:  # the page says under which name to save it
            (tmp_path / file[1]).write_text(code, encoding="utf-8")
        else:
            script.append(code)
    (tmp_path / "page.py").write_text("\n".join(script), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "page.py"],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert EXPECTED_OUTPUT.get(page.name, "") in done.stdout


# -------------------------------------------------------------------------------------------------------- commands


def shell_commands(page: Path) -> list[list[str]]:
    """All commands of a page's bash blocks and of its inline code, split into words.

    Inline code of one or two words, like `thinker eval`, only names a command.
    """
    lines = [line for code in blocks(page, "bash") for line in code.replace("\\\n", " ").splitlines()]
    lines += [code for code in inline_code(page) if re.match(r"(thinker|python) \S+ \S+", code)]
    commands = []
    for line in lines:
        words: list[str] = []
        for word in [*shlex.split(line, comments=True), "&&"]:
            if word != "&&":
                words.append(PLACEHOLDERS.get(word, word))
            elif words:
                commands.append(words)
                words = []
    return commands


class Parsed(Exception):  # noqa: N818 - not an error
    """The arguments of a command were understood."""


@pytest.fixture
def parse_only(monkeypatch):
    """Lets `thinker` commands stop when their arguments are parsed."""
    cli = tyro.cli

    def parse(entry, *arguments, **options):
        if inspect.isfunction(entry):
            entry = functools.wraps(entry)(lambda *_, **__: None)
        cli(entry, *arguments, **options)
        raise Parsed

    monkeypatch.setattr(tyro, "cli", parse)


@pytest.mark.parametrize("page", [page for page in PAGES if page.name not in OLD_COMMANDS], ids=name_of)
def test_the_commands_of_a_page_parse(page, parse_only, capsys):
    for words in shell_commands(page):
        if words[0] != "thinker" or "..." in words or "--plugin" in words:  # a plugin is the reader's own file
            continue
        try:
            status = main(words[1:])
        except Parsed:
            continue
        except SystemExit as stopped:
            status = stopped.code
        assert status == 0, f"{page.name}: {shlex.join(words)}\n{''.join(capsys.readouterr())}"


def test_a_command_with_a_wrong_option_does_not_parse(parse_only):
    with pytest.raises(SystemExit):
        main(["eval", "run", "--levels", "300"])
    with pytest.raises(SystemExit):
        main(["train", "cartpole", "--model.kind", "dual-l2"])


@pytest.mark.parametrize("page", [page for page in PAGES if page.name not in OLD_COMMANDS], ids=name_of)
def test_python_files_that_a_page_runs_exist(page):
    for words in shell_commands(page):
        if words[0] != "python":
            continue
        file = f"{words[2].replace('.', '/')}.py" if words[1] == "-m" else words[1]
        assert (ROOT / file).is_file() or (ROOT / "src" / file).is_file(), f"{page.name}: {shlex.join(words)}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_extras_that_a_page_installs_exist(page):
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for extra in re.findall(r"(?:\.|thinker)\[(\w+)\]", page.read_text(encoding="utf-8")):
        assert re.search(rf"^{extra} = \[", project, re.M), f"{page.name}: {extra}"


# --------------------------------------------------------------------------------------------- links and file names


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md"], ids=name_of)
def test_local_links_and_pictures_exist(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target.partition("#")[0]).exists(), f"{page.name}: {target}"


@pytest.mark.parametrize("name", ["architecture.md", "paper.md", "plans.md", "extending.md", "planners.md"])
def test_source_files_that_a_page_names_exist(name):
    page = ROOT / "docs" / name
    for code in inline_code(page):
        path, _, test = code.partition("::")
        if not re.fullmatch(r"[a-z_]+/([a-z_0-9]+/)*([a-z_0-9]+\.py)?", path):
            continue
        from_root = path.startswith((*NOT_IN_SOURCE, "src/"))
        file = ROOT / path if from_root else ROOT / "src" / "thinker" / path
        assert file.exists(), f"{name}: {path}"
        assert not test or f"def {test}(" in file.read_text(encoding="utf-8"), f"{name}: {code}"


def test_the_picture_of_the_architecture_names_every_package():
    picture = (ROOT / "docs" / "pictures" / "architecture.svg").read_text(encoding="utf-8")
    packages = [path.parent.name for path in (ROOT / "src" / "thinker").glob("*/__init__.py")]
    assert [name for name in packages if f">{name}<" not in picture] == []
