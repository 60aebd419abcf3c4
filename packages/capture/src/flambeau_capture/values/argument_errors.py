"""CPython's argument errors of built-ins.

In: a built-in function, class, or method of a built-in class, and how it is called. Out:
`check_call`, `check_method`, `check_making`, which raise the program's TypeError in CPython's own
words. Invariant: the words come from CPython, which is called on stand-ins: for the number and
names of arguments with objects that have no operation, for their classes with constants as they are
and containers without their items. Nothing of the program is touched.
"""

from __future__ import annotations

import bisect
import collections
import functools
import heapq
import itertools
import operator
import re
import types
from collections.abc import Callable
from typing import Any

import torch

from flambeau_capture.identity import compares_itself, is_heap_type, known_in
from flambeau_capture.values.base import Args, IteratorValue, Kwargs, NotConcrete, Tracer, Value
from flambeau_capture.values.constant import Constant, refuse_unknown
from flambeau_capture.values.stand_ins import name_in_errors
from flambeau_capture.values.tensors.symbolic_numbers import SymbolValue, symbol_operator


class _Argument:
    """What stands for an argument: it has no operation that a built-in could do with it."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]


_REFUSALS = re.compile(
    r"takes (no|exactly|at most|at least|from|\d|one|two)|expected (exactly |at least |at most )?"
    r"(\d+|one|two) arguments?|keyword argument|missing required|must have at least|given by name"
    r"|needs an argument|got multiple values|expects? (exactly|at most|at least)"
)


def _zero(*args: Any, **kwargs: Any) -> int:
    return 0


class _CalledError(Exception):
    """The answer depends on what a function of the program gives."""


def _called(*args: Any, **kwargs: Any) -> Any:
    """Stands for a function of the program."""
    raise _CalledError


#: for each class whose methods are tried, how an instance is made for the trial
_SAMPLES: dict[type, Callable[[], Any]] = {
    list: list, tuple: tuple, dict: dict, set: set, frozenset: frozenset, str: str, bytes: bytes,
    int: int, float: float, complex: complex, bool: bool,
    collections.deque: collections.deque,
    collections.OrderedDict: collections.OrderedDict,
    collections.defaultdict: collections.defaultdict,
    range: lambda: range(0),
    slice: lambda: slice(None),
    type({}.keys()): lambda: {}.keys(),
    type({}.values()): lambda: {}.values(),
    type({}.items()): lambda: {}.items(),
    type(None): lambda: None,
    types.GeneratorType: lambda: (zero for zero in range(0)),
    types.MappingProxyType: lambda: types.MappingProxyType({}),
    torch.Size: torch.Size, BaseException: BaseException, re.Pattern: lambda: re.compile(""),
}  # fmt: skip
_ITERATORS: tuple[Callable[[], Any], ...] = (
    lambda: iter([]), lambda: iter(()), lambda: iter(""), lambda: iter(range(0)), lambda: iter({}),
    lambda: iter(set()), lambda: iter({}.values()), lambda: iter({}.items()), lambda: reversed([]),
    lambda: reversed(()), zip, lambda: enumerate(()), lambda: map(_zero, ()),
    lambda: filter(None, ()),
)  # fmt: skip
_SAMPLES.update({type(make()): make for make in _ITERATORS})
_CONTAINERS = frozenset({list, tuple, dict, set, frozenset, collections.deque,
                         collections.OrderedDict, collections.defaultdict})  # fmt: skip
_BASES = _CONTAINERS | {bytearray, type, object}
_MODULES = frozenset({"builtins", "itertools", "operator", "_operator", "functools", "_functools",
                      "collections", "math", "_heapq", "_bisect"})  # fmt: skip
#: built-ins that do something with no argument, or look at their caller
_NOT_ASKED = frozenset({"open", "input", "print", "breakpoint", "exec", "eval", "compile", "vars",
                        "locals", "globals", "dir", "__import__", "__build_class__",
                        "super", "help"})  # fmt: skip
#: methods that have done a part of their work when they come to an argument that they refuse
_IN_STEPS = frozenset({"update", "difference_update"})
#: built-ins whose refusal of a class does not depend on what a container holds
_BY_CLASS: frozenset[Any] = frozenset({
    abs, all, any, dict, divmod, enumerate, filter, format, frozenset, getattr, hasattr, isinstance,
    issubclass, iter, len, list, map, max, min, next, pow, range, reversed, round, set, setattr,
    slice, sorted, sum, tuple, zip, delattr, callable, collections.deque, collections.OrderedDict,
    collections.defaultdict, dict.fromkeys, collections.OrderedDict.fromkeys,
})  # fmt: skip
#: those of which that holds whatever the arguments are, not of containers and constants alone
_OF_ANY = frozenset(
    {
        heapq.heapify, heapq.heappush, heapq.heappop, heapq.heapreplace, heapq.heappushpop,
        bisect.bisect_left, bisect.bisect_right, bisect.insort_left, bisect.insort_right,
        *(made for made in vars(itertools).values() if isinstance(made, type)),
        *(made for name, made in vars(heapq).items() if name.endswith("_max")),
        operator.itemgetter, operator.attrgetter, operator.methodcaller,
        operator.countOf, operator.indexOf, operator.concat, operator.iconcat,
        itertools.tee, functools.partial, collections.defaultdict,
    }
)  # fmt: skip


def check_call(tx: Tracer, fn: Any, args: Args, kwargs: Kwargs) -> None:
    """Raise what a built-in function or class raises for its arguments."""
    by_class = fn in _BY_CLASS or fn in _OF_ANY
    if getattr(fn, "__module__", None) not in _MODULES and not by_class:
        return
    if isinstance(fn, types.FunctionType) or getattr(fn, "__name__", "") in _NOT_ASKED:
        return
    refused = _of_call(fn, len(args), tuple(kwargs))
    if refused is not None:
        tx.raise_error(TypeError, refused)
    if by_class:
        _check_classes(tx, fn, args, kwargs)


def check_method(tx: Tracer, receiver: Value, name: str, args: Args, kwargs: Kwargs) -> None:
    """Raise what a method of a built-in class raises for its arguments."""
    payload: Value | None = getattr(receiver, "payload", None)
    kind = _tried(receiver.cls if payload is None else payload.cls, name)
    derived = name == "__init__" and receiver.cls is not kind
    if derived:
        check_making(tx, receiver.cls, name, args, kwargs)
    if kind is None:
        return
    refused = None if derived else _of_method(kind, name, len(args), tuple(kwargs))
    if refused is not None:
        tx.raise_error(TypeError, refused)
    if derived and kwargs:
        return  # which some built-in classes take, and do not look at
    if kind in _CONTAINERS and (args or kwargs) and not (name in _IN_STEPS and len(args) > 1):
        method = _method(kind, name)
        if method is not None:
            _check_classes(tx, method, args, kwargs)


def check_making(tx: Tracer, kind: type, name: str, args: Args, kwargs: Kwargs) -> None:
    """Raise what a built-in class's `__new__` or `__init__` raises for arguments that a class which
    derives from it is made with: that depends on which of the two are the class's own."""
    base: Any = next((one for one in kind.__mro__ if known_in(one, _SAMPLES)), object)
    owner = next(one for one in kind.__mro__ if isinstance(vars(one).get(name), _IN_C))
    if not (args or kwargs) or kind is base or owner not in (base, object):
        return
    own = [each for each in ("__new__", "__init__") if _first(kind, each) is not _first(base, each)]
    twin: Any = type(kind.__name__, (base,), dict.fromkeys(own, _zero))
    given = twin if name == "__new__" else base.__new__(twin)
    refused = _refusal(functools.partial(getattr(base, name), given), len(args), tuple(kwargs))
    if refused is not None:
        tx.raise_error(TypeError, refused)


