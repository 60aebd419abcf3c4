"""Operator table, and CPython's errors for unsupported operands.

In: a symbol and values. Out: functions and special methods by symbol; the TypeError, raised in the
program. Invariant: the words are Python's own, about objects of the same names that can do nothing,
or as much as the built-in class that theirs derives from; of `a += b` they name `+=`.
"""

from __future__ import annotations

import collections
import operator
from collections.abc import Callable, Collection
from typing import Any

from flambeau_capture.identity import known_in
from flambeau_capture.values.base import Tracer, Value
from flambeau_capture.values.constant import Constant, evaluate, nameless
from flambeau_capture.values.objects.attributes import layout_of
from flambeau_capture.values.stand_ins import name_in_errors

_ARITHMETIC = {
    "+": "add",
    "-": "sub",
    "*": "mul",
    "/": "truediv",
    "//": "floordiv",
    "%": "mod",
    "**": "pow",
    "@": "matmul",
    "<<": "lshift",
    ">>": "rshift",
    "&": "and",
    "|": "or",
    "^": "xor",
}
#: with the comparison that the other side makes of it
_COMPARISONS = {
    "==": ("eq", "eq"),
    "!=": ("ne", "ne"),
    "<": ("lt", "gt"),
    "<=": ("le", "ge"),
    ">": ("gt", "lt"),
    ">=": ("ge", "le"),
}


def _function(name: str) -> Callable[..., Any]:
    found: Callable[..., Any] = getattr(operator, f"__{name}__")
    return found


# symbol -> (function, special method, reflected special method)
OPERATORS: dict[str, tuple[Callable[..., Any], str, str]] = {
    **{s: (_function(name), f"__{name}__", f"__r{name}__") for s, name in _ARITHMETIC.items()},
    **{s: (_function(n), f"__{n}__", f"__{back}__") for s, (n, back) in _COMPARISONS.items()},
    "getitem": (operator.getitem, "__getitem__", ""),
}
IN_PLACE: dict[str, tuple[Callable[..., Any], str]] = {
    f"{symbol}=": (_function(f"i{name}"), f"__i{name}__") for symbol, name in _ARITHMETIC.items()
}

COMPARISONS = frozenset(_COMPARISONS)

UNARY: dict[str, tuple[Callable[..., Any], str]] = {
    "-": (operator.neg, "__neg__"),
    "+": (operator.pos, "__pos__"),
    "~": (operator.invert, "__invert__"),
    "abs": (abs, "__abs__"),
}


SEQUENCES = frozenset({list, tuple, collections.deque})  # which refuse in words of their own


def declined(answer: Value) -> bool:
    """Whether a special method leaves it to the other side."""
    return isinstance(answer, Constant) and answer.value is NotImplemented


def refuse(tx: Tracer, symbol: str, left: Value, right: Value) -> None:
    """Raises, unless two objects that know nothing of the operator answer it (`==`)."""
    in_place = symbol not in OPERATORS
    fn = IN_PLACE[symbol][0] if in_place else OPERATORS[symbol][0]
    names = {*OPERATORS[symbol[:-1] if in_place else symbol][1:], *IN_PLACE.get(symbol, ())[1:]}
    of_built_ins(tx, fn, names, left, right)


def of_built_ins(tx: Tracer, fn: Callable[..., Any], names: Collection[str], *values: Value) -> Any:
    """What comes of objects whose own methods of these names leave it to others."""
    return evaluate(tx, fn, *(_refusing(tx, value, names) for value in values))


def _refusing(tx: Tracer, value: Value, names: Collection[str]) -> Any:
    """What stands for a value that leaves all to the other side, by those methods that it has."""
    payload: Value | None = getattr(value, "payload", None)
    if payload is None:
        return value.cls() if known_in(value.cls, SEQUENCES) else nameless(value)
    body = {name: lambda self, other: NotImplemented for name in names if value.special(tx, name)}
    kind = type(name_in_errors(value.cls), (layout_of(value.cls),), body)
    return kind(payload.value) if isinstance(payload, Constant) else kind()
