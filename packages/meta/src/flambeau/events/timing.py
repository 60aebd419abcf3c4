"""Compile time by function and phase.

In: what compiled callables recorded. Out: a table as text, or the rows of it. Invariant: seconds of
different columns do not overlap.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import astuple, dataclass, fields
from typing import Any

from flambeau_capture.api import compiler_of

from flambeau.events.records import recorders_of


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

    @property
    def total(self) -> float:
        """All of it."""
        return self.capture + self.aot + self.lowering + self.compilers + self.other


def compile_times(target: Any = None) -> str:
    """Seconds by function and phase, as a table."""
    rows = compile_time_rows(target)
    numbers = list(zip(*(astuple(row)[2:] for row in rows))) or [(0,)] * 6
    total = TimeRow("total", "", *map(sum, numbers))
    cells = [[*(field.name for field in fields(TimeRow)), "s"]]
    for row in [*rows, total]:
        function, where, frames, *seconds = astuple(row)
        cells.append([function, where, str(frames), *(f"{s:.3f}" for s in (*seconds, row.total))])
    widths = [max(map(len, column)) for column in zip(*cells)]
    padded = (
        [cell.ljust(w) if n < 2 else cell.rjust(w) for n, (cell, w) in enumerate(zip(row, widths))]
        for row in cells
    )
    return "\n".join("  ".join(row).rstrip() for row in padded)


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
                spent[_column(phase)] += seconds
        groups: dict[tuple[str, str], list[Any]] = {}
        for frame in compiler.records.frames:
            where = f"{frame.filename}:{frame.lineno}"
            groups.setdefault((frame.function, where), []).append(frame)
        for (function, where), frames in groups.items():
            backend = sum(frame.backend_seconds for frame in frames)
            spent = phases.pop(function, {})
            known = {name: spent.get(name, 0.0) for name in ("aot", "lowering", "compilers")}
            other = max(backend - sum(known.values()), 0.0)
            capture = sum(frame.seconds for frame in frames) - backend
            made.append(TimeRow(function, where, len(frames), capture, **known, other=other))
    return sorted(made, key=lambda row: -row.total)


def _column(phase: str) -> str:
    if phase == "inductor: build":
        return "compilers"
    if phase.startswith("inductor: "):
        return "lowering"
    return "aot" if phase.startswith("aot: ") else "other"
