"""Printers of index expressions: C and Python.

In: an expression. Out: text with the same value. Invariant: the C form uses `/` and `%` only where
the ranges given prove the dividend non-negative, else the functions `floordiv` and `floormod`,
which the kernel prelude defines (C rounds toward zero).
"""

from __future__ import annotations

from collections.abc import Callable

from flambeau_inductor.indexing.expr import Add, Expr, FloorDiv, IntegerConstant, Mod, Mul, Var
from flambeau_inductor.indexing.ranges import Ranges, bounds

Rename = Callable[[str], str]


def to_c(expr: int | Expr, ranges: Ranges | None = None, rename: Rename | None = None) -> str:
    """C text. Constants beyond 32 bits get an `LL` suffix; `rename` maps variable names."""
    if isinstance(expr, int):
        return _c_int(expr)
    if isinstance(expr, IntegerConstant):
        return _c_int(expr.value)
    if isinstance(expr, Var):
        return rename(expr.name) if rename else expr.name
    if isinstance(expr, Add):
        return "(" + " + ".join(to_c(a, ranges, rename) for a in expr.args) + ")"
    if isinstance(expr, Mul):
        return "*".join(to_c(a, ranges, rename) for a in expr.args)
    if isinstance(expr, FloorDiv | Mod):
        a, b = to_c(expr.a, ranges, rename), to_c(expr.b, ranges, rename)
        b = f"({b})" if isinstance(expr.b, Mul) else b
        if ranges is not None and bounds(expr.a, ranges)[0] >= 0:
            return f"({a} {'/' if isinstance(expr, FloorDiv) else '%'} {b})"
        return f"{'floordiv' if isinstance(expr, FloorDiv) else 'floormod'}({a}, {b})"
    raise TypeError(f"not an index expression: {expr!r}")


def to_python(expr: int | Expr, rename: Rename | None = None) -> str:
    """Python text."""
    if isinstance(expr, int):
        return str(expr)
    if isinstance(expr, IntegerConstant):
        return str(expr.value)
    if isinstance(expr, Var):
        return rename(expr.name) if rename else expr.name
    if isinstance(expr, Add):
        return "(" + " + ".join(to_python(a, rename) for a in expr.args) + ")"
    if isinstance(expr, Mul):
        return "*".join(to_python(a, rename) for a in expr.args)
    if isinstance(expr, FloorDiv | Mod):
        sign = "//" if isinstance(expr, FloorDiv) else "%"
        b = to_python(expr.b, rename)
        b = f"({b})" if isinstance(expr.b, Mul) else b
        return f"({to_python(expr.a, rename)} {sign} {b})"
    raise TypeError(f"not an index expression: {expr!r}")


def _c_int(value: int) -> str:
    return str(value) if -(2**31) < value < 2**31 else f"{value}LL"
