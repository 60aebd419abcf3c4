"""Attribute lookup of instances through their class, and calls of special methods.

In: a receiver, its class and a name. Out: `class_attribute`, the attribute bound as the descriptor
protocol says; `ask`, a special method's result as CPython takes it. Invariant: what was found on a
class of the program is guarded on the receiver's class, so that an overriding attribute set later
is noticed; what a result becomes and the words of a refusal are CPython's own: the built-in
function is called on an object of the same name that gives the same result.
"""

from __future__ import annotations

import abc
import collections
import enum
import functools
import struct
import threading
import types
import weakref
from collections.abc import Callable
from typing import Any, NoReturn

import torch

from flambeau_capture.breaks import Break
from flambeau_capture.bytecode.opcodes import VERSION
from flambeau_capture.guards.kinds import SPECIAL_NAMES, entry_of
from flambeau_capture.identity import is_heap_type
from flambeau_capture.source import Attr, ClassEntry, Source, raw_dict
from flambeau_capture.values.base import Args, Tracer, UserError, Value
from flambeau_capture.values.constant import Constant, evaluate
from flambeau_capture.values.functions.methods import BoundMethod, MethodValue
from flambeau_capture.values.registry import call_known, itself, trusted_class, wrap_known
from flambeau_capture.values.stand_ins import name_in_errors, stand_in

_SLOTS = (types.WrapperDescriptorType, types.MethodDescriptorType, types.ClassMethodDescriptorType)
SLOT_TYPES = (*_SLOTS, types.BuiltinFunctionType)

#: methods of torch's classes that programs replace
PATCHED = frozenset({"forward", "__call__", "_call_impl"})


#: Built-in classes that some versions of Python make as class statements make theirs.
_CONTAINERS = frozenset(
    {collections.deque, collections.defaultdict, collections.OrderedDict, threading.local}
)
_IMMUTABLE_TYPE = 1 << 8  # no class statement makes one
_POINTER = struct.calcsize("P")
FIELD: Any = type(collections.namedtuple("_Sample", "field").__dict__["field"])


#: by the id of a class: they are the program's, which may drop them, and say what equals them
_LAYOUTS: dict[int, tuple[weakref.ref[type], weakref.ref[type]]] = {}


def layout_of(python_class: type) -> type:
    """The built-in class that an instance's memory is laid out by."""
    key = id(python_class)
    kind, known = _LAYOUTS.get(key, (None, None))
    found = known() if kind is not None and kind() is python_class and known is not None else None
    if found is None or not any(found is base for base in python_class.__mro__):
        laid_out = (k for k in python_class.__mro__ if _is_known(k) or _has_state_in_c(k))
        found = next(laid_out, object)
        ends = weakref.ref(python_class, functools.partial(_LAYOUTS.pop, key))
        _LAYOUTS[key] = ends, weakref.ref(found)
    return found


def _is_known(python_class: type) -> bool:
    """Whether a class is built in, and no class statement's."""
    container = any(python_class is kind for kind in _CONTAINERS)
    return container or not is_heap_type(python_class)


def _has_state_in_c(python_class: type) -> bool:
    """Whether a class keeps state in C: its instances are larger than their slots make them."""
    if python_class.__itemsize__:
        return False  # tuples, integers: they derive from a class that is known
    slots = sum(
        isinstance(member, types.MemberDescriptorType)
        for base in python_class.__mro__
        if "__slots__" in base.__dict__
        for member in base.__dict__.values()
    )
    pointers = slots + (python_class.__dictoffset__ > 0) + (python_class.__weakrefoffset__ > 0)
    rest = max(base.__basicsize__ for base in python_class.__mro__ if _is_known(base))
    return python_class.__basicsize__ > rest + _POINTER * pointers


def find_in_class(python_class: type, name: str) -> tuple[type, Any] | None:
    """The class that defines an attribute, and the attribute as it stands in the class."""
    for owner in python_class.__mro__:
        if name in owner.__dict__:
            return owner, owner.__dict__[name]
    return None


