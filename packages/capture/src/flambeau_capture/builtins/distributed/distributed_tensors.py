"""Distributed tensors: their placements, and what leads from plain tensors to them and back.

In: calls of torch.distributed.tensor. Out: values of placements and meshes; one call of the graph
for each change of placements, which has mesh and placements in what is called. Invariant: a
placement never changes, and a mesh is known by identity; both are guarded with the tensor that has
them. What a change of placements communicates is waited for in the graph.
"""

from __future__ import annotations

from typing import Any

from flambeau_capture import _torch_compat as compat
from flambeau_capture.breaks import Break
from flambeau_capture.source import ConstantSource, Source
from flambeau_capture.values.base import Args, Kwargs, Tracer, Value, needing, objects_of
from flambeau_capture.values.constant import LITERALS, Constant, evaluate
from flambeau_capture.values.containers.sequences import TupleValue
from flambeau_capture.values.functions.call_rules import (
    INLINE,
    NAMES,
    Action,
    CallRule,
    describe_call,
)
from flambeau_capture.values.objects.classes import ClassValue
from flambeau_capture.values.objects.opaque import FrozenValue
from flambeau_capture.values.registry import wrap_known, wraps_if
from flambeau_capture.values.tensors.graph_calls import graph_call
from flambeau_capture.values.tensors.tensor import TensorValue

_REASON = "FB0029"
_ROW = f"module {compat.DISTRIBUTED_TENSORS}"


class PlacementValue(FrozenValue):
    """How a tensor lies on one axis of a mesh: in shards, copies, or parts of a sum."""

    def get_attr(self, tx: Tracer, name: str) -> Value:
        found = evaluate(tx, getattr, self.real, name)
        return tx.bound_method(self, name) if callable(found) else super().get_attr(tx, name)

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        with needing("FB0009", lambda what: f"{self.describe()}.{name} with {what}"):
            plain, named = objects_of(args, kwargs)
        found = evaluate(tx, getattr(self.real, name), *plain, **named)
        if type(found) not in LITERALS and found is not NotImplemented:
            raise Break("FB0009", f"{self.describe()}.{name}")
        return Constant(found)


def placement(obj: Any) -> Value:
    return PlacementValue(obj, ConstantSource(obj, "placement"))


@wraps_if(compat.is_placement, 45)
def wrap_placement(tx: Tracer, obj: Any, source: Source) -> Value:
    tx.guard(source, "ID_MATCH", obj)
    return placement(obj)


def _made(tx: Tracer, called: Any, args: Args, kwargs: Kwargs) -> Value:
    """A placement that the program makes."""
    if not isinstance(called, ClassValue) or not compat.is_placement_class(called.python_class):
        raise Break("FB0017", describe_call(called, args))
    with needing("FB0005", lambda what: f"{called.describe()} of {what}"):
        plain, named = objects_of(args, kwargs)
    return placement(evaluate(tx, called.python_class, *plain, **named))


NAMES[compat.PLACEMENTS, "*"] = CallRule(Action.ANSWER, _ROW, _made, of_called=True)
#: the hooks that a module is distributed by call what the style of parallelism says
NAMES[compat.DISTRIBUTED_TENSORS, "<lambda>"] = INLINE


def _distributed(value: Value, name: str) -> Any:
    if isinstance(value, TensorValue) and compat.is_distributed(value.fake):
        return value.fake
    raise Break(_REASON, f"{name} of {value.describe()}")


def _placements(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return TupleValue([placement(each) for each in _distributed(args[0], "placements").placements])


def _mesh(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return wrap_known(tx, _distributed(args[0], "device_mesh").device_mesh, "device_mesh")


NAMES[compat.DISTRIBUTED_TENSORS, "placements"] = CallRule(Action.ANSWER, _ROW, _placements)
NAMES[compat.DISTRIBUTED_TENSORS, "device_mesh"] = CallRule(Action.ANSWER, _ROW, _mesh)


def _change(name: str) -> None:
    """A method that changes placements, or makes a tensor distributed or plain."""

    def handler(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        tensor, *others = args
        if not isinstance(tensor, TensorValue):
            raise Break(_REASON, f"{name} of {tensor.describe()}")
        if compat.is_parameter(tensor.fake) and name == "to_local":
            raise Break(_REASON, f"{name} of a parameter, which gives a parameter")
        with needing(_REASON, lambda what: f"{name}: {what} is not known"):
            plain, named = objects_of(others, kwargs)
        target = evaluate(tx, compat.placed_call, name, plain, named)
        if target is None:
            raise Break(_REASON, f"{name} that compares what the ranks have")
        return graph_call(tx, "call_function", target, [tensor], {})

    NAMES[compat.DISTRIBUTED_TENSORS, name] = CallRule(Action.ANSWER, _ROW, handler)


for _name in compat.CHANGES_OF_PLACEMENT:
    _change(_name)


def _distribute(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """A tensor that lies whole, spread over a mesh. What requires grad would be a new leaf."""
    others, named_others = list(args), dict(kwargs)
    tensor = others.pop(0) if others else named_others.pop("tensor", Constant(None))
    if not isinstance(tensor, TensorValue) or compat.is_distributed(tensor.fake):
        raise Break(_REASON, f"distribute_tensor of {tensor.describe()}")
    if tensor.fake.requires_grad:
        raise Break(_REASON, "distribute_tensor of a tensor that requires grad, a new leaf")
    with needing(_REASON, lambda what: f"distribute_tensor: {what} is not known"):
        plain, named = objects_of(others, named_others)
    target = evaluate(tx, compat.distribute_call, plain, named)
    if target is None:
        raise Break(_REASON, "distribute_tensor in a form that is left to eager")
    return graph_call(tx, "call_function", target, [tensor], {})


NAMES[compat.DISTRIBUTED_TENSORS.rpartition(".")[0], "distribute_tensor"] = CallRule(
    Action.ANSWER, _ROW, _distribute
)
