"""Bind arguments to the parameters of a function.

In: a function value and the arguments of a call. Out: its variables by name. Invariant: a call that
Python would refuse raises the program's TypeError.
"""

from __future__ import annotations

from flambeau_capture.values.base import Args, Kwargs, Tracer, Value
from flambeau_capture.values.constant import Constant
from flambeau_capture.values.dicts import DictValue
from flambeau_capture.values.functions import FunctionValue
from flambeau_capture.values.tuples import TupleValue

VARARGS, VARKEYWORDS = 0x04, 0x08


def bind(tx: Tracer, fn: FunctionValue, args: Args, kwargs: Kwargs) -> dict[str, Value]:
    code = fn.code
    positional = code.co_varnames[: code.co_argcount]
    keyword_only = code.co_varnames[code.co_argcount :][: code.co_kwonlyargcount]
    found: dict[str, Value] = dict(zip(positional, args))
    extra = list(args[len(positional) :])
    rest = dict(kwargs)
    if extra and not code.co_flags & VARARGS:
        tx.raise_error(
            TypeError,
            f"{fn.qualname}() takes {len(positional)} positional arguments but {len(args)} "
            f"were given",
        )
    by_name = (*positional[code.co_posonlyargcount :], *keyword_only)
    for name in by_name:
        if name in rest:
            if name in found:
                tx.raise_error(
                    TypeError, f"{fn.qualname}() got multiple values for argument '{name}'"
                )
            found[name] = rest.pop(name)
    if rest and not code.co_flags & VARKEYWORDS:
        tx.raise_error(
            TypeError,
            f"{fn.qualname}() got an unexpected keyword argument '{next(iter(rest))}'",
        )
    _defaults(tx, fn, found, positional, keyword_only)
    index = code.co_argcount + code.co_kwonlyargcount
    if code.co_flags & VARARGS:
        found[code.co_varnames[index]] = TupleValue(extra)
        index += 1
    if code.co_flags & VARKEYWORDS:
        entries = [(Constant(name), value) for name, value in rest.items()]
        found[code.co_varnames[index]] = DictValue(entries, tx=tx)
    return found


def _defaults(
    tx: Tracer,
    fn: FunctionValue,
    found: dict[str, Value],
    positional: tuple[str, ...],
    keyword_only: tuple[str, ...],
) -> None:
    missing = [name for name in positional if name not in found]
    if missing:
        defaults = fn.defaults()
        first = len(positional) - len(defaults)
        for name in missing:
            place = positional.index(name) - first
            if place < 0:
                tx.raise_error(TypeError, f"{fn.qualname}() missing a required argument: '{name}'")
            found[name] = defaults[place]
    missing = [name for name in keyword_only if name not in found]
    if missing:
        named = fn.kwdefaults()
        for name in missing:
            if name not in named:
                tx.raise_error(TypeError, f"{fn.qualname}() missing a required argument: '{name}'")
            found[name] = named[name]