def has_dict(kind: type) -> bool:
    """Whether instances have a dict of attributes: one a thread, those of a `threading.local`."""
    return kind.__dictoffset__ != 0 or is_of_thread(kind)


def is_of_thread(kind: type) -> bool:
    return issubclass(kind, threading.local)


def sets_attribute(found: Any) -> bool:
    """Whether what a class has under a name sets and deletes the attribute of an instance."""
    kind = type(found)
    return hasattr(kind, "__set__") or hasattr(kind, "__delete__")


def overrides_instance(found: Any) -> bool:
    """Whether what a class has under a name is read before what an instance has under it: what only
    sets the attribute is not."""
    return sets_attribute(found) and hasattr(type(found), "__get__")


#: Built-in classes that look for attributes elsewhere than in the class and the instance's own.
_OWN_WAYS = (
    type, super, types.ModuleType, types.MethodType, threading.local, weakref.ProxyType,
    weakref.CallableProxyType,
)  # fmt: skip
#: What classes have by `type`, and instances do not.
_OF_CLASSES = frozenset(vars(type)) - frozenset(vars(object))


def _has_no_attributes(kind: type) -> bool:
    """Whether instances have no attributes but those that a built-in class gives them."""
    built_in = _is_known(kind) or bool(kind.__flags__ & _IMMUTABLE_TYPE)
    if not built_in and not any(base is tuple for base in kind.__mro__):
        return False
    return not kind.__dictoffset__ and not any(k is own for k in kind.__mro__ for own in _OWN_WAYS)


def lacks(value: Value, name: str) -> str | None:
    """What Python says where an instance of a built-in class has no attribute of a name."""
    if isinstance(value, Constant):
        return None
    kind = value.cls
    plain = _has_no_attributes(kind)
    if not plain and not (name in _OF_CLASSES and issubclass(kind, torch.Tensor)):
        return None
    if find_in_class(kind, name) is not None:
        return None
    return f"'{name_in_errors(kind)}' object has no attribute '{name}'"


def _refuse_members(tx: Tracer, value: Value, change: Callable[..., Any], *given: Any) -> None:
    """Members of an enumeration are neither set nor deleted on it."""
    owner: Any = getattr(value, "python_class", None)
    find = (find_in_class(value.cls, name) for name in ("__setattr__", "__delattr__"))
    if owner is None or any(at is None or at[0] is not enum.EnumMeta for at in find):
        return
    if given[0] in owner._member_map_:
        evaluate(tx, change, owner, *given)


def _is_read_only_in_enum(kind: type, found: tuple[type, Any] | None) -> bool:
    if not issubclass(kind, enum.Enum) or found is None:
        return False
    return type(found[1]) is enum.property and found[1].fset is None and found[1].fdel is None


#: built-in classes whose instances have no place for attributes, each as its call makes one
_PLACELESS = (
    int, float, complex, str, bytes, bool, list, dict, set, frozenset, tuple, torch.Size,
)  # fmt: skip


def refuse_assignment(tx: Tracer, value: Value, change: Callable[..., Any], *given: Any) -> None:
    """Raise what `setattr` or `delattr` raises where the object, whatever is in it, has no place
    for an attribute of that name; given: the name, and what stands for the attribute."""
    kind, name = value.cls, given[0]
    found = find_in_class(kind, name)
    if isinstance(value, Constant):
        sample = value.value
    elif any(kind is known for known in _PLACELESS):
        sample = kind()
    elif layout_of(kind) is tuple and not kind.__dictoffset__:  # a named tuple
        sample = tuple.__new__(kind)
    elif _is_read_only_in_enum(kind, found) and isinstance(
        real := getattr(value, "real", None), kind
    ):
        sample = real
    elif issubclass(kind, enum.EnumMeta):
        return _refuse_members(tx, value, change, *given)
    else:
        return
    own = (find_in_class(kind, method) for method in ("__setattr__", "__delattr__"))
    if name == "__class__" or any(at is None or at[0] is not object for at in own):
        return
    assume_entry(tx, kind, name)
    assume_special_methods(tx, kind)
    evaluate(tx, change, sample, *given)


