"""What each graph break of a trace cost.

In: the events of one process. Out: the break events with figures, the dearest first. Invariant: a
stretch of time that may hold anything but the break (the program's own code between two calls, or
another version of a function) is no figure: better none than a wrong one.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence

from flambeau.page.load import Event


def with_costs(events: Sequence[Event]) -> tuple[Event, ...]:
    """The breaks among the events, each with what it cost, the dearest first.

    run_ms: in Python between its graph and the next, the median over the calls that were recorded
    (`calls`). capture_ms: finding the break and converting what comes after it, without compiling
    the graphs. bytes: of tensors that leave its graph only to enter a later one of the same call.
    Each is None where it is not known.
    """
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
    frames = [event for event in events if event["kind"] == "frame"]
    runs = sorted((e for e in events if e["kind"] == "run"), key=lambda run: float(run["started"]))
    stopped = [frame for frame in frames if frame.get("stopped")]
    line = _Line(events, frames, runs)
    for place, event in enumerate(breaks):
        known = len(stopped) == len(breaks)
        figures = line.figures(stopped[place]) if known else (None, 0, None, None)
        yield {**event, **dict(zip(("run_ms", "calls", "capture_ms", "bytes"), figures))}


class _Line:
    """What happened on one thread, by time."""

    def __init__(
        self, events: Sequence[Event], frames: Sequence[Event], runs: Sequence[Event]
    ) -> None:
        self.frames, self.runs = frames, runs
        # a call begins with a graph of the function that was converted first, or a new version
        entries = (event for event in events if event["kind"] == "entry")
        first = next(entries, {"graphs": ()})
        names = {e["installed"]: e["graph"] for e in events if e["kind"] == "graph"}
        self.begins = {names.get(name, name) for name in first["graphs"]}
        self.again = [float(e["t"]) for e in events if e["kind"] == "recompile"]

    def figures(self, frame: Event) -> tuple[float | None, int, float, int | None]:
        """Milliseconds in Python, in how many calls, milliseconds of capture, bytes."""
        after = float(frame["ended"])
        inside = [f for f in self.frames if _began(f) >= after]
        converted = min((_began(each) for each in inside), default=float("inf"))
        own = next((n for n, r in enumerate(self.runs) if r["started"] >= after), None)
        if own is not None and self.runs[own]["started"] >= converted:
            own = None  # no graph before the break: the next one belongs to what comes after it
        start = after if own is None else _end(self.runs[own])
        end = self._end_of_window(start, own)
        gaps: list[float | None] = []
        another = next((f for f in inside if f.get("stopped") and _began(f) < end), None)
        if another is not None and self._next(_began(another)) == self._next(start):
            gaps.append(_began(another) - start)  # the rest is what the next break costs
        elif own is None:
            gaps.append(self._gap(after, self._next(after)))
        else:
            graph = self.runs[own]["graph"]
            for place in range(own, len(self.runs)):
                if self.runs[place]["graph"] == graph:
                    gaps.append(self._gap(_end(self.runs[place]), place + 1))
        known = [gap for gap in gaps if gap is not None]
        capture = frame["seconds"] - frame["backend_seconds"]
        capture += sum(f["seconds"] - f["backend_seconds"] for f in inside if f["ended"] <= end)
        crossing = None if own is None else self._crossing(own)
        median = 1e3 * statistics.median(known) if known else None
        return median, len(known), 1e3 * max(capture, 0.0), crossing

    def _next(self, moment: float) -> int:
        later = (n for n, run in enumerate(self.runs) if run["started"] >= moment)
        return next(later, len(self.runs))

    def _end_of_window(self, start: float, own: int | None) -> float:
        place = self._next(start) if own is None else own + 1
        return float(self.runs[place]["started"]) if place < len(self.runs) else float("inf")

    def _gap(self, start: float, place: int) -> float | None:
        """Seconds until a run, without conversions; None where a call may have ended between."""
        if place >= len(self.runs) or self.runs[place]["graph"] in self.begins:
            return None
        end = float(self.runs[place]["started"])
        if any(start <= moment <= end for moment in self.again):
            return None
        inside = (f["seconds"] for f in self.frames if start <= _began(f) and f["ended"] <= end)
        return max(0.0, end - start - float(sum(inside)))

    def _crossing(self, own: int) -> int:
        left = {tuple(item) for item in self.runs[own]["outputs"]}
        left -= {tuple(item) for item in self.runs[own]["inputs"]}
        taken: set[int] = set()
        for run in self.runs[own + 1 :]:
            if run["graph"] in self.begins:
                break
            taken |= {address for address, _ in run["inputs"]}
        return sum(size for address, size in left if address in taken)


def _began(frame: Event) -> float:
    return float(frame["ended"] - frame["seconds"])


def _end(run: Event) -> float:
    return float(run["started"] + run["seconds"])
