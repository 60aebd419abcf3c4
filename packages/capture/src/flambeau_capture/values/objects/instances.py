"""Instances of Python classes as values.

In: objects of the program, or ones made under capture. Out: `ObjectValue`.
Invariant: attribute access does what the class defines (`__getattribute__`, properties, slots,
`__getattr__`, `__setattr__`), interpreted like all code of the program; what was assumed about
classes and instances is guarded.
"""

from __future__ import annotations

import enum
import inspect
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn

from flambeau_capture.breaks import Break
from flambeau_capture.identity import is_heap_type
from flambeau_capture.source import Attr, Called, InstanceAttr, Source, answers_attributes
from flambeau_capture.values.base import Args, Kwargs, NotConcrete, Tracer, UserError, Value
from flambeau_capture.values.constant import Constant, constant_of
from flambeau_capture.values.containers.dicts import DictValue
from flambeau_capture.values.containers.existing_containers import wrap_payload
from flambeau_capture.values.objects.answers import ask
from flambeau_capture.values.objects.attribute_dicts import InstanceDict
from flambeau_capture.values.objects.attributes import (
    Instance,
    assume_entry,
    assume_special_methods,
    class_attribute,
    find_in_class,
    has_dict,
    instance_dict,
    is_of_thread,
    layout_of,
    overrides_instance,
    property_lacks,
    sets_attribute,
    written_attribute,
)
from flambeau_capture.values.objects.class_assignment import class_to_be
from flambeau_capture.values.objects.container_subclasses import METHODS as CONTAINER_METHODS
from flambeau_capture.values.objects.instance_making import (
    del_attribute,
    del_own,
    fill_payload,
    new_instance,
    plain_base,
    set_own,
    share_dict,
    shares_dict,
)
from flambeau_capture.values.objects.opaque import OpaqueValue
from flambeau_capture.values.registry import call_known, tracked, wrap_known, wraps_if
from flambeau_capture.values.special_methods import SpecialMethods
from flambeau_capture.values.stand_ins import name_in_errors

#: what gives an object its `__dict__` and `__class__`, where its class has no property for them
_SLOTS_OF_OBJECTS = (types.GetSetDescriptorType, types.MemberDescriptorType)
#: objects whose state cannot change under a program: evaluating with them is safe
_IMMUTABLE = (enum.Enum, inspect.Signature, inspect.Parameter)


