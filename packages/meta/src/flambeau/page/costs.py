"""Cost table of a trace's graph breaks.

In: the events of one process. Out: the break events with figures, the dearest first. Invariant: as
in `explaining.costs`; what happened on two threads, or to two compiled callables, does not mix.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from flambeau.events.runs import GraphRun
from flambeau.explaining.costs import ConvertedFrame, Figures, Line
from flambeau.page.reading import Event


def with_costs(events: Sequence[Event]) -> tuple[Event, ...]:
    """The breaks among the events, each with its `Figures`, the dearest first."""
    groups: defaultdict[tuple[int, int], list[Event]] = defaultdict(list)
    for event in events:
        groups[event["owner"], event["thread"]].append(event)
    found = [each for group in groups.values() for each in _of_one(group)]
    return tuple(sorted(found, key=_cost, reverse=True))


def _cost(event: Event) -> tuple[float, float, int]:
    """By what every call costs; capturing happens once."""
    return event["run_ms"] or 0.0, event["capture_ms"] or 0.0, event["bytes"] or 0


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
    memory = [tuple((int(a), int(b)) for a, b in event[name]) for name in ("inputs", "outputs")]
    return GraphRun(
        event["graph"], started, started + float(event["seconds"]), memory[0], memory[1]
    )
