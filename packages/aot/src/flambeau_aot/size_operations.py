"""Symbolic operations: what expressions over sizes are made of.

In: the name that sympy or torch has for a class of expressions. Out: what it computes, what a node
of a graph calls for it, how Python spells it. Invariant: plain Python, so that conditions on sizes
can be checked without torch and without sympy.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from typing import Any


@dataclass(frozen=True, slots=True)
class SizeOperation:
    """One operation.

    compute: exact, of two numbers (of one where `unary`); of more, from the left. sign: between
    operands; or, a name of letters, before them. in_graphs: whether nodes may compute it, which
    conditions and what is spelled otherwise are not by any.
    """

    compute: Callable[..., Any]
    sign: str
    in_graphs: bool = True
    unary: bool = False

    def of(self, parts: Sequence[Any]) -> Any:
        """The number that it is of these."""
        return self.compute(*parts) if self.unary else reduce(self.compute, parts)

    @property
    def takes_arguments(self) -> bool:
        """Whether Python spells it as a call."""
        return self.unary or self.compute in (max, min)

    def text(self, parts: Sequence[str]) -> str:
        """Python, of operands that need no parentheses."""
        if self.takes_arguments:
            return f"{self.sign}({', '.join(parts)})"
        return f" {self.sign} ".join(parts)


def _power(base: Any, exponent: Any) -> Any:
    if isinstance(base, int) and isinstance(exponent, int) and exponent < 0:
        return Fraction(1, base**-exponent)
    return base**exponent


OPERATIONS: Mapping[str, SizeOperation] = {
    "Add": SizeOperation(operator.add, "+"),
    "Mul": SizeOperation(operator.mul, "*"),
    "FloorDiv": SizeOperation(operator.floordiv, "//"),
    "CleanDiv": SizeOperation(operator.floordiv, "//"),
    "Mod": SizeOperation(operator.mod, "%"),
    "PythonMod": SizeOperation(operator.mod, "%"),
    "Max": SizeOperation(max, "max"),
    "Min": SizeOperation(min, "min"),
    "FloatTrueDiv": SizeOperation(operator.truediv, "/"),
    "IntTrueDiv": SizeOperation(operator.truediv, "/"),
    "FloatPow": SizeOperation(operator.pow, "**"),
    "PowByNatural": SizeOperation(operator.pow, "**"),
    "Pow": SizeOperation(_power, "**", in_graphs=False),
    "Rational": SizeOperation(Fraction, "/", in_graphs=False),
    "Equality": SizeOperation(operator.eq, "=="),
    "Unequality": SizeOperation(operator.ne, "!="),
    "StrictLessThan": SizeOperation(operator.lt, "<"),
    "LessThan": SizeOperation(operator.le, "<="),
    "StrictGreaterThan": SizeOperation(operator.gt, ">"),
    "GreaterThan": SizeOperation(operator.ge, ">="),
    "And": SizeOperation(lambda a, b: a and b, "and", in_graphs=False),
    "Or": SizeOperation(lambda a, b: a or b, "or", in_graphs=False),
    "Not": SizeOperation(operator.not_, "not ", in_graphs=False, unary=True),
    "ToFloat": SizeOperation(float, "float", unary=True),
}
"""By the name of the class of expressions: the one table of this package."""
