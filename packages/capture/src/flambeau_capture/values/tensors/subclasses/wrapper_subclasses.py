"""Wrapper subclasses of tensors: those that flatten and answer operators below autograd.

In: a tensor whose class has `__torch_dispatch__`, `__tensor_flatten__` and
`__tensor_unflatten__`. Out: its value; the graph takes the tensor as it is, and its operators on
it. Invariant: all that `__torch_dispatch__` may read of the tensor is guarded: the context that it
flattens to, and each inner tensor's metadata, through every level; a class whose methods have
effects, or are in part unknown, is refused by name.
"""

from __future__ import annotations

import operator
import types
from functools import partial
from typing import Any

import torch

from flambeau_capture import _torch_compat as compat
from flambeau_capture.breaks import Break
from flambeau_capture.source import Attr, ClosureCell, ConstantSource, GlobalOf, Source
from flambeau_capture.values.base import Args, Kwargs, Tracer, Value
from flambeau_capture.values.constant import Constant
from flambeau_capture.values.objects.attributes import assume_entry, assume_special_methods
from flambeau_capture.values.objects.classes import ClassValue
from flambeau_capture.values.objects.instances import ObjectValue
from flambeau_capture.values.objects.opaque import OpaqueValue
from flambeau_capture.values.registry import itself
from flambeau_capture.values.tensors.existing_tensors import SubclassTensor
from flambeau_capture.values.tensors.graph_calls import graph_call
from flambeau_capture.values.tensors.subclasses.dispatch_code import examine
from flambeau_capture.values.tensors.tensor import TensorValue


class WrapperTensor(SubclassTensor):
    """A wrapper subclass. `owner` keeps the Python attributes of one that the program has;
    `parts_made` are the tensors that one made here was made of, by the id of their fakes."""

    def __init__(self, owner: ObjectValue, **parts: Any) -> None:
        super().__init__(owner, **parts)
        self.parts_made: dict[int, TensorValue] = {}

    def own(self, tx: Tracer, name: str) -> Value | None:
        if self.real is not None or name not in vars(self.fake) or name in self.owner.written:
            return super().own(tx, name)
        known = self.parts_made.get(id(vars(self.fake)[name]))
        if known is not None:
            return known
        if isinstance(vars(self.fake)[name], torch.Tensor):
            return graph_call(tx, "call_function", getattr, [self, Constant(name)], {})
        return tx.wrap_new(vars(self.fake)[name])

    def set_attr(self, tx: Tracer, name: str, value: Value) -> None:
        self._refuse_what_is_read(tx, name)
        super().set_attr(tx, name, value)

    def del_attr(self, tx: Tracer, name: str) -> None:
        self._refuse_what_is_read(tx, name)
        super().del_attr(tx, name)

    def _refuse_what_is_read(self, tx: Tracer, name: str) -> None:
        """An attribute that operators may read is not changed before the graph has run."""
        _ = self.cls
        found = tx.graph.outermost.examined[self.python_class]
        if name in vars(self.fake) or name in found.names:
            raise Break("FB0019", f"attribute {name} of an existing {self.python_class.__name__}")

    def rebuild(self, writer: Any) -> None:
        writer.load_graph_output(self.node)


class RefusedTensor(OpaqueValue):
    """A tensor that answers operators below autograd, of a class that no graph takes."""

    def __init__(self, real: torch.Tensor, source: Source, why: str) -> None:
        super().__init__(real, source)
        self._why = why

    def describe(self) -> str:
        return f"a {self.cls.__name__}, whose {self._why}"

    def get_attr(self, tx: Tracer, name: str) -> Value:
        raise Break("FB0012", f"attribute {name!r} of {self.describe()}")

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        raise Break("FB0012", f"call_method {name} of {self.describe()}")


def existing_wrapper(tx: Tracer, obj: torch.Tensor, source: Source) -> Value:
    """The value of a tensor of the program that answers operators below autograd."""
    why = _refusal(obj)
    if why is not None:
        return RefusedTensor(obj, source, why)

    def enter() -> Any:
        assume_wrapper(tx, obj, source)
        return tx.graph.outermost.add_input(obj, source)

    owner = ObjectValue(type(obj), real=obj, source=source)
    made = WrapperTensor(owner, source=source, enter=enter, real=obj)
    tx.heap.know(obj, made)
    return made