#: a method of a class in C, as it stands in the class
_IN_C = (types.WrapperDescriptorType, types.BuiltinFunctionType)


def _first(kind: type, name: str) -> Any:
    return next(vars(one)[name] for one in kind.__mro__ if name in vars(one))


@functools.lru_cache(maxsize=4096)
def _of_method(kind: type, name: str, count: int, names: tuple[str, ...]) -> str | None:
    method = _method(kind, name)
    return None if method is None else _refusal(method, count, names)


def _method(kind: type, name: str) -> Callable[..., Any] | None:
    """A method as a call by name finds it: as the class that defines it has it."""
    found: Any = getattr(kind, name, None)
    if isinstance(found, types.MethodDescriptorType | types.WrapperDescriptorType):
        return functools.partial(found, _SAMPLES[kind]())
    return found if callable(found) and not isinstance(found, type) else None


def _tried(kind: type, name: str) -> type | None:
    """The class whose instances stand for one of a class: itself, or the base with the method."""
    if known_in(kind, _SAMPLES):
        return kind
    owner = next((base for base in kind.__mro__ if name in vars(base)), object)
    return owner if known_in(owner, _SAMPLES) else None


def _refusal(fn: Callable[..., Any], count: int, names: tuple[str, ...]) -> str | None:
    given = [_Argument() for _ in range(count)]
    try:
        fn(*given, **{name: _Argument() for name in names})
    except TypeError as error:
        text = str(error)
        return text if _REFUSALS.search(text) and _Argument.__name__ not in text else None
    except Exception:
        return None  # of what was given, not of how much: the values themselves are checked later
    return None


