"""Tensors that existed before the frame, and subclasses with `__torch_function__`.

In: a tensor and its source, or a plain tensor that is given a class. Out: its value. Invariant: it
becomes an input or an attribute of the graph, with its guards, when it is first used; the graph
holds plain tensors: a subclass and its Python attributes are kept with the value, and what is
called on it goes through the class's `__torch_function__`.
"""

from __future__ import annotations

from typing import Any

import torch

from flambeau_capture import _torch_compat as compat
from flambeau_capture.source import Called, ModuleEntry, Source
from flambeau_capture.values.base import Args, IteratorValue, Kwargs, Tracer, Value
from flambeau_capture.values.constant import Constant
from flambeau_capture.values.functions.methods import BoundMethod
from flambeau_capture.values.objects.attributes import (
    assume_entry,
    assume_special_methods,
    call_special,
    class_attribute,
    find_in_class,
    overrides_instance,
)
from flambeau_capture.values.objects.instances import ObjectValue
from flambeau_capture.values.objects.opaque import OpaqueValue
from flambeau_capture.values.registry import already_tracked, assume_there, wraps_if
from flambeau_capture.values.tensors.methods import tensor_attribute, tensor_method
from flambeau_capture.values.tensors.tensor import TensorValue


class SubclassTensor(TensorValue):
    """A tensor of a subclass. `owner` keeps its Python attributes."""

    def __init__(self, owner: ObjectValue, inner: TensorValue | None = None, **parts: Any) -> None:
        super().__init__(None if inner is None else inner.node, python_class=owner.cls, **parts)
        self.owner = owner

    def describe(self) -> str:
        return f"TensorValue({self.python_class.__name__}{tuple(self.fake.shape)})"

    def defines(self, name: str) -> bool:
        """Whether the class, or one between it and torch's, defines an attribute."""
        found = find_in_class(self.python_class, name)
        return found is not None and not issubclass(torch.Tensor, found[0])

    def get_attr(self, tx: Tracer, name: str) -> Value:
        _ = self.cls
        in_class = find_in_class(self.python_class, name)
        if in_class is not None and not overrides_instance(in_class[1]):
            own = self.own(tx, name)
            if own is not None:
                return own
        if self.defines(name):
            return class_attribute(tx, self, self.python_class, name)
        if name == "__class__":
            return tx.wrap_new(self.python_class)
        if name == "__dict__":
            return self.owner.get_attr(tx, name)
        assume_entry(tx, self.python_class, name)
        found = getattr(torch.Tensor, name, _MISSING)
        if found is _MISSING:
            own = self.own(tx, name)
            if own is not None:
                return own
            if self.defines("__getattr__"):
                hook = class_attribute(tx, self, self.python_class, "__getattr__")
                return tx.call(hook, [Constant(name)], {})
            self.lacks(tx, name)
        return BoundMethod(self, name) if callable(found) else self.tensor_attribute(tx, name)

    def own(self, tx: Tracer, name: str) -> Value | None:
        """An attribute of the object itself; None: it has none of that name."""
        return self.owner.instance_get(tx, name)

    def tensor_attribute(self, tx: Tracer, name: str) -> Value:
        """An attribute that tensors have."""
        answer = tx.tensor_rules.override(tx, "get", name, [self], {})
        return tensor_attribute(self, tx, name) if answer is None else answer

    def set_attr(self, tx: Tracer, name: str, value: Value) -> None:
        if hasattr(torch.Tensor, name):
            super().set_attr(tx, name, value)
        else:
            self.owner.set_attr(tx, name, value)

    def del_attr(self, tx: Tracer, name: str) -> None:
        self.owner.del_attr(tx, name)

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name in ("__setattr__", "__getattribute__", "__delattr__", "__init__"):
            return self.owner.call_method(tx, name, args, kwargs)
        override = tx.tensor_rules.override
        plain = name == "as_subclass"  # which is never overridden
        answer = None if plain else override(tx, "call_method", name, [self, *args], kwargs)
        return tensor_method(self, tx, name, args, kwargs) if answer is None else answer

    def length(self, tx: Tracer) -> int:
        if self.defines("__len__"):
            return int(call_special(tx, self, "__len__", []).as_python())
        return super().length(tx)

    def iterate(self, tx: Tracer) -> IteratorValue:
        if self.defines("__iter__"):
            return call_special(tx, self, "__iter__", []).iterate(tx)
        return super().iterate(tx)

    def get_item(self, tx: Tracer, key: Value) -> Value:
        if self.defines("__getitem__"):
            return call_special(tx, self, "__getitem__", [key])
        return super().get_item(tx, key)

    def rebuild(self, writer: Any) -> None:
        with writer.building(self):
            writer.load_graph_output(self.node)
            writer.call_top(torch.Tensor.as_subclass, [Constant(self.python_class)])
        for name, value in self.owner.written.items():
            if value is not None:
                writer.do_with_top(object.__setattr__, [Constant(name), value])


