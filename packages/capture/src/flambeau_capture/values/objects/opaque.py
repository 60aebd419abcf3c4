"""Opaque and frozen objects, members of enumerations, Python modules.

In: objects of classes written in C, files, locks and the like; members; modules. Out:
`OpaqueValue`, `FrozenValue`, `EnumMember`, `PyModuleValue`. Invariant: an opaque object can be
passed along and compared by identity; any other operation is a graph break.
"""

from __future__ import annotations

import enum
import operator
import re
import sys
import types
import typing
from typing import Any

import torch

from flambeau_capture.breaks import Break
from flambeau_capture.effects.side_effects import DeferredCall
from flambeau_capture.observe.unguarded import unguarded
from flambeau_capture.source import Attr, ConstantSource, InstanceAttr, Source
from flambeau_capture.values.base import (
    Args,
    IteratorValue,
    Kwargs,
    MadeBy,
    NotConcrete,
    Tracer,
    UserError,
    Value,
    needing,
    objects_of,
)
from flambeau_capture.values.constant import LITERALS, Constant, KnownObject, evaluate
from flambeau_capture.values.functions.methods import BoundMethod
from flambeau_capture.values.objects.attributes import (
    assume_entry,
    assume_special_methods,
    class_attribute,
    defines,
    find_in_class,
    instance_dict,
    overrides_instance,
)
from flambeau_capture.values.registry import (
    itself,
    trusted_class,
    trusted_name,
    wrap_known,
    wraps_if,
)


class OpaqueValue(Value):
    described = "{0.cls.__module__}.{0.cls.__qualname__} object"
    cls: type

    def __init__(self, real: Any, source: Source) -> None:
        self.real = real
        self.cls = type(real)
        self.source = source

    def special(self, tx: Tracer, name: str) -> bool:
        return defines(tx, self.cls, name)

    def get_attr(self, tx: Tracer, name: str) -> Value:
        if name == "__class__":
            return tx.wrap_new(type(self.real))
        found = find_in_class(type(self.real), name)
        if found is not None and isinstance(found[1], _METHODS):
            return BoundMethod(self, name)
        self.unknown(f"attribute {name!r}")

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        raise Break("FB0005", f"call_method {name} of {self.describe()}")


#: methods of a pattern that read the text they are given as it is in memory, whatever its class
_SCANS = frozenset({"search", "match", "fullmatch", "findall", "finditer", "split"})


def _text_scanned(value: Value) -> Any:
    payload = getattr(value, "payload", None)
    if not isinstance(payload, Constant) or payload.cls is not str:
        return value.as_python()
    payload.as_python()  # which guards the text
    return value.own_object()


_METHODS = (types.MethodDescriptorType, types.WrapperDescriptorType)