class ObjectValue(SpecialMethods, Instance):
    """An instance. `payload` is the built-in part of one that derives from a container."""

    cls: type

    def __init__(
        self,
        python_class: type,
        *,
        real: Any = None,
        source: Source | None = None,
        payload: Value | None = None,
    ) -> None:
        self.cls = self.python_class = python_class
        self.real = real
        self.source = source
        self.payload = payload
        self.shared = False  # its `__dict__` is its payload: attributes are items
        self.written: dict[str, Value | None] = {}
        self.reclassed = False  # its `__class__` was set
        self.moved: set[str] = set()  # deleted from the existing object: set again, they come last
        self._read: dict[str, Value] = {}

    def as_python(self) -> Any:
        if issubclass(type(self.real), _IMMUTABLE) and not self.written:
            return self.real
        raise NotConcrete(self.describe())

    def own_object(self) -> Any:
        return self.as_python() if self.real is None or self.written else self.real

    def graph_argument(self) -> Any:
        asked = [find_in_class(self.python_class, name) for name in _ASKED_BY_TORCH]
        if self.payload is None or any(each and is_heap_type(each[0]) for each in asked):
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
        more = [n for n, v in self.written.items() if v is not None and n not in stay]
        return stay + [name for name in more if not self.has_slot(name)]

    def has_slot(self, name: str) -> bool:
        """Whether its class has a slot of a name, which is no entry of its `__dict__`."""
        found = find_in_class(self.python_class, name)
        return found is not None and isinstance(found[1], types.MemberDescriptorType)

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
            if self.source is not None and is_of_thread(self.python_class):
                tx.guard(Called(self.source, instance_dict), "DICT_NOT_CONTAINS", name)
            else:
                tx.guard(self.source, "NOT_IN_INSTANCE_DICT", name)
            return None
        found = self.wrap_attribute(tx, name, attributes[name])
        self._read[name] = found
        return found

    def assume_own(self, tx: Tracer, name: str) -> None:
        """Assume that the existing object itself still has an attribute, if it has."""
        if self.source is not None and name in instance_dict(self.real):
            tx.guard(InstanceAttr(self.source, name, self.python_class), "EXISTS")

    def own_entries(self, tx: Tracer) -> Iterator[tuple[str, Value]]:
        """All attributes of the instance itself."""
        if (
            has_dict(self.python_class)
            and not self.shared
            and self.source is not None
            and self.real is not None
        ):
            keys = tuple(instance_dict(self.real))
            asked = answers_attributes(self.python_class)
            table = Called(self.source, instance_dict) if asked else Attr(self.source, "__dict__")
            tx.guard(table, "DICT_KEYS", keys, True)
        for name in self.instance_names():
            found = self.instance_get(tx, name)
            assert found is not None
            yield name, found

    def wrap_attribute(self, tx: Tracer, name: str, found: Any) -> Value:
        assert self.source is not None
        kind = type(self.real) if self.reclassed else self.python_class
        return tx.wrap(found, InstanceAttr(self.source, name, kind))

    def read_slot(self, tx: Tracer, name: str) -> Value | None:
        if name in self.written:
            return self.written[name]
        if self.real is None:
            return None
        assert self.source is not None
        found = find_in_class(self.python_class, name)
        if found is None or not _is_filled(found[1], self.real):
            if self._has_fallback() or answers_attributes(self.python_class):  # a guard would ask
                self.unknown(f"the empty slot {name!r}")
            tx.guard(self.source, "NOT_HASATTR", name)
            return None
        slot: Any = found[1].__get__
        asked = answers_attributes(self.python_class)
        source = Called(self.source, slot) if asked else Attr(self.source, name)
        return tx.wrap(slot(self.real), source)

    def write(self, tx: Tracer, name: str, value: Value | None) -> None:
        """Set (or, with None, delete) an attribute of the instance itself."""
        if self.shared:
            if value is None:
                self._items().remove(tx, Constant(name))
            else:
                self._items().store(tx, Constant(name), value)
            return
        if value is not None and name not in self.written and self._read.get(name) is value:
            return  # `object.tensor += 1` sets what is there
        tx.heap.changed(self)
        if value is None and self.real is None:
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

    # -- attribute access -----------------------------------------------------------------------

    def get_attr(self, tx: Tracer, name: str) -> Value:
        found: Value | None = None
        try:
            if self._replaced(tx, "__getattribute__"):
                found = self._call_class(tx, "__getattribute__", [Constant(name)])
            else:
                found = self.find_attr(tx, name)
        except UserError as error:
            if not issubclass(error.value.cls, AttributeError) or not self._has_fallback():
                raise
        return self.missing_attr(tx, name) if found is None else found

    def _replaced(self, tx: Tracer, name: str) -> bool:
        """Whether the class replaces a built-in access (`__setattr__ = dict.__setitem__`)."""
        hook = find_in_class(self.python_class, name)
        if hook is None or self.special(tx, name):
            return hook is not None
        return getattr(hook[1], "__name__", "") != name

    def generic_get_attr(self, tx: Tracer, name: str) -> Value:
        """object.__getattribute__, without `__getattr__`."""
        found = self.find_attr(tx, name)
        return self._has_none(tx, name) if found is None else found

    def find_attr(self, tx: Tracer, name: str) -> Value | None:
        in_class = find_in_class(self.python_class, name)
        if name == "__dict__" and is_of_thread(self.python_class):
            return InstanceDict(self)
        if in_class is not None and isinstance(in_class[1], _SLOTS_OF_OBJECTS):
            if name == "__class__":
                return wrap_known(tx, self.python_class)
            if name == "__dict__":
                return self if self.shared else InstanceDict(self)
        if in_class is None or not overrides_instance(in_class[1]):
            own = self.instance_get(tx, name)
            if own is not None:  # as long as the class has no descriptor that comes first
                found = in_class[1] if in_class is not None else None
                assume_entry(tx, self.python_class, name)
                if hasattr(type(found), "__get__") or sets_attribute(found):
                    assume_special_methods(tx, type(found))
                return own
        if in_class is not None:
            return class_attribute(tx, self, self.python_class, name)
        return written_attribute(tx, self.python_class.__mro__, name)

    def _has_fallback(self) -> bool:
        return find_in_class(self.python_class, "__getattr__") is not None

    def missing_attr(self, tx: Tracer, name: str) -> Value:
        if not self._has_fallback():
            self._has_none(tx, name)
        assume_entry(tx, self.python_class, name)
        return self._call_class(tx, "__getattr__", [Constant(name)])

    def _has_none(self, tx: Tracer, name: str) -> NoReturn:
        assume_entry(tx, self.python_class, name)
        assume_special_methods(tx, self.python_class)
        kind = self.python_class
        self.lacks(tx, name, name_in_errors(kind) if kind is layout_of(kind) else None)

    def set_attr(self, tx: Tracer, name: str, value: Value) -> None:
        if self._replaced(tx, "__setattr__"):
            self._call_class(tx, "__setattr__", [Constant(name), value])
            return
        assume_special_methods(tx, self.python_class)
        self.generic_set_attr(tx, name, value)

    def generic_set_attr(self, tx: Tracer, name: str, value: Value) -> None:
        """object.__setattr__."""
        in_class = find_in_class(self.python_class, name)
        found = None if in_class is None else in_class[1]
        slot = isinstance(found, types.MemberDescriptorType)
        assume_entry(tx, self.python_class, name)
        if (
            name == "__class__"
            and type(self) is ObjectValue
            and isinstance(found, _SLOTS_OF_OBJECTS)
        ):
            self._set_class(tx, value)
            return
        if name == "__class__" or (sets_attribute(found) and not slot):
            if name != "__dict__" or not self.share(tx, value):
                self._by_descriptor(tx, name, found, "__set__", value)
            return
        if slot and self.payload is not None and in_class and in_class[0] is self.payload.cls:
            self.payload.set_attr(tx, name, value)
            return
        if not has_dict(self.python_class) and not slot:
            self._refuse(tx, name, in_class is not None)
        self.write(tx, name, value)

    def _set_class(self, tx: Tracer, value: Value) -> None:
        kind = class_to_be(tx, self.python_class, value, self.instance_names())
        assume_special_methods(tx, kind)
        tx.heap.changed(self)
        self.cls, self.python_class, self.reclassed = kind, kind, True

    def _by_descriptor(self, tx: Tracer, name: str, found: Any, way: str, *given: Value) -> None:
        """Let what the class has under a name set or delete the attribute."""
        setting = way == "__set__"
        if isinstance(found, property):
            fn = found.fset if setting else found.fdel
            if fn is None:
                property_lacks(tx, found, self.python_class, way)
            call_known(tx, fn, name, self, *given)
            return
        method = getattr(type(found), way, None)
        if method is None:
            assume_special_methods(tx, type(found))
            tx.raise_error(AttributeError, way)
        if name == "__dict__" or not isinstance(method, types.FunctionType):
            done = "set" if setting else "deleted"
            raise Break("FB0019", f"attribute {name!r} of {self.describe()} is {done}")
        call_known(tx, method, way, wrap_known(tx, found, name), self, *given)

    def _refuse(self, tx: Tracer, name: str, in_class: bool) -> NoReturn:
        shown = f"'{name_in_errors(self.python_class)}' object"
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
        elif in_class is not None and sets_attribute(in_class[1]):
            self._by_descriptor(tx, name, in_class[1], "__delete__")
            return
        elif not has_dict(self.python_class):
            self._refuse(tx, name, in_class is not None)
        elif self.instance_get(tx, name) is None:
            self.lacks(tx, name, name_in_errors(self.python_class))
        self.write(tx, name, None)

    # -- methods of built-in classes ------------------------------------------------------------

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        """A method that a built-in class defines, on this instance."""
        handler = _OBJECT_METHODS.get(name)
        if name == "__init__" and self._is_objects(name):
            return Constant(None)  # which does nothing with arguments that it does not refuse
        if name == "__init__" and self.payload is None and kwargs:
            return self._init_by_name(tx, args, kwargs)
        if handler is not None and (self.payload is None or name in _ALWAYS_OBJECT):
            return handler(self, tx, args) or Constant(None)
        if name == "__getitem__" and issubclass(self.cls, dict) and self.special(tx, "__missing__"):
            return self.get_item(tx, args[0])
        if name == "__str__" and self._is_objects(name) and self.special(tx, "__repr__"):
            return ask(tx, self, "__repr__")
        if name == "__format__" and [constant_of(arg) for arg in args] == [""]:
            return call_known(tx, str, "str", self)
        if self.payload is not None:
            by_class = CONTAINER_METHODS.get((self.payload.cls, name))
            if by_class is not None:
                return by_class(self, tx, args, kwargs)
            found = self.payload.call_method(tx, name, args, kwargs)
            return self if found is self.payload else found
        self.unknown(f"method {name!r}")

    def _is_objects(self, name: str) -> bool:
        """Whether the class's built-in base has no method of this name but `object`'s."""
        found = find_in_class(layout_of(self.python_class), name)
        return found is not None and found[0] is object

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
            writer.do_with_top(fill_payload, [self.payload])
        if self.shared:
            writer.do_with_top(share_dict, [])
        self.fill(writer)

    def fill(self, writer: Any) -> None:
        """Set the attributes of the object on top, whatever its class does with their names."""
        for name, value in self.written.items():
            if value is None:
                continue
            setter = set_own if self._hidden(name) else plain_base(self.python_class).__setattr__
            writer.do_with_top(setter, [Constant(name), value])

    def _hidden(self, name: str) -> bool:
        """Whether the class has a descriptor, no slot, that stands before an attribute."""
        found = find_in_class(self.python_class, name)
        return found is not None and not self.has_slot(name) and sets_attribute(found[1])

    def is_as_it_was(self) -> bool:
        """Whether every attribute was set to the constant that it has anyway (set and reset)."""
        own = {} if self.real is None else instance_dict(self.real)
        return (
            not self.moved
            and not self.reclassed
            and all(
                isinstance(value, Constant) and name in own and value.is_known_to_be(own[name])
                for name, value in self.written.items()
            )
        )

    def replay(self, writer: Any) -> None:
        if self.reclassed:
            writer.do(
                object.__setattr__, [self, Constant("__class__"), Constant(self.python_class)]
            )
        for name, value in self.written.items():
            hidden = self._hidden(name)
            if value is None or name in self.moved:
                writer.do(del_own if hidden else del_attribute, [self, Constant(name)])
            if value is not None:
                setter = set_own if hidden else plain_base(self.python_class).__setattr__
                writer.do(setter, [self, Constant(name), value])


