"""Backends on TorchScript: the captured graph traced again into torch's older IR.

In: a request. Out: backends "ts", "ofi" (optimised for inference) and "nvfuser".
Invariant: a graph that a trace would silently change (one that enters modes, or has open sizes) is
refused, and so runs as captured.
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
from flambeau.backends.request import Backend, Request
from flambeau.errors import NotForThisBackend
from flambeau.events.records import RecordTally, operations


def ts(request: Request) -> Backend:
    """Traced to TorchScript; gradients are TorchScript's own."""
    return _scripted(request, "ts", lambda traced, grads: traced)


def ofi(request: Request) -> Backend:
    """TorchScript with weights frozen and folded, for inference."""

    def optimised(traced: Any, grads: bool) -> Any:
        if grads:
            raise NotForThisBackend(
                "ofi", "the graph needs gradients: call it under torch.no_grad()"
            )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # the user chose TorchScript
            return torch.jit.optimize_for_inference(torch.jit.freeze(traced.eval()))

    return _scripted(request, "ofi", optimised)


def nvfuser(request: Request) -> Backend:
    """TorchScript whose fused groups go to nvFuser."""

    def fused(traced: Any, grads: bool) -> Callable[..., Any]:
        del grads

        def run(*inputs: Any) -> Any:
            with torch.jit.fuser("fuser2"):  # type: ignore[attr-defined]
                return traced(*inputs)

        return run

    return _scripted(request, "nvfuser", fused)


def needs_gradients(gm: fx.GraphModule, inputs: Sequence[Any]) -> bool:
    """Whether a graph will be differentiated: gradients are on, and something asks for them."""
    tensors = [*gm.parameters(), *(each for each in inputs if isinstance(each, torch.Tensor))]
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def refuse_what_a_trace_loses(gm: fx.GraphModule, inputs: Sequence[Any], name: str) -> None:
    """Raise NotForThisBackend for what tracing with example inputs would make constant or drop."""
    entered = {*compat.MODE_ENTRIES, compat.set_grad_enabled}
    if any(node.target in entered for node in gm.graph.nodes):
        raise NotForThisBackend(name, "the graph enters a mode (no_grad, autocast), which it loses")
    if not all(isinstance(each, torch.Tensor) for each in inputs):
        raise NotForThisBackend(name, "the graph takes numbers, which it would make constant")


def _scripted(request: Request, name: str, finish: Callable[[Any, bool], Any]) -> Backend:
    def backend(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        refuse_what_a_trace_loses(gm, example_inputs, name)
        state = {key: value.clone() for key, value in gm.named_buffers()}
        copies = tuple(
            each.detach().clone().requires_grad_(each.requires_grad) for each in example_inputs
        )
        with warnings.catch_warnings(), torch.random.fork_rng():
            warnings.simplefilter("ignore")  # of the tracer, about Python that is already captured
            traced = torch.jit.trace(gm, copies, check_trace=False)
        with torch.no_grad():  # the trace ran the graph: its writes to buffers are taken back
            for key, value in gm.named_buffers():
                value.copy_(state[key])
        finished = finish(traced, needs_gradients(gm, example_inputs))
        request.recorder.add(RecordTally().record(graph_name(gm), operations(gm), None, 0.0))

        def run(*inputs: Any) -> tuple[Any, ...]:
            found = finished(*inputs)
            return tuple(found) if isinstance(found, tuple | list) else (found,)

        return run

    return backend


OPSET = 17
#: onnxruntime's way to a device, by torch's name of it
PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}


def onnxrt(request: Request) -> Backend:
    """ONNX by torch's exporter, run by onnxruntime on the device of the inputs."""

    def backend(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        refuse_what_a_trace_loses(gm, example_inputs, "onnxrt")
        _refuse_what_onnx_cannot_keep(gm, example_inputs)
        session, names = _session(gm, tuple(example_inputs))
        request.recorder.add(RecordTally().record(graph_name(gm), operations(gm), None, 0.0))
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

    return backend


def _refuse_what_onnx_cannot_keep(gm: fx.GraphModule, inputs: Sequence[Any]) -> None:
    if needs_gradients(gm, inputs):
        text = "the graph needs gradients: call it under torch.no_grad()"
        raise NotForThisBackend("onnxrt", text)
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
