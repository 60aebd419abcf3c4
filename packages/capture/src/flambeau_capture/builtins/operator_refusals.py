"""What Python says of an operator that neither side knows.

In: a symbol and two values. Out: the TypeError, raised in the program. Invariant: the words are
Python's own, about objects of the same names that can do nothing; of `a += b` they name `+=`.
"""

from __future__ import annotations

from flambeau_capture.builtins.operator_tables import IN_PLACE, OPERATORS
from flambeau_capture.values import stand_ins
from flambeau_capture.values.base import Tracer, Value


def refuse(tx: Tracer, symbol: str, left: Value, right: Value) -> None:
    """Raises, unless two objects that know nothing of the operator answer it (`==`)."""
    fn = OPERATORS[symbol][0] if symbol in OPERATORS else IN_PLACE[symbol][0]
    stand_ins.refuse(tx, fn, left, right)