class FrozenValue(OpaqueValue, KnownObject):
    """An object that never changes (finfo, compiled pattern): asking it is safe at any time."""

    @property
    def answers_as_itself(self) -> bool:  # type: ignore[override]
        return type(self) is FrozenValue

    def as_python(self) -> Any:
        return self.real

    def get_item(self, tx: Tracer, key: Value) -> Value:
        with needing("FB0009", lambda error: f"{self.describe()}[{error}]"):
            return tx.wrap_new(evaluate(tx, operator.getitem, self.real, key.as_python()))

    def call(self, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        origin = typing.get_origin(self.real)
        if not getattr(self.real, "_inst", True):
            evaluate(tx, self.real)  # `Dict[str, int]()` is refused
        if isinstance(origin, type):  # Generic[int](...)
            made = tx.call(tx.wrap_new(origin), args, kwargs)
            if made.cls.__dictoffset__:
                made.set_attr(tx, "__orig_class__", self)
            return made
        return super().call(tx, args, kwargs)

    def get_attr(self, tx: Tracer, name: str) -> Value:
        found = evaluate(tx, getattr, self.real, name)
        if getattr(found, "__self__", None) is self.real:
            return BoundMethod(self, name)
        return tx.wrap_new(found) if type(found) in LITERALS else wrap_known(tx, found, name)

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name == "sub" and isinstance(self.real, re.Pattern) and args:
            return tx.call(tx.wrap_new(re.sub), [self, *args], kwargs)
        try:
            scans = isinstance(self.real, re.Pattern) and name in _SCANS and args
            scanned = [_text_scanned(args[0])] if scans else []
            plain, named = objects_of(args[len(scanned) :], kwargs)
            plain = scanned + plain
        except NotConcrete as error:
            found = find_in_class(self.cls, name)
            if found is None or not isinstance(found[1], types.FunctionType):
                raise Break("FB0009", f"{self.describe()}.{name} with {error}") from None
            return tx.call(wrap_known(tx, found[1], name), [self, *args], kwargs)
        method = getattr(self.real, name)
        by = MadeBy(method, (*args,), {**kwargs})
        return tx.wrap_evaluated(evaluate(tx, method, *plain, **named), by)


unguarded(
    "submodules, dtypes, layouts and memory formats among the attributes of torch's modules",
    "they are what the names mean: `torch.float32`, `torch.nn`",
)
unguarded(
    "what patterns, matches, signatures, code objects, `finfo` and `iinfo` say",
    "such an object never changes; which object it is, is guarded",
)

#: what nobody replaces in torch's and Python's own modules
_STAYS = (types.ModuleType, torch.dtype, torch.layout, torch.memory_format)


class PyModuleValue(Value):
    """A module: its attributes are global variables of the program."""

    described = "module {0.module.__name__}"
    cls: type = types.ModuleType

    def __init__(self, module: types.ModuleType, source: Source) -> None:
        self.module = module
        self.source = source

    def as_python(self) -> Any:
        return self.module

    def get_attr(self, tx: Tracer, name: str) -> Value:
        scope = tx.scope_of(vars(self.module))
        if name in scope.written:
            written: Value | None = scope.written[name]
            if written is None:
                tx.raise_error(AttributeError, f"{self.describe()} has no attribute '{name}'")
            return written
        try:
            found = getattr(self.module, name)
        except AttributeError as error:
            tx.guard(itself(self.module), "NOT_HASATTR", name)
            tx.raise_error(AttributeError, *error.args)
        if type(self.module) is types.ModuleType and trusted_name(self.module.__name__):
            if isinstance(found, _STAYS):
                return wrap_known(tx, found, f"{self.module.__name__}.{name}")
        return tx.wrap(found, Attr(itself(self.module), name))

    def set_attr(self, tx: Tracer, name: str, value: Value) -> None:
        scope = tx.scope_of(vars(self.module))
        if self.module is sys and name in ("stdout", "stderr"):
            if tx.heap.writes_later():  # messages that are to go to another stream
                raise Break("FB0019", f"attribute {name!r} of {self.describe()} is set")
            if value.source == Attr(itself(sys), name):  # as it was
                scope.written.pop(name, None)
                return
        elif type(self.module) is not types.ModuleType or trusted_name(self.module.__name__):
            raise Break("FB0019", f"attribute {name!r} of {self.describe()} is set")
        scope.store(tx, name, value)

    def reconstruct(self, writer: Any) -> None:
        writer.load_const(self.module)


@wraps_if(lambda obj: issubclass(type(obj), types.ModuleType), 15)
def wrap_module(tx: Tracer, obj: Any, source: Source) -> Value:
    tx.guard(source, "FUNCTION_MATCH", obj)
    return tx.heap.value_of(obj, lambda: PyModuleValue(obj, source))


@wraps_if(lambda obj: issubclass(type(obj), enum.Enum), 5)
def wrap_enum(tx: Tracer, obj: Any, source: Source) -> Value:
    tx.guard(source, "ID_MATCH", obj)
    if not trusted_class(type(obj)):  # a program may set `__class__`
        tx.guard(source, "TYPE_MATCH", type(obj))
    made = tx.heap.find_model(type(obj))
    if made is not None:
        made.track_member(tx, obj)
    assume_special_methods(tx, type(obj))
    if not tx.heap.take_attributes(instance_dict(obj), obj):
        return OpaqueValue(obj, source)  # the program has its `__dict__`
    name = instance_dict(obj).get("_name_")  # none yet, of one that is being made
    where = ConstantSource(obj, f"{type(obj).__name__}.{name}")
    return tx.heap.value_of(obj, lambda: EnumMember(obj, where))


#: what members and their enumeration are queried by
_TOLD = frozenset({"_name_", "_value_", "_sort_order_", "__objclass__"})


class EnumMember(FrozenValue):
    """A member of an enum; one that is also a string or a number behaves as such."""

    def __init__(self, real: Any, source: Source) -> None:
        super().__init__(real, source)
        self._written: dict[str, Value] = {}

    def set_attr(self, tx: Tracer, name: str, value: Value) -> None:
        """An attribute of its own, as flags keep what they have computed."""
        found = find_in_class(type(self.real), name)
        own = tx.heap.own_of(self.real) or tx.heap.own_of(type(self.real))
        known = name in _TOLD or (found is not None and overrides_instance(found[1]))
        if own is not None or known:
            self.unknown(f"assignment to attribute {name!r}")
        if find_in_class(type(self.real), "__setattr__") != find_in_class(object, "__setattr__"):
            self.unknown(f"assignment to attribute {name!r}")
        self._written[name] = value
        tx.heap.log(DeferredCall(setattr, [self, Constant(name), value]))

    def get_attr(self, tx: Tracer, name: str) -> Value:
        """What the enumeration itself says never changes; else as of any instance."""
        if name in self._written:
            return self._written[name]
        kind = type(self.real)
        found = find_in_class(kind, name)
        own_names = name[:1] == "_" == name[-1:]
        if own_names or (found is not None and trusted_class(found[0])):
            return super().get_attr(tx, name)
        assert self.source is not None
        assume_entry(tx, kind, name)
        if found is None or not overrides_instance(found[1]):
            own = instance_dict(self.real)
            if name in own:
                return tx.wrap(own[name], InstanceAttr(self.source, name))
            tx.guard(self.source, "NOT_IN_INSTANCE_DICT", name)
        answers = find_in_class(kind, "__getattr__") is not None
        if found is not None:
            try:
                return class_attribute(tx, self, kind, name)
            except UserError as error:
                if not answers or not issubclass(error.value.cls, AttributeError):
                    raise
        if answers:
            hook = class_attribute(tx, self, kind, "__getattr__")
            return tx.call(hook, [Constant(name)], {})
        return super().get_attr(tx, name)

    def call(self, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        found = find_in_class(type(self.real), "__call__")
        if found is None or not isinstance(found[1], types.FunctionType):
            return super().call(tx, args, kwargs)
        return tx.call(class_attribute(tx, self, type(self.real), "__call__"), args, kwargs)

    def iterate(self, tx: Tracer) -> IteratorValue:
        found = find_in_class(type(self.real), "__iter__")
        if found is None or not isinstance(found[1], types.FunctionType):
            return super().iterate(tx)
        return tx.call(class_attribute(tx, self, type(self.real), "__iter__"), [], {}).iterate(tx)

    def graph_argument(self) -> Any:
        if isinstance(self.real, str | int | float):
            plain: Any = self.real
            return plain.value
        raise Break("FB0015", self.describe())

    def reconstruct(self, writer: Any) -> None:
        writer.load_const(self.real)
