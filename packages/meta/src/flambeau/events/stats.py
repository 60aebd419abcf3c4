"""Statistics of compiled callables in production, as a table and as Prometheus' text.

In: the counters that capture keeps anyway, and the records of what was compiled. Out: `Stats`.
Invariant: asking costs a call nothing: no clock is read and nothing is kept for it; a counter
never goes down while its callable lives.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple, dataclass, fields
from typing import Any

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
    the compiler. seconds: spent on compiling.
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


@dataclass(frozen=True, repr=False)
class Stats(Shown):
    """A row a compiled callable, the most called first; callables of one name are one row."""

    rows: tuple[FunctionStats, ...]

    def __iter__(self) -> Iterator[FunctionStats]:
        return iter(self.rows)

    def __str__(self) -> str:
        head = [field.name.replace("_", " ") for field in fields(FunctionStats)]
        body = [[*map(str, astuple(row)[:-1]), f"{row.seconds:.2f}"] for row in self.rows]
        return as_table([head, *body])

    def to_prometheus(self) -> str:
        """The counters in Prometheus' text format, version 0.0.4: `flambeau_calls_total` and its
        like, each with the label `function`."""
        lines = []
        for field in fields(FunctionStats)[1:]:
            name = f"flambeau_{METRICS.get(field.name, field.name)}_total"
            lines += [f"# TYPE {name} counter"]
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
}


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
        )
        known = sums.get(row.function)
        sums[row.function] = row if known is None else _sum(known, row)
    return Stats(tuple(sorted(sums.values(), key=lambda row: -row.calls)))


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
