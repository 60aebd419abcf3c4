"""What Python says of an operator that neither side knows.

In: a symbol and two values. Out: the TypeError, raised in the program. Invariant: the words are
Python's own, about objects of the same names that can do nothing; of `a += b` they name `+=`.
"""

from __future__ import annotations

from typing import Any

from flambeau_capture.builtins.operator_tables import IN_PLACE, OPERATORS
from flambeau_capture.values.attributes import name_in_errors
from flambeau_capture.values.base import Tracer, Value
from flambeau_capture.values.constant import Constant, evaluate


def refuse(tx: Tracer, symbol: str, left: Value, right: Value) -> None:
    """Raises, unless two objects that know nothing of the operator answer it (`==`)."""
    fn = OPERATORS[symbol][0] if symbol in OPERATORS else IN_PLACE[symbol][0]
    evaluate(tx, fn, _nameless(left), _nameless(right))


def _nameless(value: Value) -> Any:
    """A constant, or an object of a class of the same name that can do nothing."""
    if isinstance(value, Constant):
        return value.value
    return type(name_in_errors(value.cls), (), {})()
