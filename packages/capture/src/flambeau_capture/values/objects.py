"""Instances of Python classes.

In: objects of the program, or ones made under capture. Out: `ObjectValue`, `class_attribute`, which
follows Python's rules for descriptors. Invariant: attribute access does what the class defines
(`__getattribute__`, properties, slots, `__getattr__`, `__setattr__`), interpreted like all code of
the program; what was assumed about classes and instances is guarded.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator
from typing import Any

from flambeau_capture.breaks import Break
from flambeau_capture.source import Attr, Held, InstanceAttr, Source
from flambeau_capture.values.base import (
    Args,
    IteratorValue,
    Kwargs,
    NotConcrete,
    Tracer,
    UserError,
    Value,
)
from flambeau_capture.values.constant import Constant
from flambeau_capture.values.methods import BoundMethod, MethodValue
from flambeau_capture.values.registry import wraps_if
from flambeau_capture.values.trust import trusted_class

SLOT_TYPES = (
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
    types.BuiltinFunctionType,
    types.ClassMethodDescriptorType,
)


def find_in_class(python_class: type, name: str) -> tuple[type, Any] | None:
    """The class that defines an attribute, and the attribute as it stands in the class."""
    for owner in python_class.__mro__:
        if name in owner.__dict__:
            return owner, owner.__dict__[name]
    return None


def class_attribute(
    tx: Tracer, receiver: Value, python_class: type, name: str, after: type | None = None
) -> Value:
    """An attribute found on the class of a receiver, bound to it.

    after: start behind this class in the method resolution order (`super()`).
    """
    mro = python_class.__mro__
    if after is not None:
        mro = mro[mro.index(after) + 1 :]
    owner = next((k for k in mro if name in k.__dict__), None)
    if owner is None:
        tx.raise_error(
            AttributeError, f"'{python_class.__name__}' object has no attribute '{name}'"
        )
    found = owner.__dict__[name]
    asked = owner if after is not None else python_class
    where = Attr(Held(asked, asked.__name__), name)
    trusted = trusted_class(owner) and trusted_class(asked) and name != "forward"
    if isinstance(found, types.FunctionType):
        if not trusted:
            tx.guard(where, "FUNCTION_MATCH", found)
        return MethodValue(receiver, tx.wrap(found, Held(found, found.__qualname__)))
    if isinstance(found, staticmethod):
        return tx.wrap(found.__func__, Held(found.__func__, name))
    if isinstance(found, classmethod):
        return MethodValue(
            tx.wrap(python_class, Held(python_class, python_class.__name__)),
            tx.wrap(found.__func__, Held(found.__func__, name)),
        )
    if isinstance(found, property):
        if not trusted:
            tx.guard(where, "ID_MATCH", found)
        if found.fget is None:
            tx.raise_error(AttributeError, f"unreadable attribute '{name}'")
        return tx.call(tx.wrap(found.fget, Held(found.fget, name)), [receiver], {})
    if isinstance(found, functools.cached_property):
        return _cached_property(tx, receiver, found, name)
    if isinstance(found, SLOT_TYPES):
        return BoundMethod(receiver, name)
    if isinstance(found, types.MemberDescriptorType):
        return _slot(tx, receiver, name)
    if isinstance(found, types.GetSetDescriptorType):
        return _getset(tx, receiver, name)
    if isinstance(found, type):
        return tx.wrap(found, Held(found, name) if trusted else where)
    getter = find_in_class(type(found), "__get__")
    if getter is not None:
        if isinstance(found, functools.partialmethod):
            raise Break("FB0009", f"partialmethod {name!r}")
        if isinstance(getter[1], types.FunctionType):
            descriptor = tx.wrap(found, Held(found, name))
            owner_value = tx.wrap(python_class, Held(python_class, python_class.__name__))
            return tx.call(
                tx.wrap(getter[1], Held(getter[1], "__get__")),
                [descriptor, receiver, owner_value],
                {},
            )
        if callable(found):  # C-level callables such as functools.lru_cache's bind like functions
            return MethodValue(receiver, tx.wrap(found, Held(found, name)))
        raise Break("FB0009", f"descriptor {type(found).__name__} {name!r}")
    return tx.wrap(found, Held(found, name) if trusted and callable(found) else where)


def _cached_property(
    tx: Tracer, receiver: Value, found: functools.cached_property[Any], name: str
) -> Value:
    fn = found.func
    value = tx.call(tx.wrap(fn, Held(fn, name)), [receiver], {})
    if isinstance(receiver, ObjectValue):
        receiver.write(tx, name, value)
    return value


def _slot(tx: Tracer, receiver: Value, name: str) -> Value:
    if isinstance(receiver, ObjectValue):
        found = receiver.read_slot(tx, name)
        if found is not None:
            return found
        tx.raise_error(AttributeError, name)
    receiver.unknown(f"slot {name!r}")


def _getset(tx: Tracer, receiver: Value, name: str) -> Value:
    if name == "__dict__" and isinstance(receiver, ObjectValue):
        return InstanceDict(receiver)
    if name == "__class__":
        return tx.wrap_new(receiver.cls)
    receiver.unknown(f"attribute {name!r}")


class ObjectValue(Value):
    """An instance. `payload` is the built-in part of one that derives from a container."""

    def __init__(
        self,
        python_class: type,
        *,
        real: Any = None,
        source: Source | None = None,
        payload: Value | None = None,
    ) -> None:
        self.python_class = python_class
        self.real = real
        self.source = source
        self.payload = payload
        self.written: dict[str, Value | None] = {}
        self._read: dict[str, Value] = {}

    @property
    def cls(self) -> type:
        return self.python_class

    def describe(self) -> str:
        return f"UserDefinedObject({self.python_class.__name__})"

    def as_python(self) -> Any:
        if self.real is not None and not self.written and is_immutable(self.real):
            return self.real
        raise NotConcrete(self.describe())

    def parts(self) -> list[Value]:
        """The tensors of a container subclass, for graph arguments."""
        return self.payload.parts() if hasattr(self.payload, "parts") else []  # type: ignore[union-attr]

    # -- the instance's own attributes ----------------------------------------------------------

    def instance_names(self) -> list[str]:
        real = {} if self.real is None else _instance_dict(self.real)
        names = [name for name in real if self.written.get(name, True) is not None]
        return names + [n for n, v in self.written.items() if v is not None and n not in real]

    def instance_get(self, tx: Tracer, name: str) -> Value | None:
        """An attribute of the instance itself; None if it has none of that name."""
        if name in self.written:
            return self.written[name]
        if name in self._read:
            return self._read[name]
        if self.real is None:
            return None
        attributes = _instance_dict(self.real)
        if name not in attributes:
            tx.guard(self.source, "NOT_IN_INSTANCE_DICT", name)
            return None
        found = self.wrap_attribute(tx, name, attributes[name])
        self._read[name] = found
        return found

    def own_entries(self, tx: Tracer) -> Iterator[tuple[str, Value]]:
        """All attributes of the instance itself."""
        if self.source is not None and self.real is not None:
            keys = tuple(_instance_dict(self.real))
            tx.guard(Attr(self.source, "__dict__"), "DICT_KEYS", keys, True)
        for name in self.instance_names():
            found = self.instance_get(tx, name)
            assert found is not None
            yield name, found

    def wrap_attribute(self, tx: Tracer, name: str, found: Any) -> Value:
        assert self.source is not None
        return tx.wrap(found, InstanceAttr(self.source, name))

    def read_slot(self, tx: Tracer, name: str) -> Value | None:
        if name in self.written:
            return self.written[name]
        if self.real is None or not hasattr(self.real, name):
            return None
        assert self.source is not None
        return tx.wrap(getattr(self.real, name), Attr(self.source, name))

    def write(self, tx: Tracer, name: str, value: Value | None) -> None:
        """Set (or, with None, delete) an attribute of the instance itself."""
        tx.heap.changed(self)
        if value is None and (self.real is None or name not in _instance_dict(self.real)):
            self.written.pop(name, None)
        else:
            self.written[name] = value

    # -- attribute access -----------------------------------------------------------------------

    def get_attr(self, tx: Tracer, name: str) -> Value:
        hook = find_in_class(self.python_class, "__getattribute__")
        if hook is not None and isinstance(hook[1], types.FunctionType):
            return self._call_class(tx, "__getattribute__", [Constant(name)])
        return self.generic_get_attr(tx, name)

    def generic_get_attr(self, tx: Tracer, name: str) -> Value:
        if name == "__class__":
            return tx.wrap(self.python_class, Held(self.python_class, self.python_class.__name__))
        if name == "__dict__" and find_in_class(self.python_class, "__dict__") is not None:
            return InstanceDict(self)
        in_class = find_in_class(self.python_class, name)
        if in_class is None or not _overrides_instance(in_class[1]):
            own = self.instance_get(tx, name)
            if own is not None:
                return own
        if in_class is not None:
            try:
                return class_attribute(tx, self, self.python_class, name)
            except UserError as error:
                if not issubclass(error.value.cls, AttributeError) or not self._has_fallback():
                    raise
        return self.missing_attr(tx, name)

    def _has_fallback(self) -> bool:
        return find_in_class(self.python_class, "__getattr__") is not None

    def missing_attr(self, tx: Tracer, name: str) -> Value:
        if self._has_fallback():
            return self._call_class(tx, "__getattr__", [Constant(name)])
        tx.raise_error(
            AttributeError, f"'{self.python_class.__name__}' object has no attribute '{name}'"
        )

    def _call_class(self, tx: Tracer, name: str, args: list[Value]) -> Value:
        return tx.call(class_attribute(tx, self, self.python_class, name), args, {})

    def set_attr(self, tx: Tracer, name: str, value: Value) -> None:
        hook = find_in_class(self.python_class, "__setattr__")
        if hook is not None and isinstance(hook[1], types.FunctionType):
            self._call_class(tx, "__setattr__", [Constant(name), value])
            return
        self.generic_set_attr(tx, name, value)

    def generic_set_attr(self, tx: Tracer, name: str, value: Value) -> None:
        """object.__setattr__."""
        in_class = find_in_class(self.python_class, name)
        if in_class is not None and isinstance(in_class[1], property):
            setter = in_class[1].fset
            if setter is None:
                tx.raise_error(AttributeError, f"can't set attribute '{name}'")
            tx.call(tx.wrap(setter, Held(setter, name)), [self, value], {})
            return
        if name == "__class__" or (
            in_class is not None
            and hasattr(type(in_class[1]), "__set__")
            and not isinstance(in_class[1], types.MemberDescriptorType)
        ):
            if name == "__dict__" or not isinstance(
                getattr(type(in_class[1]), "__set__", None) if in_class else None,
                types.FunctionType,
            ):
                raise Break("FB0019", f"attribute {name!r} of {self.describe()} is set")
            setter = type(in_class[1]).__set__  # type: ignore[index]
            descriptor = tx.wrap(in_class[1], Held(in_class[1], name))  # type: ignore[index]
            tx.call(tx.wrap(setter, Held(setter, "__set__")), [descriptor, self, value], {})
            return
        self.write(tx, name, value)

    def del_attr(self, tx: Tracer, name: str) -> None:
        hook = find_in_class(self.python_class, "__delattr__")
        if hook is not None and isinstance(hook[1], types.FunctionType):
            self._call_class(tx, "__delattr__", [Constant(name)])
            return
        self.generic_del_attr(tx, name)

    def generic_del_attr(self, tx: Tracer, name: str) -> None:
        """object.__delattr__."""
        if self.instance_get(tx, name) is None:
            tx.raise_error(AttributeError, name)
        self.write(tx, name, None)

    # -- operations that classes define by special methods --------------------------------------

    def special(self, name: str) -> bool:
        """Whether the class defines a special method in Python."""
        found = find_in_class(self.python_class, name)
        return found is not None and not isinstance(found[1], SLOT_TYPES) and found[1] is not None

    def _special_or_payload(self, tx: Tracer, name: str, args: list[Value]) -> Value | None:
        if self.special(name):
            return self._call_class(tx, name, args)
        if self.payload is not None:
            return self.payload.call_method(tx, name, args, {})
        return None

    def truth(self, tx: Tracer) -> bool:
        for name in ("__bool__", "__len__"):
            if self.special(name):
                return self._call_class(tx, name, []).truth(tx)
        return self.payload.truth(tx) if self.payload is not None else True

    def length(self, tx: Tracer) -> int:
        found = self._special_or_payload(tx, "__len__", [])
        if found is None:
            tx.raise_error(TypeError, f"object of type '{self.python_class.__name__}' has no len()")
        return int(found.as_python())

    def get_item(self, tx: Tracer, key: Value) -> Value:
        if self.payload is not None and not self.special("__getitem__"):
            if self.special("__missing__") and not self.payload.contains(tx, key):
                return self._call_class(tx, "__missing__", [key])
            return self.payload.get_item(tx, key)
        found = self._special_or_payload(tx, "__getitem__", [key])
        if found is None:
            tx.raise_error(TypeError, f"'{self.python_class.__name__}' object is not subscriptable")
        return found

    def set_item(self, tx: Tracer, key: Value, value: Value) -> None:
        if self._special_or_payload(tx, "__setitem__", [key, value]) is None:
            self.unknown("assignment to a subscript")

    def del_item(self, tx: Tracer, key: Value) -> None:
        if self._special_or_payload(tx, "__delitem__", [key]) is None:
            self.unknown("deletion of a subscript")

    def contains(self, tx: Tracer, item: Value) -> bool:
        if self.payload is not None and not self.special("__contains__"):
            return self.payload.contains(tx, item)
        if self.special("__contains__"):
            return self._call_class(tx, "__contains__", [item]).truth(tx)
        from flambeau_capture.values.sequences import tx_equal

        return any(tx_equal(tx, part, item) for part in self.iterate(tx).drain(tx))

    def iterate(self, tx: Tracer) -> IteratorValue:
        from flambeau_capture.values.iterators import CallIterator

        if self.special("__iter__"):
            made = self._call_class(tx, "__iter__", [])
            return made if isinstance(made, IteratorValue) else CallIterator(made)
        if self.payload is not None:
            return self.payload.iterate(tx)
        if self.special("__getitem__"):
            return IndexIterator(self)
        if find_in_class(self.python_class, "__iter__") is None:
            tx.raise_error(TypeError, f"'{self.python_class.__name__}' object is not iterable")
        return super().iterate(tx)

    def call(self, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        if find_in_class(self.python_class, "__call__") is None:
            tx.raise_error(TypeError, f"'{self.python_class.__name__}' object is not callable")
        return tx.call(class_attribute(tx, self, self.python_class, "__call__"), args, kwargs)

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        """A method that a built-in class defines, on this instance."""
        handler = _OBJECT_METHODS.get(name)
        if handler is not None and (self.payload is None or name in _ALWAYS_OBJECT):
            return handler(self, tx, args)
        if self.payload is not None:
            return self.payload.call_method(tx, name, args, kwargs)
        if self.special(name):
            return tx.call(class_attribute(tx, self, self.python_class, name), args, kwargs)
        self.unknown(f"method {name!r}")

    # -- the compiled code's side ---------------------------------------------------------------

    def reconstruct(self, writer: Any) -> None:
        if self.source is not None:
            writer.load_source(self.source)
            return
        self.rebuild(writer)

    def rebuild(self, writer: Any) -> None:
        """Make the object without running its class's code, then set what it holds."""
        with writer.building(self):
            writer.call(_new_instance, [Constant(self.python_class)])
        if self.payload is not None:
            writer.duplicate_top()
            writer.push_call_on_top(_fill_payload, [self.payload])
            writer.pop_top()
        for name, value in self.written.items():
            if value is not None:
                writer.duplicate_top()
                writer.set_attr_on_top(name, value)

    def replay(self, writer: Any) -> None:
        for name, value in self.written.items():
            if value is None:
                writer.call(object.__delattr__, [self, Constant(name)])
            else:
                writer.call(object.__setattr__, [self, Constant(name), value])
            writer.pop_top()


