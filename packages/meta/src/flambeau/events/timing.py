"""Compile time by function and phase.

In: what compiled callables recorded. Out: a table as text, or the rows of it. Invariant: seconds of
different columns do not overlap.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from flambeau_capture.api import compiler_of

from flambeau.events.records import RecordCollector, recorded, recorder_of


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


def compile_time_rows(target: Any = None) -> list[TimeRow]:
    """A row a function, the longest first; of one compiled callable, or of all that are alive.

    Raises TypeError for what `flambeau.compile` did not return.
    """
    if target is None:
        return _rows(recorded())
    recorder = recorder_of(target)
    if recorder is None:
        raise TypeError(f"{target!r} is not something that flambeau.compile returned")
    return _rows([(target, recorder)])


def compile_times(target: Any = None) -> str:
    """Seconds by function and phase, as a table."""
    rows = compile_time_rows(target)
    head = ("function", "where", "frames", "capture", "aot", "lowering", "compilers", "other", "s")
    cells = [head, *(_cells(row) for row in rows)]
    sums = [sum(column) for column in zip(*(_seconds(row) for row in rows))] or [0.0] * 6
    frames = sum(row.frames for row in rows)
    cells.append(("total", "", str(frames), *(f"{value:.3f}" for value in sums)))
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    lines = []
    for row in cells:
        left = [cell.ljust(width) for cell, width in zip(row[:2], widths[:2], strict=True)]
        right = [cell.rjust(width) for cell, width in zip(row[2:], widths[2:], strict=True)]
        lines.append("  ".join((*left, *right)).rstrip())
    return "\n".join(lines)


def _cells(row: TimeRow) -> tuple[str, ...]:
    return row.function, row.where, str(row.frames), *(f"{value:.3f}" for value in _seconds(row))


def _seconds(row: TimeRow) -> tuple[float, ...]:
    return row.capture, row.aot, row.lowering, row.compilers, row.other, row.total


def _rows(targets: Iterable[tuple[Any, RecordCollector]]) -> list[TimeRow]:
    made: list[TimeRow] = []
    for target, recorder in targets:
        compiler = compiler_of(target)
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
