"""Symbolic integers for addresses: expressions, ranges, printers."""

from flambeau_inductor.indexing.expr import (
    Add,
    Const,
    Expr,
    FloorDiv,
    Mod,
    Mul,
    Var,
    add,
    as_expr,
    floordiv,
    from_terms,
    mod,
    mul,
    terms_of,
)
from flambeau_inductor.indexing.printers import to_c, to_python
from flambeau_inductor.indexing.ranges import HIGHEST, LOWEST, Ranges, bounds, simplify

__all__ = [
    "HIGHEST",
    "LOWEST",
    "Add",
    "Const",
    "Expr",
    "FloorDiv",
    "Mod",
    "Mul",
    "Ranges",
    "Var",
    "add",
    "as_expr",
    "bounds",
    "floordiv",
    "from_terms",
    "mod",
    "mul",
    "simplify",
    "terms_of",
    "to_c",
    "to_python",
]
