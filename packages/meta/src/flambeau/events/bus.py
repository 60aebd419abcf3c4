"""Event bus: publishes each stage's products to subscribers.

In: products of the stages, each under its kind. Out: the same to every listener.
Invariant: a listener only looks; one that raises is named in a warning and told nothing more, and
the program it watches goes on.

Kinds and what comes with them:

| kind | product |
| --- | --- |
| `frame`, `graph`, `break`, `recompile`, `entry` | capture's records
(`flambeau_capture.observe.records`) |
| `aot` | `AotProduct`: the joint graph, its cut, the halves |
| `stage` | `StageProduct`: the inductor's compilation after one of its stages |
| `kernels` | `KernelsProduct`: the inductor is done with one half |
| `settled` | a text: a function compiles no more, or runs as it is as that is faster |
| `compiled` | `GraphRecord`: a captured graph is compiled |
| `fallback` | `StageFailure`: a captured graph runs eagerly |
| `fault` | `Fault`: a stage failed by itself, whether or not it was asked to go on |
| `run` | `flambeau.events.bus.GraphRun`: a compiled graph ran (for listeners with `every_run`
only) |
"""

from __future__ import annotations

import itertools
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import flambeau_aot
import flambeau_inductor
import torch
from torch import fx

from flambeau.errors import FlambeauWarning

if TYPE_CHECKING:
    from flambeau.backends.request import Backend, Request  # they import what records events


@dataclass(frozen=True)
class AotProduct:
    """A captured graph after ahead-of-time autograd; `compiled` has the joint graph and halves."""

    graph: str
    captured: fx.GraphModule
    compiled: flambeau_aot.Compiled
    seconds: float


@dataclass(frozen=True)
class StageProduct:
    """One half after a stage of the inductor; `work` is its `Compilation` as far as it has come."""

    graph: str
    half: str
    stage: str
    work: Any


@dataclass(frozen=True)
class KernelsProduct:
    """One half with its kernels. `folder`: where the stages' products are, if somebody asked."""

    graph: str
    half: str
    report: flambeau_inductor.Report
    seconds: float
    folder: Path | None = None


class Listener(Protocol):
    """Is told of products, and which compiled callable they are of (`EventBus.number`).

    every_stage: whether it needs to see what every stage makes, so that a graph that is on disk is
    compiled all the same. A listener with a true attribute `every_run` is told of the first runs of
    each graph too. `folder` names where the inductor leaves its own files, or None.
    """

    @property
    def every_stage(self) -> bool: ...

    def __call__(self, kind: str, product: object, owner: int) -> None: ...

    def folder(self, graph: str, half: str, owner: int) -> Path | None: ...


