"""Classes as values.

In: classes of the program. Out: `ClassValue`: attribute access and instance creation. Invariant: a
class is identified by the object; what is read from it is guarded on the class itself.
"""

from __future__ import annotations

import copyreg
import enum
import operator
import types
import weakref
from typing import Any

from torch.utils.hooks import RemovableHandle

from flambeau_capture import _torch_compat as compat
from flambeau_capture.breaks import Break
from flambeau_capture.observe.unguarded import unguarded
from flambeau_capture.source import Attr, ClassEntry, Source
from flambeau_capture.values.base import Args, IteratorValue, Kwargs, Tracer, Value, needing
from flambeau_capture.values.constant import Constant, constant_of, evaluate
from flambeau_capture.values.containers.sequences import TupleValue
from flambeau_capture.values.functions.methods import BoundMethod, MethodValue
from flambeau_capture.values.iterators.builtin import SequenceIterator
from flambeau_capture.values.objects.answers import ask
from flambeau_capture.values.objects.attributes import (
    assume_bases,
    assume_entry,
    assume_special_methods,
    call_special,
    find_in_class,
    overrides_instance,
    source_in_class,
    written_attribute,
)
from flambeau_capture.values.registry import (
    DefinedAbove,
    call_known,
    itself,
    trusted_class,
    wrap_known,
    wraps_if,
)
from flambeau_capture.values.special_methods import SpecialMethods
from flambeau_capture.values.stand_ins import name_in_errors

#: how metaclasses look up what a class has: as `type`; a binding's skips instance methods' binding
_AS_TYPES = (type.__getattribute__, type(compat.SDP_BACKEND).__getattribute__)


def _numbers_handles(python_class: type, name: str) -> bool:
    """Whether an attribute is the number of the next handle of a hook."""
    return python_class is RemovableHandle and name == "next_id"


class HandleNumber(Constant):
    """The number of a hook's handle, taken at capture and another one in each call: a table in
    which it is a key is read as a whole, so that its keys are guarded."""


names_slots: Any = copyreg._slotnames  # type: ignore[attr-defined]
dict_of_class = DefinedAbove("`__dict__` of a class, which is made of dicts")


