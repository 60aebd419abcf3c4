"""Conditions on open sizes as plain data.

In: trees of JSON's kinds over numbered symbols. Out: their values, and their text. Invariant: a
tree is data, evaluated exactly and by this module's table alone: neither sympy nor torch is needed
to check one.

A tree is an int, `["s", k]` (symbol k), `["float", text]`, or a list of an operation's name and its
operands.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import reduce
from typing import Any

Tree = Any
Number = int | float | Fraction


class UnknownOperation(ValueError):
    """A tree that this version has no meaning for, with the operation's name."""


def _power(base: Number, exponent: Number) -> Number:
    if isinstance(base, int) and isinstance(exponent, int) and exponent < 0:
        return Fraction(1, base**-exponent)
    found: Number = base**exponent
    return found


def _divided(one: Number, other: Number) -> float:
    return float(one) / float(other)


OPERATIONS: Mapping[str, tuple[Callable[..., Any], str]] = {
    "Add": (lambda *parts: sum(parts), " + "),
    "Mul": (lambda *parts: math.prod(parts), "*"),
    "Pow": (_power, "**"),
    "PowByNatural": (_power, "**"),
    "FloatPow": (lambda a, b: float(a) ** float(b), "**"),
    "FloorDiv": (operator.floordiv, "//"),
    "CleanDiv": (operator.floordiv, "//"),
    "IntTrueDiv": (_divided, "/"),
    "FloatTrueDiv": (_divided, "/"),
    "Mod": (operator.mod, " % "),
    "PythonMod": (operator.mod, " % "),
    "Rational": (Fraction, "/"),
    "Equality": (operator.eq, " == "),
    "Unequality": (operator.ne, " != "),
    "StrictLessThan": (operator.lt, " < "),
    "LessThan": (operator.le, " <= "),
    "StrictGreaterThan": (operator.gt, " > "),
    "GreaterThan": (operator.ge, " >= "),
    "And": (lambda *parts: all(parts), " and "),
    "Or": (lambda *parts: any(parts), " or "),
    "Max": (max, "max"),
    "Min": (min, "min"),
    "Not": (operator.not_, "not "),
    "ToFloat": (float, "float"),
}
"""By the name that sympy or torch has for an operation: what it computes, and how it is written."""

WRITTEN_AS_CALLS = frozenset({"Max", "Min", "Not", "ToFloat"})


def evaluated(tree: Tree, values: Sequence[int | float]) -> Any:
    """What a tree comes to where symbol k is `values[k]`. Raises UnknownOperation."""
    if isinstance(tree, int):
        return tree
    name, *parts = tree
    if name == "s":
        return values[parts[0]]
    if name == "float":
        return float(parts[0])
    if name not in OPERATIONS:
        raise UnknownOperation(f"a condition on sizes has the operation {name!r}")
    return OPERATIONS[name][0](*(evaluated(part, values) for part in parts))


def holds(tree: Tree, values: Sequence[int | float]) -> bool:
    """Whether a condition holds; one that has no value (a division by zero) does not."""
    try:
        return bool(evaluated(tree, values))
    except ArithmeticError:
        return False


def first_broken(trees: Sequence[Tree], values: Sequence[int | float]) -> Tree | None:
    """The first condition that does not hold."""
    return next((tree for tree in trees if not holds(tree, values)), None)


def written(tree: Tree, names: Sequence[str]) -> str:
    """A tree as Python, symbol k by `names[k]`."""
    if isinstance(tree, int):
        return str(tree)
    name, *parts = tree
    if name == "s":
        return str(names[parts[0]])
    if name == "float":
        return str(parts[0])
    if name not in OPERATIONS:
        raise UnknownOperation(f"a condition on sizes has the operation {name!r}")
    texts: list[str] = [written(part, names) for part in parts]
    sign: str = OPERATIONS[name][1]
    if name in WRITTEN_AS_CALLS:
        return f"{sign.strip()}({', '.join(texts)})"
    operands = [
        f"({text})" if isinstance(part, list) and part[0] not in ("s", "float") else text
        for part, text in zip(parts, texts, strict=True)
    ]
    return sign.join(operands)


def symbols_in(tree: Tree) -> frozenset[int]:
    """The symbols that a tree mentions."""
    if isinstance(tree, int) or tree[0] == "float":
        return frozenset()
    if tree[0] == "s":
        return frozenset((int(tree[1]),))
    return reduce(frozenset.union, map(symbols_in, tree[1:]), frozenset())
