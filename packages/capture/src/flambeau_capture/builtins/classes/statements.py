"""Class statements, and metaclasses as they are called.

In: what a class statement says, its body. Out: the class. Invariant: hooks of bases and
metaclasses are called in Python's order, and interpreted where they are the program's.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from flambeau_capture.breaks import Break
from flambeau_capture.builtins.classes.construction import initialize
from flambeau_capture.builtins.introspection import has_attr
from flambeau_capture.identity import known_in
from flambeau_capture.values.base import Args, Kwargs, Tracer, Value, needing
from flambeau_capture.values.constant import Constant, evaluate
from flambeau_capture.values.containers.dicts import DictValue, pairs_of
from flambeau_capture.values.containers.sequences import TupleValue
from flambeau_capture.values.functions.call_rules import describe_call, handles, makes
from flambeau_capture.values.functions.variables import CellValue
from flambeau_capture.values.objects.attributes import assume_making, find_in_class
from flambeau_capture.values.objects.classes import ClassValue
from flambeau_capture.values.objects.made.library_classes import (
    BY_LIBRARY,
    LibraryBody,
    make_by_library,
)
from flambeau_capture.values.objects.made.made_classes import make_class
from flambeau_capture.values.registry import trusted_class
from flambeau_capture.values.wrap import TypingValue


def make_by_statement(
    tx: Tracer, args: Args, kwargs: Kwargs, run: Callable[[DictValue], None]
) -> Value:
    """`class name(*bases, **kwargs)`; run: the statement's body, in a namespace."""
    name, before = args[1], list(args[2:])
    bases = [*_resolved(tx, before)]
    named = dict(kwargs)
    meta = named.pop("metaclass", None)
    if meta is None:
        meta = tx.wrap_new(bases[0].cls if bases else type)
    if isinstance(meta, ClassValue):
        meta = tx.wrap_new(_most_derived(tx, meta.python_class, bases))
    by_library = isinstance(meta, ClassValue) and known_in(meta.python_class, BY_LIBRARY)
    namespace: Value = LibraryBody(tx=tx) if by_library else DictValue(tx=tx)
    given = [name, TupleValue(bases)]
    if not isinstance(meta, ClassValue):
        if has_attr(tx, meta, "__prepare__"):
            raise Break("FB0020", f"__prepare__ of {meta.describe()}")
    elif not by_library and not _prepares_as_type(meta.python_class):
        namespace = tx.call(tx.get_attr(meta, "__prepare__"), given, named)
    if not isinstance(namespace, DictValue):
        raise Break("FB0020", f"a class statement in {namespace.describe()}")
    run(namespace)
    if bases != before:
        namespace.store(tx, Constant("__orig_bases__"), TupleValue(before))
    if by_library:
        assert isinstance(meta, ClassValue)
        if named or namespace.contains(tx, Constant("__classcell__")):
            raise Break("FB0020", f"{meta.describe()} with names, or with super()")
        return make_by_library(tx, meta, name, bases, namespace)
    cell = namespace.lookup(tx, Constant("__classcell__"))
    made = tx.call(meta, [*given, namespace], named)
    if isinstance(cell, CellValue) and cell.content is not made and isinstance(made, ClassValue):
        raise Break("FB0020", f"{made.describe()} is made without __classcell__")
    return made


def _prepares_as_type(meta: type) -> bool:
    found = find_in_class(meta, "__prepare__") or find_in_class(type(meta), "__prepare__")
    return found is not None and found[0] is type


def _resolved(tx: Tracer, bases: Sequence[Value]) -> Iterator[Value]:
    """The bases, each that is no class replaced by those that its `__mro_entries__` says."""
    for base in bases:
        if isinstance(base, ClassValue) or not has_attr(tx, base, "__mro_entries__"):
            yield base
            continue
        entries = _entries(tx, base, bases)
        if entries.cls is not tuple:
            tx.raise_error(TypeError, "__mro_entries__ must return a tuple")
        assert isinstance(entries, TupleValue)
        yield from entries.parts()


