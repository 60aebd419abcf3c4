"""`flambeau.trace`: recording of what a process compiles.

In: products of the stages. Out: a folder of events and artefacts, for `python -m flambeau report`.
Invariant: a trace only looks: kernels are timed on memory of its own, and what it cannot write is
one warning, after which the program goes on.
"""

from __future__ import annotations

import inspect
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

import flambeau_aot
import torch
from flambeau_capture.breaks import BreakReport
from flambeau_capture.bytecode.listing import listing
from flambeau_capture.observe.records import (
    CapturedGraph,
    EntryRecord,
    FrameRecord,
    RecompileRecord,
)
from torch import fx

from flambeau.backends.composed import classify
from flambeau.errors import StageFailure
from flambeau.events.bus import (
    EVERYTHING,
    MOST_RUNS,
    AotProduct,
    GraphRun,
    KernelsProduct,
    Listener,
    StageProduct,
    listening,
)
from flambeau.events.stage_products import facts_of, nbytes, user_lines_of
from flambeau.tracing.writer import EventWriter

MOST_BYTES = 1 << 30


def kernel_times(work: Any) -> dict[str, float]:
    """The best of a few runs of each generated kernel, in seconds by the loop's name."""
    layouts = {buffer.name: buffer.layout for buffer in work.scheduled().buffers}
    functions = {name: each for built in work.built for name, each in built.functions.items()}
    times: dict[str, float] = {}
    for text in work.kernels:
        for loop, launch in text.launches.items():
            function = functions.get(launch.kernel)
            sizes = [nbytes(layouts[name]) for name in launch.buffers if name in layouts]
            known = [size for size in sizes if size is not None]
            whole = len(known) == len(launch.buffers) and sum(known) <= MOST_BYTES
            if function is not None and whole and launch.by_address:
                times[loop] = _timed(function, launch, layouts)
    return times


def _timed(function: Callable[..., Any], launch: Any, layouts: Any) -> float:
    from flambeau_inductor.debug.benchmark_scripts import best_seconds  # no warm start loads it

    tensors = []
    for name in launch.buffers:
        shape, stride, _ = layouts[name].static()
        layout = {"dtype": layouts[name].dtype, "device": layouts[name].device}
        tensors.append(torch.empty_strided(shape, stride, **layout).zero_())
    device = tensors[0].device
    given = [tensor.data_ptr() for tensor in tensors]
    if launch.queued:
        given.insert(0, torch.cuda.current_stream(device).cuda_stream)
    return best_seconds(partial(function, *given), device)


def roof(work: Any) -> float:
    """Bytes a second that a copy moves (read and written) on the device of a compilation."""
    from flambeau_inductor.debug.benchmark_scripts import copy_rate  # no warm start loads it

    devices = [buffer.layout.device for buffer in work.scheduled().buffers]
    return copy_rate(devices[0] if devices else torch.device("cpu"))


DRAWN_NODES = 800
"""A joint graph of more operators than this is shown as text only."""

SHOWN = frozenset({".txt", ".py", ".cpp", ".json", ".svg", ".ptx", ".ttir", ".ttgir", ".log"})
"""Files of the inductor's debug folder that a page can show."""


def _epoch(moment: float) -> float:
    """A moment by `time.perf_counter` in seconds since the epoch."""
    return time.time() - (time.perf_counter() - moment)


Fields = dict[str, Any]


def _frame(trace: Trace, product: FrameRecord, owner: int) -> Fields:
    ended, stopped = _epoch(product.ended), product.stopped is not None
    return {"where": _where(product), "ended": ended, "stopped": stopped}


def _graph(trace: Trace, product: CapturedGraph, owner: int) -> Fields:
    name = type(product.module).__name__
    text = trace.writer.artefact(f"{owner}-{name}.py", fx_text(product.module))
    return {"graph": name, "installed": product.name, "files": {"FX graph": text}}