def _of_empty_slot(kind: type) -> str:
    """A class as the error of a slot without a value names it: from 3.13 on in full."""
    return kind.__name__ if VERSION < (3, 13) else full_name(kind)


def full_name(kind: type) -> str:
    """A class as newer errors name it, with its module where that is not to be expected."""
    module = "" if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}."
    return f"{module}{kind.__qualname__}"


def property_lacks(tx: Tracer, found: property, python_class: type, way: str) -> NoReturn:
    """Raise what Python raises of a property without a getter, a setter or a deleter."""
    given = {"__get__": (python_class,), "__set__": (None,), "__delete__": ()}[way]
    evaluate(tx, getattr(found, way), stand_in(python_class), *given)
    raise AssertionError(f"{found} has {way}")


def assume_special_methods(tx: Tracer, python_class: type) -> None:
    """Assume that a class of the program neither gains nor loses a special method."""
    if not trusted_class(python_class):
        tx.guard(itself(python_class), "CLASS_SPECIALS", python_class)


def assume_entry(tx: Tracer, python_class: type, name: str) -> None:
    """Guard what a class of the program, or a base, has under a name, unbound."""
    if not trusted_class(python_class) or name in PATCHED:
        refuse_added(tx, python_class, name)
        tx.guard(itself(python_class), "CLASS_ENTRY", *entry_of(python_class, name))


def refuse_added(tx: Tracer, python_class: type, name: str | None = None) -> None:
    """A graph break where an answer would rest on a class as it was before the program has given
    it, or a base, an attribute of this name, or of any."""
    for owner in python_class.__mro__:
        written: dict[str, Value] = getattr(tx.heap.find(owner), "written", {})
        for each in written if name is None else written.keys() & {name}:
            if find_in_class(owner, each) is None:
                raise Break("FB0019", f"attribute {each!r} is new in {owner.__name__}")


def assume_making(tx: Tracer, python_class: type) -> None:
    """Assume that calling a class of the program makes its instances as it did."""
    for name in ("__new__", "__init__"):
        assume_entry(tx, python_class, name)


def assume_bases(tx: Tracer, python_class: type) -> None:
    """Assume that a class of the program derives from what it derives from."""
    if not trusted_class(python_class):
        tx.guard(Attr(itself(python_class), "__mro__"), "ID_MATCH", python_class.__mro__)


def assume_own(tx: Tracer, python_class: type, name: str) -> bool:
    """Whether a class has a name of its own, not of those that it derives from."""
    has = name in python_class.__dict__
    if not trusted_class(python_class) or name in PATCHED:
        tx.guard(itself(python_class), "CLASS_HAS" if has else "CLASS_LACKS", name)
    return has


def defines(tx: Tracer, python_class: type, name: str) -> bool:
    """Whether Python code of the class, or of a base, defines a special method; it is guarded."""
    if name not in SPECIAL_NAMES:  # which are assumed of every instance
        assume_entry(tx, python_class, name)
    found = find_in_class(python_class, name)
    return found is not None and not (isinstance(found[1], _SLOTS) or _is_known(found[0]))


def call_special(tx: Tracer, value: Value, name: str, args: Args) -> Value:
    """Call a special method as Python's operators and functions do."""
    try:
        method = class_attribute(tx, value, value.cls, name)
    except UserError as error:
        if name in _ELSE and issubclass(error.value.cls, AttributeError):
            raise Break("FB0009", f"{name} of {value.describe()}, whose look-up raises") from None
        raise
    return tx.call(method, args, {})


#: where Python does something else if the look-up of the method raises
_ELSE = frozenset({"__iter__", "__repr__", "__hash__", "__eq__", "__ne__", "__lt__", "__le__",
                   "__gt__", "__ge__"})  # fmt: skip


