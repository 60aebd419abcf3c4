"""The pipeline of a built-in backend: pre-grad passes, ahead-of-time autograd, graph compiler.

In: a request. Out: a backend that records what it did.
Invariant: the stages meet here and nowhere else; each is handed the others as plain callables.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import flambeau_aot
import flambeau_capture
import flambeau_inductor
import torch
from flambeau_aot import GraphInfo
from flambeau_inductor.runtime.gpu.cuda_graphs import Recorded, Rules
from flambeau_inductor.runtime.gpu.stream_capture import CudaRecorder
from torch import fx

from flambeau.backends.fallback import derivative_failure_hook, graph_name, marking, user_lines
from flambeau.backends.request import Backend, Request
from flambeau.cache.graphs import CacheLookup
from flambeau.events.bus import AotProduct, KernelsProduct
from flambeau.events.records import GraphRecord, RecordTally, operations

Compiler = Callable[[fx.GraphModule, list[Any], GraphInfo], Any]

#: how a primitive counts in the partition, by its tags; the first that fits counts
CLASS_OF_TAG: tuple[tuple[str, flambeau_aot.OpClass], ...] = (
    ("random", "random"),
    ("library", "leaf"),
    ("matmul", "matmul"),
    ("data_dependent", "leaf"),
    ("effect", "leaf"),
    ("sort", "leaf"),
    ("linalg", "leaf"),
    ("fft", "leaf"),
    ("scan", "leaf"),
    ("reduction", "reduction"),
    ("view", "view"),
    ("pointwise", "pointwise"),
    ("creation", "creation"),
    ("index", "index"),
    ("shape", "shape"),
)


def classify(target: Any) -> flambeau_aot.OpClass | None:
    """The class of a primitive; None for anything else, which AOT then judges itself."""
    import flambeau_prims  # a graph from disk does without the primitives

    prim = flambeau_prims.prim_of(target)
    if prim is None:
        return None
    return next((name for tag, name in CLASS_OF_TAG if tag in prim.tags), None)


def eager(request: Request) -> Backend:
    """Runs the captured graph as it is: capture alone is at work."""

    def backend(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        request.recorder.add(GraphRecord(graph_name(gm), "eager", operations(gm)))
        forward: Callable[..., Any] = gm.forward
        return forward

    return backend


def as_it_is(tally: RecordTally, name: str) -> Compiler:
    """The graph compiler that compiles nothing."""
    return flambeau_aot.run_as_is


def aot_eager(request: Request) -> Backend:
    """Forward and backward traced ahead of time and run operator by operator."""
    return AotEngine(request, as_it_is, dict)


def aot_eager_prims(request: Request) -> Backend:
    """The same after decomposition into primitives: checks them without any code generation."""
    import flambeau_prims  # as above

    return AotEngine(request, as_it_is, flambeau_prims.decompositions)


def table_for(options: flambeau_inductor.Options) -> Mapping[Any, Any]:
    """The decompositions that kernels profit from, with the random numbers that were chosen."""
    import flambeau_prims  # as above

    random: Literal["aten", "philox"] = "philox" if options.random == "philox" else "aten"
    rules = flambeau_prims.decompositions(random=random)
    return {op: rule for op, rule in rules.items() if op not in flambeau_inductor.KEPT_WHOLE}


def inductor(request: Request) -> Backend:
    """The whole road: ahead-of-time autograd, primitives, generated kernels."""
    options, watch = request.choices.inductor, request.recorder.watch

    def compiler(tally: RecordTally, name: str) -> Compiler:
        def compile_graph(gm: fx.GraphModule, example_inputs: list[Any], info: GraphInfo) -> Any:
            started = time.perf_counter()
            own = watch.observed(options, name, info.kind)
            compiled = flambeau_inductor.compile(gm, example_inputs, info, own)
            tally.graphs.append(compiled)
            seconds = time.perf_counter() - started
            folder = None if own.debug_dir is None else Path(own.debug_dir)
            product = KernelsProduct(name, info.kind, compiled.report, seconds, folder)
            watch.publish("kernels", product)
            return compiled

        return marking("inductor")(compile_graph)

    return AotEngine(request, compiler, partial(table_for, options))


def cudagraphs(request: Request) -> Backend:
    """aot_eager whose graphs are recorded as CUDA graphs and replayed with one launch each."""

    def compiler(tally: RecordTally, name: str) -> Compiler:

        def compile_graph(gm: fx.GraphModule, example_inputs: list[Any], info: GraphInfo) -> Any:
            plain = flambeau_aot.run_as_is(gm, example_inputs, info)
            tensors = [each for each in example_inputs if isinstance(each, torch.Tensor)]
            devices = {each.device for each in tensors}
            if len(devices) != 1 or len(tensors) < len(example_inputs):
                return plain  # a recording is of one device, and holds numbers fast
            (device,) = devices
            if device.type != "cuda":
                return plain
            rules, recorder = Rules(info.static_inputs), CudaRecorder(device.index or 0)
            return Recorded(lambda args: tuple(plain(args)), rules, recorder)

        return compile_graph

    return AotEngine(request, compiler, dict)


def out_of_capture(compiler: Compiler) -> Compiler:
    """The graph compiler; graphs that run inside `backward()` do so with capture off, and are
    compiled so: the first backward pass may wait for that.

    `backward()` may be called while a compiled function runs: what it calls is compiled already.
    """

    def compile_graph(gm: fx.GraphModule, example_inputs: list[Any], info: GraphInfo) -> Any:
        inside = info.kind == "backward" or info.name.endswith("_derivative_forward")
        compiled = (flambeau_capture.disable(compiler) if inside else compiler)(
            gm, example_inputs, info
        )
        return flambeau_capture.disable(compiled) if inside else compiled

    return compile_graph


@dataclass(frozen=True)
class AotEngine:
    """AOT around a graph compiler, with its record.

    decompositions: makes the table when a graph is compiled, for to load the rules takes longer
    than to find a graph on the disk. partition: AOT's argument of that name, if any.
    cached: a graph that was compiled before is from the disk.
    """

    request: Request
    compiler: Callable[[RecordTally, str], Compiler]
    decompositions: Callable[[], Mapping[Any, Any]]
    partition: Mapping[str, Any] = field(default_factory=dict)
    cached: bool = False

    def __call__(self, gm: fx.GraphModule, example_inputs: Sequence[Any]) -> flambeau_aot.Compiled:
        started = time.perf_counter()
        tally, recorder = RecordTally(), self.request.recorder
        name = graph_name(gm)

        def compile_static(inputs: Sequence[Any]) -> flambeau_aot.Compiled:
            return self._compile(gm, inputs, tally, open_sizes=False)

        choices = self.request.choices
        lookup = CacheLookup(gm, example_inputs, choices) if self.cached else None
        found = None
        if lookup is not None and not recorder.watch.every_stage:
            found = lookup.find(compile_static) or lookup.from_others(compile_static)
        if found is not None:
            compiled = found.compiled
            tally.graphs += found.halves
            tally.cache_seconds = time.perf_counter() - started
        else:
            try:
                compiled = self._compile(gm, example_inputs, tally)
                if lookup is not None:
                    lookup.keep(compiled, tuple(tally.graphs))
            finally:
                if lookup is not None:
                    lookup.end_turn()
        if lookup is not None:
            tally.not_cached, tally.key, tally.cache_fault = lookup.reason, lookup.key, lookup.fault
        seconds = time.perf_counter() - started
        if found is None:
            recorder.watch.publish("aot", AotProduct(name, gm, compiled, seconds))
        recorder.add(tally.record(gm, compiled.report, seconds))
        return compiled

    def _compile(
        self, gm: fx.GraphModule, inputs: Sequence[Any], tally: RecordTally, open_sizes: bool = True
    ) -> flambeau_aot.Compiled:
        name = graph_name(gm)
        compiled = flambeau_aot.compile(
            gm,
            inputs,
            out_of_capture(self.compiler(tally, name)),
            decompositions=self.decompositions(),
            options=replace(
                self.request.choices.aot,
                name=name if name.isidentifier() else "graph",
                classify=classify,
            ),
            open_sizes=open_sizes,
            **self.partition,
        )
        failed = derivative_failure_hook(self.request, name, user_lines(gm))
        compiled.derive(failed, flambeau_capture.disable)
        return compiled
