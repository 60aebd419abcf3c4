"""Backends on TorchScript: the captured graph traced again into torch's older IR.

In: a request. Out: backends "ts", "ofi" (optimised for inference) and "nvfuser".
Invariant: a graph that a trace would silently change (one that enters modes, or has open sizes) is
refused, and so runs as captured.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from flambeau import _torch_compat as compat
from flambeau.backends.fallback import graph_name
from flambeau.backends.graph_record import RecordTally, operations
from flambeau.backends.request import Backend, Request
from flambeau.errors import NotForThisBackend


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
