"""Pictures of fusion and of buffer lifetimes, as SVG.

In: steps and a memory timeline, as plain data. Out: markup. Invariant: every step is in the picture
once, below all that it reads; everything that comes from the program is escaped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from markupsafe import Markup

COLOURS = {"kernel": "#f6c667", "library": "#cfe3f7"}
BOX_WIDTH, LINE, GAP_X, GAP_Y, MARGIN, MOST_LINES = 190, 14, 24, 34, 16, 8


def fused_picture(steps: Sequence[Mapping[str, Any]]) -> Markup:
    """Kernels and library calls as boxes that name the operations inside, with who reads whom."""
    made: dict[str, int] = {}
    reads: list[set[int]] = []
    for place, step in enumerate(steps):
        reads.append({made[name] for name in step["reads"] if name in made})
        made.update(dict.fromkeys(step["writes"], place))
    layer: list[int] = []
    for place in range(len(steps)):
        layer.append(max((layer[source] + 1 for source in reads[place]), default=0))
    rows = [
        [p for p, depth in enumerate(layer) if depth == row]
        for row in range(max(layer, default=-1) + 1)
    ]
    at: dict[int, tuple[int, int, int]] = {}
    y = MARGIN
    for row in rows:
        tallest = max(_height(steps[place]) for place in row)
        for column, place in enumerate(row):
            x = MARGIN + column * (BOX_WIDTH + GAP_X)
            at[place] = (x, y, _height(steps[place]))
        y += tallest + GAP_Y
    width = MARGIN * 2 + max((len(row) for row in rows), default=1) * (BOX_WIDTH + GAP_X)
    lines = [_edge(at[source], at[place]) for place in at for source in sorted(reads[place])]
    lines += [_box(steps[place], *at[place]) for place in at]
    return _svg(width, y + MARGIN, lines)


def memory_picture(timeline: Sequence[Sequence[Any]]) -> Markup:
    """Live bytes after each step of the plan."""
    width, height = 640, 160
    known = [size for _, size in timeline if size is not None]
    peak = max(known, default=0)
    if len(known) < len(timeline):
        return _svg(width, 30, ['<text x="16" y="20">sizes depend on symbols</text>'])
    if not peak:
        return _svg(width, 30, ['<text x="16" y="20">no memory beyond the inputs</text>'])
    bar = (width - 2 * MARGIN) / len(timeline)
    lines = []
    for place, (what, size) in enumerate(timeline):
        tall = size / peak * (height - 2 * MARGIN - LINE)
        lines.append(
            f"<g><title>{escape(str(what))}: {size:,} bytes</title>"
            f'<rect x="{MARGIN + place * bar:.1f}" '
            f'y="{height - MARGIN - tall:.1f}" width="{max(bar - 1, 0.5):.1f}" height="{tall:.1f}" '
            f'fill="{"#d9683c" if size == peak else "#7aa6d8"}"/></g>'
        )
    lines.append(f'<text x="{MARGIN}" y="{MARGIN}">peak {peak:,} bytes beyond the inputs</text>')
    return _svg(width, height, lines)


def _height(step: Mapping[str, Any]) -> int:
    return (min(len(step["origins"]), MOST_LINES) + 1) * LINE + 12


def _box(step: Mapping[str, Any], x: int, y: int, height: int) -> str:
    origins = list(step["origins"])
    shown = origins[:MOST_LINES]
    if len(origins) > MOST_LINES:
        shown[-1] = f"... {len(origins) - MOST_LINES + 1} more"
    told = "\n".join([step["name"], *origins, *step["lines"]])
    rows = [
        f'<text x="{x + 8}" y="{y + 14 + LINE * (row + 1)}">{escape(_cut(text, 26))}</text>'
        for row, text in enumerate(shown)
    ]
    return (
        f'<g><title>{escape(told)}</title><rect x="{x}" y="{y}" width="{BOX_WIDTH}" '
        f'height="{height}" rx="5" fill="{COLOURS.get(step["kind"], "#ddd")}" stroke="#555"/>'
        f'<text x="{x + 8}" y="{y + 14}" font-weight="bold">{escape(_cut(step["name"], 24))}</text>'
        f"{''.join(rows)}</g>"
    )


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _edge(start: tuple[int, int, int], end: tuple[int, int, int]) -> str:
    x1, y1 = start[0] + BOX_WIDTH // 2, start[1] + start[2]
    x2, y2 = end[0] + BOX_WIDTH // 2, end[1]
    middle = (y1 + y2) // 2
    return f'<path d="M{x1} {y1}C{x1} {middle} {x2} {middle} {x2} {y2}" fill="none" stroke="#888"/>'


def _svg(width: float, height: float, lines: Sequence[str]) -> Markup:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="monospace" font-size="11">'
    )
    return Markup("\n".join([head, *lines, "</svg>"]))
