"""Profile of compile time, and of recompilations.

In: compiled callables as they run. Out: `CompileProfiler`, a backend that only observes, and
`compile_times`. Invariant: a profiler runs the program's operators as they are; nothing that it
counts is compiled a second time.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from flambeau_capture.api import Decorator, compiler_of, live_compilers
from flambeau_capture.guards.guard import GuardFailure
from flambeau_capture.observe.records import FrameRecord
from flambeau_capture.source import FrameCall


@dataclass(frozen=True)
class Miss:
    """A guard of one function that failed: how often, with the values of the last time."""

    function: str
    filename: str
    lineno: int
    guard: str
    expected: str
    got: str
    count: int

    def __str__(self) -> str:
        times = "once" if self.count == 1 else f"{self.count} times"
        return (
            f"{self.function} ({self.filename}:{self.lineno}): {self.guard} failed {times}, "
            f"expected {self.expected}, last got {self.got}"
        )


class CompileProfiler:
    """A backend that compiles nothing and shows what would be compiled again, and why.

    `prof = CompileProfiler(); compile(fn, backend=prof)`, run the program for as long as it took
    to run into trouble, then `print(prof.report())`. Each function keeps one entry; a call that it
    does not fit runs as it is and is counted by the guard that failed.
    """

    def __init__(self) -> None:
        self.graphs = 0
        self.operations = 0
        self._compilers: list[Decorator] = []
        self._misses: Counter[tuple[str, str, int, str]] = Counter()
        self._last: dict[tuple[str, str, int, str], GuardFailure] = {}
        self._lock = threading.Lock()

    def __call__(
        self, module: fx.GraphModule, example_inputs: list[torch.Tensor]
    ) -> Callable[..., Any]:
        calls = sum(node.op in ("call_function", "call_method") for node in module.graph.nodes)
        with self._lock:
            self.graphs += 1
            self.operations += calls
        return module.forward

    def observe(self, compiler: Decorator) -> Callable[..., None]:
        """What a compiler calls when no entry fits."""
        self._compilers.append(compiler)

        def missed(*call: Any) -> None:
            frame = FrameCall(*call)
            code, scope = frame.code, frame.scope()
            name = compiler.converter.user_names.get(code, code.co_name)
            for entry in compiler.cache.entries(code):
                failure = None if entry.info is None else entry.info.explain(scope)
                if failure is not None:
                    key = (name, code.co_filename, code.co_firstlineno, str(failure.guard))
                    with self._lock:
                        self._misses[key] += 1
                        self._last[key] = failure

        return missed

    @property
    def misses(self) -> tuple[Miss, ...]:
        """Guards that failed, the most frequent first."""
        with self._lock:
            rows = [(key, self._last[key], count) for key, count in self._misses.most_common()]
        return tuple(Miss(*key, last.expected, last.got, count) for key, last, count in rows)

    def metrics(self) -> dict[str, Any]:
        """The report as data."""
        breaks = [report for compiler in self._compilers for report in compiler.records.breaks]
        return {
            "graphs": self.graphs,
            "operations": self.operations,
            "breaks": [str(report) for report in breaks],
            "misses": [vars(miss) for miss in self.misses],
        }

    def report(self) -> str:
        """Breaks and failed guards, in lines to read."""
        found = self.metrics()
        lines = [f"{self.graphs} graphs of {self.operations} operations"]
        lines.append(f"{len(found['breaks'])} graph breaks" + (":" if found["breaks"] else ""))
        lines += [f"  {text}" for text in found["breaks"]]
        total = sum(miss.count for miss in self.misses)
        lines.append(f"{total} calls would be compiled again" + (":" if total else ""))
        lines += [f"  {miss}" for miss in self.misses]
        return "\n".join(lines)


def compile_times(target: Any = None) -> str:
    """Seconds of capture and of the backend by function, as a table.

    target: a compiled callable; None means every one that is alive. Raises TypeError on a target
    that is not compiled.
    """
    compiler = compiler_of(target)
    if compiler is None and target is not None:
        raise TypeError(f"{target!r} is not a compiled callable")
    compilers = live_compilers() if compiler is None else [compiler]
    return _time_table([frame for one in compilers for frame in one.records.frames])


def _time_table(frames: Sequence[FrameRecord]) -> str:
    groups: dict[tuple[str, str, int], list[FrameRecord]] = {}
    for frame in frames:
        groups.setdefault((frame.function, frame.filename, frame.lineno), []).append(frame)
    rows = []
    for (function, filename, lineno), found in groups.items():
        backend = sum(frame.backend_seconds for frame in found)
        capture = sum(frame.seconds for frame in found) - backend
        rows.append((function, f"{filename}:{lineno}", len(found), capture, backend))
    rows.sort(key=lambda row: -(row[3] + row[4]))
    rows.append(("total", "", len(frames), sum(r[3] for r in rows), sum(r[4] for r in rows)))
    head = ("function", "where", "frames", "capture s", "backend s")
    cells = [head, *((r[0], r[1], str(r[2]), f"{r[3]:.4f}", f"{r[4]:.4f}") for r in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    lines = []
    for row in cells:
        left = [cell.ljust(width) for cell, width in zip(row[:2], widths[:2], strict=True)]
        right = [cell.rjust(width) for cell, width in zip(row[2:], widths[2:], strict=True)]
        lines.append("  ".join((*left, *right)).rstrip())
    return "\n".join(lines)
