"""Records of compilation: one per graph, one report per compiled callable.

In: the public report objects of the stages. Out: frozen records, and sums over them. Invariant: a
recorder belongs to one compiled callable; a fallback is a record like any other; a failure is a
candidate until the program has run eagerly in its place.
"""

from __future__ import annotations

import threading
import weakref
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import flambeau_aot
import torch
from flambeau_capture.api import compiler_of
from torch import fx

from flambeau import _torch_compat as compat
from flambeau.errors import Fault, StageFailure
from flambeau.events.bus import EventBus
from flambeau.shown import Shown, counted


@dataclass(frozen=True)
class GraphRecord:
    """One graph that a backend was given.

    nodes: operations in the captured graph. kernels, fused_ops: over its forward and backward
    halves. saved_bytes: kept from forward to backward; saved_bytes_save_all: what keeping
    everything would take. externs: library calls by operator; no_kernel: those of them that stand
    in for a missing kernel. seconds: by phase. from_disk: compiled by an earlier process (or call).
    key: what it is found by on the disk (`flambeau.cache.why_miss`).
    not_cached: why it is not kept on the disk, "" where it is. cache_faults: what went wrong with
    the disk.
    """

    name: str
    kind: str
    nodes: int
    kernels: int = 0
    fused_ops: int = 0
    cache_hits: int = 0
    externs: Mapping[str, int] = field(default_factory=dict)
    no_kernel: Mapping[str, int] = field(default_factory=dict)
    saved_bytes: int = 0
    saved_bytes_save_all: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)
    from_disk: bool = False
    not_cached: str = ""
    cache_faults: tuple[str, ...] = ()
    key: Any = None


@dataclass(frozen=True, repr=False)
class Report(Shown):
    """Sums over all graphs of one compiled callable, and capture's own counts.

    fallbacks: graphs that a backend could not compile. breaks: why graphs end, each once. guards:
    checks made before compiled code is used. skipped: frames left to Python, with the reason.
    faults: failures of the compiler itself, in capture or a stage after it, whether or not
    something ran eagerly for it; what a stage refuses is none. races: which backend was chosen for
    a graph by measurement, and by how much it won. settled: functions that compile no more, or run
    as they are because that was measured to be faster. backend_errors: what a backend of the user's
    own raised. program_errors: graphs that no stage could compile because the program raises there,
    without a compiler too. narrowed: functions whose graphs were made again with less left open, as
    a stage did not take a size, a number or what depends on data; why. unpadded: graphs whose
    arguments were to be padded, and are not; why.
    """

    records: tuple[GraphRecord, ...] = ()
    fallbacks: tuple[StageFailure, ...] = ()
    breaks: tuple[str, ...] = ()
    guards: int = 0
    skipped: tuple[str, ...] = ()
    faults: tuple[Fault, ...] = ()
    races: tuple[str, ...] = ()
    settled: tuple[str, ...] = ()
    backend_errors: tuple[str, ...] = ()
    program_errors: tuple[StageFailure, ...] = ()
    narrowed: tuple[str, ...] = ()
    unpadded: tuple[str, ...] = ()

    @property
    def internal_errors(self) -> tuple[str, ...]:
        """The faults, in words."""
        return tuple(str(fault) for fault in self.faults)

    @property
    def graphs(self) -> int:
        """Graphs captured, those that fell back included."""
        return len(self.records) + len(self.fallbacks) + len(self.program_errors)

    @property
    def kernels(self) -> int:
        """Kernels generated, forward and backward."""
        return sum(record.kernels for record in self.records)

    @property
    def fused_ops(self) -> int:
        """Operations that became part of a generated kernel."""
        return sum(record.fused_ops for record in self.records)

    @property
    def externs(self) -> dict[str, int]:
        """Library calls by operator."""
        return dict(sum((Counter(record.externs) for record in self.records), Counter()))

    @property
    def no_kernel(self) -> dict[str, int]:
        """Library calls that stand in for a missing kernel, by operator."""
        return dict(sum((Counter(record.no_kernel) for record in self.records), Counter()))

    @property
    def saved_bytes(self) -> int:
        """Bytes kept from forward to backward."""
        return sum(record.saved_bytes for record in self.records)

    @property
    def saved_bytes_save_all(self) -> int:
        """Bytes that keeping everything the backward pass reads would take."""
        return sum(record.saved_bytes_save_all for record in self.records)

    @property
    def seconds(self) -> dict[str, float]:
        """Compile time by phase, longest first."""
        spent: defaultdict[str, float] = defaultdict(float)
        for record in self.records:
            for phase, seconds in record.seconds.items():
                spent[phase] += seconds
        return dict(sorted(spent.items(), key=lambda item: -item[1]))

    def to_dict(self) -> dict[str, object]:
        """The sums as plain data, for JSON."""
        numbers = "graphs guards kernels fused_ops externs no_kernel seconds "
        numbers += "saved_bytes saved_bytes_save_all"
        texts = "breaks fallbacks skipped internal_errors backend_errors races settled "
        texts += "program_errors narrowed unpadded"
        return {
            **{name: getattr(self, name) for name in numbers.split()},
            **{name: [*map(str, getattr(self, name))] for name in texts.split()},
        }

    def __str__(self) -> str:
        lines = [
            f"{counted(self.graphs, 'graph')}, {counted(len(self.breaks), 'graph break')}, "
            f"{counted(self.guards, 'guard')}, {counted(self.kernels, 'kernel')}, "
            f"{counted(self.fused_ops, 'fused operation')}"
        ]
        lines += [f"  {seconds:8.3f} s  {phase}" for phase, seconds in self.seconds.items()]
        lines += [f"  {count:8d} x  {name} (library)" for name, count in self.externs.items()]
        lines += [f"  ran eagerly: {failure}" for failure in self.fallbacks]
        lines += [f"  the program raises: {failure}" for failure in self.program_errors]
        lines += [f"  disk cache: {text}" for each in self.records for text in each.cache_faults]
        lines += [f"  left to Python: {text}" for text in self.skipped]
        lines += [f"  made again: {text}" for text in self.narrowed]
        lines += [f"  not padded: {text}" for text in self.unpadded]
        lines += [f"  backend failed: {text}" for text in self.backend_errors]
        if self.faults:
            lines.append(f"  {counted(len(self.faults), 'fault')} of the compiler:")
        lines += [f"    {text}" for text in self.internal_errors]
        lines += [f"  measured: {text}" for text in self.races]
        lines += [f"  settled: {text}" for text in self.settled]
        return "\n".join(lines)


