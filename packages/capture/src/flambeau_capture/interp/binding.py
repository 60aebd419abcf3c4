"""Before a call is inlined: binding of arguments to parameters, and calls answered in its place.

In: a function value, positional and keyword values. Out: its frame's variables by name; or the
value of a call that is not to be interpreted. Invariant: wrong arguments raise Python's own
TypeError in the interpreted program.
"""

from __future__ import annotations

from collections.abc import Sequence

from flambeau_capture import _torch_compat as compat
from flambeau_capture.breaks import Break
from flambeau_capture.source import ConstantSource
from flambeau_capture.values.base import Args, Kwargs, Tracer, Value
from flambeau_capture.values.constant import Constant
from flambeau_capture.values.containers.dicts import DictValue
from flambeau_capture.values.containers.sequences import TupleValue
from flambeau_capture.values.functions.callables import (
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
    found: dict[str, Value] = dict(zip(positional, args))
    rest = _keywords(tx, fn, found, (*positional[code.co_posonlyargcount :], *keyword_only), kwargs)
    extra = list(args[len(positional) :])
    if extra and not code.co_flags & VARARGS:
        _too_many(tx, fn, len(args), sum(name in found for name in keyword_only))
    _defaults(tx, fn, found, positional, keyword_only)
    index = code.co_argcount + code.co_kwonlyargcount
    if code.co_flags & VARARGS:
        found[code.co_varnames[index]] = TupleValue(extra)
        index += 1
    if code.co_flags & VARKEYWORDS:
        entries = [(Constant(name), value) for name, value in rest.items()]
        found[code.co_varnames[index]] = DictValue(entries, tx=tx)
    return found


def _keywords(
    tx: Tracer, fn: FunctionValue, found: dict[str, Value], by_name: Sequence[str], kwargs: Kwargs
) -> dict[str, Value]:
    """Bind keyword arguments; the rest is what `**` takes."""
    code = fn.code
    rest: dict[str, Value] = {}
    for name, value in kwargs.items():
        if name not in by_name:
            rest[name] = value
        elif name in found:
            tx.raise_error(TypeError, f"{fn.qualname}() got multiple values for argument '{name}'")
        else:
            found[name] = value
    if rest and not code.co_flags & VARKEYWORDS:
        wrong = [name for name in code.co_varnames[: code.co_posonlyargcount] if name in rest]
        if wrong:
            tx.raise_error(
                TypeError,
                f"{fn.qualname}() got some positional-only arguments passed as keyword "
                f"arguments: '{', '.join(wrong)}'",
            )
        tx.raise_error(
            TypeError, f"{fn.qualname}() got an unexpected keyword argument '{next(iter(rest))}'"
        )
    return rest


def _too_many(tx: Tracer, fn: FunctionValue, given: int, keyword_only: int) -> None:
    most = fn.code.co_argcount
    least = most - len(fn.defaults())
    takes = str(most) if least == most else f"from {least} to {most}"
    plural = "s" if most != 1 or least != most else ""
    more = ""
    if keyword_only:
        one = "s" if keyword_only != 1 else ""
        more = (
            f" positional argument{'s' if given != 1 else ''} "
            f"(and {keyword_only} keyword-only argument{one})"
        )
    verb = "was" if given == 1 and not keyword_only else "were"
    tx.raise_error(
        TypeError,
        f"{fn.qualname}() takes {takes} positional argument{plural} but {given}{more} {verb} given",
    )


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
        _refuse(tx, fn, "positional", [n for n in missing if positional.index(n) < first])
        for name in missing:
            found[name] = defaults[positional.index(name) - first]
    missing = [name for name in keyword_only if name not in found]
    if missing:
        named = fn.kwdefaults()
        _refuse(tx, fn, "keyword-only", [name for name in missing if name not in named])
        for name in missing:
            found[name] = named[name]


def _refuse(tx: Tracer, fn: FunctionValue, kind: str, missing: list[str]) -> None:
    if not missing:
        return
    quoted = [f"'{name}'" for name in missing]
    names = quoted[0]
    if len(quoted) == 2:
        names = " and ".join(quoted)
    elif len(quoted) > 2:
        names = f"{', '.join(quoted[:-1])}, and {quoted[-1]}"
    tx.raise_error(
        TypeError,
        f"{fn.qualname}() missing {len(missing)} required {kind} "
        f"argument{'s' if len(missing) != 1 else ''}: {names}",
    )


def before_inlining(tx: Tracer, fn: FunctionValue, args: Args, kwargs: Kwargs) -> Value | None:
    real = fn.real
    if real is None:
        return None
    rule = tx.rule_of(real)
    found: Value | None
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
        return graph_call(tx, "call_function", real, args, kwargs)
    if rule.action is Action.EVALUATE:
        return evaluate_call(tx, real, args, kwargs)
    if rule.action is Action.CONSTANT:
        return call_at_capture(tx, real, args, kwargs)
    python = rule.python
    return tx.call(tx.wrap(python, ConstantSource(python, python.__name__)), args, kwargs)
