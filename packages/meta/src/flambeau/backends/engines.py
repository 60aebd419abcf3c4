"""Backends by other engines: TorchScript, ONNX Runtime, TensorRT, OpenXLA, Intel's extension.

In: a request. Out: a backend. Invariant: a graph that an engine would silently change (a trace
drops modes and makes numbers constant, ONNX has only values) is refused, and so runs as captured; a
package is imported only by its backend, through names that it documents.
"""

from __future__ import annotations

import importlib
import tempfile
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import fx

from flambeau import _torch_compat as compat
from flambeau.backends.fallback import graph_name
from flambeau.backends.request import Backend, Compiled, Request
from flambeau.errors import NotForThisBackend
from flambeau.events.records import GraphRecord, operations


def ts(request: Request) -> Backend:
    """Traced to TorchScript; gradients are TorchScript's own."""
    return _recorded(request, lambda gm, inputs: _scripted(gm, inputs, "ts"))


def ofi(request: Request) -> Backend:
    """TorchScript with weights frozen and folded, for inference."""

    def compiled(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
        _refuse_gradients(gm, inputs, "ofi")
        return _scripted(gm, inputs, "ofi", _optimised)

    return _recorded(request, compiled)


def nvfuser(request: Request) -> Backend:
    """TorchScript whose fused groups go to nvFuser."""
    return _recorded(request, lambda gm, inputs: _scripted(gm, inputs, "nvfuser", _fused))


def ipex(request: Request) -> Backend:
    """Intel's extension: weights laid out for the processor, then TorchScript."""

    def compiled(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
        _refuse_gradients(gm, inputs, "ipex")
        package = importlib.import_module("intel_extension_for_pytorch")
        return _scripted(package.optimize(gm.eval()), inputs, "ipex")

    return _recorded(request, compiled)


def tensorrt(request: Request) -> Backend:
    """Torch-TensorRT's backend for captured graphs."""
    return _recorded(request, _called("torch_tensorrt.dynamo.backend", "torch_tensorrt_backend"))


def openxla(request: Request) -> Backend:
    """PyTorch/XLA: the graph becomes one XLA computation on the device of its inputs."""
    return _recorded(request, _called("torch_xla.core.dynamo_bridge", "extract_compiled_graph"))


def onnxrt(request: Request) -> Backend:
    """ONNX by torch's exporter, run by onnxruntime on the device of the inputs."""
    return _recorded(request, _by_onnxruntime)


def _recorded(request: Request, compiled: Callable[..., Compiled]) -> Backend:
    """A backend whose graphs are counted when they are compiled."""

    def backend(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Compiled:
        run = compiled(gm, list(example_inputs))
        request.recorder.add(GraphRecord(graph_name(gm), "eager", operations(gm)))
        return run

    return backend


def _called(module: str, function: str) -> Callable[..., Compiled]:
    def compiled(gm: fx.GraphModule, inputs: Sequence[Any]) -> Compiled:
        made: Compiled = getattr(importlib.import_module(module), function)(gm, inputs)
        return made

    return compiled


def _refuse_gradients(gm: fx.GraphModule, inputs: Sequence[Any], name: str) -> None:
    """Raise NotForThisBackend for a graph that will be differentiated."""
    tensors = [*gm.parameters(), *(each for each in inputs if isinstance(each, torch.Tensor))]
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        raise NotForThisBackend(name, "the graph needs gradients: call it under torch.no_grad()")


def _refuse_what_a_trace_loses(gm: fx.GraphModule, inputs: Sequence[Any], name: str) -> None:
    """Raise NotForThisBackend for what tracing with example inputs would make constant or drop."""
    entered = {*compat.MODE_ENTRIES, compat.set_grad_enabled}
    if any(node.target in entered for node in gm.graph.nodes):
        raise NotForThisBackend(name, "the graph enters a mode (no_grad, autocast), which it loses")
    if not all(isinstance(each, torch.Tensor) for each in inputs):
        raise NotForThisBackend(name, "the graph takes numbers, which it would make constant")


def _scripted(
    gm: fx.GraphModule,
    inputs: Sequence[Any],
    name: str,
    finish: Callable[[Any], Compiled] = lambda traced: traced,
) -> Compiled:
    _refuse_what_a_trace_loses(gm, inputs, name)
    state = {key: value.clone() for key, value in gm.named_buffers()}
    copies = tuple(each.detach().clone().requires_grad_(each.requires_grad) for each in inputs)
    with warnings.catch_warnings(), torch.random.fork_rng():
        warnings.simplefilter("ignore")  # of the tracer, about Python that is already captured
        traced = torch.jit.trace(gm, copies, check_trace=False)
    with torch.no_grad():  # the trace ran the graph: its writes to buffers are taken back
        for key, value in gm.named_buffers():
            value.copy_(state[key])
    finished = finish(traced)

    def run(*given: Any) -> tuple[Any, ...]:
        found = finished(*given)
        return tuple(found) if isinstance(found, tuple | list) else (found,)

    return run


def _optimised(traced: Any) -> Compiled:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the user chose TorchScript
        made: Compiled = torch.jit.optimize_for_inference(torch.jit.freeze(traced.eval()))
        return made


def _fused(traced: Any) -> Compiled:
    def run(*inputs: Any) -> Any:
        with torch.jit.fuser("fuser2"):  # type: ignore[attr-defined]
            return traced(*inputs)

    return run


OPSET = 17
#: onnxruntime's way to a device, by torch's name of it
PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}


def _by_onnxruntime(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Compiled:
    _refuse_what_a_trace_loses(gm, example_inputs, "onnxrt")
    _refuse_what_onnx_cannot_keep(gm, example_inputs)
    session, names = _session(gm, tuple(example_inputs))
    (output,) = gm.graph.find_nodes(op="output")
    kinds = [node.meta["val"] for node in output.args[0]]

    def run(*inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        given = {
            name: each.detach().contiguous().numpy(force=True)
            for name, each in zip(names, inputs, strict=True)
        }
        wanted = {each.name for each in session.get_inputs()}  # unused ones are dropped
        found = session.run(None, {k: v for k, v in given.items() if k in wanted})
        return tuple(
            torch.from_numpy(array).to(kind.device).reshape(kind.shape)
            for array, kind in zip(found, kinds, strict=True)
        )

    return run


def _refuse_what_onnx_cannot_keep(gm: fx.GraphModule, inputs: Sequence[Any]) -> None:
    _refuse_gradients(gm, inputs, "onnxrt")
    (output,) = gm.graph.find_nodes(op="output")
    if not all(isinstance(node, fx.Node) and "val" in node.meta for node in output.args[0]):
        raise NotForThisBackend("onnxrt", "an output of the graph is no tensor")
    for node in gm.graph.nodes:
        named = str(getattr(node.target, "__name__", node.target))
        inplace = (named.endswith("_") and not named.endswith("__")) or node.kwargs.get("inplace")
        if node.op.startswith("call_") and (inplace or named in ("setitem", "copy_")):
            raise NotForThisBackend("onnxrt", f"{named} writes to a tensor; ONNX has only values")


def _session(gm: fx.GraphModule, inputs: tuple[torch.Tensor, ...]) -> tuple[Any, list[str]]:
    # an optional package, of use to this backend alone
    onnxruntime = importlib.import_module("onnxruntime")

    device = next((each.device.type for each in inputs), "cpu")
    provider = PROVIDERS.get(device)
    if provider not in onnxruntime.get_available_providers():
        raise NotForThisBackend("onnxrt", f"this onnxruntime does not run on {device}")
    names = [f"input_{place}" for place in range(len(inputs))]
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # of the exporter, about how the graph was written
        file = Path(folder) / "graph.onnx"
        torch.onnx.export(
            gm, inputs, file, dynamo=False, opset_version=OPSET, input_names=names
        )  # fmt: skip
        written = file.read_bytes()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(written, options, providers=[provider]), names