class IndexIterator(IteratorValue):
    """The old protocol: `__getitem__` with 0, 1, 2, ... until IndexError."""

    def __init__(self, target: Value) -> None:
        self.target = target
        self.index = 0

    @property
    def cls(self) -> type:
        return type(iter([]))

    def advance(self, tx: Tracer) -> Value | None:
        tx.heap.changed()
        try:
            item = self.target.get_item(tx, Constant(self.index))
        except UserError as error:
            if issubclass(error.value.cls, IndexError | StopIteration):
                return None
            raise
        self.index += 1
        return item


def _new_instance(python_class: type) -> Any:
    bases: tuple[Any, ...] = (dict, list, set, tuple)
    for base in bases:
        if issubclass(python_class, base):
            return base.__new__(python_class)
    return object.__new__(python_class)


def _fill_payload(target: Any, content: Any) -> None:
    if isinstance(target, dict):
        import collections

        kind: Any = collections.OrderedDict if isinstance(target, collections.OrderedDict) else dict
        for key, value in content.items():
            kind.__setitem__(target, key, value)
    elif isinstance(target, list):
        list.extend(target, content)
    elif isinstance(target, set):
        set.update(target, content)
    else:
        raise TypeError(f"cannot fill a {type(target).__name__}")


def _overrides_instance(found: Any) -> bool:
    """Whether a class attribute is a data descriptor, which wins over the instance's own."""
    kind = type(found)
    return hasattr(kind, "__set__") or hasattr(kind, "__delete__")


