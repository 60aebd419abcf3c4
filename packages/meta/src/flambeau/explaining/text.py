"""Rendering of an explanation as terminal text.

In: an `Explanation`. Out: text in sections, and a rich renderable of the same. Invariant: the text
holds no control character, so that it may go into a log.
"""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console, Group
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from flambeau.explaining.explanation import Explanation, GraphFacts

WIDTH = 110
GUARDS_SHOWN = 40


def show(explanation: Explanation) -> str:
    """The explanation as plain text."""
    out = io.StringIO()
    console = Console(file=out, width=WIDTH, force_terminal=False, color_system=None)
    console.print(render(explanation))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def render(explanation: Explanation) -> Any:
    """The explanation for a rich console."""
    parts: list[Any] = [Text(explanation.summary)]
    parts += _breaks(explanation)
    parts += _graphs(explanation)
    parts += _recompiles(explanation)
    parts += _kept(explanation)
    parts += _guards(explanation)
    parts += _times(explanation)
    return Group(*parts)


def _breaks(found: Explanation) -> list[Any]:
    if not found.breaks:
        return []
    parts: list[Any] = [Rule("Breaks, the dearest first")]
    for each in found.breaks:
        parts.append(Text(f"{each.id} {each.title}: {each.met}", style="bold"))
        parts.append(Text(f"  {each.line}"))
        if each.run_ms is not None and each.capture_ms is not None:
            crossing = "" if each.bytes is None else f", {in_bytes(each.bytes)} through memory"
            text = f"  cost: {each.run_ms:.2f} ms in Python, {each.capture_ms:.1f} ms to capture"
            parts.append(Text(f"{text}{crossing}"))
        parts.append(Text(f"  try: {each.edit}"))
    return parts


def _graphs(found: Explanation) -> list[Any]:
    parts: list[Any] = []
    for graph in found.graphs:
        parts.append(Rule(f"{graph.name} of {graph.function} ({graph.kind})"))
        parts.append(Text(f"inputs: {', '.join(graph.inputs) or 'none'}"))
        parts.append(Text(f"{len(graph.operations)} operations: {', '.join(graph.operations)}"))
        if graph.failure:
            parts.append(Text(f"runs eagerly: {graph.failure}", style="bold"))
        parts += _halves(graph)
    return parts


def _halves(graph: GraphFacts) -> list[Any]:
    parts: list[Any] = []
    for half in graph.halves:
        table = Table(title=f"{half.half}: peak {in_bytes(half.memory.peak)} beyond its inputs")
        for column in ("step", "what", "operations", "touches"):
            table.add_column(column)
        for number, step in enumerate(half.steps):
            what = f"{step.kind} {step.name}"
            table.add_row(str(number), what, ", ".join(step.origins), in_bytes(step.bytes))
        parts.append(table)
        parts += [Text(f"chosen for {name}: {what}") for name, what in half.chosen]
    return parts


def _recompiles(found: Explanation) -> list[Any]:
    if not found.recompiles:
        return []
    rows = [
        Text(
            f"{each.function} ({each.line}): {each.guard} expected {each.expected}, got {each.got}"
        )
        for each in found.recompiles
    ]
    return [Rule("Compiled again"), *rows]


def _kept(found: Explanation) -> list[Any]:
    if not found.kept_in_eager:
        return []
    rows = [Text(f"{each.what}: {each.why}") for each in found.kept_in_eager]
    return [Rule("Kept in eager"), *rows]


def _guards(found: Explanation) -> list[Any]:
    shown = [Text(f"- {guard}") for guard in found.guards[:GUARDS_SHOWN]]
    if len(found.guards) > GUARDS_SHOWN:
        shown.append(Text(f"  ... {len(found.guards) - GUARDS_SHOWN} more in .guards"))
    return [Rule(f"{len(found.guards)} guards"), *shown] if shown else []


def _times(found: Explanation) -> list[Any]:
    table = Table(title="Compile time by phase")
    table.add_column("phase")
    table.add_column("ms", justify="right")
    for phase, seconds in sorted(found.seconds.items(), key=lambda item: -item[1]):
        table.add_row(phase, f"{1e3 * seconds:.1f}")
    return [Rule(), table]


def in_bytes(size: int | None) -> str:
    """Bytes in the unit that reads best."""
    if size is None:
        return "?"
    for unit in ("B", "KB", "MB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024  # type: ignore[assignment]
    return f"{size:.2f} GB"
