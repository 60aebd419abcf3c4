"""The built-in backends, and the layers around every backend.

In: the engines and tools. Out: rows of `registry.TABLE` and `registry.LAYERS`, which are complete
once this is imported, as `flambeau.backends` does. Invariant: layers are listed from the inside
out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import flambeau_inductor
import torch
from torch import fx

from flambeau.backends import composed, engines
from flambeau.backends.autotune import Autotune, never_slower
from flambeau.backends.fallback import marking, with_fallback
from flambeau.backends.registry import LAYERS, TABLE, BuiltinBackend, Layer
from flambeau.backends.request import Backend, Factory, Request, Traits
from flambeau.distributed import by_buckets, in_agreement
from flambeau.events.bus import publish_runs
from flambeau.testing.comparison import copied_graph


def _engine(about: str, make: Factory, *modules: str, pip: str = "") -> BuiltinBackend:
    """A backend by another engine, of modules that must be importable; `pip`: how they are had."""
    text = f"the package {' and '.join(modules)} (`pip install {pip}`)" if modules else ""
    traits = Traits(stage=make.__name__)
    return BuiltinBackend(about, make, traits, text, lambda: all(map(find_spec, modules)))


#: numbers that are not integers are constants to ahead-of-time autograd and what comes after it
AOT = Traits(frozenset({"sizes", "integers", "floats", "data"}), "aot")

TABLE |= {
    "eager": BuiltinBackend(
        "the captured graph as it is", composed.eager, Traits(True, divided=False)
    ),
    "aot_eager": BuiltinBackend(
        "forward and backward ahead of time, operator by operator", composed.aot_eager, AOT
    ),
    "aot_nop": BuiltinBackend("another name of aot_eager", composed.aot_eager, AOT),
    "aot_eager_prims": BuiltinBackend("the same in primitives", composed.aot_eager_prims, AOT),
    "inductor": BuiltinBackend(
        "fused C++ and Triton kernels", composed.inductor, replace(AOT, kernels=True)
    ),
    "flambeau": BuiltinBackend(
        "another name of inductor, by which torch finds it",
        composed.inductor,
        replace(AOT, kernels=True),
    ),
    "autotune": BuiltinBackend(
        "each graph as whichever of eager, aot_eager and inductor runs it fastest",
        Autotune().for_request,
        Traits(),
    ),
    "cudagraphs": BuiltinBackend(
        "aot_eager, recorded and replayed as CUDA graphs",
        composed.cudagraphs,
        Traits(stage="aot"),
        "a CUDA device",
        torch.cuda.is_available,
    ),
    "ts": _engine("TorchScript", engines.ts),
    "ofi": _engine("TorchScript, frozen and folded for inference", engines.ofi),
    "nvfuser": _engine(
        "TorchScript with nvFuser", engines.nvfuser, "nvfuser", pip="nvfuser-cu12-torch28"
    ),
    "onnxrt": _engine(
        "ONNX Runtime, inference", engines.onnxrt, *("onnxruntime", "onnx"), pip="onnxruntime onnx"
    ),
    "tensorrt": _engine("Torch-TensorRT", engines.tensorrt, "torch_tensorrt", pip="torch-tensorrt"),
    "openxla": _engine("PyTorch/XLA", engines.openxla, "torch_xla", pip="torch_xla"),
    "ipex": _engine(
        "Intel Extension for PyTorch, inference",
        engines.ipex,
        "intel_extension_for_pytorch",
        pip="intel-extension-for-pytorch",
    ),
}


def _graph_cache(engine: Any, request: Request) -> Backend:
    cached: Backend = replace(engine, cached=True)
    return cached


def _prepare(backend: Backend, request: Request) -> Backend:
    """The inductor's passes before autograd, on a copy: whoever falls back has the graph as it was
    captured."""

    @marking("prepare")
    def prepared(gm: fx.GraphModule) -> fx.GraphModule:
        copy = copied_graph(gm)
        flambeau_inductor.prepare(copy, request.choices.inductor)
        return copy

    def from_prepared(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        copy = prepared(gm)
        try:
            return backend(copy, example_inputs)
        finally:
            copy.graph.owning_module = None  # it would keep its parameters until a collection

    return from_prepared


def _repro(backend: Backend, request: Request) -> Backend:
    from flambeau.repro.hook import with_repro  # a tool, which a first call need not import

    return with_repro(backend, request)


def _padding(backend: Backend, request: Request) -> Backend:
    from flambeau.backends.padding import padding  # which most programs do without

    return padding(backend, request)


def _verify(backend: Backend, request: Request) -> Backend:
    from flambeau.testing.verification import verified  # as above

    return verified(backend, request)


def _by_whole_graphs(request: Request) -> bool:
    """Whether what ranks send each other depends on where their graphs end."""
    merges = request.traits.kernels and request.choices.inductor.merge_collectives
    own = request.choices.capture
    return merges or own.sum_gradients or own.gather_parameters


LAYERS += (
    Layer("graph_cache", _graph_cache, lambda request: request.traits.kernels),
    Layer("prepare", _prepare, lambda request: request.traits.kernels),
    Layer(
        "fallback",
        lambda backend, request: with_fallback(backend, request, request.traits.stage),
        lambda request: request.traits.stage,
    ),
    Layer(
        "buckets",
        lambda backend, request: by_buckets(backend),
        lambda request: request.traits.divided,
    ),
    Layer("padding", _padding, lambda request: request.choices.capture.sizes),
    Layer("never_slower", never_slower, lambda request: request.never_slower),
    Layer("repro", _repro, lambda request: request.repro),
    Layer("verify", _verify, lambda request: request.verify),
    Layer(
        "agreement",
        lambda backend, request: in_agreement(backend, _by_whole_graphs(request)),
        lambda request: True,
    ),
    Layer("run_events", publish_runs, lambda request: True),
)
