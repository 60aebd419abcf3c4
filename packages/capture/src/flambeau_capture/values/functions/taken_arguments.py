"""Arguments of a function in C, as it takes them when it is called.

In: a polyfill and the arguments of a call of its original. Out: `taken`, the polyfill's arguments.
Invariant: what the original does at once with an argument, by the type that the polyfill gives it,
has been done: an iterable is iterated, a tuple made, a number taken by `__index__`.
"""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable
from typing import Any

from flambeau_capture import polyfills
from flambeau_capture.values.base import Args, Kwargs, Tracer, Value, unpack
from flambeau_capture.values.constant import Constant
from flambeau_capture.values.containers.sequences import TupleValue, index_of
from flambeau_capture.values.tensors.symbolic_numbers import SymbolValue


def _pooled(tx: Tracer, arg: Value) -> Value:
    return arg if arg.cls is tuple else TupleValue(unpack(tx, arg))


def _indexed(tx: Tracer, arg: Value) -> Value:
    known = isinstance(arg, Constant) and arg.cls is not bool
    return arg if known or isinstance(arg, SymbolValue) else Constant(index_of(tx, arg))


_TAKEN: dict[str, Callable[[Tracer, Value], Value]] = {
    "Iterable[Any]": lambda tx, arg: arg.iterate(tx),
    "tuple[Any, ...]": _pooled,
    "int": _indexed,
    "int | None": _indexed,
}


def taken(tx: Tracer, python: Any, args: Args, kwargs: Kwargs) -> tuple[list[Value], Kwargs]:
    if not python.__module__.startswith(polyfills.__name__):  # the program's own
        return list(args), kwargs
    names, rest, how = _parameters(python)

    def take(name: str, arg: Value, numbers: bool) -> Value:
        asked = name in how and numbers == (how[name] is _indexed)
        return how[name](tx, arg) if asked else arg

    for numbers in (True, False):  # an iterable is iterated when all numbers are known
        named = zip(itertools.chain(names, itertools.cycle(rest)), args)
        args = [take(name, arg, numbers) for name, arg in named]
        kwargs = {name: take(name, kwargs[name], numbers) for name in kwargs}
    return list(args), kwargs


@functools.cache
def _parameters(python: Any) -> tuple[list[str], list[str], dict[str, Any]]:
    """Names of a polyfill's parameters by place, of that which takes the rest, and what is done."""
    all_of = [*inspect.signature(python).parameters.values()]
    names = [each.name for each in all_of if each.kind is not each.KEYWORD_ONLY]
    rest = [each.name for each in all_of if each.kind is each.VAR_POSITIONAL]
    how = {each.name: _TAKEN[each.annotation] for each in all_of if each.annotation in _TAKEN}
    return names, rest, how