def _entries(tx: Tracer, base: Value, bases: Sequence[Value]) -> Value:
    """`base.__mro_entries__(bases)`."""
    if not isinstance(base, TypingValue):
        method = tx.get_attr(base, "__mro_entries__")
        return tx.call(method, [TupleValue(list(bases))], {})
    with needing("FB0020", lambda error: f"{base.describe()} beside {error}"):
        known = tuple(one.as_python() for one in bases)
    return tx.wrap_new(evaluate(tx, base.real.__mro_entries__, known))


_CONFLICT = (
    "the metaclass of a derived class must be a (non-strict) subclass of the metaclasses of all "
    "its bases"
)


def _most_derived(tx: Tracer, meta: Any, bases: Sequence[Value]) -> type:
    """The metaclass that derives from those of all bases."""
    for base in bases:
        kind = base.cls
        if known_in(kind, meta.__mro__):
            continue
        if not known_in(meta, kind.__mro__):
            tx.raise_error(TypeError, f"metaclass conflict: {_CONFLICT}")
        meta = kind
    return meta  # type: ignore[no-any-return]


@handles(type)
def _type(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """The class of an object, or `type(name, bases, namespace)`."""
    if len(args) == 1 and not kwargs:
        return tx.wrap_new(args[0].cls)
    return _called(tx, tx.wrap_new(type), args, kwargs)


def _called(tx: Tracer, kind: Value, args: Args, kwargs: Kwargs) -> Value:
    """`type.__call__(kind, name, bases, namespace)`."""
    made = tx.call(tx.get_attr(kind, "__new__"), [kind, *args], kwargs)
    assert isinstance(kind, ClassValue)
    if isinstance(made, ClassValue) and known_in(kind.python_class, made.cls.__mro__):
        init = find_in_class(made.cls, "__init__")
        if init is not None and init[0] is not type:
            initialize(tx, made, args, kwargs)
    return made


def _made_by(tx: Tracer, maker: Any, args: Args, kwargs: Kwargs) -> Value:
    """`maker.__new__(meta, name, bases, namespace)`, which leaves it to the most derived of the
    metaclasses if that has its own."""
    known = len(args) == 4 and isinstance(args[0], ClassValue) and isinstance(args[2], TupleValue)
    if not known or args[1].cls is not str or not issubclass(args[3].cls, dict):
        raise Break("FB0020", describe_call(maker.__new__, args))
    meta, name, bases, given = args
    assert isinstance(meta, ClassValue) and isinstance(bases, TupleValue)
    most = tx.wrap_new(_most_derived(tx, meta.python_class, bases.parts()))
    assert isinstance(most, ClassValue)
    new = find_in_class(most.python_class, "__new__")
    if most is not meta and new is not None and new[0] is not type:
        return tx.call(tx.get_attr(most, "__new__"), [most, *args[1:]], kwargs)
    namespace = DictValue(list(pairs_of(tx, given)), tx=tx)
    frame = tx.caller(1)
    if frame is not None and not namespace.contains(tx, Constant("__module__")):
        scope = vars(abc) if maker is abc.ABCMeta else frame.namespace
        if "__name__" in scope:
            here = tx.scope_of(scope).load(tx, "__name__")
            assert here is not None
            namespace.store(tx, Constant("__module__"), here)
    return make_class(tx, maker, most, name, bases.parts(), namespace, kwargs)


@handles(type.__prepare__)
def _prepare(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return DictValue([], tx=tx)


@handles(type.__new__)
def _made_by_type(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return _made_by(tx, type, args, kwargs)


@handles(abc.ABCMeta.__new__)
def _made_by_abc(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return _made_by(tx, abc.ABCMeta, args, kwargs)


@makes(type)
def _by_metaclass(tx: Tracer, kind: ClassValue, args: Args, kwargs: Kwargs) -> Value:
    """`type.__call__` of a metaclass: its `__new__`, then its `__init__`."""
    meta: Any = kind.python_class
    assume_making(tx, meta)
    new = find_in_class(meta, "__new__")
    assert new is not None
    if new[0] not in (type, abc.ABCMeta) and trusted_class(new[0]):
        raise Break("FB0020", f"a class of {kind.describe()}")
    return _called(tx, kind, args, kwargs)
