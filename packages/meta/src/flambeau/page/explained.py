"""Pictures and tables of an explanation's graphs.

In: an `Explanation`. Out: panels by graph. Invariant: the same panels as a trace's page has for the
same halves.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from flambeau.page.model import Panel, half_panels

if TYPE_CHECKING:
    from flambeau.explaining.explanation import Explanation


def panels_of(explanation: Explanation) -> dict[str, tuple[Panel, ...]]:
    """Panels by the graph's name."""
    made: dict[str, tuple[Panel, ...]] = {}
    for graph in explanation.graphs:
        panels = [Panel("operations", "capture", "\n".join(graph.operations))]
        for half in graph.halves:
            panels += half_panels({"half": half.half, "facts": asdict(half), "roof": None})
        made[graph.name] = tuple(panels)
    return made
