"""Backends of installed packages, by entry point: TensorRT, OpenXLA, IPEX.

In: a request. Out: a backend that calls the package. Invariant: the package is imported only when
its backend is asked for, and only through names that it documents for backends of captured graphs.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

from torch import fx

from flambeau.backends.fallback import graph_name
from flambeau.backends.graph_record import RecordTally, operations
from flambeau.backends.request import Backend, Request
from flambeau.backends.torchscript import needs_gradients, ts
from flambeau.errors import NotForThisBackend


def tensorrt(request: Request) -> Backend:
    """Torch-TensorRT's backend for captured graphs."""
    return _called(request, "tensorrt", "torch_tensorrt.dynamo.backend", "torch_tensorrt_backend")


def openxla(request: Request) -> Backend:
    """PyTorch/XLA: the graph becomes one XLA computation on the device of its inputs."""
    return _called(request, "openxla", "torch_xla.core.dynamo_bridge", "extract_compiled_graph")


def ipex(request: Request) -> Backend:
    """Intel's extension: weights laid out for the processor, then TorchScript."""
    scripted = ts(request)

    def backend(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        if needs_gradients(gm, example_inputs):
            text = "the graph needs gradients: call it under torch.no_grad()"
            raise NotForThisBackend("ipex", text)
        package = importlib.import_module("intel_extension_for_pytorch")
        return scripted(package.optimize(gm.eval()), example_inputs)

    return backend


def _called(request: Request, name: str, module: str, function: str) -> Backend:
    def backend(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        compile_graph = getattr(importlib.import_module(module), function)
        compiled: Callable[..., Any] = compile_graph(gm, list(example_inputs))
        request.recorder.add(RecordTally().record(graph_name(gm), operations(gm), None, 0.0))
        return compiled

    return backend