_of_call = functools.lru_cache(maxsize=4096)(_refusal)


def _check_classes(tx: Tracer, fn: Any, args: Args, kwargs: Kwargs) -> None:
    sample = _sample_by_name if fn in _OF_ANY else _sample
    given = [sample(arg) for arg in args]
    named = {name: sample(arg) for name, arg in kwargs.items()}
    if any(one is _UNKNOWN for one in (*given, *named.values())):
        return
    try:
        _check_signs(tx, fn, args, kwargs)
        fn(*given, **named)
    except (TypeError, ValueError, OverflowError) as error:
        of_items = fn not in _OF_ANY or fn is operator.indexOf
        if not isinstance(error, TypeError) and of_items:
            return
        every = (*args, *kwargs.values())
        known = {id(arg): getattr(arg, "value", None) for arg in every}  # the answer rests on them
        if any(arg.is_open for arg in every):  # one was not the number itself
            fixed = {id(n): Constant(known[id(n)]) for n in every if n.is_open}
            named = {name: fixed.get(id(arg), arg) for name, arg in kwargs.items()}
            return _check_classes(tx, fn, [fixed.get(id(arg), arg) for arg in args], named)
        tx.raise_error(type(error), *error.args)
    except Exception:
        return  # of a value, or of an empty container: the handler says which


def _check_signs(tx: Tracer, fn: Any, args: Args, kwargs: Kwargs) -> None:
    """Raise what a function raises of numbers that are left open, where that depends on signs."""
    for number in (*args, *kwargs.values()):
        if not isinstance(number, SymbolValue) or number.cls is not int or fn not in _OF_ANY:
            continue

        def call(tried: int, number: Value = number) -> None:
            def given(arg: Value) -> Any:
                return tried if arg is number else _sample_by_name(arg)

            fn(*map(given, args), **{name: given(arg) for name, arg in kwargs.items()})

        def refuses(tried: int) -> bool:
            try:
                call(tried)
            except ValueError:
                return True
            except TypeError:
                return False  # of the other arguments, and of this number, which is another
            return False

        if refuses(0) or refuses(-1):
            positive = symbol_operator(tx, ">", number, Constant(0))
            if positive is None or not positive.truth(tx):
                call(number.value)


