"""Comparisons of open sizes, and the guards recorded on them.

In: expressions over `Symbol`s. Out: answers to comparisons. Invariant: an answer that does not
follow from the ranges is that of the sizes of this compile and is noted, so that whoever runs the
program can check it first; `hint` notes nothing and is for estimates alone.

A symbol is a variable with a range and the value it has now. `==` says whether two sizes are known
to be equal; it notes nothing, and no size is `<` another: `decide_equal` and `decide_less` decide.
Loop variables have no value and cannot be compared. A symbol that depends on data is answered for
as a size in general, which is neither 0 nor 1 nor equal to another, and nothing is noted of it:
what is computed must hold for all sizes. Its hint is an estimate.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from typing import Any, TypeVar

from flambeau_inductor.indexing.expr import (
    LARGEST,
    Add,
    Decision,
    Expr,
    FloorDiv,
    IntegerConstant,
    Mod,
    Mul,
    Size,
    Symbol,
    Var,
    as_expr,
    factors,
    is_size,
    known,
    plain,
    summands,
    symbols_in,
)


def hint(size: Size) -> int:
    """The value that a size has in this compile."""
    if isinstance(size, int):
        return size
    value = size.substitute({symbol.name: symbol.hint for symbol in symbols_in(size)})
    if not isinstance(value, IntegerConstant):
        raise TypeError(f"{size} is no size: it has loop variables")
    return value.value


def static_sizes(sizes: Iterable[Size]) -> tuple[int, ...] | None:
    """The sizes as numbers; None where one is open."""
    given = tuple(sizes)
    found = tuple(size for size in given if isinstance(size, int))
    return found if len(found) == len(given) else None


def is_open(sizes: Iterable[Size]) -> bool:
    """Whether one of the sizes is no number."""
    return static_sizes(map(plain, sizes)) is None


def same(a: Size, b: Size) -> bool:
    """Whether two sizes are equal whatever the open ones are."""
    return a == b if isinstance(a, int) and isinstance(b, int) else known("eq", a, b) is True


def same_sizes(a: Sequence[Size], b: Sequence[Size]) -> bool:
    """Whether two shapes, or two lists of strides, are equal whatever the open sizes are."""
    return len(a) == len(b) and all(map(same, a, b))


def decide_equal(a: Size, b: Size) -> bool:
    """Whether two sizes are equal; noted where it depends on the open ones."""
    return a == b if isinstance(a, int) and isinstance(b, int) else _decided("eq", a, b)


def decide_less(a: Size, b: Size) -> bool:
    """Whether `a` is less than `b`; noted where it depends on the open sizes."""
    return a < b if isinstance(a, int) and isinstance(b, int) else _decided("lt", a, b)


def decide_max(a: Size, b: Size) -> Size:
    """The larger of two sizes; noted where it depends on the open ones."""
    return b if decide_less(a, b) else a


def _decided(relation: str, a: Size, b: Size) -> bool:
    if (sure := known(relation, a, b)) is not None:
        return sure
    gap = as_expr(a) - b
    if not is_size(gap):
        raise TypeError(f"{a} and {b} cannot be compared: a loop variable has no value")
    if any(symbol.by_data for symbol in symbols_in(gap)):
        return _in_general(relation, gap)
    value = hint(gap)
    truth = value < 0 if relation == "lt" else value == 0
    symbols_in(gap)[0].decisions.setdefault(Decision(relation, gap, truth))
    return truth


def _in_general(relation: str, gap: Expr) -> bool:
    """The answer for sizes in general; NotYetSymbolic where there is none."""
    if relation == "eq":
        return False
    large = {
        s.name: Symbol(s.name, s.hint, {}, 2, s.high)
        for s in symbols_in(gap)
        if s.by_data and -LARGEST < s.low < 2 <= s.high
    }
    sure = known(relation, gap.substitute(large), 0)
    if sure is None:
        # what runs compiled graphs imports this module, and starts without the primitives
        from flambeau_prims import NotYetSymbolic

        raise NotYetSymbolic(f"whether {gap}, which depends on data, is negative")
    return sure


def is_long(size: Size) -> bool:
    """Whether a dimension has more than one element; noted where it depends on the open sizes. One
    that depends on data has, in general."""
    if depends_on_data((size,)):
        return known("lt", 1, size) is not False
    return decide_less(1, size)


def at_least(size: Size, least: int) -> Size:
    """A size, or the least that it counts as; noted where it depends on the open sizes. One that
    depends on data is more, in general."""
    if depends_on_data((size,)):
        return least if known("lt", size, least) else size
    return decide_max(size, least)


def surely_less(a: Size, b: Size) -> bool:
    """Whether `a` is less than `b`; noted where it depends on the open sizes, and not for sure
    where it depends on data."""
    if depends_on_data((a, b)):
        return known("lt", a, b) is True
    return decide_less(a, b)


def depends_on_data(sizes: Iterable[Size]) -> bool:
    """Whether a symbol of these is known only once something has been computed."""
    return any(symbol.by_data for size in sizes for symbol in symbols_in(size))


Number = TypeVar("Number")


def rebuilt(expr: Expr, leaf: Callable[[Var], Number], whole: Callable[[int], Number]) -> Number:
    """The expression computed anew: variables by `leaf`, constants by `whole`, the rest by the
    operators of what these return."""
    if isinstance(expr, IntegerConstant):
        return whole(expr.value)
    if isinstance(expr, Var):
        return leaf(expr)
    for kind, operation in OPERATORS.items():
        if isinstance(expr, kind):
            return reduce(operation, [rebuilt(arg, leaf, whole) for arg in expr.args])
    raise TypeError(f"not an index expression: {expr!r}")


OPERATORS: Mapping[type, Callable[[Any, Any], Any]] = {
    Add: operator.add,
    Mul: operator.mul,
    FloorDiv: operator.floordiv,
    Mod: operator.mod,
}


def at_most(expr: Expr, highest: Mapping[str, Size]) -> Expr | None:
    """The largest value of a sum of non-negative multiples of variables, as an expression of
    symbols: `highest` is the largest value of each variable; None where it is not such a sum."""
    total: Expr = IntegerConstant(0)
    for part in summands(expr):
        most: Expr = IntegerConstant(1)
        for factor in factors(part):
            if isinstance(factor, IntegerConstant):
                if factor.value < 0 and not is_size(part):
                    return None
                most = most * factor
            elif isinstance(factor, Symbol):
                most = most * factor
            elif isinstance(factor, Var) and factor.name in highest:
                most = most * highest[factor.name]
            elif isinstance(factor, Mod):
                most = most * (factor.b - 1)
            else:
                return None
        total = total + most
    return total
