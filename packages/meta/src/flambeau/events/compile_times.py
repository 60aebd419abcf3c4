"""Times of compilation: seconds by function, stage and phase, as a table and as a flame graph.

In: the records of compiled callables. Out: rows, text, a picture. Invariant: seconds of different
columns do not overlap, and the phases of a column add up to it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import astuple, dataclass, fields
from html import escape
from itertools import groupby
from typing import Any

from flambeau_capture.api import compiler_of

from flambeau.events.records import recorders_of
from flambeau.shown import ShownText, as_table


@dataclass(frozen=True)
class TimeRow:
    """Seconds of one function. `compilers`: spent in C++ or Triton compilers, or in the cache."""

    function: str
    where: str
    frames: int
    capture: float
    aot: float
    lowering: float
    compilers: float
    other: float
    phases: tuple[tuple[str, float], ...] = ()
    """Those of `aot`, `lowering` and `compilers`, by the names that reports have for them."""

    @property
    def total(self) -> float:
        """All of it."""
        return self.capture + self.aot + self.lowering + self.compilers + self.other

    def stacks(self) -> Iterator[tuple[tuple[str, ...], float]]:
        """Seconds by function, stage and phase."""
        base = f"{self.function} ({self.where})"
        yield (base, "capture"), self.capture
        for phase, seconds in self.phases:
            yield (base, _column(phase), phase.partition(": ")[2]), seconds
        yield (base, "other"), self.other


class CompileTimes(ShownText):
    """Seconds by function and stage: a table, and the same as a flame graph."""

    rows: tuple[TimeRow, ...] = ()

    def to_folded(self) -> str:
        """Stacks with microseconds, a line each (`function;stage;phase 1250`), as speedscope and
        flamegraph.pl read them."""
        found = [stack for row in self.rows for stack in row.stacks()]
        counted = ((names, round(seconds * 1e6)) for names, seconds in found)
        lines = (f"{';'.join(map(_plain, names))} {number}" for names, number in counted if number)
        return "\n".join(lines) + "\n"

    def to_svg(self, width: int = 960) -> str:
        """The flame graph as a picture: a box a function, above it its stages, above these their
        phases, each as wide as it takes long."""
        total = sum(row.total for row in self.rows) or 1.0
        boxes: list[str] = []
        at = 0.0
        for row in self.rows:
            boxes.append(_box(0, at, row.total, f"{row.function} ({row.where})", total, width))
            below = at
            for stage, parts in groupby(row.stacks(), key=lambda stack: stack[0][1]):
                inner = below
                for names, seconds in parts:
                    if len(names) > 2:
                        boxes.append(_box(2, inner, seconds, names[2], total, width))
                    inner += seconds
                boxes.append(_box(1, below, inner - below, stage, total, width))
                below = inner
            at += row.total
        size = f'viewBox="0 0 {width} {3 * HEIGHT}" width="{width}"'
        style = 'font-family="sans-serif" font-size="11"'
        return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>{"".join(boxes)}</svg>'


def compile_times(target: Any = None) -> CompileTimes:
    """Seconds by function and phase, as a table and as a flame graph."""
    rows = compile_time_rows(target)
    numbers = list(zip(*(astuple(row)[2:-1] for row in rows))) or [(0,)] * 6
    frames, capture, aot, lowering, compilers, other = map(sum, numbers)
    total = TimeRow("total", "", frames, capture, aot, lowering, compilers, other)
    cells = [[*(field.name for field in fields(TimeRow)[:-1]), "s"]]
    for row in [*rows, total]:
        function, where, frames, *seconds, _ = astuple(row)
        cells.append([function, where, str(frames), *(f"{s:.3f}" for s in (*seconds, row.total))])
    made = CompileTimes(as_table(cells, texts=2))
    made.rows = tuple(rows)
    return made


def compile_time_rows(target: Any = None) -> list[TimeRow]:
    """A row a function, the longest first; of one compiled callable, or of all that are alive.

    Raises TypeError for what `flambeau.compile` did not return.
    """
    made: list[TimeRow] = []
    for compiled, recorder in recorders_of(target):
        compiler = compiler_of(compiled)
        if compiler is None:
            continue
        owners = {type(g.module).__name__: g.function for g in compiler.records.graphs}
        phases: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        for record in recorder.report().records:
            spent = phases[owners.get(record.name, record.name)]
            for phase, seconds in record.seconds.items():
                spent[phase] += seconds
        groups: dict[tuple[str, str], list[Any]] = {}
        for frame in compiler.records.frames:
            where = f"{frame.filename}:{frame.lineno}"
            groups.setdefault((frame.function, where), []).append(frame)
        for (function, where), frames in groups.items():
            backend = sum(frame.backend_seconds for frame in frames)
            own = [
                (phase, seconds)
                for phase, seconds in phases.pop(function, {}).items()
                if _column(phase) != "other"
            ]
            known = dict.fromkeys(("aot", "lowering", "compilers"), 0.0)
            for phase, seconds in own:
                known[_column(phase)] += seconds
            own.sort(key=lambda each: (_column(each[0]), -each[1]))
            other = max(backend - sum(known.values()), 0.0)
            capture = sum(frame.seconds for frame in frames) - backend
            made.append(TimeRow(function, where, len(frames), capture, **known, other=other,
                                phases=tuple(own)))  # fmt: skip
    return sorted(made, key=lambda row: -row.total)


def _column(phase: str) -> str:
    if phase == "inductor: build":
        return "compilers"
    if phase.startswith("inductor: "):
        return "lowering"
    return "aot" if phase.startswith("aot: ") else "other"


HEIGHT = 22
COLOURS = ("#e0572e", "#f08c4a", "#f6c667")


def _box(level: int, start: float, seconds: float, name: str, total: float, width: int) -> str:
    """A box of the flame graph: the lowest level is at the bottom."""
    x, wide = start / total * width, seconds / total * width
    y = (2 - level) * HEIGHT
    title = f"<title>{escape(name)}: {seconds:.3f} s</title>"
    shown = name if len(name) * 6.5 < wide else ""
    box = f'<rect x="{x:.1f}" y="{y}" width="{max(wide - 0.5, 0):.1f}" height="{HEIGHT - 1}"'
    text = f'<text x="{x + 3:.1f}" y="{y + 15}">{escape(shown)}</text>' if shown else ""
    return f'<g>{title}{box} fill="{COLOURS[level]}"/>{text}</g>'


def _plain(name: str) -> str:
    """A name without what separates stacks."""
    return name.replace(";", ",").replace("\n", " ")
