"""Truths of tensors that sizes alone decide, where some of them are open.

In: a tensor of one element that a branch depends on. Out: what it is at the present sizes, which
the graph checks; None where it follows from more than sizes and constants, or is large. Invariant:
a call in which it is otherwise runs eagerly.

A mask is compared with one that is made anew, as `nn.Transformer` does to see whether it is causal.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from flambeau_capture import _torch_compat as compat
from flambeau_capture.graph.functions import NotInGeneral
from flambeau_capture.values.base import Tracer
from flambeau_capture.values.tensors.data.constant_data import (
    PURE,
    compute,
    cone,
    is_only_read,
    of_torch,
    tensors_of,
)
from flambeau_capture.values.tensors.graph_calls import check_all, tensor_call
from flambeau_capture.values.tensors.refused_calls import operator_name
from flambeau_capture.values.tensors.tensor import TensorValue


def truth_by_sizes(tx: Tracer, tensor: TensorValue) -> bool | None:
    """What a tensor is, as far as sizes decide it, noted as what the graph assumes."""
    plain = tensor.in_graph() and tensor.fake.dtype == torch.bool and tensor.fake.numel() == 1
    if not plain or tx.graph is not tx.graph.outermost or not tx.assumes():
        return None
    values = _evaluated(tx, tensor.node)
    if values is None or not any(isinstance(value, int | float) for value in values.values()):
        return None  # nothing is open: it is known, or unknown, as it is
    truth = bool(values[tensor.node])
    wanted = tensor if truth else tensor_call(tx, "call_function", torch.logical_not, [tensor])
    check_all(tx, wanted, NotInGeneral, ("what sizes decide is as it was",))
    return truth


def _evaluated(tx: Tracer, root: fx.Node) -> dict[fx.Node, Any] | None:
    """The values at the present sizes of the nodes that one follows from."""
    values: dict[fx.Node, Any] = {}

    def enters(node: fx.Node) -> bool | None:
        result = node.meta["val"]
        if not isinstance(result, torch.SymInt | torch.SymFloat):
            computed = node.op in ("call_function", "call_method") and _is_computed(node)
            return computed or None
        values[node] = compat.hint(result)
        return False if type(values[node]) in (int, float) else None

    for node in cone(root, enters) or ():
        if node not in values:
            read = values.__getitem__
            args, kwargs = (fx.node.map_arg(part, read) for part in (node.args, node.kwargs))
            values[node] = compute(node.target, args, kwargs)
            if values[node] is None:
                return None
    return values if root in values else None


def _is_computed(node: fx.Node) -> bool:
    """Whether a node is what a pure operator makes of its arguments, and stays so."""
    pure = operator_name(node.target) in PURE and of_torch(node.target) and "out" not in node.kwargs
    return pure and all(
        not fake.requires_grad and fake.device.type == "cpu" and is_only_read(node)
        for fake in tensors_of(node.meta["val"])
    )