def total(reports: Iterable[Report]) -> Report:
    """Several reports as one."""
    each, sums = list(reports), dict[str, Any]()
    for own in fields(Report):
        start: Any = own.default
        sums[own.name] = sum((getattr(report, own.name) for report in each), start)
    return Report(**sums)


class RecordCollector:
    """Collects the records of one compiled callable, and publishes them to who watches it.

    is_foreign: its backend is the user's own. Two threads may compile at once.
    """

    def __init__(self, is_foreign: bool = False) -> None:
        self.is_foreign = is_foreign
        self._lock = threading.Lock()
        self._seen = Report()
        self._suspected: list[StageFailure] = []
        self.watch = EventBus()

    def _note(self, field_name: str, each: object) -> None:
        with self._lock:
            more: Any = (*getattr(self._seen, field_name), each)
            self._seen = replace(self._seen, **{field_name: more})

    def add(self, record: GraphRecord) -> None:
        """One more graph was compiled."""
        self._note("records", record)
        self.watch.publish("compiled", record)

    def _forget(self, failed: StageFailure) -> None:
        """What was recorded of compiling a graph does not count any more."""
        left = tuple(each for each in self._seen.records if each.name != failed.graph)
        self._seen = replace(self._seen, records=left)
        self._suspected = [each for each in self._suspected if each is not failed]

    def suspect(self, failure: StageFailure) -> None:
        """A graph runs eagerly whose failure is the compiler's or the program's: its first call
        shows which, by `fall_back` or `acquit`."""
        with self._lock:
            self._forget(failure)
            self._suspected.append(failure)

    def acquit(self, failure: StageFailure) -> None:
        """A suspected failure is the program's own error; no fault is left of it."""
        own = failure.as_fault()
        with self._lock:
            self._suspected.remove(failure)
            # a graph with open sizes may have failed of it first
            faults = tuple(
                each
                for each in self._seen.faults
                if (each.kind, each.user_line) != (own.kind, own.user_line)
            )
            self._seen = replace(self._seen, faults=faults)
        self._note("program_errors", failure)

    def fall_back(self, failure: StageFailure) -> bool:
        """One more graph runs eagerly; True when it is the first with this stage and error."""
        with self._lock:
            self._forget(failure)
            key = (failure.stage, type(failure.error))
            first = all((f.stage, type(f.error)) != key for f in self._seen.fallbacks)
        self._note("fallbacks", failure)
        if failure.is_fault:
            self.fault(failure.as_fault())
        self.watch.publish("fallback", failure)
        return first

    def fault(self, fault: Fault) -> None:
        """One more failure of the compiler itself."""
        self._note("faults", fault)
        self.watch.publish("fault", fault)

    def unpadded(self, text: str) -> None:
        """One more graph is not padded, as `sizes=` has it."""
        self._note("unpadded", text)

    def race(self, text: str) -> None:
        """One more graph was given to the fastest of several backends."""
        self._note("races", text)

    def report(self, faults: Iterable[Fault] = (), **captured: Any) -> Report:
        """The sums so far, with what capture counted: fields of `Report`."""
        with self._lock:
            seen, suspected = self._seen, tuple(self._suspected)
        own = (each.as_fault() for each in suspected if each.is_fault)
        return replace(
            seen,
            fallbacks=(*seen.fallbacks, *suspected),
            faults=(*faults, *seen.faults, *own),
            **captured,
        )


