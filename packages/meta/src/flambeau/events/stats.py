"""Statistics of compiled callables in production, as a table and as Prometheus' text.

In: the counters that capture keeps anyway, what trials have measured, and the records of what was
compiled. Out: `Stats`. Invariant: a call pays nothing for it but two readings of the clock around
the guards of one frame in 1024; a counter never goes down while its callable lives.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple, dataclass, fields
from typing import Any

from flambeau_capture._C import FrameCache
from flambeau_capture.api import compiler_of

from flambeau import _torch_compat as compat
from flambeau.events.records import recorders_of
from flambeau.shown import Shown, as_table


@dataclass(frozen=True)
class FunctionStats:
    """Counts of one compiled callable since it was made.

    calls: of the callable. compiled: frames that found compiled code, which the first one makes;
    eager: frames left to Python, its callees' included. checks_failed: guards that did not hold.
    compilations: conversions of frames, the first included. limits: calls that came when a frame
    was at its limit. breaks: graph breaks. fallbacks: graphs that run eagerly. faults: failures of
    the compiler. seconds: spent on compiling. guard_seconds: spent on checking guards, in
    timed_lookups frames: one in 1024 is timed, of the first ones more, and stands for those since
    the one before. saved_seconds: what calls took less than they would have eagerly, by the medians
    of a trial of both forms when the frame was new, over measured_frames; frames whose trial is
    still to end, or that have none, are not among these.
    """

    function: str
    calls: int
    compiled: int
    eager: int
    checks_failed: int
    compilations: int
    limits: int
    breaks: int
    fallbacks: int
    faults: int
    seconds: float
    guard_seconds: float
    timed_lookups: int
    saved_seconds: float
    measured_frames: int

    @property
    def guard_microseconds(self) -> float:
        """Of one frame, on average."""
        return 1e6 * self.guard_seconds / self.timed_lookups if self.timed_lookups else 0.0


@dataclass(frozen=True, repr=False)
class Stats(Shown):
    """A row a compiled callable, the most called first; callables of one name are one row."""

    rows: tuple[FunctionStats, ...]

    def __iter__(self) -> Iterator[FunctionStats]:
        return iter(self.rows)

    def __str__(self) -> str:
        head = [field.name.replace("_", " ") for field in fields(FunctionStats)[:-4]]
        body = [
            [
                *map(str, astuple(row)[:-5]),
                f"{row.seconds:.2f}",
                f"{row.guard_microseconds:.1f}",
                f"{row.saved_seconds:.2f} in {row.measured_frames}" if row.measured_frames else "-",
            ]
            for row in self.rows
        ]
        return as_table([[*head, "guard us", "saved seconds"], *body])

    def to_prometheus(self) -> str:
        """The counters in Prometheus' text format, version 0.0.4: `flambeau_calls_total` and its
        like, and the gauges of what was saved, each with the label `function`."""
        lines = []
        for field in fields(FunctionStats)[1:]:
            is_gauge = field.name in GAUGES
            name = f"flambeau_{METRICS.get(field.name, field.name)}" + "_total" * (not is_gauge)
            lines += [f"# TYPE {name} {'gauge' if is_gauge else 'counter'}"]
            lines += [
                f'{name}{{function="{_escaped(row.function)}"}} {getattr(row, field.name)}'
                for row in self.rows
            ]
        return "\n".join(lines) + "\n"


#: metrics whose names say more than the columns have room for
METRICS = {
    "compiled": "compiled_frames",
    "eager": "eager_frames",
    "checks_failed": "guard_failures",
    "limits": "limit_reached",
    "breaks": "graph_breaks",
    "seconds": "compile_seconds",
    "timed_lookups": "guarded_frames",
}
#: these go down where a call takes longer than it did, and where compiled code goes with its object
GAUGES = ("saved_seconds", "measured_frames")


def _escaped(label: str) -> str:
    return label.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def stats(compiled: Any = None) -> Stats:
    """What runs compiled and what does not, by counts: of one compiled callable, or of all alive.

    Raises TypeError for what `flambeau.compile` did not return.
    """
    sums: dict[str, FunctionStats] = {}
    for each, recorder in recorders_of(compiled):
        compiler = compiler_of(each)
        if compiler is None:
            continue
        counts, seen, report = compiler.cache.counters(), compiler.records, recorder.report()
        saved, measured = _saved(compiler.cache)
        row = FunctionStats(
            function=_name(each),
            calls=counts["calls"],
            compiled=counts["hits"],
            eager=counts["skipped_frames"] + counts["plain_frames"],
            checks_failed=counts["guard_failures"],
            compilations=counts["conversions"],
            limits=counts["limit_reached"],
            breaks=len(dict.fromkeys(map(str, seen.breaks))),
            fallbacks=len(report.fallbacks),
            faults=len(seen.faults) + len(report.faults),
            seconds=sum(frame.seconds for frame in seen.frames),
            guard_seconds=counts["guard_seconds"],
            timed_lookups=int(counts["timed_lookups"]),
            saved_seconds=saved,
            measured_frames=measured,
        )
        known = sums.get(row.function)
        sums[row.function] = row if known is None else _sum(known, row)
    return Stats(tuple(sorted(sums.values(), key=lambda row: -row.calls)))


def _saved(cache: FrameCache) -> tuple[float, int]:
    """Seconds saved by calls since the trials of their entries, and how many calls that is."""
    seconds, frames = 0.0, 0
    for entry in (entry for code in cache.codes() for entry in cache.entries(code)):
        if entry.verdict is not None:
            verdict, before = entry.verdict
            calls = entry.hits - before
            frames += calls
            if not verdict.slower:  # else it runs as it is
                seconds += calls * (verdict.plain - verdict.compiled)
    return seconds, frames


def _sum(one: FunctionStats, other: FunctionStats) -> FunctionStats:
    pairs = zip(astuple(one)[1:], astuple(other)[1:], strict=True)
    return FunctionStats(one.function, *(a + b for a, b in pairs))


def _name(compiled: Any) -> str:
    """Of a function its own; of a module, also by `torch.compile` and `Module.compile()`, that of
    its class."""
    name = getattr(compiled, "__qualname__", None)
    if isinstance(name, str) and name != compat.MODULE_CALL:
        return name
    inside = getattr(compiled, "__self__", getattr(compiled, "_orig_mod", compiled))
    return type(inside).__qualname__
