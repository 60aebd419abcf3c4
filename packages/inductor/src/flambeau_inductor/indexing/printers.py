"""Printers of index expressions: C and Python.

In: an expression. Out: text with the same value. Invariant: the C form uses `/` and `%` only where
the ranges given prove the dividend non-negative and the divisor positive, else the functions
`floordiv` and `floormod`, which the kernel prelude defines (C rounds toward zero). A size by data
that divides may be 0, where nothing is left to compute: the text gives a number then, as for 1.
"""

from __future__ import annotations

from collections.abc import Callable

from flambeau_inductor.indexing.expr import (
    Add,
    Division,
    Expr,
    FloorDiv,
    IntegerConstant,
    Mul,
    Ranges,
    Var,
    bounds,
)

Rename = Callable[[str], str]


def to_c(expr: int | Expr, ranges: Ranges | None = None, rename: Rename | None = None) -> str:
    """C text. Constants beyond 32 bits get an `LL` suffix; `rename` maps variable names."""

    def divided(whole: Division, a: str, b: str) -> str:
        if ranges is not None and bounds(whole.a, ranges)[0] >= 0 and _is_positive(whole.b, ranges):
            return f"({a} {'/' if isinstance(whole, FloorDiv) else '%'} {b})"
        return f"{'floordiv' if isinstance(whole, FloorDiv) else 'floormod'}({a}, {b})"

    def integer(value: int) -> str:
        return str(value) if -(2**31) < value < 2**31 else f"{value}LL"

    return _printed(expr, rename, integer, divided)


def to_python(expr: int | Expr, rename: Rename | None = None) -> str:
    """Python text."""

    def divided(whole: Division, a: str, b: str) -> str:
        return f"({a} {whole.sign} {b if _is_positive(whole.b, {}) else f'({b} or 1)'})"

    return _printed(expr, rename, str, divided)


def _is_positive(expr: Expr, ranges: Ranges) -> bool:
    return bounds(expr, ranges)[0] > 0


def _printed(
    expr: int | Expr,
    rename: Rename | None,
    integer: Callable[[int], str],
    divided: Callable[[Division, str, str], str],
) -> str:
    def text(part: Expr) -> str:
        return _printed(part, rename, integer, divided)

    if isinstance(expr, int | IntegerConstant):
        return integer(expr if isinstance(expr, int) else expr.value)
    if isinstance(expr, Var):
        return rename(expr.name) if rename else expr.name
    if isinstance(expr, Add):
        return f"({' + '.join(map(text, expr.args))})"
    if isinstance(expr, Mul):
        return "*".join(map(text, expr.args))
    if isinstance(expr, Division):
        b = text(expr.b)
        return divided(expr, text(expr.a), f"({b})" if isinstance(expr.b, Mul) else b)
    raise TypeError(f"not an index expression: {expr!r}")