def _is_filled(slot: Any, real: Any) -> bool:
    """Whether a slot holds something; no other way to the attribute is tried."""
    try:
        slot.__get__(real, type(real))
    except AttributeError:
        return False
    return True


# what `object` itself defines: it calls no method of the program's class


def _object_init(self: ObjectValue, tx: Tracer, args: Args) -> Value:
    if args:
        raise Break("FB0005", f"object.__init__ of {self.describe()} with arguments")
    return Constant(None)


def _object_unequal(self: ObjectValue, tx: Tracer, args: Args) -> Value:
    """`object.__ne__`, which is the opposite of the class's `__eq__`."""
    equal = tx.call(tx.get_attr(self, "__eq__"), args, {})
    declined = isinstance(equal, Constant) and equal.value is NotImplemented
    return equal if declined else Constant(not equal.truth(tx))


_ASKED_BY_TORCH = ("__index__", "__iter__", "__len__", "__getitem__")

_OBJECT_METHODS: dict[str, Callable[[ObjectValue, Tracer, Args], Value | None]] = {
    "__setattr__": lambda s, tx, a: s.generic_set_attr(tx, a[0].as_python(), a[1]),
    "__delattr__": lambda s, tx, a: s.generic_del_attr(tx, a[0].as_python()),
    "__getattribute__": lambda s, tx, a: s.generic_get_attr(tx, a[0].as_python()),
    "__init__": _object_init,
    "__init_subclass__": _object_init,
    "__eq__": lambda s, tx, a: Constant(True if a[0] is s else NotImplemented),
    "__ne__": _object_unequal,
}