def _break(trace: Trace, product: BreakReport, owner: int) -> Fields:
    return {"edit": product.reason.hint, "met": product.what, "lines": [*map(str, product.lines)]}


def _recompile(trace: Trace, product: RecompileRecord, owner: int) -> Fields:
    failures = [
        {"guard": str(f.guard), "expected": str(f.expected), "got": str(f.got)}
        for f in product.failures
    ]
    return {"where": _where(product), "failures": failures}


def _entry(trace: Trace, product: EntryRecord, owner: int) -> Fields:
    write, name = trace.writer.artefact, f"{owner}-{product.function}"
    # a line a guard: the value, and what it has to be
    lines = (f"{guard}: {guard.kind.expected(guard.params)}" for guard in product.guards.items)
    conditions = "\n".join(lines)
    return {
        "where": _where(product),
        "guards": [str(guard) for guard in product.guards.items],
        "files": {
            "source": write(f"{name}-source.py", _source(product)),
            "bytecode before": write(f"{name}-before.txt", listing(product.original)),
            "bytecode after": write(f"{name}-after.txt", listing(product.code)),
            "guards": write(f"{name}-guards.txt", conditions),
        },
    }


def _where(product: Any) -> str:
    return f"{product.filename}:{product.lineno}"


def _aot(trace: Trace, product: AotProduct, owner: int) -> Fields:
    compiled, write = product.compiled, trace.writer.artefact
    name = f"{owner}-{product.graph}"
    files: dict[str, str] = {}
    if compiled.joint is not None:
        saved = () if compiled.halves is None else compiled.halves.saved_nodes
        text = flambeau_aot.show_joint(compiled.joint, saved, classify)
        files["joint graph"] = write(f"{name}-joint.py", text)
        if len(compiled.joint.graph.nodes) <= DRAWN_NODES:
            picture = flambeau_aot.draw_joint(compiled.joint, saved, known=classify)
            files["joint graph, drawn"] = write(f"{name}-joint.svg", picture)
    halves = {"forward": compiled.forward, "backward": compiled.backward}
    for half, gm in halves.items():
        if gm is not None:
            text = flambeau_aot.show_graph(gm.graph, half)
            files[f"{half} graph"] = write(f"{name}-{half}.py", text)
    return {"report": asdict(compiled.report), "files": files}


def _stage(trace: Trace, product: StageProduct, owner: int) -> Fields | None:
    key = (owner, product.graph, product.half)
    if product.stage == "build" and trace.kernel_times:
        trace.timed[key] = kernel_times(product.work)
    if product.stage != "wrap":
        return None
    facts = facts_of(product.work, product.graph, product.half)
    times = trace.timed.pop(key, {})
    steps = tuple(replace(step, seconds=times.get(step.name)) for step in facts.steps)
    measured = roof(product.work) if times else None
    return {"roof": measured, "facts": asdict(replace(facts, steps=steps))}


def _kernels(trace: Trace, product: KernelsProduct, owner: int) -> Fields:
    files: dict[str, str] = {}
    if product.folder is not None and product.folder.is_dir():
        for path in sorted(product.folder.rglob("*")):
            if path.suffix in SHOWN:
                files[path.name] = str(path.relative_to(trace.writer.folder))
    for name, text in product.report.sources.items():
        if not any(key.endswith(name) for key in files):
            files[name] = trace.writer.artefact(f"{owner}-{product.graph}-{name}", text)
    return {"report": product.report.to_dict(), "files": files}


def _fallback(trace: Trace, product: StageFailure, owner: int) -> Fields:
    error = f"{type(product.error).__name__}: {product.error}"
    return {"error": error, "lines": product.user_lines}


def _run(trace: Trace, product: GraphRun, owner: int) -> Fields:
    return {"started": _epoch(product.started), "seconds": product.ended - product.started}


