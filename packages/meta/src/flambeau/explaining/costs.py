"""Cost of each graph break, from conversion and run times.

In: a `Line`: what happened on one thread to one compiled callable. Out: `Figures` of a break.
Invariant: a stretch of time that may hold anything but the break (the program's own code between
two calls, or another version of a function) is no figure: better none than a wrong one; no moment
is laid to two breaks.
"""

from __future__ import annotations

import statistics
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from flambeau.events.bus import GraphRun


@dataclass(frozen=True)
class ConvertedFrame:
    """A frame that was converted. stopped: at a break."""

    ended: float
    seconds: float
    backend_seconds: float
    stopped: bool

    @property
    def began(self) -> float:
        """When it began."""
        return self.ended - self.seconds

    @property
    def own(self) -> float:
        """Seconds without those of the backend, which would compile its graph all the same."""
        return max(0.0, self.seconds - self.backend_seconds)


@dataclass(frozen=True)
class Figures:
    """run_ms: in Python between the graph before a break and the next one, the median over `calls`
    calls. capture_ms: finding the break and converting what comes after it. bytes: of tensors that
    leave its graph only to enter a later one of the same call. None where it is not known."""

    run_ms: float | None = None
    calls: int = 0
    capture_ms: float | None = None
    bytes: int | None = None


@dataclass(frozen=True)
class Line:
    """What happened, by time.

    begins: graphs with which a call begins. again: when a function was compiled again. ended: when
    the last call was over, where that is known.
    """

    frames: Sequence[ConvertedFrame]
    runs: Sequence[GraphRun]
    begins: Collection[str] = ()
    again: Sequence[float] = ()
    ended: float | None = None

    def figures(self, frame: ConvertedFrame) -> Figures:
        """What the break cost at which a frame stopped."""
        after = frame.ended
        inside = [each for each in self.frames if each.began >= after]
        converted = min((each.began for each in inside), default=float("inf"))
        first = self._next(after)
        # where that comes after another conversion, there is no graph before the break
        before = first < len(self.runs) and self.runs[first].started < converted
        own = first if before else None
        start = after if own is None else self.runs[own].ended
        place = self._next(after) if own is None else own + 1
        end = self.runs[place].started if place < len(self.runs) else self.ended or float("inf")
        another = next((f for f in inside if f.stopped and start <= f.began < end), None)
        if another is not None and self._next(another.began) == place:
            end = another.began  # the rest is what the next break costs
            gaps: list[float | None] = [end - start]
        elif own is None:
            gaps = [self._gap(start, place)]
        else:
            graph = self.runs[own].graph
            same = [n for n in range(own, len(self.runs)) if self.runs[n].graph == graph]
            gaps = [self._gap(self.runs[n].ended, n + 1) for n in same]
        known = [gap for gap in gaps if gap is not None]
        return Figures(
            run_ms=1e3 * statistics.median(known) if known else None,
            calls=len(known),
            capture_ms=1e3 * (frame.own + sum(f.own for f in inside if f.ended <= end)),
            bytes=None if own is None else self._crossing(own),
        )

    def _next(self, moment: float) -> int:
        later = (n for n, run in enumerate(self.runs) if run.started >= moment)
        return next(later, len(self.runs))

    def _gap(self, start: float, place: int) -> float | None:
        """Seconds until a run, without conversions; None where a call may have ended between."""
        if place < len(self.runs):
            end = self.runs[place].started
            if self.runs[place].graph in self.begins:
                return None
        elif self.ended is not None:
            end = self.ended
        else:
            return None
        if any(start <= moment <= end for moment in self.again):
            return None
        inside = (f.seconds for f in self.frames if start <= f.began and f.ended <= end)
        return max(0.0, end - start - sum(inside))

    def _crossing(self, own: int) -> int:
        left = set(self.runs[own].outputs) - set(self.runs[own].inputs)
        taken: set[int] = set()
        for run in self.runs[own + 1 :]:
            if run.graph in self.begins:
                break
            taken |= {address for address, _ in run.inputs}
        return sum(size for address, size in left if address in taken)
