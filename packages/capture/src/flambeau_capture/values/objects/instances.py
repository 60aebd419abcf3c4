"""Instances of Python classes, and `super()` objects, as values.

In: objects of the program, or ones made under capture. Out: `ObjectValue`, `SuperValue`.
Invariant: attribute access does what the class defines (`__getattribute__`, properties, slots,
`__getattr__`, `__setattr__`), interpreted like all code of the program; what was assumed about
classes and instances is guarded; what `super()` finds is bound to the receiver.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn

from flambeau_capture.breaks import Break
from flambeau_capture.source import Attr, ConstantSource, InstanceAttr, Source
from flambeau_capture.values.base import Args, Kwargs, NotConcrete, Tracer, UserError, Value
from flambeau_capture.values.constant import Constant
from flambeau_capture.values.containers.dicts import DictValue
from flambeau_capture.values.containers.existing_containers import wrap_payload
from flambeau_capture.values.functions.methods import BoundMethod, MethodValue
from flambeau_capture.values.objects.attribute_dicts import InstanceDict
from flambeau_capture.values.objects.attributes import (
    assume_entry,
    assume_special_methods,
    class_attribute,
    find_in_class,
    property_lacks,
)
from flambeau_capture.values.objects.classes import ClassValue
from flambeau_capture.values.objects.container_subclasses import METHODS as CONTAINER_METHODS
from flambeau_capture.values.objects.opaque import OpaqueValue
from flambeau_capture.values.objects.reconstruction import (
    del_own,
    fill_payload,
    instance_dict,
    new_instance,
    set_own,
    share_dict,
    shares_dict,
)
from flambeau_capture.values.registry import tracked, wraps_if
from flambeau_capture.values.special_methods import SpecialMethods

if TYPE_CHECKING:
    from flambeau_capture.values.containers.dicts import DictValue


class ObjectValue(SpecialMethods):
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
        self.shared = False  # its `__dict__` is its payload: attributes are items
        self.written: dict[str, Value | None] = {}
        self.moved: set[str] = set()  # deleted from the existing object: set again, they come last
        self._read: dict[str, Value] = {}

    @property
    def cls(self) -> type:
        return self.python_class

    def describe(self) -> str:
        return f"ObjectValue({self.python_class.__name__})"

    def as_python(self) -> Any:
        if self.real is not None and not self.written and is_immutable(self.real):
            return self.real
        raise NotConcrete(self.describe())

    def graph_argument(self) -> Any:
        index = find_in_class(self.python_class, "__index__")
        if self.payload is None or (index is not None and isinstance(index[1], types.FunctionType)):
            raise Break("FB0015", self.describe())  # torch's functions may call it
        return self.payload.graph_argument()

    def dict_of(self) -> Value:
        """Its `__dict__`, as the program sees it."""
        return InstanceDict(self)

    def holds(self) -> Iterable[Value]:
        return [value for value in (self.payload, *self.written.values()) if value is not None]

    def parts(self) -> list[Value]:
        """The tensors of a container subclass, for graph arguments."""
        return self.payload.parts() if hasattr(self.payload, "parts") else []  # type: ignore[union-attr]

    # -- the instance's own attributes ----------------------------------------------------------

    def instance_names(self) -> list[str]:
        if self.shared:
            return [key.as_python() for key, _ in self._items().entries()]
        real = {} if self.real is None else instance_dict(self.real)
        stay = [name for name in real if name not in self.moved]
        return stay + [n for n, v in self.written.items() if v is not None and n not in stay]

    def instance_get(self, tx: Tracer, name: str) -> Value | None:
        """An attribute of the instance itself; None if it has none of that name."""
        if self.shared:
            return self._items().lookup(tx, Constant(name))
        if name in self.written:
            return self.written[name]
        if name in self._read:
            return self._read[name]
        if self.real is None:
            return None
        attributes = instance_dict(self.real)
        if name not in attributes:
            tx.guard(self.source, "NOT_IN_INSTANCE_DICT", name)
            return None
        found = self.wrap_attribute(tx, name, attributes[name])
        self._read[name] = found
        return found

    def own_entries(self, tx: Tracer) -> Iterator[tuple[str, Value]]:
        """All attributes of the instance itself."""
        if not self.shared and self.source is not None and self.real is not None:
            keys = tuple(instance_dict(self.real))
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
        if self.real is None:
            return None
        assert self.source is not None
        found = find_in_class(self.python_class, name)
        if found is None or not _is_filled(found[1], self.real):
            if self._has_fallback():  # which a guard would ask
                self.unknown(f"the empty slot {name!r}")
            tx.guard(self.source, "NOT_HASATTR", name)
            return None
        return tx.wrap(getattr(self.real, name), Attr(self.source, name))

    def write(self, tx: Tracer, name: str, value: Value | None) -> None:
        """Set (or, with None, delete) an attribute of the instance itself."""
        if self.shared:
            if value is None:
                self._items().remove(tx, Constant(name))
            else:
                self._items().store(tx, Constant(name), value)
            return
        tx.heap.changed(self)
        if value is None and not self._holds(name):
            self.written.pop(name, None)
            return
        if value is None:
            self.moved.add(name)
        elif name in self.moved and self.written[name] is None:
            del self.written[name]
        self.written[name] = value

    def _items(self) -> DictValue:
        assert isinstance(self.payload, DictValue)
        return self.payload

    def share(self, tx: Tracer, value: Value) -> bool:
        """`self.__dict__ = self`, of a new dict, or of one where it is so already."""
        if value is not self or not isinstance(self.payload, Value) or self.payload.cls is not dict:
            return False
        if self.source is not None and not self.shared:
            return False
        tx.heap.changed()
        self.written.clear()
        self.moved.clear()
        self.shared = True
        return True

    def _holds(self, name: str) -> bool:
        """Whether the existing object has an attribute of its own, in its dict or in a slot."""
        if self.real is None:
            return False
        found = find_in_class(self.python_class, name)
        if found is not None and isinstance(found[1], types.MemberDescriptorType):
            return _is_filled(found[1], self.real)
        return name in instance_dict(self.real)

    # -- attribute access -----------------------------------------------------------------------

    def get_attr(self, tx: Tracer, name: str) -> Value:
        if self._replaced(tx, "__getattribute__"):
            return self._call_class(tx, "__getattribute__", [Constant(name)])
        return self.generic_get_attr(tx, name)

    def _replaced(self, tx: Tracer, name: str) -> bool:
        """Whether the class replaces a built-in access (`__setattr__ = dict.__setitem__`)."""
        hook = find_in_class(self.python_class, name)
        if hook is None or self.special(tx, name):
            return hook is not None
        return getattr(hook[1], "__name__", "") != name

    def generic_get_attr(self, tx: Tracer, name: str) -> Value:
        if name == "__class__":
            return tx.wrap(
                self.python_class, ConstantSource(self.python_class, self.python_class.__name__)
            )
        if name == "__dict__" and find_in_class(self.python_class, "__dict__") is not None:
            return self if self.shared else InstanceDict(self)
        in_class = find_in_class(self.python_class, name)
        if in_class is None or not _overrides_instance(in_class[1]):
            own = self.instance_get(tx, name)
            if own is not None:  # as long as the class has no descriptor that comes first
                found = in_class[1] if in_class is not None else None
                assume_entry(tx, self.python_class, name)
                if hasattr(type(found), "__get__"):
                    assume_special_methods(tx, type(found))
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
        assume_entry(tx, self.python_class, name)
        if self._has_fallback():
            return self._call_class(tx, "__getattr__", [Constant(name)])
        assume_special_methods(tx, self.python_class)
        shown = self.python_class.__name__
        if self.python_class is types.SimpleNamespace:
            shown = f"types.{shown}"
        tx.raise_error(AttributeError, f"'{shown}' object has no attribute '{name}'")

    def set_attr(self, tx: Tracer, name: str, value: Value) -> None:
        if self._replaced(tx, "__setattr__"):
            self._call_class(tx, "__setattr__", [Constant(name), value])
            return
        assume_special_methods(tx, self.python_class)
        self.generic_set_attr(tx, name, value)

    def generic_set_attr(self, tx: Tracer, name: str, value: Value) -> None:
        """object.__setattr__."""
        in_class = find_in_class(self.python_class, name)
        assume_entry(tx, self.python_class, name)
        if in_class is not None and isinstance(in_class[1], property):
            setter = in_class[1].fset
            if setter is None:
                property_lacks(tx, in_class[1], self.python_class, "__set__")
            tx.call(tx.wrap(setter, ConstantSource(setter, name)), [self, value], {})
            return
        if name == "__class__" or (
            in_class is not None
            and hasattr(type(in_class[1]), "__set__")
            and not isinstance(in_class[1], types.MemberDescriptorType)
        ):
            if name == "__dict__" and self.share(tx, value):
                return
            if name == "__dict__" or not isinstance(
                getattr(type(in_class[1]), "__set__", None) if in_class else None,
                types.FunctionType,
            ):
                raise Break("FB0019", f"attribute {name!r} of {self.describe()} is set")
            setter = type(in_class[1]).__set__  # type: ignore[index]
            descriptor = tx.wrap(in_class[1], ConstantSource(in_class[1], name))  # type: ignore[index]
            tx.call(
                tx.wrap(setter, ConstantSource(setter, "__set__")), [descriptor, self, value], {}
            )
            return
        if self.payload is not None and in_class is not None and in_class[0] is self.payload.cls:
            if isinstance(in_class[1], types.MemberDescriptorType):
                self.payload.set_attr(tx, name, value)
                return
        if not self.python_class.__dictoffset__ and not (
            in_class is not None and isinstance(in_class[1], types.MemberDescriptorType)
        ):
            self._refuse(tx, name, in_class is not None)
        self.write(tx, name, value)

    def _refuse(self, tx: Tracer, name: str, in_class: bool) -> NoReturn:
        shown = f"'{self.python_class.__name__}' object"
        if in_class:
            tx.raise_error(AttributeError, f"{shown} attribute '{name}' is read-only")
        more = " and no __dict__ for setting new attributes" if sys.version_info >= (3, 13) else ""
        tx.raise_error(AttributeError, f"{shown} has no attribute '{name}'{more}")

    def del_attr(self, tx: Tracer, name: str) -> None:
        if self._replaced(tx, "__delattr__"):
            self._call_class(tx, "__delattr__", [Constant(name)])
            return
        assume_special_methods(tx, self.python_class)
        self.generic_del_attr(tx, name)

    def generic_del_attr(self, tx: Tracer, name: str) -> None:
        """object.__delattr__."""
        in_class = find_in_class(self.python_class, name)
        assume_entry(tx, self.python_class, name)
        if in_class is not None and isinstance(in_class[1], types.MemberDescriptorType):
            if self.read_slot(tx, name) is None:
                tx.raise_error(AttributeError, name)
        elif in_class is not None and _overrides_instance(in_class[1]):
            self._delete_by_descriptor(tx, name, in_class[1])
            return
        elif not self.python_class.__dictoffset__:
            self._refuse(tx, name, in_class is not None)
        elif self.instance_get(tx, name) is None:
            shown = f"'{self.python_class.__name__}' object has no attribute '{name}'"
            tx.raise_error(AttributeError, shown)
        self.write(tx, name, None)

    def _delete_by_descriptor(self, tx: Tracer, name: str, descriptor: Any) -> None:
        deleter: Any
        if isinstance(descriptor, property):
            deleter = descriptor.fdel
            if deleter is None:
                property_lacks(tx, descriptor, self.python_class, "__delete__")
            tx.call(tx.wrap(deleter, ConstantSource(deleter, name)), [self], {})
            return
        deleter = getattr(type(descriptor), "__delete__", None)
        if not isinstance(deleter, types.FunctionType):
            raise Break("FB0019", f"attribute {name!r} of {self.describe()} is deleted")
        found = tx.wrap(descriptor, ConstantSource(descriptor, name))
        tx.call(tx.wrap(deleter, ConstantSource(deleter, "__delete__")), [found, self], {})

    # -- methods of built-in classes ------------------------------------------------------------

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        """A method that a built-in class defines, on this instance."""
        handler = _OBJECT_METHODS.get(name)
        if name == "__init__" and self.payload is None and kwargs:
            return self._init_by_name(tx, args, kwargs)
        if handler is not None and (self.payload is None or name in _ALWAYS_OBJECT):
            return handler(self, tx, args)
        if name == "__getitem__" and issubclass(self.cls, dict) and self.special(tx, "__missing__"):
            return self.get_item(tx, args[0])
        if self.payload is not None:
            by_class = CONTAINER_METHODS.get((self.payload.cls, name))
            if by_class is not None:
                return by_class(self, tx, args, kwargs)
            found = self.payload.call_method(tx, name, args, kwargs)
            return self if found is self.payload else found
        if self.special(tx, name):
            return tx.call(class_attribute(tx, self, self.python_class, name), args, kwargs)
        self.unknown(f"method {name!r}")

    def _init_by_name(self, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        """`super().__init__(name=value)` where no class of the program is left to take it."""
        if args or not issubclass(self.python_class, types.SimpleNamespace):
            raise Break("FB0005", f"object.__init__ of {self.describe()} with arguments")
        for name, value in kwargs.items():
            self.write(tx, name, value)
        return Constant(None)

    # -- the compiled code's side ---------------------------------------------------------------

    def rebuild(self, writer: Any) -> None:
        """Make the object without running its class's code, then set what it holds."""
        immutable = (
            isinstance(self.payload, Constant)
            or type(self.payload).__name__ == "TupleValue"
            or (self.payload is not None and self.payload.cls is frozenset)
        )
        with writer.building(self):
            given = [self.payload] if immutable else []
            writer.call(new_instance, [Constant(self.python_class), *given])  # type: ignore[list-item]
        if self.payload is not None and not immutable:
            writer.duplicate_top()
            writer.push_call_on_top(fill_payload, [self.payload])
            writer.pop_top()
        if self.shared:
            writer.duplicate_top()
            writer.push_call_on_top(share_dict, [])
            writer.pop_top()
        self.fill(writer)

    def fill(self, writer: Any) -> None:
        """Set the attributes of the object on top, whatever its class does with their names."""
        for name, value in self.written.items():
            if value is None:
                continue
            writer.duplicate_top()
            setter = set_own if self._hidden(name) else object.__setattr__
            writer.push_call_on_top(setter, [Constant(name), value])
            writer.pop_top()

    def _hidden(self, name: str) -> bool:
        """Whether the class has a descriptor, no slot, that stands before an attribute."""
        found = find_in_class(self.python_class, name)
        slot = found is not None and isinstance(found[1], types.MemberDescriptorType)
        return found is not None and not slot and _overrides_instance(found[1])

    def is_as_it_was(self) -> bool:
        """Whether every attribute was set to the constant that it has anyway (set and reset)."""
        own = getattr(self.real, "__dict__", {})
        return not self.moved and all(
            isinstance(value, Constant) and name in own and value.is_known_to_be(own[name])
            for name, value in self.written.items()
        )

    def replay(self, writer: Any) -> None:
        for name, value in self.written.items():
            hidden = self._hidden(name)
            if value is None or name in self.moved:
                writer.call(del_own if hidden else object.__delattr__, [self, Constant(name)])
                writer.pop_top()
            if value is not None:
                setter = set_own if hidden else object.__setattr__
                writer.call(setter, [self, Constant(name), value])
                writer.pop_top()