def _source(product: EntryRecord) -> str:
    """The function's text, or where it would be."""
    try:
        return inspect.getsource(product.original)
    except (OSError, TypeError):
        return f"# no source: {product.filename}, line {product.lineno}\n"


def fx_text(gm: fx.GraphModule) -> str:
    """A captured graph as Python, with the user's lines."""
    lines = user_lines_of(gm.graph.nodes)
    shown, out = "", [f"# {type(gm).__name__}"]
    for node in gm.graph.nodes:
        line = lines.get(node.name, "")
        if line and line != shown:
            shown = line
            out += ["", f"# {line}"]
        out.append(str(node.format_node()))
    return "\n".join([*out, "", gm.code.strip(), ""])


Recording = tuple[str, Callable[["Trace", Any, int], Fields | None]]
RECORDED: Mapping[str, Recording] = {
    "frame": ("function seconds backend_seconds outcome changes", _frame),
    "graph": ("function inputs operations", _graph),
    "break": ("reason.id reason.title", _break),
    "recompile": ("function", _recompile),
    "entry": ("function graphs", _entry),
    "settled": ("", lambda trace, product, owner: {"text": product}),
    "aot": ("graph seconds", _aot),
    "stage": ("graph half", _stage),
    "kernels": ("graph half seconds", _kernels),
    "compiled": ("", lambda _, product, owner: {"graph": product.name, "record": asdict(product)}),
    "fallback": ("graph stage", _fallback),
    "run": ("graph inputs outputs", _run),
}
"""By the kind of a product: its fields that an event has as they are, and what makes the others."""


VARIABLE = "FLAMBEAU_TRACE"


class Trace(Listener):
    """A listener that writes events. A process that was forked from this one gets its own folder.

    root: the folder of the whole run, of which every process takes a part. kernel_times: run each
    kernel alone after it is built, against the bandwidth of a copy.
    """

    every_stage = True
    runs = MOST_RUNS

    def __init__(self, root: str | os.PathLike[str], kernel_times: bool = True) -> None:
        self.root = Path(root)
        self.kernel_times = kernel_times
        self.timed: dict[tuple[int, str, str], dict[str, float]] = {}
        self._lock = threading.Lock()
        self._writer: EventWriter | None = None

    @property
    def writer(self) -> EventWriter:
        """The writer of this process, made at the first event."""
        with self._lock:
            if self._writer is None or self._writer.process != os.getpid():
                self._writer = EventWriter(self.root)
            return self._writer

    def __call__(self, kind: str, product: object, owner: int) -> None:
        if kind not in RECORDED:
            return
        names, made = RECORDED[kind]
        fields = made(self, product, owner)
        if fields is not None:
            for name in names.split():
                fields[name.rpartition(".")[2]] = attrgetter(name)(product)
            self.writer.event("half" if kind == "stage" else kind, owner, fields)

    def folder(self, graph: str, half: str, owner: int) -> Path | None:
        """Where the inductor leaves what its stages make."""
        return self.writer.folder / self.writer.place(f"{owner}-{graph}-{half}")

    def close(self) -> None:
        """Write the last event."""
        with self._lock:
            writer = self._writer
        if writer is not None and writer.process == os.getpid():
            writer.event("end", -1, {})
            writer.close()


@contextmanager
def trace(folder: str | os.PathLike[str], *, kernel_times: bool = True) -> Iterator[Trace]:
    """Record all that is compiled within the block, on any thread, into `folder`.

    The folder may hold parts of other processes and of earlier blocks: each adds its own.
    """
    made = Trace(folder, kernel_times)
    try:
        with listening(made):
            yield made
    finally:
        made.close()


_lock = threading.Lock()
_of_environment: dict[str, Trace] = {}


def from_environment() -> None:
    """Follow FLAMBEAU_TRACE, for the rest of the process."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        return
    with _lock:
        if folder not in _of_environment:
            made = _of_environment[folder] = Trace(folder)
            EVERYTHING.add(made)
