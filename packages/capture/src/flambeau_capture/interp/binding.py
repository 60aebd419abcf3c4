"""Before a call is inlined: binding of arguments to parameters, and calls answered in its place.

In: a function value, positional and keyword values. Out: its frame's variables by name; or the
value of a call that is not to be interpreted. Invariant: wrong arguments raise Python's own
TypeError in the interpreted program.
"""

from __future__ import annotations

from types import CellType, FunctionType
from typing import NoReturn

from flambeau_capture import _torch_compat as compat
from flambeau_capture.breaks import Break
from flambeau_capture.graph.builder import Warned
from flambeau_capture.source import ConstantSource
from flambeau_capture.values.base import Args, Kwargs, Tracer, Value
from flambeau_capture.values.constant import Constant, evaluate
from flambeau_capture.values.containers.dicts import DictValue
from flambeau_capture.values.containers.sequences import TupleValue, given_before
from flambeau_capture.values.functions.call_rules import (
    OWN,
    Action,
    call_at_capture,
    describe_call,
    evaluate_call,
)
from flambeau_capture.values.functions.functions import FunctionValue
from flambeau_capture.values.tensors.graph_calls import graph_call

VARARGS, VARKEYWORDS = 0x04, 0x08


def bind(tx: Tracer, fn: FunctionValue, args: Args, kwargs: Kwargs) -> dict[str, Value]:
    code = fn.code
    positional = code.co_varnames[: code.co_argcount]
    keyword_only = code.co_varnames[code.co_argcount :][: code.co_kwonlyargcount]
    by_name = {*positional[code.co_posonlyargcount :], *keyword_only}
    found: dict[str, Value] = dict(zip(positional, args))
    extra = list(args[len(positional) :])
    rest = {name: value for name, value in kwargs.items() if name not in by_name}
    twice = not by_name.isdisjoint(found.keys() & kwargs.keys())
    if (
        twice
        or (extra and not code.co_flags & VARARGS)
        or (rest and not code.co_flags & VARKEYWORDS)
    ):
        _refuse(tx, fn, args, kwargs)
    found.update((name, value) for name, value in kwargs.items() if name in by_name)
    if any(name not in found for name in positional):
        defaults = fn.defaults()
        given_before(tx, defaults)
        found = {**dict(zip(positional[len(positional) - len(defaults) :], defaults)), **found}
    if any(name not in found for name in keyword_only):
        named = fn.kwdefaults()
        given_before(tx, named.values())
        found = {**{name: named[name] for name in keyword_only if name in named}, **found}
    if any(name not in found for name in (*positional, *keyword_only)):
        _refuse(tx, fn, args, kwargs)
    index = code.co_argcount + code.co_kwonlyargcount
    if code.co_flags & VARARGS:
        found[code.co_varnames[index]] = TupleValue(extra)
        index += 1
    if code.co_flags & VARKEYWORDS:
        entries = [(Constant(name), value) for name, value in rest.items()]
        found[code.co_varnames[index]] = DictValue(entries, tx=tx)
    return found


def _refuse(tx: Tracer, fn: FunctionValue, args: Args, kwargs: Kwargs) -> NoReturn:
    """Raise what Python does where arguments do not fit: none of the code runs."""
    cells = tuple(CellType() for _ in fn.code.co_freevars)
    made = FunctionType(fn.code, {}, fn.name, tuple(None for _ in fn.defaults()), cells)
    made.__qualname__, made.__kwdefaults__ = fn.qualname, dict.fromkeys(fn.kwdefaults())
    evaluate(tx, made, *(None for _ in args), **dict.fromkeys(kwargs))
    raise AssertionError(f"{fn.qualname} takes what it was given")


def before_inlining(tx: Tracer, fn: FunctionValue, args: Args, kwargs: Kwargs) -> Value | None:
    real = fn.real
    if real is None:
        return None
    rule = tx.rule_of(real)
    found: Value | None = None
    if rule.of_called:
        found = rule.handler(tx, fn, args, kwargs)
        return found
    if rule.action is Action.INLINE:
        return None
    if rule.action is Action.BREAK:
        if compat.is_foreign_break(real, tx.frame_code().co_filename):
            return Constant(None)
        raise Break(rule.reason, f"call_function {describe_call(real, args)}")
    if rule.row == OWN and rule.action is not Action.GRAPH:
        bind(tx, fn, args, kwargs)  # raises what Python does for arguments that do not fit
    if rule.handler is not None:
        found = rule.handler(tx, args, kwargs)
        return found
    if rule.action is Action.GRAPH:
        try:
            return graph_call(tx, "call_function", real, args, kwargs)
        except Warned:
            return None  # its code is interpreted, `warnings.warn` with it
    if rule.action is Action.EVALUATE:
        return evaluate_call(tx, real, args, kwargs)
    if rule.action is Action.CONSTANT:
        return call_at_capture(tx, real, args, kwargs)
    python = rule.python
    return tx.call(tx.wrap(python, ConstantSource(python, python.__name__)), args, kwargs)
