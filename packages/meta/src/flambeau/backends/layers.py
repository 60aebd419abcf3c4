"""The layers around a backend, from the inside out, and what capture asks of the whole.

In: what compiles a graph, and a request. Out: `LayeredBackend`. Invariant: whatever stands around a
backend is in `LAYERS`, applied in that order; what capture asks for is answered by the outermost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import flambeau_inductor
from torch import fx

from flambeau.backends.fallback import preparing, with_fallback
from flambeau.backends.never_slower import never_slower
from flambeau.backends.request import Backend, Request, named
from flambeau.cache.graphs import GraphCache
from flambeau.distributed import by_buckets
from flambeau.events.runs import publish_runs
from flambeau.testing.graph_copy import copied_graph


@dataclass(frozen=True)
class Layer:
    """Something that stands around a backend where `asked` says so: not None, nor "", 0, False."""

    name: str
    around: Callable[[Any, Request], Backend]
    asked: Callable[[Request], object]


def _graph_cache(engine: Any, request: Request) -> Backend:
    cached: Backend = replace(engine, cache=GraphCache(request.choices))
    return cached


def _prepare(backend: Backend, request: Request) -> Backend:
    """The inductor's passes before autograd, on a copy: whoever falls back has the graph as it was
    captured."""

    @preparing
    def prepared(gm: fx.GraphModule) -> fx.GraphModule:
        copy, _ = copied_graph(gm)
        flambeau_inductor.prepare(copy, request.choices.inductor)
        return copy

    def from_prepared(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        copy = prepared(gm)
        try:
            return backend(copy, example_inputs)
        finally:
            copy.graph.owning_module = None  # it would keep its parameters until a collection

    return from_prepared


def _fallback(backend: Backend, request: Request) -> Backend:
    return with_fallback(backend, request, request.traits.stage)


def _buckets(backend: Backend, request: Request) -> Backend:
    return by_buckets(backend)


def _repro(backend: Backend, request: Request) -> Backend:
    from flambeau.repro.hook import with_repro  # a tool, which a first call need not import

    return with_repro(backend, request)


def _verify(backend: Backend, request: Request) -> Backend:
    from flambeau.testing.verification import verified  # as above

    return verified(backend, request)


LAYERS: tuple[Layer, ...] = (
    Layer("graph_cache", _graph_cache, lambda request: request.traits.kernels),
    Layer("prepare", _prepare, lambda request: request.traits.kernels),
    Layer("fallback", _fallback, lambda request: request.traits.stage),
    Layer("buckets", _buckets, lambda request: request.traits.divided),
    Layer("never_slower", never_slower, lambda request: request.never_slower),
    Layer("repro", _repro, lambda request: request.repro),
    Layer("verify", _verify, lambda request: request.verify),
    Layer("run_events", publish_runs, lambda request: request.told),
)


class LayeredBackend:
    """A backend with its layers, under the name that users know.

    supports_symbols: what may be open in graphs. own_numbers: whether the random numbers of its
    graphs are not eager's, so that they are never compared with it call by call. observe: what a
    profiler wants to do with whatever compiles frames.
    """

    def __init__(self, engine: Any, request: Request) -> None:
        self.__name__ = named(request.by)
        if request.traits.symbols is None:
            self.supports_symbols = getattr(engine, "supports_symbols", True)
            self.own_numbers = getattr(engine, "own_numbers", False)
        else:
            self.supports_symbols = request.traits.symbols
            self.own_numbers = request.choices.inductor.random != "eager"
        self.observe = getattr(engine, "observe", None)
        for layer in LAYERS:
            if layer.asked(request):
                engine = layer.around(engine, request)
        self._compile: Backend = engine

    def __call__(self, gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        return self._compile(gm, example_inputs)