def _refusal(obj: torch.Tensor) -> str | None:
    """Why no graph takes a tensor, or a tensor in it; None: it does."""
    if not compat.flattens(obj):
        if compat.has_own_dispatch(type(obj)):
            return "class has no __tensor_flatten__ and __tensor_unflatten__"
        return None
    if any(type(size) is not int for size in obj.shape):
        return "sizes depend on what it holds"
    effect = examine(type(obj)).effect
    if effect is not None:
        return effect
    names, *_ = compat.flattened(obj)
    return next(filter(None, (_refusal(getattr(obj, name)) for name in names)), None)


def made_wrapper(tx: Tracer, node: Any, kind: type) -> WrapperTensor:
    """The value of a wrapper subclass that an operation makes."""
    assume_class(tx, kind)
    made = WrapperTensor(ObjectValue(kind))
    made.stand_on(node, None)
    return made


def constructed(tx: Tracer, kind: ClassValue, args: Args, kwargs: Kwargs) -> Value:
    """A wrapper subclass that the program makes: the call of its class is a call in the graph."""
    if not compat.can_flatten(kind.python_class):
        raise Break("FB0012", f"call of {kind.describe()}, which has no __tensor_flatten__")
    assume_class(tx, kind.python_class)
    tx.as_plain += 1
    try:
        made = graph_call(tx, "call_function", kind.python_class, args, kwargs)
    finally:
        tx.as_plain -= 1
    if isinstance(made, WrapperTensor):
        given = [value for value in (*args, *kwargs.values()) if isinstance(value, TensorValue)]
        made.parts_made = {id(value.fake): value for value in given}
    return made


def assume_wrapper(tx: Tracer, obj: torch.Tensor, source: Source) -> None:
    """Guard a wrapper subclass, and every tensor in it."""
    tx.guard_tensor(source, obj)
    if not compat.flattens(obj):
        return
    assume_class(tx, type(obj))
    names, context, others = compat.flattened(obj)
    tx.guard(source, "FLATTENS", names, context)
    for name, other in others.items():
        tx.guard(Attr(source, name), "ID_MATCH", other)
    for name in names:
        assume_wrapper(tx, getattr(obj, name), Attr(source, name))


def assume_class(tx: Tracer, kind: type) -> None:
    """Guard what the operators of a class run, and what that reads."""
    examined = tx.graph.outermost.examined
    if kind in examined:
        return
    assume_special_methods(tx, kind)
    found = examined[kind] = examine(kind)
    if found.effect is not None:
        raise Break("FB0012", f"a {kind.__name__}, whose {found.effect}")
    for name in ("__torch_function__", *found.members):
        assume_entry(tx, kind, name)
    for function, name, value in found.read.values():
        _assume(tx, GlobalOf(itself(function), name), value)
    for function in found.functions:
        tx.guard(itself(function), "FUNCTION_MATCH", function)
        for place, cell in enumerate(function.__closure__ or ()):
            if not isinstance(cell.cell_contents, type):  # `__class__`, which nothing replaces
                _assume(tx, ClosureCell(itself(function), place), cell.cell_contents)
    for table in found.tables:
        tx.guard(itself(table, "table"), "CALL", _AsRead(table), "has what it had")
    if answers := compat.answers_by(kind):
        read = partial(compat.answers_by, kind)
        tx.guard(ConstantSource(read, "answers_by"), "ANSWER", answers)


def _assume(tx: Tracer, source: Source, value: Any) -> None:
    if isinstance(value, types.FunctionType):
        tx.guard(source, "FUNCTION_MATCH", value)
    elif isinstance(value, bool | int | float | str | bytes | None):
        tx.guard(source, "CONSTANT_MATCH", value)
    else:
        tx.guard(source, "ID_MATCH", value)


class _AsRead:
    """A guard's question: a container has the objects that it had, in their order."""

    def __init__(self, table: Any) -> None:
        self._parts = _parts(table)

    def __call__(self, table: Any) -> bool:
        found = _parts(table)
        return len(found) == len(self._parts) and all(map(operator.is_, found, self._parts))


def _parts(table: Any) -> list[Any]:
    return [*table, *table.values()] if isinstance(table, dict) else [*table]