_MISSING = object()


def existing_subclass(tx: Tracer, obj: torch.Tensor, source: Source) -> SubclassTensor:
    """The value of a tensor of the program; the graph takes its data as a plain tensor."""
    kind = type(obj)
    assume_special_methods(tx, kind)
    plain = compat.plain_tensor(obj)
    inner = Called(source, compat.plain_tensor)

    def enter() -> Any:
        tx.guard_tensor(inner, plain)
        return tx.graph.outermost.add_input(plain, inner)

    owner = ObjectValue(kind, real=obj, source=source)
    made = SubclassTensor(owner, source=source, enter=enter, real=obj)
    tx.heap.know(obj, made)
    return made


def of_class(tx: Tracer, tensor: TensorValue, kind: type) -> TensorValue:
    """`tensor.as_subclass(kind)`."""
    if kind is torch.Tensor:
        alias = tx.call(tx.wrap_new(torch.ops.aten.alias.default), [TensorValue(tensor.node)], {})
        assert isinstance(alias, TensorValue)
        return alias
    assume_special_methods(tx, kind)
    return SubclassTensor(ObjectValue(kind), tensor)


@wraps_if(lambda obj: issubclass(type(obj), torch.Tensor), 10)
def wrap_tensor(tx: Tracer, obj: torch.Tensor, source: Source) -> Value:
    known = already_tracked(tx, obj, source)
    if known is not None:
        return known
    kind = type(obj)
    if not compat.has_own_dispatch(kind) and compat.lacks_fake_form(obj):
        tx.guard(source, "TYPE_MATCH", kind)
        tx.guard(source, "CALL", compat.lacks_fake_form, "has no sizes and strides of its own")
        return OpaqueValue(obj, source)  # whatever is done with it happens in Python
    if kind not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer):
        tx.guard(source, "TYPE_MATCH", kind)
        if compat.has_own_dispatch(kind):
            return tx.tensor_rules.wrapper(tx, obj, source)
        if torch.nn.parameter.is_lazy(obj):
            return OpaqueValue(obj, source)
        if not compat.ignores_torch_function(kind):
            return existing_subclass(tx, obj, source)
    made = TensorValue(
        source=source, enter=lambda: _enter(tx, obj, source), python_class=type(obj), real=obj
    )
    assume_there(tx, source, obj)
    tx.heap.know(obj, made)
    return made


def _enter(tx: Tracer, obj: torch.Tensor, source: Source) -> Any:
    dims = {} if isinstance(source, ModuleEntry) else tx.open_dims(source, obj)
    if dims:
        fake, sizes, strides = tx.shapes.tensor(obj, source, dims, tx.open_strides(source, obj))
        tx.require_open(source, obj, fake.shape)
        tx.guard_tensor(source, obj, sizes, strides)
        return tx.graph.outermost.add_input(obj, source, fake)
    tx.guard_tensor(source, obj)
    if isinstance(source, ModuleEntry) and not tx.replaced(source, obj):
        tx.guard(source, "ID_MATCH", obj)
        return tx.graph.outermost.add_attribute(obj, source.name())
    return tx.graph.outermost.add_input(obj, source)
