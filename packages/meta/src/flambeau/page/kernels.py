"""Kernel table: time lost against a plain copy of as many bytes.

In: the events of one process. Out: a row for each kernel that was timed. Invariant: a kernel counts
once for each place in a graph that runs it, whether or not its text is another's too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from flambeau_inductor.debug.kernel_benchmark import Timed

from flambeau.page.reading import Event, load


@dataclass(frozen=True)
class KernelTime:
    """A kernel's time alone, where in the program it runs, and the user's lines it comes from."""

    graph: str
    half: str
    timed: Timed
    lines: tuple[str, ...]


def by_time_lost(events: Iterable[Event]) -> tuple[KernelTime, ...]:
    """All kernels with a time, those first that lose most in one run of their graph."""
    return tuple(sorted(_kernels(events), key=lambda each: each.timed.lost, reverse=True))


def _kernels(events: Iterable[Event]) -> Iterator[KernelTime]:
    for event in events:
        if event["kind"] != "half" or not event["roof"]:
            continue
        for step in event["facts"]["steps"]:
            if step["seconds"] and step["bytes"]:
                origins = tuple(step["origins"])
                timed = Timed(step["name"], step["seconds"], step["bytes"], event["roof"], origins)
                yield KernelTime(event["graph"], event["half"], timed, tuple(step["lines"]))


def kernel_report(folder: Path, most: int) -> str:
    """Of a trace, a line for each of the `most` kernels that lose most, of all processes: where it
    runs, and its time beside a copy's. Raises NoTrace where the folder holds none."""
    events = [event for part in load(folder) for event in part.events]
    rows = by_time_lost(events)[: max(0, most)]
    lines = [f"{each.graph:<12}{each.half:<10}{each.timed}" for each in rows]
    return "\n".join(lines) or "no kernel was timed"