def is_subclass(tx: Tracer, python_class: type, kind: type, by_bases: bool = False) -> bool:
    """issubclass, and what the answer rests on: bases, the metaclass, what an ABC registers.
    by_bases: whatever the metaclass says."""
    try:
        derived = any(base is kind for base in python_class.__mro__)
        answer = derived if by_bases else issubclass(python_class, kind)
    except TypeError as error:  # a protocol of more than methods, a class that refuses
        tx.raise_error(TypeError, *error.args)
    assume_bases(tx, python_class)
    assume_special_methods(tx, type(kind))
    declared = isinstance(kind, abc.ABCMeta) and kind not in python_class.__mro__
    if declared and not (trusted_class(python_class) and trusted_class(kind)):
        tx.guard(itself(python_class), "SUBCLASS", kind, answer)
    return answer


def written_attribute(tx: Tracer, mro: tuple[type, ...], name: str) -> Value | None:
    """What the program has set on the class where an attribute is found, or on one before it."""
    written: list[Value | None] = [
        getattr(tx.heap.find(owner), "written", {}).get(name) for owner in mro
    ]
    first = next((place for place, value in enumerate(written) if value is not None), None)
    # those before have to be as they are for the answer to come from where it does
    if first is None or any(assume_own(tx, owner, name) for owner in mro[:first]):
        return None
    return written[first]


def source_in_class(tx: Tracer, python_class: type, owner: type, name: str) -> Source:
    """Where a class finds an attribute, `owner` among its bases. What a metaclass
    does is no part of it: an instance never comes to it, and a guard runs no code of its."""
    meta: Any = type(python_class)
    entry = find_in_class(meta, name)
    hidden = entry is not None and overrides_instance(entry[1])
    answers = meta.__getattribute__ is not type.__getattribute__ or hasattr(meta, "__getattr__")
    if not hidden and not answers:
        return Attr(itself(python_class), name)
    for before in python_class.__mro__[: python_class.__mro__.index(owner)]:
        assume_own(tx, before, name)
    return ClassEntry(itself(owner), name)


def class_attribute(
    tx: Tracer, receiver: Value, python_class: type, name: str, after: type | None = None
) -> Value:
    """An attribute of a receiver's class, or of those after `after` (`super()`), bound to it."""
    mro = python_class.__mro__
    if after is not None:
        mro = mro[mro.index(after) + 1 :]
    owner = next((k for k in mro if name in k.__dict__), None)
    if after is not None:
        assume_bases(tx, python_class)
    written = written_attribute(tx, mro, name)
    if written is not None:
        return written
    if owner is None and after is not None:
        for behind in mro:  # those before may have one
            assume_own(tx, behind, name)
        receiver.lacks(tx, name, "super")
    if owner is None:
        assume_entry(tx, python_class, name)
        receiver.lacks(tx, name, name_in_errors(python_class))
    found = owner.__dict__[name]
    asked = owner if after is not None else python_class
    where = source_in_class(tx, asked, owner, name)
    trusted = trusted_class(owner) and trusted_class(asked) and name not in PATCHED
    if not trusted and hasattr(type(found), "__get__"):
        assume_entry(tx, asked, name)
        assume_special_methods(tx, type(found))
    if isinstance(found, types.FunctionType):
        if not trusted:
            tx.guard(where, "FUNCTION_MATCH", found)
        return MethodValue(receiver, wrap_known(tx, found, found.__qualname__))
    if isinstance(found, staticmethod):
        return wrap_known(tx, found.__func__, name)
    if isinstance(found, classmethod):
        return MethodValue(wrap_known(tx, python_class), wrap_known(tx, found.__func__, name))
    if isinstance(found, property):
        if found.fget is None:
            property_lacks(tx, found, python_class, "__get__")
        return call_known(tx, found.fget, name, receiver)
    if isinstance(found, functools.cached_property):
        return _cached_property(tx, receiver, found, name)
    if isinstance(found, types.BuiltinFunctionType) and (name != "__new__" or after is None):
        return tx.wrap(found, where)  # it does not bind
    if isinstance(found, SLOT_TYPES):
        return BoundMethod(receiver, found.__name__)
    if isinstance(found, types.MemberDescriptorType):
        return _slot(tx, receiver, name, found)
    if isinstance(found, types.GetSetDescriptorType):
        return _getset(tx, receiver, name)
    if isinstance(found, FIELD):
        items = getattr(receiver, "payload", None)
        if items is None:
            receiver.unknown(f"field {name!r}")
        item: Value = items.item(found.__reduce__()[1][0])
        return item
    if isinstance(found, type):
        return tx.wrap(found, itself(found, name) if trusted else where)
    getter = find_in_class(type(found), "__get__")
    if getter is not None:
        if isinstance(found, functools.partialmethod):
            return _partial_method(tx, receiver, found, name)
        if isinstance(getter[1], types.FunctionType):
            descriptor, kind = wrap_known(tx, found, name), wrap_known(tx, python_class)
            return call_known(tx, getter[1], "__get__", descriptor, receiver, kind)
        if callable(found):  # C-level callables such as functools.lru_cache's bind like functions
            return MethodValue(receiver, wrap_known(tx, found, name))
        raise Break("FB0009", f"descriptor {type(found).__name__} {name!r}")
    return tx.wrap(found, itself(found, name) if trusted and callable(found) else where)