def _instance_dict(obj: Any) -> dict[str, Any]:
    try:
        found: dict[str, Any] = object.__getattribute__(obj, "__dict__")
    except AttributeError:
        return {}
    return found


def is_immutable(obj: Any) -> bool:
    """Objects whose state cannot change under a program: evaluating with them is safe."""
    import enum
    import inspect

    return isinstance(obj, enum.Enum | inspect.Signature | inspect.Parameter)


def _object_setattr(self: ObjectValue, tx: Tracer, args: Args) -> Value:
    self.generic_set_attr(tx, args[0].as_python(), args[1])
    return Constant(None)


def _object_delattr(self: ObjectValue, tx: Tracer, args: Args) -> Value:
    self.generic_del_attr(tx, args[0].as_python())
    return Constant(None)


def _object_getattribute(self: ObjectValue, tx: Tracer, args: Args) -> Value:
    return self.generic_get_attr(tx, args[0].as_python())


def _object_init(self: ObjectValue, tx: Tracer, args: Args) -> Value:
    return Constant(None)


def _object_eq(self: ObjectValue, tx: Tracer, args: Args) -> Value:
    return Constant(True) if args[0] is self else Constant(NotImplemented)


def _object_ne(self: ObjectValue, tx: Tracer, args: Args) -> Value:
    return Constant(False) if args[0] is self else Constant(NotImplemented)


