"""Tensors that existed before the frame: parameters, buffers, arguments, globals.

In: a tensor and its source. Out: its value. Invariant: it becomes an input or an attribute of the
graph, with its guards, when something is first asked of it.
"""

from __future__ import annotations

from typing import Any

import torch

from flambeau_capture import _torch_compat as compat
from flambeau_capture.source import ModuleEntry, Source
from flambeau_capture.values.base import Tracer, Value
from flambeau_capture.values.existing import already_tracked, assume_there
from flambeau_capture.values.objects.opaque import OpaqueValue
from flambeau_capture.values.registry import wraps_if
from flambeau_capture.values.tensors.subclasses import existing_subclass
from flambeau_capture.values.tensors.tensor import TensorValue


@wraps_if(lambda obj: isinstance(obj, torch.Tensor), 10)
def wrap_tensor(tx: Tracer, obj: torch.Tensor, source: Source) -> Value:
    known = already_tracked(tx, obj, source)
    if known is not None:
        return known
    kind = type(obj)
    if not compat.has_own_dispatch(kind) and compat.lacks_fake_form(obj):
        tx.guard(source, "TYPE_MATCH", kind)
        tx.guard(source, "CALL", compat.lacks_fake_form, "has no sizes and strides of its own")
        return OpaqueTensor(obj, source)
    if kind not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer):
        tx.guard(source, "TYPE_MATCH", kind)
        if compat.has_own_dispatch(kind) or torch.nn.parameter.is_lazy(obj):
            return OpaqueTensor(obj, source)
        if not compat.ignores_torch_function(kind):
            return existing_subclass(tx, obj, source)
    made = TensorValue(
        source=source,
        enter=lambda: _enter(tx, obj, source),
        python_class=type(obj),
        real=obj,
    )
    assume_there(tx, source)
    tx.heap.know(obj, made)
    return made


def _enter(tx: Tracer, obj: torch.Tensor, source: Source) -> Any:
    dims = {} if isinstance(source, ModuleEntry) else tx.open_dims(source, obj)
    if dims:
        fake, sizes, strides = tx.shapes.tensor(obj, source, dims)
        tx.guard_tensor(source, obj, sizes, strides)
        return tx.graph.outermost.add_input(obj, source, fake)
    tx.guard_tensor(source, obj)
    if isinstance(source, ModuleEntry) and not _is_reassigned(tx, obj, source):
        tx.guard(source, "ID_MATCH", obj)
        return tx.graph.outermost.add_attribute(obj, source.name())
    return tx.graph.outermost.add_input(obj, source)


def _is_reassigned(tx: Tracer, obj: torch.Tensor, source: ModuleEntry) -> bool:
    """Whether the program replaces a parameter or a buffer by another from call to call."""
    return tx.replaced(source, obj)


class OpaqueTensor(OpaqueValue):
    """A tensor of a subclass: whatever is done with it happens in Python."""