@refuse_unknown.by
def _refuse_unknown(tx: Tracer, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> None:
    """Raise the TypeError of a function in C that takes no object of the class of an argument. It
    is called on what stands for that, of which each operation is unknown."""
    if any(_is_written_to(tx, arg.cls) for arg in (*args, *kwargs.values())):
        return  # a class of the program's that the frame has changed
    given = [_known_or_sample(arg) for arg in args]
    named = {name: _known_or_sample(arg) for name, arg in kwargs.items()}
    if any(one is _UNKNOWN for one in (*given, *named.values())):
        return
    try:
        fn(*given, **named)
    except TypeError as error:
        tx.raise_error(TypeError, *error.args)
    except Exception:
        return


def _is_written_to(tx: Tracer, kind: type) -> bool:
    return any(getattr(tx.heap.find(owner), "written", None) for owner in kind.__mro__)


def _known_or_sample(value: Value) -> Any:
    try:
        return value.as_python()
    except NotConcrete:
        pass
    copied = getattr(value, "copied", None)
    if copied is not None:
        try:
            return copied()
        except NotConcrete:
            return _UNKNOWN
    if value.cls is types.FunctionType or known_in(value.cls, _SAMPLES):
        return _called if value.cls is types.FunctionType else _SAMPLES[value.cls]()
    base: Any = next(owner for owner in value.cls.__mro__ if known_in(owner, _BASES))
    owners = value.cls.__mro__[: value.cls.__mro__.index(base)]
    instance = hasattr(value, "python_class")
    if base is type or not instance or not all(map(is_heap_type, owners)):
        return _UNKNOWN
    own = {name for owner in owners for name in vars(owner)}
    unknown = own - _MAKING | {"__getattr__"}
    return type(name_in_errors(value.cls), (base,), dict.fromkeys(unknown, _called))()


_MAKING = frozenset({"__new__", "__init__", "__init_subclass__", "__getattribute__", "__class__",
                     "__subclasshook__", "__class_getitem__", "__del__", "__module__", "__dict__",
                     "__weakref__", "__doc__", "__qualname__", "__slots__", "__annotations__",
                     "__match_args__"})  # fmt: skip


class _Class:
    """Stands for a class."""

    __new__ = _called


class _ClassWithKeys(_Class):
    """Stands for a class that is taken for a mapping: what it answers is its own."""

    keys = staticmethod(_called)


class _UnknownSignature:
    """Equal to nothing but itself, as an item that is looked for."""


_UNKNOWN: Any = _UnknownSignature()


def _sample(value: Value) -> Any:
    """An object of an argument's class; a constant is guarded only if the answer depends on it."""
    if value.is_open:
        return value.cls(1)  # its number is left open
    if isinstance(value, Constant):
        return value._value
    if value.cls is types.FunctionType:
        return _called
    if compares_itself(value.cls):
        return _UNKNOWN
    container = value.cls in _CONTAINERS and not hasattr(value, "payload")
    known = container or (isinstance(value, IteratorValue) and value.cls in _SAMPLES)
    return _SAMPLES[value.cls]() if known else _UNKNOWN


def _sample_by_name(value: Value) -> Any:
    """What stands for an argument of any class: an object that is named so, and can do as much."""
    if value.answers_as_itself:
        return value.as_python()
    found = _sample(value)
    if found is not _UNKNOWN:
        return found
    kind = value.cls
    if kind in _SAMPLES:
        return _SAMPLES[kind]()
    if kind is types.BuiltinFunctionType:
        return len
    own = getattr(value, "python_class", int)
    keys = any("keys" in vars(owner) for owner in own.__mro__)
    if kind is type:
        return _ClassWithKeys if keys else _Class
    base: Any = next(owner for owner in kind.__mro__ if owner in _BASES)
    owners = kind.__mro__[: kind.__mro__.index(base)]
    defined = {name: part for owner in owners[::-1] for name, part in vars(owner).items()}
    members = {
        name: made if defined[name] is not None else None
        for name, made in _ABLE.items()
        if name in defined
    }
    if hasattr(base, "insert"):  # what it refuses to insert is found out by inserting
        members["insert"] = _zero
    made: Any = type(name_in_errors(kind), (base,), members)
    return made("Class", (_ClassWithKeys,) * keys, {}) if base is type else made()


#: what an object of no items can do
_ABLE: dict[str, Any] = {
    "__iter__": lambda self: iter(()),
    "keys": lambda self: (),
    "__len__": lambda self: 0,
    "__getitem__": lambda self, key: ()[key],
    "__index__": lambda self: 1,
    "__call__": _called,
    "insert": _zero,
    **dict.fromkeys(("__add__", "__radd__", "__iadd__"), lambda self, other: self),
}
