"""Introspection built-ins: isinstance, getattr, type, callable, id, print.

In: values. Out: what they are. Invariant: what an answer rests on is guarded.
"""

from __future__ import annotations

import abc
import types
import typing
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from flambeau_capture import _torch_compat as compat
from flambeau_capture.breaks import Break
from flambeau_capture.builtins.texts import format_value, text_of, text_value
from flambeau_capture.source import ConstantSource, answers_attributes
from flambeau_capture.values.base import Args, Kwargs, Tracer, UserError, Value, needing, suppressed
from flambeau_capture.values.constant import (
    Constant,
    constant_of,
    evaluate,
    is_none,
    nameless,
    refuse,
)
from flambeau_capture.values.containers.lists import ListValue
from flambeau_capture.values.containers.sequences import TupleValue
from flambeau_capture.values.functions.call_rules import answers, breaks, handles
from flambeau_capture.values.functions.methods import MethodValue
from flambeau_capture.values.objects.answers import ask
from flambeau_capture.values.objects.attributes import (
    assume_special_methods,
    find_in_class,
    is_of_thread,
    is_subclass,
    refuse_added,
)
from flambeau_capture.values.objects.classes import ClassValue
from flambeau_capture.values.objects.exceptions import ExceptionValue
from flambeau_capture.values.objects.instances import ObjectValue
from flambeau_capture.values.objects.made.made_objects import MadeObject, act
from flambeau_capture.values.objects.nn_modules import ModuleValue, call_module
from flambeau_capture.values.objects.opaque import FrozenValue, OpaqueValue, PyModuleValue
from flambeau_capture.values.tensors.symbolic_numbers import SymbolValue
from flambeau_capture.values.tensors.tensor import TensorValue


def python_method(kind: type, name: str) -> types.FunctionType | None:
    """What a class has under a name, if it is a function in Python."""
    found = find_in_class(kind, name)
    return found[1] if found is not None and isinstance(found[1], types.FunctionType) else None


def is_protocol(kind: type) -> bool:
    """Whether a class is a protocol itself, not one that fulfils it."""
    found = find_in_class(kind, "_is_protocol")  # past its metaclass
    return found is not None and bool(found[1]) and kind is not typing.Protocol


def has_members(tx: Tracer, value: Value, kind: type) -> bool | None:
    """Whether a value is an instance of a protocol by its members."""
    if not is_protocol(kind):
        return None
    if not getattr(kind, "_is_runtime_protocol", False):
        words = "Instance and class checks can only be used with @runtime_checkable protocols"
        tx.raise_error(TypeError, words)
    if kind in value.cls.__mro__:
        return None
    return all(_has(tx, value, kind, name) for name in sorted(_members(kind)))


def _has(tx: Tracer, value: Value, kind: type, name: str) -> bool:
    if not has_attr(tx, value, name):
        return False
    if not callable(getattr(kind, name, None)) or find_in_class(value.cls, name) is None:
        return True
    return not is_none(tx.get_attr(value, name))  # a method set to None is one that is refused


def _members(kind: Any) -> set[str]:
    known = getattr(kind, "__protocol_attrs__", None)  # since Python 3.12
    if known is None:
        known = typing._get_protocol_attrs(kind)  # type: ignore[attr-defined]
    return set(known)


#: what `abc.ABCMeta` calls: functions in C
_ABC_CHECKS = tuple(vars(abc)[name] for name in ("_abc_instancecheck", "_abc_subclasscheck"))


def class_of(value: Value) -> type:
    """The class of a class value, or a break."""
    if isinstance(value, ClassValue):
        return value.python_class
    with needing("FB0009", lambda _: f"{value.describe()} as a class"):
        found = value.as_python()
    if isinstance(found, type):
        return found
    raise Break("FB0009", f"{value.describe()} as a class")


answers(
    {
        isinstance: lambda tx, args, kwargs: Constant(is_instance(tx, args[0], args[1])),
        hasattr: lambda tx, args, kwargs: Constant(has_attr(tx, args[0], _name_of(args[1]))),
        repr: lambda tx, args, kwargs: text_value(tx, args[0], "__repr__"),
        ascii: lambda tx, args, kwargs: Constant(text_of(tx, args[0], "ascii")),
        format: lambda tx, args, kwargs: Constant(format_value(tx, args[0], _spec(tx, *args[1:]))),
        setattr: lambda tx, args, kwargs: tx.set_attr(args[0], _name_of(args[1]), args[2]),
        delattr: lambda tx, args, kwargs: tx.del_attr(args[0], _name_of(args[1])),
    }
)


def _alternatives(name: str, kinds: Value) -> Iterator[Any]:
    """The classes, or what stands for one, of a tuple of such and of unions."""
    if isinstance(kinds, TupleValue):
        for kind in kinds.parts():
            yield from _alternatives(name, kind)
        return
    if isinstance(kinds, ClassValue):
        yield kinds.python_class
        return
    with needing("FB0009", lambda _: f"{name} with {kinds.describe()}"):
        plain = kinds.as_python()
    yield from plain.__args__ if typing.get_origin(plain) in _UNIONS else (plain,)