def _partial_method(
    tx: Tracer, receiver: Value, found: functools.partialmethod[Any], name: str
) -> Value:
    inner = found.func
    if not isinstance(inner, types.FunctionType):
        raise Break("FB0009", f"partialmethod {name!r} of a {type(inner).__name__}")
    method = MethodValue(receiver, wrap_known(tx, inner, name))
    given = [wrap_known(tx, arg, name) for arg in found.args]
    named = {key: wrap_known(tx, arg, name) for key, arg in found.keywords.items()}
    return tx.call(tx.wrap_new(functools.partial), [method, *given], named)


def instance_dict(obj: Any) -> dict[str, Any]:
    """An instance's own attributes; none where its class gives it no place for them."""
    try:
        found: dict[str, Any] = raw_dict(obj)
    except AttributeError:
        return {}
    return found


class Instance(Value):
    """What keeps its attributes itself: `instances.ObjectValue` is the one kind."""

    payload: Value | None

    def write(self, tx: Tracer, name: str, value: Value | None) -> None:
        """Set (or, with None, delete) an attribute of the instance itself."""
        raise NotImplementedError

    def read_slot(self, tx: Tracer, name: str) -> Value | None:
        """What a slot has; None where it is empty."""
        raise NotImplementedError

    def dict_of(self) -> Value:
        """Its `__dict__`, as the program sees it."""
        raise NotImplementedError


def _as_instance(value: Value) -> Instance | None:
    return value if isinstance(value, Instance) else None


def _cached_property(
    tx: Tracer, receiver: Value, found: functools.cached_property[Any], name: str
) -> Value:
    if not has_dict(receiver.cls):  # it has no room for what is cached
        slotted = type(receiver.cls.__name__, (), {"__slots__": (), name: type(found)(id)})
        evaluate(tx, getattr, slotted(), name)
    value = call_known(tx, found.func, name, receiver)
    instance = _as_instance(receiver)
    if instance is not None:
        instance.write(tx, name, value)
    return value


def _slot(tx: Tracer, receiver: Value, name: str, slot: types.MemberDescriptorType) -> Value:
    instance = _as_instance(receiver)
    if instance is None:
        receiver.unknown(f"slot {name!r}")
    if instance.payload is not None and _is_known(slot.__objclass__):
        return instance.payload.get_attr(tx, name)
    found = instance.read_slot(tx, name)
    if found is None:
        receiver.lacks(tx, name, _of_empty_slot(receiver.cls))
    return found


def _getset(tx: Tracer, receiver: Value, name: str) -> Value:
    instance = _as_instance(receiver)
    if name == "__dict__" and instance is not None:
        return instance.dict_of()
    if name == "__class__":
        return tx.wrap_new(receiver.cls)
    own = getattr(receiver, "tensor_attribute", None)
    if own is not None:
        found: Value = own(tx, name)
        return found
    if instance is not None and instance.payload is not None:
        return instance.payload.get_attr(tx, name)
    receiver.unknown(f"attribute {name!r}")


def is_iterable(value: Value) -> bool:
    """Whether Python begins to iterate, which may be refused yet."""
    return any(find_in_class(value.cls, name) for name in ("__iter__", "__getitem__"))
