"""Event bus: publishes each stage's products to subscribers.

In: products of the stages, each under its kind. Out: the same to every listener.
Invariant: a listener only looks; one that raises is named in a warning and receives nothing more,
and the program goes on.

Kinds and what comes with them:

| kind | product |
| --- | --- |
| `frame`, `graph`, `break`, `recompile`, `entry` | records of `flambeau_capture.observe` |
| `aot` | `AotProduct`: the joint graph, its cut, the halves |
| `stage` | `StageProduct`: the inductor's compilation after one of its stages |
| `kernels` | `KernelsProduct`: the inductor is done with one half |
| `settled` | a text: a function compiles no more, or runs as it is as that is faster |
| `compiled` | `GraphRecord`: a captured graph is compiled |
| `fallback` | `StageFailure`: a captured graph runs eagerly |
| `fault` | `Fault`: a stage failed by itself, whether or not the program goes on |
| `run` | `GraphRun`: a compiled graph ran (as many as a listener's `runs`, of each graph) |
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
from typing import TYPE_CHECKING, Any

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
    """One half with its kernels. `folder`: where the stages' products are,; None: nowhere."""

    graph: str
    half: str
    report: flambeau_inductor.Report
    seconds: float
    folder: Path | None = None


class Listener:
    """Receives products, with the number of the compiled callable that they are of.

    every_stage: it needs to see what every stage makes, so that a graph that is on disk is compiled
    all the same. runs: how many runs of each graph it needs to see.
    """

    every_stage = False
    runs: float = 0

    def __call__(self, kind: str, product: object, owner: int) -> None:
        raise NotImplementedError

    def folder(self, graph: str, half: str, owner: int) -> Path | None:
        """Where the inductor leaves its own files of one half, if anywhere."""
        return None


class Listeners:
    """A set of listeners that can be added to and taken from while products come in."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all: tuple[Listener, ...] = ()

    def add(self, listener: Listener) -> None:
        """Subscribe a listener."""
        with self._lock:
            self._all = (*self._all, listener)

    def remove(self, listener: Listener) -> None:
        """Unsubscribe a listener, if it is subscribed."""
        with self._lock:
            self._all = tuple(each for each in self._all if each is not listener)

    def __iter__(self) -> Iterator[Listener]:
        return iter(self._all)


_numbers = itertools.count()

#: listeners of everything that this process compiles: like the handlers of a root logger
EVERYTHING = Listeners()


@contextmanager
def listening(listener: Listener) -> Iterator[Listener]:
    """Send a listener everything that is compiled within the block, on any thread."""
    EVERYTHING.add(listener)
    try:
        yield listener
    finally:
        EVERYTHING.remove(listener)


class EventBus:
    """The listeners of one compiled callable: its own, and those of the whole process.

    number: of the compiled callable in its process; names of graphs repeat. tailor: gives one half
    options of its own, by its graph and kind; for bisection.
    """

    def __init__(self) -> None:
        self.number = next(_numbers)
        self.own = Listeners()
        self.tailor: Callable[[flambeau_inductor.Options, str, str], Any] | None = None

    def __iter__(self) -> Iterator[Listener]:
        return itertools.chain(self.own, EVERYTHING)

    @property
    def every_stage(self) -> bool:
        """Whether graphs have to go through every stage, from disk or not."""
        return self.tailor is not None or any(each.every_stage for each in self)

    def __bool__(self) -> bool:
        return self.tailor is not None or any(True for _ in self)

    def publish(self, kind: str, product: object) -> None:
        """Send a product to every listener."""
        for listener in self:
            try:
                listener(kind, product, self.number)
            except Exception as error:
                self.own.remove(listener)
                EVERYTHING.remove(listener)
                warnings.warn(
                    f"{type(listener).__name__} receives nothing more: it failed on a {kind} "
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
        folders = (each.folder(graph, half, self.number) for each in self)
        folder = next((each for each in folders if each is not None), None)
        before = options.observer

        def observer(stage: str, work: Any) -> None:
            if before is not None:
                before(stage, work)
            self.publish("stage", StageProduct(graph, half, stage, work))

        debug = options.debug_dir if folder is None else os.fspath(folder)
        return replace(options, observer=observer, debug_dir=debug)


MOST_RUNS = 20
"""Runs of each graph that a listener may need without making a long run slower."""


@dataclass(frozen=True)
class GraphRun:
    """One call of a compiled graph, by `time.perf_counter`; tensors as (address, bytes)."""

    graph: str
    started: float
    ended: float
    inputs: tuple[tuple[int, int], ...]
    outputs: tuple[tuple[int, int], ...]


def publish_runs(backend: Backend, request: Request) -> Backend:
    """The backend; the first runs of its graphs are published, where a listener needs them."""
    watch = request.recorder.watch

    def timed(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        compiled, graph = backend(gm, example_inputs), type(gm).__name__
        left = max((each.runs for each in watch), default=0)
        if not left:
            return compiled

        def call(*given: Any) -> Any:
            nonlocal left
            if left <= 0:
                return compiled(*given)
            left -= 1
            started = time.perf_counter()
            results = compiled(*given)
            ended = time.perf_counter()
            run = GraphRun(graph, started, ended, _memory(given), _memory(results))
            watch.publish("run", run)
            return results

        return call

    return timed


def _memory(values: Sequence[Any]) -> tuple[tuple[int, int], ...]:
    """Where each tensor is, and how many bytes it has."""
    return tuple(
        (value.data_ptr(), value.numel() * value.element_size())
        for value in values
        if type(value) in (torch.Tensor, torch.nn.Parameter) and value.layout is torch.strided
    )
