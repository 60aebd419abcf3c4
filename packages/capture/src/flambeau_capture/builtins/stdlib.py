"""Functions of the standard library that programs around models use.

In: values. Out: values. Invariant: what is evaluated at capture time depends on nothing that can
change without a guard failing.
"""

from __future__ import annotations

import builtins
import collections
import dataclasses
import functools
import inspect
import os
import re
import sys
import time
import types
import typing
import warnings
from typing import Any

from flambeau_capture.breaks import Break
from flambeau_capture.source import Held
from flambeau_capture.values.base import Args, Kwargs, NotConcrete, Tracer, Value
from flambeau_capture.values.callables import HANDLERS, breaks, evaluate_call, handles, pure
from flambeau_capture.values.classes import ClassValue
from flambeau_capture.values.constant import Constant, constant_of
from flambeau_capture.values.functions import FunctionValue
from flambeau_capture.values.methods import MethodValue
from flambeau_capture.values.objects import ObjectValue
from flambeau_capture.values.tuples import TupleValue


@handles(dataclasses.fields)
def _fields(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    kind = args[0].python_class if isinstance(args[0], ClassValue) else args[0].cls
    if not dataclasses.is_dataclass(kind):
        tx.raise_error(TypeError, "must be called with a dataclass type or instance")
    return TupleValue([tx.wrap(f, Held(f, f"field {f.name}")) for f in dataclasses.fields(kind)])


@handles(dataclasses.is_dataclass)
def _is_dataclass(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    kind = args[0].python_class if isinstance(args[0], ClassValue) else args[0].cls
    return Constant(dataclasses.is_dataclass(kind))


@handles(typing.cast)
def _cast(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return args[1]


@handles(inspect.signature)
def _signature(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    target = args[0]
    bound = isinstance(target, MethodValue)
    fn: Any = target.function if isinstance(target, MethodValue) else target
    try:
        found = inspect.signature(fn.as_python())
    except NotConcrete:
        raise Break("FB0005", f"inspect.signature of {target.describe()}") from None
    if bound:
        found = found.replace(parameters=list(found.parameters.values())[1:])
    return tx.wrap(found, Held(found, "signature"))


@handles(os.environ.get, os.getenv)
def _getenv(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    raise Break("FB0005", "an environment variable is read")


@handles(functools.wraps)
def _wraps(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    from flambeau_capture.values.wrap import PartialValue

    update = tx.wrap(functools.update_wrapper, Held(functools.update_wrapper, "update_wrapper"))
    named = {"wrapped": args[0], **kwargs}
    return PartialValue(update, list(args[1:]), named)


@handles(functools.update_wrapper)
def _update_wrapper(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    made, wrapped = (*args, *kwargs.values())[:2]
    if not isinstance(made, FunctionValue) or made.real is not None:
        raise Break("FB0019", "functools.update_wrapper of an existing function")
    inner = wrapped.function if isinstance(wrapped, MethodValue) else wrapped
    if isinstance(inner, FunctionValue):
        for name in ("__name__", "__qualname__", "__module__", "__doc__"):
            made.set_attr(tx, name, inner.get_attr(tx, name))
        if inner.real is not None:
            for name in inner.real.__dict__:
                made.set_attr(tx, name, inner.get_attr(tx, name))
    made.set_attr(tx, "__wrapped__", wrapped)
    return made


@handles(sys.exc_info)
def _exc_info(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    error = tx.current_error()
    if error is None:
        return TupleValue([Constant(None)] * 3)
    return TupleValue([tx.wrap_new(error.cls), error, Constant(None)])


@handles(sys.getrecursionlimit)
def _recursion_limit(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return Constant(sys.getrecursionlimit())


@handles(sys.intern)
def _intern(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return Constant(constant_of(args[0]))


@handles(collections.namedtuple)
def _namedtuple(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    raise Break("FB0020", "collections.namedtuple")


breaks("FB0020", builtins.__build_class__)
breaks("FB0023", warnings.warn, warnings.warn_explicit)
breaks(
    "FB0005", time.time, time.perf_counter, time.monotonic, time.sleep, time.process_time,
    time.time_ns, time.perf_counter_ns,
)  # fmt: skip
pure(
    re.compile, re.match, re.search, re.fullmatch, re.sub, re.split, re.findall, re.escape,
    os.path.join, os.path.basename, os.path.dirname, os.path.splitext, os.fspath,
    inspect.isclass, inspect.isfunction, inspect.ismethod,
    typing.get_origin, typing.get_args,
)  # fmt: skip


def _pure_python(*fns: Any) -> None:
    """Python functions that are evaluated, not interpreted."""
    for fn in fns:

        def handler(tx: Tracer, args: Args, kwargs: Kwargs, _fn: Any = fn) -> Value:
            return evaluate_call(tx, _fn, args, kwargs)

        HANDLERS[fn] = handler


_pure_python(
    re.compile, re.match, re.search, re.fullmatch, re.sub, re.split, re.findall, re.escape,
    os.path.join, os.path.basename, os.path.dirname, os.path.splitext,
    typing.get_origin, typing.get_args,
)  # fmt: skip


@handles(inspect.isclass)
def _isclass(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return Constant(isinstance(args[0], ClassValue))


@handles(inspect.isfunction)
def _isfunction(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return Constant(issubclass(args[0].cls, types.FunctionType))


@handles(inspect.ismethod)
def _ismethod(tx: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return Constant(isinstance(args[0], MethodValue))


def is_plain_object(value: Value) -> bool:
    """An instance without a built-in part."""
    return isinstance(value, ObjectValue) and value.payload is None
