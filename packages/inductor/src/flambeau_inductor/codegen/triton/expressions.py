"""Index expressions as Triton source.

In: an `Expr` and the source text of each of its variables. Out: one Triton expression.
Invariant: the text means the same integer; every index is non-negative where it is used, so
truncating and flooring division agree.
"""

from __future__ import annotations

from collections.abc import Mapping

from flambeau_inductor.indexing import Add, Expr, FloorDiv, IntegerConstant, Mod, Mul, Var


def to_triton(expr: Expr, names: Mapping[str, str]) -> str:
    """Source of `expr`, with each variable written as `names` says."""
    if isinstance(expr, IntegerConstant):
        return str(expr.value)
    if isinstance(expr, Var):
        return names[expr.name]
    if isinstance(expr, Add):
        return " + ".join(_factor(arg, names) for arg in expr.args)
    if isinstance(expr, Mul):
        return " * ".join(_factor(arg, names) for arg in expr.args)
    if isinstance(expr, FloorDiv):
        return f"{_factor(expr.a, names)} // {_factor(expr.b, names)}"
    if isinstance(expr, Mod):
        return f"{_factor(expr.a, names)} % {_factor(expr.b, names)}"
    raise TypeError(f"no Triton spelling for the index expression {expr!r}")


def _factor(expr: Expr, names: Mapping[str, str]) -> str:
    text = to_triton(expr, names)
    return text if isinstance(expr, IntegerConstant | Var) else f"({text})"