def _is_filled(slot: Any, real: Any) -> bool:
    """Whether a slot holds something; no other way to the attribute is tried."""
    try:
        slot.__get__(real, type(real))
    except AttributeError:
        return False
    return True


def _overrides_instance(found: Any) -> bool:
    kind = type(found)
    return hasattr(kind, "__set__") or hasattr(kind, "__delete__")


def is_immutable(obj: Any) -> bool:
    """Objects whose state cannot change under a program: evaluating with them is safe."""
    import enum
    import inspect

    return isinstance(obj, enum.Enum | inspect.Signature | inspect.Parameter)


# what `object` itself defines: it calls no method of the program's class


def _object_setattr(self: ObjectValue, tx: Tracer, args: Args) -> Value:
    self.generic_set_attr(tx, args[0].as_python(), args[1])
    return Constant(None)


def _object_delattr(self: ObjectValue, tx: Tracer, args: Args) -> Value:
    self.generic_del_attr(tx, args[0].as_python())
    return Constant(None)


def _object_getattribute(self: ObjectValue, tx: Tracer, args: Args) -> Value:
    return self.generic_get_attr(tx, args[0].as_python())


def _object_init(self: ObjectValue, tx: Tracer, args: Args) -> Value:
    if args:
        raise Break("FB0005", f"object.__init__ of {self.describe()} with arguments")
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


