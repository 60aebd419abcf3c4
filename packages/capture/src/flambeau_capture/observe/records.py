"""Record of one compiled callable: graphs, frames, breaks, recompilations, faults.

In: facts, as a conversion comes to them. Out: `Records`, which explanations, profiles and reports
read. Invariant: plain data; nothing here decides what is compiled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from types import CodeType
from typing import Any

from torch import fx

from flambeau_capture import _torch_compat as compat
from flambeau_capture.breaks import BreakReport, UserLine
from flambeau_capture.guards.guard import Guard, GuardFailure, failure_of
from flambeau_capture.identity import IdentityMap
from flambeau_capture.source import ConstantSource, Scope


def without_frames(error: BaseException) -> None:
    """Let an error that is kept forget where it was raised: tracebacks hold frames, and those
    their callers, whose variables the program may want to end."""
    compat.end_guards(error, traced=False)


@dataclass(frozen=True)
class CapturedGraph:
    """A graph that was given to the backend. `operations` counts its calls."""

    name: str
    module: fx.GraphModule
    operations: int
    function: str
    inputs: tuple[str, ...]


@dataclass(frozen=True)
class FrameRecord:
    """One frame that was converted: the function, where it stands, what came of it.

    `seconds` is the wall-clock time of the conversion, `backend_seconds` the part of it that the
    backend took, `ended` the moment of its end by `time.perf_counter`. `outcome` is "graph",
    "break", "raise" (after its one graph), "nothing to compile" or why it runs eagerly.
    `changes` names the objects that the frame writes to.
    """

    function: str
    filename: str
    lineno: int
    seconds: float
    backend_seconds: float
    outcome: str
    ended: float = 0.0
    changes: tuple[str, ...] = ()
    stopped: BreakReport | None = None

    def __str__(self) -> str:
        return (
            f"{self.function} ({self.filename}:{self.lineno}): {self.outcome}, "
            f"{1e3 * self.seconds:.1f} ms, {1e3 * self.backend_seconds:.1f} of them in the backend"
        )


@dataclass(frozen=True)
class RecompileRecord:
    """A call that no entry fitted: the function, and each entry's first guard that failed.

    A failure holds the guard, what it expected and what it got. That of the nearest entry, of which
    the fewest guards failed, is the first; of entries as near, the newest one's.
    """

    function: str
    filename: str
    lineno: int
    failures: tuple[GuardFailure, ...]

    def __str__(self) -> str:
        first = self.failures[0]
        more = f" (and {len(self.failures) - 1} more entries)" if len(self.failures) > 1 else ""
        return (
            f"{self.function} ({self.filename}:{self.lineno}) is compiled again: "
            f"{first.guard} expected {first.expected}, got {first.got}{more}"
        )


@dataclass(frozen=True)
class EntryRecord:
    """An entry of the frame cache: a function's code as it was, the code that runs in its place
    where the guards hold, and the graphs that this calls by name."""

    function: str
    filename: str
    lineno: int
    original: CodeType
    code: CodeType
    guards: Any

    @property
    def graphs(self) -> tuple[str, ...]:
        """Names of the compiled graphs that the new code calls."""
        return tuple(name for name in self.code.co_names if name.startswith("__compiled_fn_"))


def _without_tensors(record: CapturedGraph) -> CapturedGraph:
    module = object.__new__(type(record.module))
    tables = {
        name: dict.fromkeys(vars(record.module)[name]) for name in ("_parameters", "_buffers")
    }
    vars(module).update({**vars(record.module), **tables})
    return replace(record, module=module)


@dataclass(frozen=True)
class RecordedFault:
    """A failure of capture itself: in which function, at which line of the user's, what failed.

    A refusal is a `Break`, a `SkipFrame` or a `BackendError`, and says so; anything else that ends
    a conversion is a fault. `while_doing` says at what it came up.
    """

    function: str
    line: UserLine | None
    error: BaseException
    while_doing: str = "capture"

    def __str__(self) -> str:
        text = f"{type(self.error).__name__}: {self.error} ({self.while_doing} of {self.function})"
        return text if self.line is None else f"{text}\n{self.line}"


@dataclass
class Records:
    """What happened to one compiled callable; `explain` reads it."""

    frames: list[FrameRecord] = field(default_factory=list)
    #: why frames stopped, the latest by the file and line of each place
    stops: dict[tuple[str, int], BreakReport] = field(default_factory=dict)
    graphs: list[CapturedGraph] = field(default_factory=list)
    breaks: list[BreakReport] = field(default_factory=list)
    recompiles: list[RecompileRecord] = field(default_factory=list)
    static_only: list[tuple[str, str]] = field(default_factory=list)
    guards: list[Any] = field(default_factory=list)
    faults: list[RecordedFault] = field(default_factory=list)
    backend_errors: list[BaseException] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    settled: list[str] = field(default_factory=list)  # what compiles no more, or runs as it is
    #: of the entries that ended with an object, by code: the guards that examined it
    ended: IdentityMap[CodeType, list[tuple[Guard, ...]]] = field(default_factory=IdentityMap)

    def note(self, frame: FrameRecord) -> None:
        """Note a frame that was converted."""
        self.frames.append(frame)
        if frame.stopped is not None and frame.stopped.lines:
            line = frame.stopped.lines[0]
            self.stops[line.filename, line.lineno] = frame.stopped

    def end(self, code: CodeType, guards: Sequence[Guard]) -> None:
        """Note that an entry ended with the objects that these guards knew. What such a guard
        keeps alive besides (the object that a source starts from) is not kept for it."""
        free = (
            g for g in guards if not any(isinstance(s.root(), ConstantSource) for s in g.sources)
        )
        self.ended[code] = [*self.ended.get(code, []), tuple(free)]

    def forget(self, names: Collection[str], guards: Any) -> None:
        """Keep of graphs that can never run again what can be read of them, not their tensors."""
        self.graphs = [_without_tensors(g) if g.name in names else g for g in self.graphs]
        self.guards = [known for known in self.guards if known is not guards]

    def failures_of_ended(self, code: CodeType, scope: Scope) -> list[GuardFailure]:
        """What made a frame miss the entries that are gone, the newest first."""
        ended = reversed(self.ended.get(code, []))
        return [failure_of(guards[0], scope) for guards in ended if guards]

    @property
    def internal_errors(self) -> list[BaseException]:
        """What was raised by the faults of capture itself."""
        return [fault.error for fault in self.faults]

    def skip(self, function: str, why: str) -> None:
        """Note, once, that a function runs as it is for this reason."""
        if (function, why) not in self.skipped:
            self.skipped.append((function, why))

    def recompiles_by_object(self) -> dict[str, int]:
        """How often each object, by where it is found, made the newest entry not fit."""
        guards = (record.failures[0].guard for record in self.recompiles)
        return dict(Counter(str(guard).rpartition(" ")[0] for guard in guards).most_common())
