"""Attribute dictionaries: `obj.__dict__`, `cls.__dict__`; mapping proxies, views of dicts.

In: an instance's or a class's value, a proxy or a view of the program. Out: `InstanceDict`,
`ClassDict`, `ProxyValue`, `DictView`. Invariant: they are views: what is written to one is an
attribute; a name that is read is guarded to be there or not, and all names where all are read.
"""

from __future__ import annotations

import gc
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flambeau_capture.breaks import Break
from flambeau_capture.lookahead import VIEWS
from flambeau_capture.source import (
    Called,
    ClassEntry,
    ConstantSource,
    Source,
    answers_attributes,
    raw_dict,
)
from flambeau_capture.values.base import Args, Kwargs, Tracer, Value
from flambeau_capture.values.constant import Constant
from flambeau_capture.values.containers.dict_views import DictView
from flambeau_capture.values.containers.dicts import DictValue, MappingValue, default_of
from flambeau_capture.values.containers.hashable_keys import raise_key_error
from flambeau_capture.values.containers.sequences import Pending
from flambeau_capture.values.objects.attributes import assume_entry, assume_own, instance_dict
from flambeau_capture.values.objects.classes import ClassValue, dict_of_class
from flambeau_capture.values.objects.opaque import OpaqueValue
from flambeau_capture.values.registry import tracked, trusted_class, wraps_type

if TYPE_CHECKING:
    from flambeau_capture.values.objects.instances import ObjectValue


class InstanceDict(MappingValue):
    """`obj.__dict__`: a view of the instance's attributes."""

    def __init__(self, owner: ObjectValue) -> None:
        self.owner = owner

    def contains(self, tx: Tracer, item: Value) -> bool:
        name = item.as_python()
        found = self.lookup(tx, item) is not None
        if found and name not in self.owner.written and not self.owner.shared:
            self.owner.assume_own(tx, name)
        return found

    def lookup(self, tx: Tracer, key: Value) -> Value | None:
        name = key.as_python()
        return None if self._refers_to_slot(tx, name) else self.owner.instance_get(tx, name)

    def _refers_to_slot(self, tx: Tracer, name: Any) -> bool:
        if self.owner.shared or not isinstance(name, str) or not self.owner.has_slot(name):
            return False
        assume_entry(tx, self.owner.cls, name)
        if self.owner.real is not None and name in instance_dict(self.owner.real):
            raise Break("FB0009", f"__dict__[{name!r}], which the class has a slot for")
        return True

    def store(self, tx: Tracer, key: Value, value: Value | None) -> None:
        """Write past the class. What is replayed depends on what it has under the name."""
        name = key.as_python()
        if not isinstance(name, str) or self._refers_to_slot(tx, name):
            raise Break("FB0019", f"__dict__[{name!r}] is set")
        assume_entry(tx, self.owner.cls, name)
        self.owner.write(tx, name, value)

    def remove(self, tx: Tracer, key: Value) -> Value | None:
        found = self.lookup(tx, key)
        if found is not None:
            self.store(tx, key, None)
        return found

    def entries(self, tx: Tracer) -> Iterator[tuple[Value, Value]]:
        for name, value in self.owner.own_entries(tx):
            yield Constant(name), value

    def whole(self, tx: Tracer) -> DictValue:
        return DictValue(self.entries(tx), tx=tx)

    def reconstruct(self, writer: Any) -> None:
        if answers_attributes(self.owner.cls):
            writer.call(raw_dict, [self.owner])
        else:
            writer.load(self.owner)
            writer.load_attr("__dict__")


_READING = frozenset(vars(types.MappingProxyType)) - frozenset(vars(object)) | {"__eq__", "__ne__"}


class ReadOnly(MappingValue):
    """A mapping proxy. `whole` is what it shows."""

    cls: type = types.MappingProxyType

    def contains(self, tx: Tracer, item: Value) -> bool:
        return self.whole(tx).contains(tx, item)

    def get_item(self, tx: Tracer, key: Value) -> Value:
        return self.whole(tx).get_item(tx, key)

    def set_item(self, tx: Tracer, key: Value, value: Value) -> None:
        tx.raise_error(TypeError, "'mappingproxy' object does not support item assignment")

    def del_item(self, tx: Tracer, key: Value) -> None:
        tx.raise_error(TypeError, "'mappingproxy' object does not support item deletion")

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name in ("__contains__", "__getitem__"):
            return super().call_method(tx, name, args, kwargs)
        if name == "get":
            there = self.contains(tx, args[0])
            return self.get_item(tx, args[0]) if there else default_of(args, kwargs)
        if name not in _READING:
            self.unknown(f"method {name!r}")
        inner: Value | None = getattr(self, "inner", None)
        if name == "copy" and inner is not None:
            return tx.call(tx.get_attr(inner, name), args, kwargs)
        others = [unwrap_proxy(tx, arg) for arg in args]
        return self.whole(tx).call_method(tx, name, others, kwargs)