class ClassValue(SpecialMethods):
    described = "class {0.python_class.__name__}"
    cls: type

    def __init__(self, python_class: type) -> None:
        self.python_class = python_class
        self.cls = type(python_class)
        self.source: Source = itself(python_class)
        self.written: dict[str, Value] = {}  # attributes that the program has set

    def as_python(self) -> Any:
        return self.python_class

    def special(self, tx: Tracer, name: str) -> bool:
        """Whether the metaclass says what it does; members of an enumeration are known."""
        meta = type(self.python_class)
        assume_special_methods(tx, meta)
        return not issubclass(meta, enum.EnumMeta) and super().special(tx, name)

    def length(self, tx: Tracer) -> int:
        if isinstance(self.python_class, enum.EnumMeta):
            return len(self.python_class)
        return super().length(tx)

    def iterate(self, tx: Tracer) -> IteratorValue:
        if isinstance(self.python_class, enum.EnumMeta):
            members: list[Any] = list(self.python_class)
            return SequenceIterator(TupleValue([tx.wrap_new(m) for m in members]))
        return super().iterate(tx)

    def contains(self, tx: Tracer, item: Value) -> bool:
        if isinstance(self.python_class, enum.EnumMeta):
            with needing("FB0009", lambda error: f"{error} in {self.describe()}"):
                member = item.as_python()
            return bool(evaluate(tx, operator.contains, self.python_class, member))
        return super().contains(tx, item)

    def get_item(self, tx: Tracer, key: Value) -> Value:
        if self.special(tx, "__getitem__"):
            return super().get_item(tx, key)
        own = find_in_class(self.python_class, "__class_getitem__")
        if own is not None and not trusted_class(own[0]):
            return tx.call(self.get_attr(tx, "__class_getitem__"), [key], {})
        with needing("FB0009", lambda error: f"{self.describe()}[{error}]"):
            plain = key.as_python()
        return tx.wrap_new(evaluate(tx, operator.getitem, self.python_class, plain))

    def get_attr(self, tx: Tracer, name: str) -> Value:
        python_class = self.python_class
        assume_special_methods(tx, type(python_class))
        if type(python_class).__getattribute__ not in _AS_TYPES:
            self.unknown(f"attribute {name!r} by the metaclass's own __getattribute__")
        if _numbers_handles(python_class, name):
            return HandleNumber(RemovableHandle.next_id)
        if name == "__members__" and isinstance(python_class, enum.EnumMeta):
            return tx.wrap_new(getattr(python_class, name))
        if name in _BASES:
            assume_bases(tx, python_class)
            return tx.wrap_new(getattr(python_class, name))
        if name in _NAMES:
            return self._name(tx, name)
        if name == "__class__":
            return tx.wrap_new(type(python_class))
        if name == "__dict__":
            return dict_of_class(self)
        if name == "__annotations__" and name not in python_class.__dict__:
            self.unknown("the annotations, which Python is yet to make,")
        written = written_attribute(tx, python_class.__mro__, name)
        if written is not None:
            return written
        owner = next((k for k in python_class.__mro__ if name in k.__dict__), None)
        if owner is None or self._hidden(tx, name):
            return self._from_metaclass(tx, name)
        found = owner.__dict__[name]
        if tx.heap.find_model(owner) is None:
            where = source_in_class(tx, python_class, owner, name)
        else:  # a class of capture's own, for one that the frame has made
            where = itself(found, name)
        if hasattr(type(found), "__get__"):
            assume_entry(tx, python_class, name)
        if isinstance(found, types.FunctionType):
            if not trusted_class(python_class):
                tx.guard(where, "FUNCTION_MATCH", found)
            return wrap_known(tx, found, found.__qualname__)
        if isinstance(found, staticmethod):
            return wrap_known(tx, found.__func__, name)
        if isinstance(found, classmethod):
            return MethodValue(self, wrap_known(tx, found.__func__, name))
        if isinstance(found, property | types.MemberDescriptorType | types.GetSetDescriptorType):
            return wrap_known(tx, found, name)
        if isinstance(found, types.ClassMethodDescriptorType):
            return wrap_known(tx, getattr(python_class, name), name)
        getter = find_in_class(type(found), "__get__")
        interpreted = getter is not None and isinstance(getter[1], types.FunctionType)
        if interpreted and not trusted_class(type(found)):
            assert getter is not None
            assume_special_methods(tx, type(found))
            descriptor = tx.wrap(found, ClassEntry(itself(owner), name))
            return call_known(tx, getter[1], "__get__", descriptor, Constant(None), self)
        value = getattr(python_class, name)  # a library's descriptor may make it anew each time
        trusted = trusted_class(python_class) or isinstance(python_class, enum.EnumMeta)
        return tx.wrap(value, itself(value, name) if trusted or interpreted else where)

    def _hidden(self, tx: Tracer, name: str) -> bool:
        """Whether the metaclass has a descriptor that comes before what the class has."""
        meta: Any = type(self.python_class)
        assume_entry(tx, meta, name)
        found = find_in_class(meta, name)
        return found is not None and found[0] is not type and overrides_instance(found[1])

    def _name(self, tx: Tracer, name: str) -> Value:
        found = getattr(self.python_class, name)
        if trusted_class(self.python_class):
            return tx.wrap_new(found)
        return tx.wrap(found, Attr(self.source, name))

    def text(self, tx: Tracer) -> str:
        """`repr` of the class."""
        if self.special(tx, "__repr__"):
            return str(constant_of(ask(tx, self, "__repr__")))
        for name in ("__module__", "__qualname__"):
            self._name(tx, name).as_python()
        return repr(self.python_class)

    def _from_metaclass(self, tx: Tracer, name: str) -> Value:
        meta: Any = type(self.python_class)
        entry = find_in_class(meta, name)
        if entry is None:
            assume_entry(tx, self.python_class, name)
            if issubclass(meta, enum.EnumMeta):  # in its own words
                return tx.wrap_new(evaluate(tx, getattr, self.python_class, name))
            if find_in_class(meta, "__getattr__") is not None:
                return call_special(tx, self, "__getattr__", [Constant(name)])
            shown = name_in_errors(self.python_class)
            tx.raise_error(AttributeError, f"type object '{shown}' has no attribute '{name}'")
        owner, found = entry
        assume_entry(tx, meta, name)
        if isinstance(found, types.FunctionType):
            return MethodValue(self, wrap_known(tx, found, name))
        if isinstance(found, property) and found.fget is not None:
            return call_known(tx, found.fget, name, self)
        if owner in (type, object) and callable(found):
            return BoundMethod(self, name)
        if not hasattr(type(found), "__get__"):
            assume_entry(tx, self.python_class, name)
            return tx.wrap(found, source_in_class(tx, meta, owner, name))
        self.unknown(f"attribute {name!r} of the metaclass")

    def set_attr(self, tx: Tracer, name: str, value: Value) -> None:
        if _numbers_handles(self.python_class, name):  # taken at capture
            RemovableHandle.next_id += 1
            return
        found = find_in_class(self.python_class, name)
        if found is None and name not in self.written:
            assume_entry(tx, self.python_class, name)
        if not self._takes(name, found and found[1], value):
            raise Break("FB0019", f"attribute {name!r} of {self.describe()} is set")
        self.written[name] = value
        tx.heap.changed(self)

    def _takes(self, name: str, before: Any, value: Value) -> bool:
        """Whether setting an attribute changes data that the class holds, and nothing else."""
        python_class = self.python_class
        plain = type(python_class).__setattr__ is type.__setattr__
        data = not any(hasattr(kind, "__get__") for kind in (type(before), value.cls))
        known = find_in_class(type(python_class), name) is None and not name.startswith("__")
        return plain and data and known and not trusted_class(python_class)

    def keep_slot_names(self, tx: Tracer) -> None:
        """What a first copy by `object.__reduce_ex__` leaves in the class."""
        if "__slotnames__" not in {**vars(self.python_class), **self.written}:
            self.written["__slotnames__"] = Constant(None)  # which `replay` does not write
            tx.heap.changed(self)

    def replay(self, writer: Any) -> None:
        for name, value in self.written.items():
            if name == "__slotnames__":
                writer.do(names_slots, [Constant(self.python_class)])
                continue
            writer.do(setattr, [Constant(self.python_class), Constant(name), value])

    def forwards(self, tx: Tracer, args: Args, kwargs: Kwargs) -> tuple[Value, Args, Kwargs] | None:
        return None if self.finds_members() else super().forwards(tx, args, kwargs)

    def finds_members(self) -> bool:
        """Whether calling it looks up a member of an enumeration, by the library's code alone."""
        kind: Any = self.python_class
        if not isinstance(kind, enum.EnumMeta) or type(kind).__call__ is not enum.EnumMeta.__call__:
            return False
        missing = find_in_class(kind, "_missing_")
        return missing is not None and trusted_class(missing[0])

    def call(self, tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
        return tx.instantiate(self, args, kwargs)

    def call_method(self, tx: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name == "__subclasses__":
            return self._subclasses(tx)
        if name == "mro":
            assume_bases(tx, self.python_class)
            return tx.wrap_new(self.python_class.mro())
        if name in ("__instancecheck__", "__subclasscheck__") and len(args) == 1:
            asked = args[0].cls if name == "__instancecheck__" else args[0].as_python()
            assume_bases(tx, asked)
            return Constant(self.python_class in asked.__mro__)
        if name == "__call__":
            return self.call(tx, args, kwargs)
        if name == "__init__":  # as `type` has it
            return Constant(None)
        if name == "__init_subclass__":  # as `object` has it
            native = vars(object)[name].__get__(None, self.python_class)
            return Constant(evaluate(tx, native, *args, **dict.fromkeys(kwargs)))
        if name in ("__eq__", "__ne__"):
            same = isinstance(args[0], ClassValue) and args[0].python_class is self.python_class
            return Constant(name == "__eq__" if same else NotImplemented)
        if name == "__or__":
            return tx.wrap_new(self.python_class | args[0].as_python())
        if name in ("__repr__", "__str__"):
            return Constant(self.text(tx))
        return super().call_method(tx, name, args, kwargs)

    def _subclasses(self, tx: Tracer) -> Value:
        found: list[type] = self.python_class.__subclasses__()
        tx.guard(self.source, "CALL", _Subclasses(found), f"has {len(found)} subclasses, as before")
        return tx.wrap_new(found)

    def reconstruct(self, writer: Any) -> None:
        writer.load_const(self.python_class)


unguarded("members of an enumeration", "they are made with their class, which is guarded")

_BASES = frozenset({"__mro__", "__bases__", "__base__"})
_NAMES = frozenset({"__name__", "__qualname__", "__module__", "__doc__"})


class _Subclasses:
    """A guard's question: the subclasses of a class are those of before. They may end."""

    def __init__(self, found: list[type]) -> None:
        self._found = [weakref.ref(kind) for kind in found]

    def __call__(self, owner: type) -> bool:
        present: list[type] = owner.__subclasses__()
        known = [reference() for reference in self._found]
        return len(present) == len(known) and all(a is b for a, b in zip(present, known))


@wraps_if(lambda obj: issubclass(type(obj), type), 20)
def wrap_class(tx: Tracer, obj: Any, source: Source) -> Value:
    if obj.__mro__ is None:
        raise Break("FB0009", "a class that its metaclass is about to make")
    tx.guard(source, "ID_MATCH", obj)
    return tx.heap.value_of(obj, lambda: ClassValue(obj))
