"""Writes an analysis to a folder: a page that needs nothing else, its figures as PNGs, and all numbers as JSON."""

from __future__ import annotations

import base64
import html
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from thinker.experiments.behaviour.analysis import Analysis
from thinker.experiments.behaviour.figures import png
from thinker.experiments.behaviour.findings import Finding

PAGE, NUMBERS = "report.html", "numbers.json"

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2.5rem; }
table { border-collapse: collapse; } th { text-align: left; font-weight: 600; padding-right: 1.5rem; }
figure { margin: 0; } img { max-width: 100%; height: auto; } figcaption p { margin: 0.4rem 0; }
.verdict { border-radius: 0.3rem; padding: 0.1rem 0.5rem; background: #eee; white-space: nowrap; }
"""
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def write_report(analysis: Analysis, folder: Path) -> Path:
    """Write `PAGE`, `NUMBERS` and a PNG for each figure to ``folder``, which is created; returns the page."""
    folder.mkdir(exist_ok=True)
    figures = {finding.name: png(finding) for finding in analysis.findings}
    for name, picture in figures.items():
        (folder / f"{name}.png").write_bytes(picture)
    (folder / NUMBERS).write_text(json.dumps(numbers(analysis), indent=1, allow_nan=False) + "\n", encoding="utf-8")
    page = folder / PAGE
    page.write_text(page_text(analysis, figures), encoding="utf-8")
    return page


def numbers(analysis: Analysis) -> dict[str, Any]:
    """All numbers and sentences of ``analysis``, for JSON; numbers that are not finite are None."""
    findings = {
        finding.name: {
            "title": finding.title,
            "paper": finding.paper,
            "here": finding.here,
            "verdict": finding.verdict,
            **finding.numbers,
        }
        for finding in analysis.findings
    }
    plain: dict[str, Any] = _plain({"settings": analysis.settings, "figures": findings})
    return plain


def page_text(analysis: Analysis, figures: Mapping[str, bytes]) -> str:
    """The HTML document with the PNGs ``figures`` by the names of their findings."""
    title = html.escape(f"What the agent of {analysis.settings['run']} learned")
    rows = "\n".join(
        f"<tr><th>{html.escape(name.replace('_', ' '))}</th><td>{html.escape(_shown(value))}</td></tr>"
        for name, value in analysis.settings.items()
    )
    sections = "\n".join(_section(finding, figures[finding.name]) for finding in analysis.findings)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<title>{title}</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>{title}</h1>
<p>The analysis of appendix F of <i>Thinker: Learning to Plan and Act</i>, for one run. The sentences on this run are
made from its numbers; ± is one standard error, and a difference of less than two is not called one. All numbers are in
{NUMBERS}.</p>
<table>
{rows}
</table>
{sections}
</body>
</html>
"""


def _section(finding: Finding, picture: bytes) -> str:
    title, source = html.escape(finding.title), base64.b64encode(picture).decode()
    return f"""<section id="{finding.name}">
<h2>{title}</h2>
<figure>
<img src="data:image/png;base64,{source}" alt="{title}">
<figcaption>
<p><b>The paper:</b> {html.escape(finding.paper)}</p>
<p><b>This run:</b> {html.escape(finding.here)} <span class="verdict">{finding.verdict}</span></p>
</figcaption>
</figure>
</section>"""


def _shown(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(_shown, value))
    return str(value)


def _plain(value: Any) -> Any:
    """``value`` with lists instead of arrays, floats of six digits, and None for what is not finite."""
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, np.ndarray | list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, float | np.floating):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    if isinstance(value, np.integer):
        return int(value)
    return value
