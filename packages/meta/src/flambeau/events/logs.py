"""Logging of all layers, by artifact.

In: names of artifacts, from `set_logs` or the variable FLAMBEAU_LOGS. Out: records of loggers:
capture's own artifacts under `flambeau_capture.<name>`, those of the stages after it under
`flambeau.<name>`; one line on a terminal while a compilation is long, gone when the graph is done.
Invariant: what is not shown is not made, and the line appears in no file.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TextIO

import flambeau_aot
from flambeau_capture.observe import logs as capture_logs

from flambeau.errors import UnknownName
from flambeau.events.bus import EVERYTHING, AotProduct, KernelsProduct, Listener, StageProduct
from flambeau.events.records import GraphRecord
from flambeau.shown import counted

ROOT = "flambeau"
OWN = {
    "aot": "each joint graph with its cut, and the report of ahead-of-time autograd",
    "prims": "each half as a graph of primitives, after the rewrites",
    "fusion": "the loops of each half after fusion, what was joined, what was refused and why",
    "code": "the generated kernels and the wrapper that calls them",
    "eager": "each graph that runs eagerly, with the stage and the reason",
    "summary": "one line a graph: kernels, fused operations, library calls, seconds",
}
"""Artifact of the stages after capture to what its records hold."""

ARTIFACTS = {**capture_logs.ARTIFACTS, **OWN}
VARIABLE = capture_logs.VARIABLE


class UnknownArtifact(UnknownName):
    """A name that stands for no artifact."""


def set_logs(names: str | Iterable[str] = (), *, stream: TextIO | None = None) -> None:
    """Show these artifacts and no others.

    names: a comma-separated string, or names of `ARTIFACTS`; "all" stands for each of them, and
        nothing turns them all off.
    stream: where they are printed; None is standard error. A handler of the program's own on the
        loggers `flambeau` and `flambeau_capture` takes precedence over it.

    Raises UnknownArtifact, with the names that there are, and TypeError for what is no names.
    """
    if not isinstance(names, Iterable):
        raise TypeError(f"logs are names, as 'graph,breaks' or a list of them, not {names!r}")
    listed = names.split(",") if isinstance(names, str) else list(names)
    chosen = {name.strip() for name in listed if name.strip()}
    if "all" in chosen:
        chosen = set(ARTIFACTS)
    for name in sorted(chosen - set(ARTIFACTS)):
        raise UnknownArtifact("artifact", name, ARTIFACTS)
    capture_logs.set_logs(sorted(chosen & set(capture_logs.ARTIFACTS)), stream=stream)
    _apply(chosen & set(OWN), stream)


def from_environment() -> None:
    """Follow FLAMBEAU_LOGS, where nothing is shown yet. Capture follows it for its own part."""
    listed = {name.strip() for name in os.environ.get(VARIABLE, "").split(",")}
    chosen = set(OWN) if "all" in listed else listed & set(OWN)
    if chosen and not any(logger(name).isEnabledFor(logging.DEBUG) for name in OWN):
        _apply(chosen, None)


def logger(name: str) -> logging.Logger:
    """The logger of an artifact of the stages after capture."""
    return logging.getLogger(f"{ROOT}.{name}")


class _Printer(logging.StreamHandler[TextIO]):
    """The handler that `set_logs` puts in; known by its class, so that it is put in once."""


_lock = threading.Lock()


def _apply(chosen: set[str], stream: TextIO | None) -> None:
    root = logging.getLogger(ROOT)
    with _lock:
        for handler in [h for h in root.handlers if isinstance(h, _Printer)]:
            root.removeHandler(handler)
        for listener in [each for each in EVERYTHING if isinstance(each, LogListener)]:
            EVERYTHING.remove(listener)
        for name in OWN:
            logger(name).setLevel(logging.DEBUG if name in chosen else logging.NOTSET)
        if not chosen:
            return
        EVERYTHING.add(LogListener())
        if not root.handlers:
            printer = _Printer(stream)
            printer.setFormatter(logging.Formatter("[%(name)s] %(message)s"))
            root.addHandler(printer)


class LogListener(Listener):
    """Turns products into records of the loggers that somebody listens to."""

    @property
    def every_stage(self) -> bool:  # type: ignore[override]
        """What shows graphs and code needs them made."""
        shown = {name for name in OWN if logger(name).isEnabledFor(logging.DEBUG)}
        return bool(shown - {"eager", "summary"})

    def __call__(self, kind: str, product: object, owner: int) -> None:
        when = product.stage if isinstance(product, StageProduct) else kind
        for name, text in TEXTS.get(when, {}).items():
            if logger(name).isEnabledFor(logging.DEBUG):
                logger(name).debug("%s", text(product))


def _joint(product: AotProduct) -> str:
    compiled = product.compiled
    if compiled.joint is None:
        return str(compiled.report)
    saved = () if compiled.halves is None else compiled.halves.saved_nodes
    return f"{compiled.report}\n{flambeau_aot.show_joint(compiled.joint, saved)}"


def _primitives(product: StageProduct) -> str:
    text = flambeau_aot.show_graph(product.work.rewritten().graph, product.half)
    return f"{product.graph} {product.half}\n{text}"


def _fusion(product: StageProduct) -> str:
    from flambeau_inductor.ir.show import show_program  # only where it is shown

    work = product.work
    joined = [f"  joined {merge.first} and {merge.second}" for merge in work.merges]
    refused = [f"  apart {r.first} and {r.second}: {r.reason}" for r in work.refusals]
    head = f"{product.graph} {product.half}: {len(joined)} joined, {len(refused)} refused"
    return "\n".join([head, *joined, *refused, show_program(work.scheduled())])


def _code(product: KernelsProduct) -> str:
    texts = (f"--- {name}\n{text}" for name, text in product.report.sources.items())
    return "\n".join([f"{product.graph} {product.half}", *texts])


def _summary(product: GraphRecord) -> str:
    calls = sum(product.externs.values())
    return (
        f"{product.name}: {product.kind}, {counted(product.nodes, 'operation')}, "
        f"{counted(product.kernels, 'kernel')}, {counted(product.fused_ops, 'fused operation')}, "
        f"{counted(calls, 'library call')}, "
        f"{sum(product.seconds.values()):.2f} s"
    )


TEXTS: Mapping[str, Mapping[str, Callable[[Any], str]]] = {
    "aot": {"aot": _joint},
    "rewrite": {"prims": _primitives},
    "optimize": {"fusion": _fusion},
    "kernels": {"code": _code},
    "compiled": {"summary": _summary},
    "fallback": {"eager": str},
}
"""Texts by the product's kind, or the stage that it is of, and the artifact's name."""


PROGRESS = "FLAMBEAU_PROGRESS"
PATIENCE = 3.0
"""Seconds that a compilation takes before a line appears."""


class Progress(Listener):
    """A listener that draws the line. `patience` in seconds; `stream` None is standard error."""

    def __init__(self, stream: TextIO | None = None, patience: float = PATIENCE) -> None:
        self.stream = sys.stderr if stream is None else stream
        self.patience = patience
        self.lines = 0
        self._started: dict[int, float] = {}
        self._graphs: dict[int, int] = {}
        self._width = 0
        self._lock = threading.Lock()

    def __call__(self, kind: str, product: object, owner: int) -> None:
        now = time.perf_counter()
        with self._lock:
            if kind == "frame":
                self._started.pop(owner, None)
                self._graphs.pop(owner, None)
                self._draw("")
                return
            started = self._started.setdefault(owner, now)
            if kind == "compiled":
                self._graphs[owner] = self._graphs.get(owner, 0) + 1
            if now - started < self.patience:
                return
            self._draw(self._text(kind, product, now - started, self._graphs.get(owner, 0)))

    def _text(self, kind: str, product: object, seconds: float, graphs: int) -> str:
        doing = kind
        if isinstance(product, StageProduct):
            doing = f"{product.graph} {product.half}: {product.stage} done"
        elif isinstance(product, KernelsProduct):
            doing = (
                f"{product.graph} {product.half}: {counted(product.report.kernels, 'kernel')} built"
            )
        return f"flambeau: {doing} ({counted(graphs, 'graph')}, {seconds:.0f} s)"

    def _draw(self, text: str) -> None:
        if not text and not self._width:
            return
        self.stream.write(f"\r{text.ljust(self._width)}" if text else f"\r{' ' * self._width}\r")
        self.stream.flush()
        self._width = len(text)
        self.lines += bool(text)


def show_progress() -> None:
    """Show progress on a terminal: FLAMBEAU_PROGRESS=0 turns it off, 1 on everywhere."""
    chosen = os.environ.get(PROGRESS, "")
    wanted = chosen not in ("", "0") or (chosen == "" and sys.stderr.isatty())
    with _lock:
        there = any(isinstance(each, Progress) for each in EVERYTHING)
        if wanted and not there:
            EVERYTHING.add(Progress())