def unwrap_proxy(tx: Tracer, value: Value) -> Value:
    """What a mapping proxy compares and merges as."""
    return value.whole(tx) if isinstance(value, ReadOnly) else value


@dict_of_class.by
class ClassDict(ReadOnly):
    """`cls.__dict__`."""

    def __init__(self, owner: ClassValue) -> None:
        self.owner = owner

    def contains(self, tx: Tracer, item: Value) -> bool:
        name = item.as_python()
        if name in self.owner.written:
            return True
        return isinstance(name, str) and assume_own(tx, self.owner.python_class, name)

    def get_item(self, tx: Tracer, key: Value) -> Value:
        name = key.as_python()
        if not self.contains(tx, key):
            raise_key_error(tx, key)
        if name in self.owner.written:
            return self.owner.written[name]
        kind = self.owner.python_class
        return tx.wrap(kind.__dict__[name], _entry(kind, name))

    def whole(self, tx: Tracer) -> Value:
        kind = self.owner.python_class
        names = tuple(kind.__dict__)
        if not trusted_class(kind):
            where = ConstantSource(kind, kind.__name__)
            tx.guard(where, "CALL", _ClassNames(names), f"has the names {', '.join(names)}")
        entries = [(Constant(n), Pending(kind.__dict__[n], _entry(kind, n))) for n in names]
        found = DictValue(entries, tx=tx)
        for name, value in self.owner.written.items():
            found.store(tx, Constant(name), value)
        return found

    def reconstruct(self, writer: Any) -> None:
        writer.call(vars, [self.owner])


def _entry(kind: type, name: str) -> Source:
    if trusted_class(kind):
        return ConstantSource(kind.__dict__[name], name)
    return ClassEntry(ConstantSource(kind, kind.__name__), name)


@dataclass(frozen=True)
class _ClassNames:
    """A guard's question: the names that a class has of its own, in their order."""

    names: tuple[str, ...]

    def __call__(self, owner: type) -> bool:
        return tuple(vars(owner)) == self.names


class ProxyValue(ReadOnly):
    """A mapping proxy of the program: what it shows is the mapping itself, changes included."""

    built_once = True

    def __init__(self, inner: Value, source: Source | None = None) -> None:
        self.inner = inner
        self.source = source

    def whole(self, tx: Tracer) -> Value:
        return self.inner

    def rebuild(self, writer: Any) -> None:
        with writer.building(self):
            writer.call(types.MappingProxyType, [self.inner])


def shown_by(proxy: Any) -> Any:
    """The mapping that a proxy, or the dict that a view shows."""
    return gc.get_referents(proxy)[0]


def class_shown_by(proxy: Any) -> type | None:
    """The class whose dict a proxy shows."""
    for name in ("__dict__", "__weakref__"):
        owner = getattr(proxy.get(name), "__objclass__", None)
        if isinstance(owner, type) and shown_by(vars(owner)) is shown_by(proxy):
            return owner
    return None


@wraps_type(types.MappingProxyType)
@tracked
def wrap_proxy(tx: Tracer, obj: Any, source: Source) -> Value:
    tx.guard(source, "TYPE_MATCH", type(obj))
    owner = class_shown_by(obj)
    if owner is not None:
        kind = tx.wrap(owner, Called(source, class_shown_by))
        assert isinstance(kind, ClassValue)
        return ClassDict(kind)
    inner = shown_by(obj)
    if isinstance(inner, types.MappingProxyType):
        raise Break("FB0009", "a mapping proxy of a mapping proxy")
    return ProxyValue(tx.wrap(inner, Called(source, shown_by)), source)


_VIEWS = {type(view): name for (_, name), view in VIEWS.items()}


@wraps_type(*_VIEWS)
@tracked
def wrap_view(tx: Tracer, obj: Any, source: Source) -> Value:
    tx.guard(source, "TYPE_MATCH", type(obj))
    target = tx.wrap(shown_by(obj), Called(source, shown_by))
    if not isinstance(target, DictValue):
        return OpaqueValue(obj, source)
    return DictView(target, _VIEWS[type(obj)], source)