class Listeners:
    """A set of listeners that can be added to and taken from while products come in."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all: tuple[Listener, ...] = ()

    def add(self, listener: Listener) -> None:
        """Tell this one too."""
        with self._lock:
            self._all = (*self._all, listener)

    def remove(self, listener: Listener) -> None:
        """Tell this one no more; nothing happens where it is not told anyway."""
        with self._lock:
            self._all = tuple(each for each in self._all if each is not listener)

    def __iter__(self) -> Iterator[Listener]:
        return iter(self._all)

    def __bool__(self) -> bool:
        return bool(self._all)


_numbers = itertools.count()

#: listeners of everything that this process compiles: like the handlers of a root logger
EVERYTHING = Listeners()


@contextmanager
def listening(listener: Listener) -> Iterator[Listener]:
    """Tell a listener everything that is compiled within the block, on any thread."""
    EVERYTHING.add(listener)
    try:
        yield listener
    finally:
        EVERYTHING.remove(listener)


class EventBus:
    """The listeners of one compiled callable: its own, and those of the whole process.

    number: tells the compiled callables of a process apart; names of graphs repeat. tailor: gives
    one half options of its own, by its graph and kind; for bisection.
    """

    def __init__(self) -> None:
        self.number = next(_numbers)
        self.own = Listeners()
        self.tailor: Callable[[flambeau_inductor.Options, str, str], Any] | None = None

    @property
    def every_stage(self) -> bool:
        """Whether somebody needs graphs to go through every stage, from disk or not."""
        if self.tailor is not None:
            return True
        return any(each.every_stage for group in (self.own, EVERYTHING) for each in group)

    @property
    def every_run(self) -> bool:
        """Whether somebody wants to know when compiled graphs run."""
        groups = (self.own, EVERYTHING)
        return any(getattr(each, "every_run", False) for group in groups for each in group)

    def __bool__(self) -> bool:
        return self.tailor is not None or bool(self.own) or bool(EVERYTHING)

    def tell(self, kind: str, product: object) -> None:
        """Hand a product on."""
        for group in (self.own, EVERYTHING):
            for listener in group:
                try:
                    listener(kind, product, self.number)
                except Exception as error:
                    group.remove(listener)
                    warnings.warn(
                        f"{type(listener).__name__} is told nothing more: it failed on a {kind} "
                        f"({type(error).__name__}: {error})",
                        FlambeauWarning,
                        stacklevel=2,
                    )

    def observed(
        self, options: flambeau_inductor.Options, graph: str, half: str
    ) -> flambeau_inductor.Options:
        """The inductor's options for one half, with what the listeners want to see."""
        if self.tailor is not None:
            options = self.tailor(options, graph, half)
        if not self:
            return options
        folder = self._folder(graph, half)
        before = options.observer

        def observer(stage: str, work: Any) -> None:
            if before is not None:
                before(stage, work)
            self.tell("stage", StageProduct(graph, half, stage, work))

        debug = options.debug_dir if folder is None else os.fspath(folder)
        return replace(options, observer=observer, debug_dir=debug)

    def _folder(self, graph: str, half: str) -> Path | None:
        for group in (self.own, EVERYTHING):
            for listener in group:
                wanted = listener.folder(graph, half, self.number)
                if wanted is not None:
                    return wanted
        return None


MOST_RUNS = 20
"""Runs of each graph that listeners are told of: a long run stays as fast as it was."""


@dataclass(frozen=True)
class GraphRun:
    """One call of a compiled graph, by `time.perf_counter`; tensors as (address, bytes)."""

    graph: str
    started: float
    ended: float
    inputs: tuple[tuple[int, int], ...]
    outputs: tuple[tuple[int, int], ...]


def publish_runs(backend: Backend, request: Request) -> Backend:
    """The backend; whoever the request names is told when its graphs run."""
    told = request.told
    assert told is not None
    return lambda gm, example_inputs: told(backend(gm, example_inputs), type(gm).__name__)


def first_runs(watch: EventBus, compiled: Callable[..., Any], graph: str) -> Callable[..., Any]:
    """A compiled graph of whose first runs whoever listens for runs is told."""
    if not watch.every_run:
        return compiled
    return timed(compiled, graph, lambda run: watch.tell("run", run), MOST_RUNS)


def timed(
    compiled: Callable[..., Any],
    graph: str,
    note: Callable[[GraphRun], None],
    most: int | None = None,
) -> Callable[..., Any]:
    """A compiled graph of which `note` is given each run, or the first `most`."""
    left = [most]

    def call(*given: Any) -> Any:
        if left[0] is not None:
            if left[0] <= 0:
                return compiled(*given)
            left[0] -= 1
        started = time.perf_counter()
        results = compiled(*given)
        ended = time.perf_counter()
        note(GraphRun(graph, started, ended, _memory(given), _memory(results)))
        return results

    return call


def _memory(values: Sequence[Any]) -> tuple[tuple[int, int], ...]:
    """Where each tensor is, and how many bytes it has."""
    return tuple(
        (value.data_ptr(), value.numel() * value.element_size())
        for value in values
        if type(value) in (torch.Tensor, torch.nn.Parameter) and value.layout is torch.strided
    )
