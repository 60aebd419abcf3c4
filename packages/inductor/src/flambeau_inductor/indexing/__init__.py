"""Index expressions: symbolic integers for addresses."""

from flambeau_inductor.indexing.expr import (
    HIGHEST,
    LOWEST,
    Add,
    Decision,
    Expr,
    FloorDiv,
    IntegerConstant,
    Mod,
    Mul,
    Ranges,
    Size,
    SizeDecisions,
    Symbol,
    Var,
    add,
    as_expr,
    bounds,
    floordiv,
    from_terms,
    is_size,
    known,
    mod,
    mul,
    plain,
    range_of,
    symbols_in,
    terms_of,
)
from flambeau_inductor.indexing.printers import to_c, to_python
from flambeau_inductor.indexing.ranges import simplify
from flambeau_inductor.indexing.symbols import (
    at_least,
    at_most,
    decide_equal,
    decide_less,
    decide_max,
    depends_on_data,
    hint,
    is_long,
    is_open,
    rebuilt,
    same,
    same_sizes,
    static_sizes,
    surely_less,
)

__all__ = [
    "HIGHEST", "LOWEST", "Add", "IntegerConstant", "Decision", "Size", "SizeDecisions", "Expr",
    "FloorDiv", "Mod", "Mul", "Ranges", "Symbol", "Var", "add", "as_expr", "at_least", "at_most",
    "bounds", "decide_equal", "decide_less", "decide_max", "depends_on_data", "floordiv",
    "from_terms", "hint", "is_long", "is_open", "is_size", "known", "mod", "mul", "plain",
    "range_of", "rebuilt", "same", "same_sizes", "simplify", "static_sizes", "surely_less",
    "symbols_in", "terms_of", "to_c", "to_python",
]  # fmt: skip