@wraps_if(lambda obj: True, 1000)
@tracked
def wrap_instance(tx: Tracer, obj: Any, source: Source) -> Value:
    """Whatever no other kind takes: an instance of a class."""
    tx.guard(source, "TYPE_MATCH", type(obj))
    assume_special_methods(tx, type(obj))
    python_made = type(obj).__flags__ & (1 << 9)  # a heap type: made by a class statement
    if (python_made or type(obj) is types.SimpleNamespace) and not isinstance(obj, type):
        return make_instance(tx, obj, source)
    return OpaqueValue(obj, source)


def make_instance(tx: Tracer, obj: Any, source: Source) -> Value:
    """The value of an existing instance, its built-in part included."""
    payload = wrap_payload(tx, obj, source)
    if payload is NotImplemented:
        return OpaqueValue(obj, source)
    attributes = instance_dict(obj)
    if attributes is not obj and not tx.heap.take_attributes(attributes, obj):
        return OpaqueValue(obj, source)  # another value stands for the same attributes
    made = ObjectValue(type(obj), real=obj, source=source, payload=payload)
    if isinstance(obj, dict) and shares_dict(obj):
        tx.guard(source, "CALL", shares_dict, "is its own __dict__")
        made.shared = True
    return made


class SuperValue(Value):
    cls: type = super

    def __init__(self, owner: ClassValue, receiver: Value) -> None:
        self.owner = owner
        self.receiver = receiver

    def describe(self) -> str:
        return f"super of {self.owner.describe()}"

    def get_attr(self, tx: Tracer, name: str) -> Value:
        return super_attribute(tx, self.owner, self.receiver, name)

    def set_attr(self, tx: Tracer, name: str, value: Value) -> None:
        self.unknown(f"assignment to attribute {name!r}")

    def reconstruct(self, writer: Any) -> None:
        writer.call(super, [self.owner, self.receiver])


