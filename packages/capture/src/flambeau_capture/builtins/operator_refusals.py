"""CPython's errors for unsupported operands.

In: a symbol and two values. Out: the TypeError, raised in the program. Invariant: the words are
Python's own, about objects of the same names that can do nothing, or as much as the built-in class
that theirs derives from; of `a += b` they name `+=`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from flambeau_capture.builtins.operator_tables import IN_PLACE, OPERATORS
from flambeau_capture.values import stand_ins
from flambeau_capture.values.base import Tracer, Value
from flambeau_capture.values.constant import Constant, evaluate
from flambeau_capture.values.objects.attributes import layout_of


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
        return stand_ins.nameless(value)
    body = {name: lambda self, other: NotImplemented for name in names if value.special(tx, name)}
    kind = type(stand_ins.name_in_errors(value.cls), (layout_of(value.cls),), body)
    return kind(payload.value) if isinstance(payload, Constant) else kind()
