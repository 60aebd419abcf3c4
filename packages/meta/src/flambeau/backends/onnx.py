"""The backend "onnxrt": a captured graph exported to ONNX and run by onnxruntime.

In: a request. Out: a backend for inference; tensors cross without a copy where the layout allows.
Invariant: a graph that ONNX cannot say, or that is differentiated, runs as captured, with a reason.
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

from flambeau.backends.fallback import graph_name
from flambeau.backends.graph_record import RecordTally, operations
from flambeau.backends.request import Backend, Request
from flambeau.backends.torchscript import needs_gradients, refuse_what_a_trace_loses
from flambeau.errors import NotForThisBackend

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