_ALWAYS_OBJECT = frozenset({"__setattr__", "__delattr__", "__getattribute__"})


@wraps_if(lambda obj: True, 1000)
@tracked
def wrap_instance(tx: Tracer, obj: Any, source: Source) -> Value:
    """Whatever no other kind takes: an instance of a class."""
    tx.guard(source, "TYPE_MATCH", type(obj))
    assume_special_methods(tx, type(obj))
    python_made = is_heap_type(type(obj))
    if (python_made or type(obj) is types.SimpleNamespace) and not issubclass(type(obj), type):
        return make_instance(tx, obj, source)
    return OpaqueValue(obj, source)


def make_instance(tx: Tracer, obj: Any, source: Source) -> Value:
    """The value of an existing instance, its built-in part included."""
    payload = wrap_payload(tx, obj, source)
    if payload is NotImplemented:
        return OpaqueValue(obj, source)
    attributes = instance_dict(obj)
    if type(obj).__dictoffset__ and answers_attributes(type(obj)):
        places = (vars(kind).get("__dict__") for kind in type(obj).__mro__)
        if not any(isinstance(place, _SLOTS_OF_OBJECTS) for place in places):
            return OpaqueValue(obj, source)  # its class hides its attributes
    if attributes is not obj and not tx.heap.take_attributes(attributes, obj):
        return OpaqueValue(obj, source)  # another value stands for the same attributes
    made = ObjectValue(type(obj), real=obj, source=source, payload=payload)
    if issubclass(type(obj), dict) and shares_dict(obj):
        tx.guard(source, "CALL", shares_dict, "is its own __dict__")
        made.shared = True
    return made
