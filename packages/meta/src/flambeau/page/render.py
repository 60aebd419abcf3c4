"""Rendering of pages from templates.

In: a trace's folder, or an explanation. Out: HTML in one piece. Invariant: the page needs
nothing from anywhere: style and script are in it; all text is escaped.
"""

from __future__ import annotations

import re
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader, StrictUndefined

from flambeau.events.stage_products import in_bytes
from flambeau.page.model import Panel, half_panels, view
from flambeau.page.reading import load

if TYPE_CHECKING:
    from flambeau.explaining.explain import Explanation


@lru_cache(maxsize=1)
def _templates() -> Environment:
    loader = PackageLoader("flambeau.page", "templates")
    made = Environment(
        loader=loader,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(in_bytes=in_bytes, shortened=shortened, brief=brief)
    return made


def shortened(place: str) -> str:
    """A path by its last three parts."""
    parts = place.split("/")
    return place if len(parts) <= 4 else "/".join(["…", *parts[-3:]])


def brief(line: str) -> str:
    """`File "/long/way/f.py", line 3, in fn code` as `…/way/f.py:3 code`."""
    found = re.fullmatch(r'File "(.*)", line (\d+), in \S+ ?(.*)', line)
    return line if found is None else f"{shortened(found[1])}:{found[2]} {found[3]}"


def report_page(folder: Path) -> str:
    """A trace as a page. Raises NoTrace where the folder holds none."""
    views = [view(part, number) for number, part in enumerate(load(folder))]
    return _templates().get_template("report.html.j2").render(processes=views, title=folder.name)


def write_report(folder: Path, out: Path | None = None) -> Path:
    """Write a trace's page, into its folder unless another place is named; returns the place."""
    place = out or folder / "report.html"
    place.write_text(report_page(folder), encoding="utf-8")
    return place


def explanation_page(explanation: Explanation) -> str:
    """An explanation as a page."""
    panels: dict[str, list[Panel]] = {}
    for graph in explanation.graphs:
        panels[graph.name] = [Panel("operations", "capture", "\n".join(graph.operations))]
        for half in graph.halves:
            event = {"half": half.half, "facts": asdict(half), "roof": None}
            panels[graph.name] += half_panels(event)
    template = _templates().get_template("explanation.html.j2")
    return template.render(found=explanation, panels=panels, title="flambeau.explain")