_UNIONS = (types.UnionType, typing.Union)
#: classes of the library under their names in `typing`
_Special: Any = type(typing.List)  # noqa: UP006


def is_instance(tx: Tracer, value: Value, kinds: Value) -> bool:
    return any(_is_one(tx, value, kind) for kind in _alternatives("isinstance", kinds))


def _is_one(tx: Tracer, value: Value, plain: Any) -> bool:
    kind: Any = plain.__origin__ if isinstance(plain, _Special) else plain
    if not isinstance(kind, type) or isinstance(kind, types.GenericAlias):
        evaluate(tx, isinstance, nameless(value), kind)  # raises
        raise Break("FB0009", f"isinstance with {kind!r}")
    by_members = has_members(tx, value, kind)
    if by_members is not None:
        return by_members
    if value.cls is kind:
        return True
    if isinstance(value, TensorValue) and type(kind).__name__ == "tensortype":
        return bool(value.fake.type() == f"{kind.__module__}.{kind.__name__}")
    checks = find_in_class(type(kind), "__instancecheck__")
    by_bases = checks is not None and checks[0] is type  # whatever `issubclass` says
    asked = _by_metaclass(tx, kind, "__instancecheck__", value)
    if asked is None and checks is not None and checks[0] is abc.ABCMeta:
        asked = _by_metaclass(tx, kind, "__subclasscheck__", tx.wrap_new(value.cls))
    if asked is not None:
        return asked
    if isinstance(value, OpaqueValue) and is_subclass(tx, type(value.real), kind, by_bases) is not (
        found := isinstance(value.real, kind)
    ):
        return found  # what says so is its `__class__`: it is the object that is guarded
    found = is_subclass(tx, value.cls, kind, by_bases)
    if found or not isinstance(value, ObjectValue) or not _says_its_class(value.cls):
        return found
    said = _found(tx, value, "__class__")
    return isinstance(said, ClassValue) and is_subclass(tx, said.python_class, kind, by_bases)


def _says_its_class(kind: type) -> bool:
    """Whether code of the program answers what an instance's `__class__` is."""
    own = find_in_class(kind, "__class__")
    return answers_attributes(kind) or (own is not None and own[0] is not object)


def _by_metaclass(tx: Tracer, kind: type, name: str, asked: Value) -> bool | None:
    """The answer of a metaclass's Python code, which is captured; None for those of ABCs."""
    found = find_in_class(type(kind), name)
    if found is None or python_method(type(kind), name) is None:
        return None
    if found[0] is abc.ABCMeta or found[0] is type(typing.Protocol):
        return None
    assume_special_methods(tx, type(kind))
    method = MethodValue(tx.wrap_new(kind), tx.wrap(found[1], ConstantSource(found[1], name)))
    return tx.call(method, [asked], {}).truth(tx)


