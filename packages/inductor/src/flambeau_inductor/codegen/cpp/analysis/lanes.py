"""Lane strides: how an address moves along the vector axis.

In: an index expression, the vectorised variable and the number of lanes. Out: the step between
neighbouring lanes, or None. Invariant: the answer holds for every block of lanes that starts at a
multiple of the lane count.
"""

from __future__ import annotations

from flambeau_inductor.indexing import Add, Expr, FloorDiv, IntegerConstant, Mod, Mul, Var, terms_of


def lane_step(expr: Expr, var: str, width: int) -> int | None:
    """Step of `expr` when `var` moves by one inside a block; None when it is not constant."""
    if var not in expr.vars:
        return 0
    if isinstance(expr, Var):
        return 1
    if isinstance(expr, Add):
        total = 0
        for arg in expr.args:
            step = lane_step(arg, var, width)
            if step is None:
                return None
            total += step
        return total
    if isinstance(expr, Mul) and isinstance(expr.args[0], IntegerConstant) and len(expr.args) == 2:
        step = lane_step(expr.args[1], var, width)
        return None if step is None else step * expr.args[0].value
    if isinstance(expr, FloorDiv | Mod) and isinstance(expr.b, IntegerConstant):
        step = lane_step(expr.a, var, width)
        if step == 0:
            return 0
        if step is None or step < 0:
            return None
        reach = step * width
        if expr.b.value % reach == 0 and _divisible(expr.a, var, width, reach):
            return 0 if isinstance(expr, FloorDiv) else step
    return None


def whole_blocks(expr: Expr, var: str, width: int) -> bool:
    """Whether a block of lanes lies on one side of zero: `expr < 0` is the same for all of them."""
    return lane_step(expr, var, width) == 1 and _divisible(expr, var, width, width)


def _divisible(expr: Expr, var: str, width: int, by: int) -> bool:
    """Whether `expr` is a multiple of `by` at the first lane of every block."""
    terms, constant = terms_of(expr)
    if constant % by:
        return False
    return all(
        (c * (width if isinstance(t, Var) and t.name == var else 1)) % by == 0
        for t, c in terms.items()
    )