_OBJECT_METHODS = {
    "__setattr__": _object_setattr,
    "__delattr__": _object_delattr,
    "__getattribute__": _object_getattribute,
    "__init__": _object_init,
    "__init_subclass__": _object_init,
    "__eq__": _object_eq,
    "__ne__": _object_ne,
}
_ALWAYS_OBJECT = frozenset({"__setattr__", "__delattr__", "__getattribute__"})


class InstanceDict(Value):
    """`obj.__dict__`: a view of the instance's attributes."""

    def __init__(self, owner: ObjectValue) -> None:
        self.owner = owner

    @property
    def cls(self) -> type:
        return dict

    def truth(self, tx: Tracer) -> bool:
        return bool(self.owner.instance_names())

    def length(self, tx: Tracer) -> int:
        return len(self.owner.instance_names())

    def contains(self, tx: Tracer, item: Value) -> bool:
        name = item.as_python()
        found = self.owner.instance_get(tx, name) is not None
        if found and self.owner.source is not None and name not in self.owner.written:
            tx.guard(self.owner.source, "HASATTR", name)
        return found

    def get_item(self, tx: Tracer, key: Value) -> Value:
        found = self.owner.instance_get(tx, key.as_python())
        if found is None:
            from flambeau_capture.values.dicts import raise_key_error

            raise_key_error(tx, key)
            raise AssertionError
        return found

    def set_item(self, tx: Tracer, key: Value, value: Value) -> None:
        self.owner.write(tx, key.as_python(), value)

    def del_item(self, tx: Tracer, key: Value) -> None:
        self.get_item(tx, key)
        self.owner.write(tx, key.as_python(), None)

    def entries(self, tx: Tracer) -> Iterator[tuple[Value, Value]]:
        for name, value in self.owner.own_entries(tx):
            yield Constant(name), value

    def iterate(self, tx: Tracer) -> IteratorValue:
        from flambeau_capture.values.dicts import DictValue

        return DictValue(self.entries(tx)).iterate(tx)

    def get_attr(self, tx: Tracer, name: str) -> Value:
        return BoundMethod(self, name)

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        from flambeau_capture.values.dicts import DictValue, pairs_of

        if name == "get":
            found = self.owner.instance_get(tx, args[0].as_python())
            if found is not None:
                return found
            return args[1] if len(args) > 1 else Constant(None)
        if name == "__contains__":
            return Constant(self.contains(tx, args[0]))
        if name == "__getitem__":
            return self.get_item(tx, args[0])
        if name == "__setitem__":
            self.set_item(tx, args[0], args[1])
            return Constant(None)
        if name == "update":
            pairs = [pair for given in args for pair in pairs_of(tx, given)]
            for key, value in [*pairs, *((Constant(k), v) for k, v in kwargs.items())]:
                self.set_item(tx, key, value)
            return Constant(None)
        if name == "pop":
            found = self.owner.instance_get(tx, args[0].as_python())
            if found is not None:
                self.owner.write(tx, args[0].as_python(), None)
                return found
            if len(args) > 1:
                return args[1]
        if name in ("keys", "values", "items", "copy", "__iter__", "__len__"):
            return DictValue(self.entries(tx), tx=tx).call_method(tx, name, args, kwargs)
        self.unknown(f"method {name!r} of __dict__")

    def reconstruct(self, writer: Any) -> None:
        writer.load(self.owner)
        writer.load_attr("__dict__")


@wraps_if(lambda obj: True, 1000)
def wrap_instance(tx: Tracer, obj: Any, source: Source) -> Value:
    """Whatever no other kind takes: an instance of a class."""
    from flambeau_capture.values.opaque import OpaqueValue

    known = tx.heap.find(obj)
    if known is not None:
        found: Value = known
        if found.source is not None:
            tx.guard_alias(source, found.source)
        return found
    tx.guard(source, "TYPE_MATCH", type(obj))
    made: Value
    python_made = type(obj).__flags__ & (1 << 9)  # a heap type: made by a class statement
    if python_made and not isinstance(obj, type):
        made = make_instance(tx, obj, source)
    else:
        made = OpaqueValue(obj, source)
    tx.heap.know(obj, made)
    return made


def make_instance(tx: Tracer, obj: Any, source: Source) -> Value:
    """The value of an existing instance, its built-in part included."""
    from flambeau_capture.values.containers import wrap_payload
    from flambeau_capture.values.opaque import OpaqueValue

    payload = wrap_payload(tx, obj, source)
    if payload is NotImplemented:
        return OpaqueValue(obj, source)
    return ObjectValue(type(obj), real=obj, source=source, payload=payload)