def super_attribute(tx: Tracer, owner: Value, receiver: Value, name: str) -> Value:
    """`super(owner, receiver).name`."""
    assert isinstance(owner, ClassValue)
    as_class = isinstance(receiver, ClassValue) and owner.python_class in receiver.mro()
    start = receiver.python_class if as_class else receiver.cls  # type: ignore[attr-defined]
    if name == "__class__":
        return tx.wrap_new(super)
    found = class_attribute(tx, receiver, start, name, after=owner.python_class)
    if isinstance(found, BoundMethod):
        return SlotOfBase(owner, receiver, name)
    if as_class:
        # a function found on a class through a class is not bound, a classmethod is to the class
        bound = isinstance(found, MethodValue) and found.receiver is receiver
        if bound and not isinstance(_raw(start, owner.python_class, name), classmethod):
            return found.function  # type: ignore[attr-defined,no-any-return]
    return found


def _raw(start: type, owner: type, name: str) -> Any:
    after = start.__mro__[start.__mro__.index(owner) + 1 :]
    return next((vars(kind)[name] for kind in after if name in vars(kind)), None)


def super_slot(kind: Value, owner: type) -> Any:
    """The built-in `__new__` after a class in the order of a class."""
    mro = kind.python_class.__mro__  # type: ignore[attr-defined]
    after = mro[mro.index(owner) + 1 :]
    return next(one.__new__ for one in after if "__new__" in vars(one))


class SlotOfBase(BoundMethod):
    """A built-in class's own method, reached past the overriding ones of the receiver's class."""

    def __init__(self, owner: ClassValue, receiver: Value, name: str) -> None:
        super().__init__(receiver, name)
        self.owner = owner

    def reconstruct(self, writer: Any) -> None:
        writer.call(super, [self.owner, self.receiver])
        writer.load_attr(self.name)

    def call(self, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        receiver = self.receiver
        if self.name == "__new__":
            if len(args) > 1:
                found = super_slot(args[0], self.owner.python_class)
                return tx.call(tx.wrap_new(found), args, kwargs)
            return tx.new_object(args[0])
        if isinstance(receiver, ClassValue) and self.name == "__call__":
            return tx.instantiate(receiver, args, kwargs, plain=True)
        if isinstance(receiver, ObjectValue):
            if self.name == "__init_subclass__" and receiver.payload is None:
                return Constant(None)
            return receiver.call_method(tx, self.name, args, kwargs)
        return receiver.call_method(tx, self.name, args, kwargs)
