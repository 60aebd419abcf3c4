"""Descriptors as objects: properties, slots, attributes in C, static and class methods.

In: a descriptor as it stands in a class (`vars(C)["p"]`, `C.p`). Out: `DescriptorValue`. Invariant:
which descriptor it is, is guarded; `__get__`, `__set__` and `__delete__` do what reading, setting
and deleting the attribute do, where nothing of the object's class comes between.
"""

from __future__ import annotations

import functools
import types
from typing import Any

import torch

from flambeau_capture.breaks import Break
from flambeau_capture.source import Attr, Source
from flambeau_capture.values.base import Args, Kwargs, Tracer, Value
from flambeau_capture.values.constant import LITERALS, Constant, evaluate, is_none
from flambeau_capture.values.functions.methods import BoundMethod
from flambeau_capture.values.objects.attributes import find_in_class, property_lacks
from flambeau_capture.values.objects.opaque import OpaqueValue
from flambeau_capture.values.registry import itself, tracked, wraps_if
from flambeau_capture.values.stand_ins import stand_in

#: what descriptors are made of, and what their class has set
SHOWN_PARTS: dict[type, tuple[str, ...]] = {
    property: ("fget", "fset", "fdel"),
    staticmethod: ("__func__", "__wrapped__"),
    classmethod: ("__func__", "__wrapped__"),
    functools.cached_property: ("func", "attrname"),
}
#: `Tensor.shape.__get__` and the like: what `__torch_function__` receives
_ACCESSORS = {"__get__": "__getattribute__", "__set__": "__setattr__", "__delete__": "__delattr__"}
_IN_C = (types.GetSetDescriptorType, types.MemberDescriptorType)
_WORDS = ("__name__", "__qualname__", "__objclass__", "__doc__")
_PLACES = ("getter", "setter", "deleter")
_BY_PROPERTY = {"__get__": "fget", "__set__": "fset", "__delete__": "fdel"}


def is_of_tensors(obj: Any) -> bool:
    """Whether it is a descriptor in C of torch's tensors."""
    return isinstance(obj, _IN_C) and issubclass(obj.__objclass__, torch._C.TensorBase)


class DescriptorValue(OpaqueValue):
    source: Source

    def get_attr(self, tx: Tracer, name: str) -> Value:
        if name in _ACCESSORS and hasattr(self.cls, name):
            if is_of_tensors(self.real):
                return tx.wrap_new(getattr(self.real, name))
            return BoundMethod(self, name)
        if name in SHOWN_PARTS.get(self.cls, ()):
            return tx.wrap(getattr(self.real, name), Attr(self.source, name))
        if name in _WORDS and name in vars(self.cls):
            found = getattr(self.real, name)
            if type(found) in LITERALS or isinstance(found, type):
                return tx.wrap(found, Attr(self.source, name))
        return super().get_attr(tx, name)

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        if self.cls is property and name in _PLACES and len(args) == 1 and not kwargs:
            return self._with(tx, name, args[0])
        if name not in _ACCESSORS or kwargs or not args or isinstance(self.real, _BOUND):
            return super().call_method(tx, name, args, kwargs)
        owner, *given = args
        if name == "__get__" and is_none(owner):
            return self
        if self.cls is property:
            return self._by_property(tx, name, owner, given)
        kind: type = self.real.__objclass__
        if not any(base is kind for base in owner.cls.__mro__):
            evaluate(tx, getattr(self.real, name), stand_in(owner.cls), *map(_nothing, given))
        attribute = self.real.__name__
        found = find_in_class(owner.cls, attribute)
        if found is None or found[1] is not self.real or owner.special(tx, _ACCESSORS[name]):
            raise Break("FB0009", f"{name} of {self.describe()} {attribute!r}")
        if name == "__get__":
            return tx.get_attr(owner, attribute)
        if name == "__set__":
            owner.set_attr(tx, attribute, given[0])
        else:
            owner.del_attr(tx, attribute)
        return Constant(None)

    def _with(self, tx: Tracer, name: str, part: Value) -> Value:
        """`C.p.setter(part)`: another property, with the words of this one."""
        parts = [self.get_attr(tx, shown) for shown in SHOWN_PARTS[property]]
        parts[_PLACES.index(name)] = part
        words = self.real.__doc__
        if words != getattr(self.real.fget, "__doc__", None):
            parts.append(tx.wrap(words, Attr(self.source, "__doc__")))
        return tx.call(tx.wrap_new(property), parts, {})

    def _by_property(self, tx: Tracer, name: str, owner: Value, given: Args) -> Value:
        function = getattr(self.real, _BY_PROPERTY[name])
        if function is None:
            property_lacks(tx, self.real, owner.cls, name)
        called = self.get_attr(tx, _BY_PROPERTY[name])
        found = tx.call(called, [owner, *(given if name == "__set__" else ())], {})
        return found if name == "__get__" else Constant(None)


_BOUND = (staticmethod, classmethod, functools.cached_property)
_WRAPPED = (property, *_BOUND, *_IN_C)


def _nothing(value: Value) -> None:
    return None


@wraps_if(lambda obj: issubclass(type(obj), _WRAPPED), 90)
@tracked
def wrap_descriptor(tx: Tracer, obj: Any, source: Source) -> Value:
    tx.guard(source, "ID_MATCH", obj)
    known = type(obj) in (*SHOWN_PARTS, *_IN_C)
    return (DescriptorValue if known else OpaqueValue)(obj, itself(obj, type(obj).__name__))