#: by identity each compiled callable that is alive, and its recorder, which holds no choice and no
#: compiled code; a compiled module is equal to each other one of its module's, and may end first
_recorders: dict[int, tuple[weakref.ref[Any], RecordCollector]] = {}


def remember(compiled: Any, recorder: RecordCollector) -> None:
    """Note whose records these are."""
    place = id(compiled)
    _recorders[place] = weakref.ref(compiled, lambda _: _recorders.pop(place, None)), recorder


def recorder_of(compiled: Any) -> RecordCollector | None:
    """The recorder of what `flambeau.compile` returned, or of what is around it; of a module that
    of the last that was made of it; None for anything else."""
    alive, compiler = _alive(), compiler_of(compiled)
    own = [recorder for each, recorder in alive if each is compiled]
    if not own and compiler is not None:
        own = [recorder for each, recorder in alive if compiler_of(each) is compiler]
    if not own and isinstance(compiled, torch.nn.Module):
        own = [recorder for each, recorder in alive if each == compiled]
    return own[-1] if own else None


def _alive() -> list[tuple[Any, RecordCollector]]:
    found = [(made(), recorder) for made, recorder in list(_recorders.values())]
    return [(each, recorder) for each, recorder in found if each is not None]


def recorders_of(compiled: Any = None) -> list[tuple[Any, RecordCollector]]:
    """A compiled callable, or all that are alive, with the recorder of each.

    Raises TypeError for what `flambeau.compile` did not return.
    """
    if compiled is None:
        return _alive()
    compiled = compat.compiled_form(compiled)
    recorder = recorder_of(compiled)
    if recorder is None:  # a class that `torch.compile` was called for, or an instance of it
        kind = compiled if isinstance(compiled, type) else type(compiled)
        compiled, recorder = kind, recorder_of(kind.__dict__.get("__call__"))
    if recorder is None:
        raise TypeError(f"{compiled!r} is not something that flambeau.compile returned")
    return [(compiled, recorder)]


def operations(gm: fx.GraphModule) -> int:
    """Operations in a captured graph: calls, without inputs, parameters and the output."""
    return sum(node.op.startswith("call_") for node in gm.graph.nodes)


@dataclass
class RecordTally:
    """What becomes of one captured graph in the inductor: its halves, forward first, or the disk's.

    cache_seconds: of loading it from there.
    """

    graphs: list[Any] = field(default_factory=list)
    cache_seconds: float | None = None
    cache_fault: str = ""
    not_cached: str = ""
    key: Any = None

    def record(self, gm: fx.GraphModule, aot: flambeau_aot.Report, seconds: float) -> GraphRecord:
        """The sums. Seconds of different phases do not overlap: what the inductor spent inside of
        AOT's "compile" passes is counted once, under the inductor's own phases."""
        reports = [each.report for each in self.graphs]
        phases: defaultdict[str, float] = defaultdict(float)
        for report in reports:
            for phase, spent in report.seconds.items():
                phases[f"inductor: {phase}"] += spent
        if self.cache_seconds is not None:
            phases["cache: load"] = self.cache_seconds
        for phase, spent in aot.seconds.items():
            if phase not in ("compile forward", "compile backward", "compile inference"):
                phases[f"aot: {phase}"] = spent
        phases["other"] = max(seconds - sum(phases.values()), 0.0)
        faults = [fault for report in reports for fault in report.cache_faults]
        return GraphRecord(
            name=type(gm).__name__,
            kind=aot.kind,
            nodes=operations(gm),
            kernels=sum(report.kernels for report in reports),
            fused_ops=sum(report.fused_ops for report in reports),
            cache_hits=sum(bool(report.cache_hit) for report in reports),
            externs=dict(sum((Counter(report.externs) for report in reports), Counter())),
            no_kernel=dict(Counter(each.operator for r in reports for each in r.fallbacks)),
            saved_bytes=aot.saved_bytes,
            saved_bytes_save_all=aot.saved_bytes_save_all,
            seconds=dict(phases),
            from_disk=self.cache_seconds is not None,
            not_cached=self.not_cached,
            cache_faults=(*faults, *filter(None, [self.cache_fault])),
            key=self.key,
        )
