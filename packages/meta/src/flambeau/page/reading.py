"""Reader of a trace folder, and the costs of its breaks and kernels.

In: the folder that FLAMBEAU_TRACE or `flambeau.trace` named. Out: one `ProcessEvents` a process;
breaks with figures, kernels with the time that they lose to a copy, the most expensive first.
Invariant: a line that was cut short (the process was killed) is counted, not an error; nothing
outside of the folder is read; what happened on two threads, or to two compiled callables, does
not mix.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from flambeau_inductor.debug.benchmark_scripts import Timed

from flambeau.errors import FlambeauError
from flambeau.events.bus import GraphRun
from flambeau.explaining.costs import ConvertedFrame, Figures, Line
from flambeau.tracing.writer import EVENTS, FORMAT, PROCESS

Event = dict[str, Any]
MOST_TEXT = 400_000
"""A longer artefact is cut in the page, and says so."""


class NoTrace(FlambeauError):
    """There is no trace in a folder."""


@dataclass(frozen=True)
class ProcessEvents:
    """What one process wrote. `broken`: lines that could not be read."""

    folder: Path
    process: dict[str, Any]
    events: tuple[Event, ...]
    broken: int = 0

    def of_kind(self, kind: str) -> list[Event]:
        """Its events of one kind, in order."""
        return [event for event in self.events if event["kind"] == kind]

    def text(self, path: str) -> str:
        """An artefact's text."""
        place = (self.folder / path).resolve()
        if not place.is_relative_to(self.folder.resolve()):
            return f"{path} is outside of the trace and was not read"
        try:
            text = place.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            return f"{path} cannot be read: {error}"
        if len(text) > MOST_TEXT:
            return f"{text[:MOST_TEXT]}\n... {len(text) - MOST_TEXT} characters more in {path}\n"
        return text


def load(root: Path) -> list[ProcessEvents]:
    """The parts of a trace, the earliest first. Raises NoTrace where there is none."""
    parts = [_part(place.parent) for place in sorted(root.glob(f"*/{PROCESS}"))]
    if not parts:
        raise NoTrace(f"{root} holds no trace: run a program with FLAMBEAU_TRACE={root}")
    return sorted(parts, key=lambda part: float(part.process.get("started", 0.0)))


def _part(folder: Path) -> ProcessEvents:
    process = json.loads((folder / PROCESS).read_text(encoding="utf-8"))
    if process.get("format") != FORMAT:
        raise NoTrace(f"{folder} is a trace of format {process.get('format')}, not {FORMAT}")
    events: list[Event] = []
    broken = 0
    lines = (folder / EVENTS).read_text(encoding="utf-8", errors="replace").splitlines()
    for line in lines:
        try:
            events.append(json.loads(line))
        except ValueError:
            broken += 1
    return ProcessEvents(folder, process, tuple(events), broken)


@dataclass(frozen=True)
class KernelTime:
    """A kernel's time alone, where in the program it runs, and the user's lines it comes from."""

    graph: str
    half: str
    timed: Timed
    lines: tuple[str, ...]


def by_time_lost(events: Iterable[Event]) -> tuple[KernelTime, ...]:
    """All kernels with a time, those first that lose most in one run of their graph."""
    found: list[KernelTime] = []
    for event in events:
        for step in event["facts"]["steps"] if event["kind"] == "half" and event["roof"] else ():
            if step["seconds"] and step["bytes"]:
                origins = tuple(step["origins"])
                timed = Timed(step["name"], step["seconds"], step["bytes"], event["roof"], origins)
                lines = tuple(step["lines"])
                found.append(KernelTime(event["graph"], event["half"], timed, lines))
    return tuple(sorted(found, key=lambda each: each.timed.lost, reverse=True))


def kernel_report(folder: Path, most: int) -> str:
    """Of a trace, a line for each of the `most` kernels that lose most, of all processes: where it
    runs, and its time next to a copy's. Raises NoTrace where the folder holds none."""
    events = [event for part in load(folder) for event in part.events]
    rows = by_time_lost(events)[: max(0, most)]
    lines = [f"{each.graph:<12}{each.half:<10}{each.timed}" for each in rows]
    return "\n".join(lines) or "no kernel was timed"


def with_costs(events: Sequence[Event]) -> tuple[Event, ...]:
    """The breaks among the events, each with its `Figures`, the most expensive first."""
    groups: defaultdict[tuple[int, int], list[Event]] = defaultdict(list)
    for event in events:
        groups[event["owner"], event["thread"]].append(event)
    found = [each for group in groups.values() for each in _of_one(group)]
    costs = ("run_ms", "capture_ms", "bytes")  # every call costs the first; capturing happens once
    return tuple(sorted(found, key=lambda each: [each[n] or 0 for n in costs], reverse=True))


def _of_one(events: Sequence[Event]) -> Iterator[Event]:
    """The breaks of one compiled callable on one thread."""
    breaks = [event for event in events if event["kind"] == "break"]
    frames = [_conversion(event) for event in events if event["kind"] == "frame"]
    runs = sorted((_run(e) for e in events if e["kind"] == "run"), key=lambda run: run.started)
    # a call begins with a graph of the function that was converted first, or a new version
    entries = (event for event in events if event["kind"] == "entry")
    names = {e["installed"]: e["graph"] for e in events if e["kind"] == "graph"}
    begins = {names.get(name, name) for name in next(entries, {"graphs": ()})["graphs"]}
    again = [float(event["t"]) for event in events if event["kind"] == "recompile"]
    line = Line(frames, runs, begins, again)
    stopped = [frame for frame in frames if frame.stopped]
    for place, event in enumerate(breaks):
        known = len(stopped) == len(breaks)
        yield {**event, **asdict(line.figures(stopped[place]) if known else Figures())}


def _conversion(event: Event) -> ConvertedFrame:
    ended, seconds, backend = (float(event[n]) for n in ("ended", "seconds", "backend_seconds"))
    return ConvertedFrame(ended, seconds, backend, bool(event.get("stopped")))


def _run(event: Event) -> GraphRun:
    started = float(event["started"])
    memory = (tuple((int(a), int(b)) for a, b in event[name]) for name in ("inputs", "outputs"))
    return GraphRun(event["graph"], started, started + float(event["seconds"]), *memory)
