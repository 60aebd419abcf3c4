"""Methods that change a tensor's sizes and strides in place: `t_`, `unsqueeze_`, `detach_`, `set_`.

In: a tensor and the method's arguments. Out: the tensor's value, on another node of the graph; for
a tensor of the program also the same call on the tensor itself, when the graph has run. Invariant:
a tensor of the program that is changed has no history, and no derivative ends at it.
"""

from __future__ import annotations

from functools import partial

import torch

from flambeau_capture.breaks import RunsAsItIs
from flambeau_capture.values.base import Args, Kwargs, Tracer, Value
from flambeau_capture.values.tensors.graph_calls import run_call
from flambeau_capture.values.tensors.tensor import Method, TensorValue

#: by name, the method that gives a view of what the tensor becomes
VIEWS = {
    "t_": "t",
    "transpose_": "transpose",
    "swapaxes_": "swapaxes",
    "swapdims_": "swapdims",
    "squeeze_": "squeeze",
    "unsqueeze_": "unsqueeze",
    "detach_": "detach",
}


def _change(name: str, tensor: TensorValue, tx: Tracer, args: Args, kwargs: Kwargs) -> Value | None:
    """None: the call is not one that the graph can hold."""
    fake, outlives = tensor.fake, tensor.source is not None and tensor.real is not None
    if tensor.cls is not torch.Tensor or tx.graph is not tx.graph.outermost:
        return None
    if fake.layout is not torch.strided or fake.is_inference() or tensor.frozen_from is not None:
        return None
    if fake.requires_grad and (outlives or fake.is_leaf):
        if name == "detach_" and outlives and fake._version:
            # views get another history when it is requested, as it was of the results of a graph
            raise RunsAsItIs("what was written is detached, in whose history its views take part")
        return None
    if outlives and (kwargs or tensor.written_data is not None or tensor.written_flag is not None):
        return None
    if name == "detach_" and fake._is_view():
        return None  # which torch refuses of some
    if name == "detach_" and outlives and not fake.requires_grad:
        return tensor  # it has no history yet, and may get one before the graph has run
    node_args = (tensor.node, *(arg.graph_argument() for arg in args))
    node_kwargs = {key: arg.graph_argument() for key, arg in kwargs.items()}
    made = run_call(tx, VIEWS[name], node_args, node_kwargs)
    target = VIEWS[name] if outlives else name
    tx.heap.changed(tensor if outlives else None)
    node = tx.graph.record("call_method", target, node_args, node_kwargs, made, tx.stack_trace())
    tensor.stand_on(node, None)
    if outlives:
        tensor.calls.append((name, args))
    return tensor


CHANGES: dict[str, Method] = {name: partial(_change, name) for name in VIEWS}
