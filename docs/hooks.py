"""What mkdocs does besides turning Markdown into pages; see mkdocs.yml.

The pages are written for reading in the repository. Here the README, the changelog and the guide for contributors
become pages as well, the API reference is made from the public names, and links are rewritten: to files that are no
pages, they point to the repository (`repo_url`), or are left out if it is not known.
"""

from __future__ import annotations

import importlib
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
FROM_ROOT = {"index.md": "README.md", "changelog.md": "CHANGELOG.md", "contributing.md": "CONTRIBUTING.md"}
"""Pages of the site -> files of the repository."""
REFERENCE = {
    "augmented": "The augmented environment",
    "interfaces": "Interfaces",
    "runs": "Runs",
    "envs": "Environments",
    "world_model": "World models",
    "nn": "Sizes of networks",
    "agents": "Agents",
    "planners": "Planners",
    "viewer": "Viewer",
    "errors": "Errors",
}
"""The pages of the API reference: packages of `thinker`, and titles."""
_LINK = re.compile(r"(?P<picture>!?)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s#]+)(?P<anchor>#[^)\s]*)?\)")
_CODE = re.compile(r"^```.*?^```", re.M | re.S)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Complete the navigation: results of experiments that it does not list yet, and the reference."""
    assert config.nav is not None
    results = _section(config.nav, "Results")
    written = sorted(f"results/{path.name}" for path in Path(config.docs_dir, "results").glob("*.md"))
    results.extend(page for page in written if page not in results)
    _section(config.nav, "API reference").extend(
        {heading: f"reference/{name}.md"} for name, heading in REFERENCE.items()
    )
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not in the docs folder."""
    for page, source in FROM_ROOT.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    for package, heading in REFERENCE.items():
        page = File.generated(config, f"reference/{package}.md", content=reference(package, heading))
        files.append(page)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite the links of a page."""
    place = FROM_ROOT.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    return rewritten(markdown, place, page.file.src_uri, config.repo_url)


def rewritten(markdown: str, place: str, page: str, repository: str | None) -> str:
    """``markdown`` with links that work on the site.

    Args:
        markdown: the text of a file of the repository.
        place: the path of that file.
        page: the path of its page on the site.
        repository: address of the repository, if it is known.
    """

    def link(found: re.Match[str]) -> str:
        target, text = found["target"], found["text"]
        if ":" in target:
            return found[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(place), target))
        new = next((one for one, source in FROM_ROOT.items() if source == path), None)
        if new is None and path.startswith("docs/"):
            new = path.removeprefix("docs/")
        if new is not None:
            if text in (target, path) and path.endswith(".md"):
                text = title(path)  # a page, not a file
            relative = posixpath.relpath(new, posixpath.dirname(page) or ".")
            return f"{found['picture']}[{text}]({relative}{found['anchor'] or ''})"
        return f"[{text}]({repository.rstrip('/')}/blob/main/{path})" if repository else text

    parts, end = [], 0
    for code in _CODE.finditer(markdown):
        parts += [_LINK.sub(link, markdown[end : code.start()]), code[0]]
        end = code.end()
    return "".join([*parts, _LINK.sub(link, markdown[end:])])


def title(path: str) -> str:
    """The title of a page, by the path of its file."""
    found = re.search(r"^# (.*)$", (ROOT / path).read_text(encoding="utf-8"), re.M)
    return found[1] if found else path


def reference(package: str, heading: str) -> str:
    """The page of the public names of a package."""
    lines = [f"# {heading}", ""]
    for name in public_names(package):
        lines += [f"::: {name}", ""]
    return "\n".join(lines)


def public_names(package: str) -> list[str]:
    """Where the public names of ``package`` are defined: those of `thinker`, and of planners all.

    The reference shows where things live, but all names of `thinker` can be imported from there.
    """
    public = importlib.import_module("thinker")._PUBLIC
    chosen = {module: names for module, names in public.items() if module.split(".")[1] == package}
    if package == "planners":
        chosen = {"thinker.planners": importlib.import_module("thinker.planners").__all__}
    found = []
    for module, names in chosen.items():
        for name in names:
            value = getattr(importlib.import_module(module), name)
            found.append(f"{getattr(value, '__module__', module)}.{name}")
    return found


def _section(nav: list[Any], heading: str) -> list[Any]:
    """A section of the navigation."""
    found: list[Any] = next(entry[heading] for entry in nav if isinstance(entry, dict) and heading in entry)
    return found
