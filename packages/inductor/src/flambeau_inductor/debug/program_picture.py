"""Picture of a scheduled program, as SVG.

In: a program. Out: the text of an SVG file. Invariant: one box a step that computes, in the order
in which they run; one line for each step that reads what another made.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from flambeau_inductor.ir.program import CheckIndex, Extern, Program, RunLoop
from flambeau_inductor.ir.steps import storage_bytes, touched

WIDTH, HEIGHT, GAP, LEFT = 460, 44, 14, 20
COLOURS = {"kernel": "#dceefb", "library": "#fde9d9", "check": "#eeeeee"}


def picture(program: Program) -> str:
    """Boxes below each other, kernels and library calls in colours of their own."""
    steps = [s for s in program.steps if isinstance(s, RunLoop | Extern | CheckIndex)]
    made: dict[str, int] = {}
    lines: list[str] = []
    boxes: list[str] = []
    for number, step in enumerate(steps):
        reads, writes = touched(step)
        for source in sorted({made[name] for name in reads if name in made}):
            lines.append(_arc(source, number))
        results = step.results if isinstance(step, Extern) else ()
        for name in (*writes, *(r for r in results if r is not None)):
            made[name] = number
        boxes.extend(_box(number, step, _moved(program, reads | writes)))
    height = len(steps) * (HEIGHT + GAP) + GAP
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH + 320}" height="{height}"'
            ' font-family="monospace" font-size="11">',
            *lines,
            *boxes,
            "</svg>",
            "",
        ]
    )


def _top(number: int) -> int:
    return GAP + number * (HEIGHT + GAP)


def _arc(source: int, target: int) -> str:
    begin, end = _top(source) + HEIGHT // 2, _top(target) + HEIGHT // 2
    right = LEFT + WIDTH
    reach = min(right + 30 + 12 * (target - source), right + 290)
    return (
        f'<path d="M {right} {begin} C {reach} {begin}, {reach} {end}, {right} {end}"'
        ' fill="none" stroke="#8899aa"/>'
    )


def _box(number: int, step: RunLoop | Extern | CheckIndex, moved: str) -> Iterator[str]:
    kind, title, origins = _words(step)
    top = _top(number)
    yield (
        f'<rect x="{LEFT}" y="{top}" width="{WIDTH}" height="{HEIGHT}" rx="4"'
        f' fill="{COLOURS[kind]}" stroke="#556677"/>'
    )
    yield f'<text x="{LEFT + 8}" y="{top + 17}">{escape(f"{title}  {moved}")}</text>'
    shown = origins if len(origins) < 66 else origins[:63] + "..."
    yield f'<text x="{LEFT + 8}" y="{top + 34}" fill="#445566">{escape(shown)}</text>'


def _words(step: RunLoop | Extern | CheckIndex) -> tuple[str, str, str]:
    """Kind, title, and the graph's nodes."""
    if isinstance(step, RunLoop):
        axes = " x ".join(str(a.size) for a in step.loop.x) or "1"
        over = " x ".join(str(a.size) for a in step.loop.r)
        title = f"{step.loop.name}: {axes}" + (f", over {over}" if over else "")
        return "kernel", title, " ".join(step.loop.origins)
    if isinstance(step, Extern):
        return "library", step.target, " ".join(step.origins)
    return "check", f"positions in {step.ref.buffer}", step.error


def _moved(program: Program, names: set[str]) -> str:
    sizes = {b.name: storage_bytes(b.layout) for b in program.buffers}
    known = [n for name in names if isinstance(n := sizes.get(name, 0), int)]
    return f"{sum(known) / 1024:.0f} KiB" if len(known) == len(names) else "open sizes"
