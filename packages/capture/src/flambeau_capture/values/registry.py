"""Registry of wrappers: which kind of value represents an object that existed before the frame.

In: an object and its source. Out: its value, by a table of exact types, then by predicates in order
of priority; the value that already represents it; whether its attributes need guards.
Invariant: an object has one value, however many places lead to it; the function that makes a value
adds the guards that it relies on; nothing of a user's or a third party's package is trusted.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from flambeau_capture.breaks import Break
from flambeau_capture.guards.kinds import SPECIAL_NAMES
from flambeau_capture.identity import compares_itself
from flambeau_capture.observe.unguarded import unguarded
from flambeau_capture.source import (
    Attr,
    CachedSource,
    ClassEntry,
    ClosureCell,
    ClosureSource,
    ConstantSource,
    Global,
    GlobalOf,
    InstanceAttr,
    Item,
    ModuleEntry,
    Source,
)
from flambeau_capture.values.base import Tracer, Value

Wrapper = Callable[[Tracer, Any, Source], Value]
W = TypeVar("W", bound=Wrapper)
F = TypeVar("F", bound=Callable[..., Value | None])

_BY_TYPE: dict[type, Wrapper] = {}
_BY_TEST: list[tuple[int, Callable[[Any], bool], Wrapper]] = []


class DefinedAbove:
    """A function that a module calls and one above it defines."""

    def __init__(self, what: str) -> None:
        self.what = what
        self._function: Callable[..., Any] | None = None

    def by(self, function: F) -> F:
        """Define it. Also a decorator."""
        self._function = function
        return function

    def __call__(self, *args: Any) -> Value:
        assert self._function is not None, f"nothing defines {self.what}"
        found: Value = self._function(*args)
        return found


def wraps_type(*types: type) -> Callable[[W], W]:
    """Register a wrapper for exact types."""

    def register(wrapper: W) -> W:
        for one in types:
            _BY_TYPE[one] = wrapper
        return wrapper

    return register


def wraps_if(test: Callable[[Any], bool], priority: int) -> Callable[[W], W]:
    """Register a wrapper for what a test accepts; lower priorities are tried first."""

    def register(wrapper: W) -> W:
        _BY_TEST.append((priority, test, wrapper))
        _BY_TEST.sort(key=lambda row: row[0])
        return wrapper

    return register


def wrap_object(tx: Tracer, obj: Any, source: Source) -> Value:
    """The value of an existing object; the same object is always the same value."""
    if tx.heap.has_models():
        represented: Value | None = tx.heap.find_model(obj)
        if represented is not None:
            return represented
    kind = type(obj)
    wrapper = None if compares_itself(kind) else _BY_TYPE.get(kind)
    if wrapper is None:
        try:
            wrapper = next(wrapper for _, test, wrapper in _BY_TEST if test(obj))
        except Exception as error:  # code of its class, which `isinstance` runs
            what = f"{type(obj).__name__} object that cannot be asked for its class"
            raise Break("FB0009", f"{what} ({type(error).__name__}: {error})") from error
    return wrapper(tx, obj, source)


def already_tracked(tx: Tracer, obj: Any, source: Source) -> Value | None:
    """The value of an object that has one by another name; that it is the same is guarded."""
    known: Value | None = tx.heap.find(obj)
    if known is not None and known.source is not None:
        tx.guard_alias(source, known.source)
    return known


def tracked(wrapper: Wrapper) -> Wrapper:
    """A wrapper of objects that keep one value, by whatever name they are reached."""

    @functools.wraps(wrapper)
    def wrap(tx: Tracer, obj: Any, source: Source) -> Value:
        known = already_tracked(tx, obj, source)
        return known or tx.heap.value_of(obj, lambda: wrapper(tx, obj, source))

    return wrap


def itself(obj: Any, name: str | None = None) -> ConstantSource:
    """The source of an object that the entry keeps."""
    shown = getattr(obj, "__name__", type(obj).__name__) if name is None else name
    return ConstantSource(obj, shown)


def wrap_known(tx: Tracer, obj: Any, name: str | None = None) -> Value:
    """The value of an object that is known for other reasons than where it is."""
    return tx.wrap(obj, itself(obj, name))


def call_known(tx: Tracer, fn: Any, name: str, *args: Value) -> Value:
    """Call an object that is known."""
    return tx.call(wrap_known(tx, fn, name), args, {})


def assume_there(tx: Tracer, source: Source, found: Any) -> None:
    """Guard that a value that is only passed along is where it was: reading it would raise; and of
    one that a class has, its own class: a descriptor in its place would be called."""
    if isinstance(source, Attr | ClassEntry) and isinstance(source.base, ConstantSource):
        if isinstance(source.base.object, type):
            tx.guard(source, "TYPE_MATCH", type(found))
            return
    in_globals = isinstance(source, Item) and isinstance(source.base, ConstantSource)
    if in_globals or isinstance(source, _MAY_END):
        tx.guard(source, "EXISTS")


_MAY_END = (
    Attr,
    CachedSource,
    ClassEntry,
    ClosureCell,
    ClosureSource,
    Global,
    GlobalOf,
    InstanceAttr,
    ModuleEntry,
)


_TRUSTED = frozenset({"torch", "flambeau_capture", "builtins"}) | frozenset(
    name for name in sys.stdlib_module_names if name != "__main__"
)


unguarded(
    "attributes of classes and functions of torch, of Python's own modules and of capture",
    "nobody replaces them; `forward`, `__call__` and `_call_impl` of a module's class, and every "
    "attribute of a module that is no module, no dtype and no layout, are guarded all the same",
)


@functools.cache
def trusted_name(module: str) -> bool:
    return module.partition(".")[0] in _TRUSTED


def trusted_class(python_class: type) -> bool:
    return trusted_name(getattr(python_class, "__module__", None) or "")


def answers_for_itself(python_class: type) -> bool:
    """Whether a class of the program has special methods that a built-in function may call."""
    return any(
        name in SPECIAL_NAMES
        for owner in python_class.__mro__
        if not trusted_class(owner)
        for name in vars(owner)
    )


def trusted_callable(fn: Any) -> bool:
    return trusted_name(getattr(fn, "__module__", None) or "")