@handles(issubclass)
def _issubclass(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if not isinstance(args[0], ClassValue):
        tx.raise_error(TypeError, "issubclass() arg 1 must be a class")
    value, kinds = args[0], _alternatives("issubclass", args[1])
    return Constant(any(_is_subclass_of(tx, value, kind) for kind in kinds))


def _is_subclass_of(tx: Tracer, value: ClassValue, kind: Any) -> bool:
    if not isinstance(kind, type):
        return bool(evaluate(tx, issubclass, value.python_class, kind))
    asked = _by_metaclass(tx, kind, "__subclasscheck__", value)
    return is_subclass(tx, value.python_class, kind) if asked is None else asked


@handles(*_ABC_CHECKS)
def _abc_check(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """`ABCMeta.__instancecheck__` and `__subclasscheck__`, called by a metaclass of the program."""
    asked = args[1].python_class if isinstance(args[1], ClassValue) else args[1].cls
    return Constant(is_subclass(tx, asked, class_of(args[0])))


def _name_of(value: Value) -> str:
    if isinstance(value, FrozenValue) and isinstance(value.real, str):
        return str.__str__(value.real)
    found = constant_of(value)
    if not isinstance(found, str):
        raise Break("FB0009", f"an attribute by the name {found!r}, which is no string")
    return found


@handles(getattr)
def _getattr(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    name = _name_of(args[1])
    if len(args) == 2:
        return tx.get_attr(args[0], name)
    found = _found(tx, args[0], name)
    return args[2] if found is None else found


def _found(tx: Tracer, value: Value, name: str) -> Value | None:
    """An attribute; None where there is none, which is guarded."""
    with suppressed(AttributeError):
        return tx.get_attr(value, name)
    if isinstance(value, PyModuleValue | TensorValue) and value.source is not None:
        tx.guard(value.source, "NOT_HASATTR", name)
    return None


def has_attr(tx: Tracer, value: Value, name: str) -> bool:
    if _found(tx, value, name) is None:
        return False
    if isinstance(value, ObjectValue) and value.source is not None and name not in value.written:
        if not value.shared and value.real is not None:  # or else its keys are guarded
            value.assume_own(tx, name)
    return True


def _past_thread(owner: Value) -> Value:
    """Of a `threading.local`, `object` sees what is no thread's, and sets nothing."""
    if is_of_thread(owner.cls):
        owner.unknown("an attribute by object's method, past those of the thread")
    return owner


@handles(object.__setattr__)
def _object_setattr(tx: Tracer, args: Args, kwargs: Kwargs) -> None:
    owner = _past_thread(args[0])
    write = owner.generic_set_attr if isinstance(owner, ObjectValue) else owner.set_attr
    write(tx, constant_of(args[1]), args[2])


@handles(object.__delattr__)
def _object_delattr(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return _past_thread(args[0]).call_method(tx, "__delattr__", args[1:], kwargs)


@handles(object.__getattribute__)
def _object_getattribute(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    owner = _past_thread(args[0])
    if isinstance(owner, ClassValue):
        owner.unknown("an attribute by object's method, past those of its bases")
    read = owner.generic_get_attr if isinstance(owner, ObjectValue) else owner.get_attr
    return read(tx, constant_of(args[1]))


@handles(torch.nn.Module.__setattr__)
def _module_setattr(tx: Tracer, args: Args, kwargs: Kwargs) -> Value | None:
    assert isinstance(args[0], ModuleValue)
    done = args[0].module_setattr(tx, constant_of(args[1]), args[2])
    return Constant(None) if done else None


@handles(torch.nn.Module.__getattr__)
def _module_getattr(tx: Tracer, args: Args, kwargs: Kwargs) -> Value | None:
    assert isinstance(args[0], ModuleValue)
    if args[0].answers:
        return None
    return args[0].module_getattr(tx, constant_of(args[1]))


@handles(*compat.MODULE_CALLS[:2])
def _module_call(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return call_module(tx, args[0], args[1:], kwargs)


@handles(callable)
def _callable(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    value = args[0]
    if isinstance(value, OpaqueValue):
        return Constant(callable(value.real))
    return Constant(find_in_class(value.cls, "__call__") is not None)


@handles(id)
def _id(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    value = args[0]
    real = value.module if isinstance(value, PyModuleValue) else getattr(value, "real", None)
    if real is None or value.source is None:
        raise Break("FB0009", f"id of {value.describe()}")
    tx.guard(value.source, "ID_MATCH", real)
    return Constant(id(real))


@handles(hash)
def _hash(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    found = find_in_class(args[0].cls, "__hash__")
    if found is not None and found[1] is None:
        refuse(tx, hash, args[0], __hash__=None)
    if args[0].special(tx, "__hash__"):
        return ask(tx, args[0], "__hash__")
    payload = args[0].payload if isinstance(args[0], ObjectValue) else None
    if isinstance(payload, Constant):
        return Constant(hash(payload.value))
    if isinstance(args[0], ExceptionValue) and args[0].real is None:
        raise Break("FB0009", f"hash of {args[0].describe()}")
    if isinstance(args[0], MadeObject):
        if not args[0].model.shown:
            args[0].unknown("hash")
        return act(tx, hash, args)
    with needing("FB0009", lambda _: f"hash of {args[0].describe()}"):
        as_key = getattr(args[0], "as_key", args[0].as_python)
        return Constant(evaluate(tx, hash, as_key()))


@handles(len)
def _len(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if isinstance(args[0], TensorValue) and type(args[0]).length is TensorValue.length:
        return tx.wrap_new(args[0].first_size(tx))
    if args[0].special(tx, "__len__"):
        found = ask(tx, args[0], "__len__")
        if isinstance(found, SymbolValue) and not tx.binary(">=", found, Constant(0)).truth(tx):
            tx.raise_error(ValueError, "__len__() should return >= 0")
        return found
    return args[0].count(tx)


@handles(vars)
def _vars(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if not args:
        raise Break("FB0009", "vars() without an argument")
    try:
        return tx.get_attr(args[0], "__dict__")
    except UserError as error:
        if issubclass(error.value.cls, AttributeError):
            evaluate(tx, vars, object())  # in its own words
        raise


@handles(dir)
def _dir(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if not args:
        raise Break("FB0009", "dir() without an argument")
    value = args[0]
    kind = value.cls
    own = find_in_class(kind, "__dir__")
    known = isinstance(value, ObjectValue) and own is not None and own[0] is object
    if not isinstance(value, ClassValue | PyModuleValue) and not known:
        raise Break("FB0009", f"dir() of {value.describe()}")
    target: Any = kind if isinstance(value, ObjectValue) else value.as_python()
    if isinstance(target, type):
        refuse_added(tx, target)
    names = dir(target)
    where = ConstantSource(target, target.__name__)
    tx.guard(where, "CALL", partial(_lists, names), "as it was")
    if isinstance(value, ObjectValue):
        names = sorted({*names, *(name for name, _ in value.own_entries(tx))})
    return ListValue([Constant(name) for name in names])


def _lists(names: list[str], target: Any) -> bool:
    """A guard's question: `dir()` of a class or a module is as it was."""
    return dir(target) == names


def _spec(tx: Tracer, *given: Value) -> str:
    for each in given:
        if not issubclass(each.cls, str):
            refuse(tx, format, Constant(0), each)
    return "".join(map(constant_of, given))


breaks("FB0005", open, input, exec, eval, compile)
