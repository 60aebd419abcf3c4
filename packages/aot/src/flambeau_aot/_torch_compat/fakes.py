"""Fake tensors, and symbolic sizes and numbers.

In: a fake mode, symbolic numbers, sympy expressions. Out: fake tensors, operators run on them, the
errors of those that cannot be; numbers for expressions and the other way round.
Invariant: no memory is touched, and nothing is assumed of a size by reading its value.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException

DATA_DEPENDENT_ERRORS: tuple[type[Exception], ...] = (
    DataDependentOutputException,
    DynamicOutputShapeException,
)


def expression_of(number: Any) -> Any:
    """The sympy expression of a symbolic number, with what its environment has learnt since."""
    return number.node.expr


def environment_of(number: Any) -> Any:
    """The shape environment that a symbolic number belongs to."""
    return number.node.shape_env


def data_symbols(numbers: Iterable[Any], known: bool = False) -> set[Any]:
    """The unbacked symbols of symbolic numbers: those that depend on the data of tensors. known:
    also those of which a value is known by now, which the graph checks."""
    found: set[Any] = set()
    for number in numbers:
        expression = number.node._expr if known else expression_of(number)
        if expression.free_symbols:
            from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

            found |= free_unbacked_symbols(expression)
    return found


def assume(condition: Any) -> None:
    """Take a condition on sizes that depend on data for true: it is checked in the graph."""
    from torch.fx.experimental.symbolic_shapes import expect_true

    expect_true(condition)


def symbolic_integer(expression: Any, like: torch.SymInt) -> Any:
    """A symbolic integer for an expression over the symbols of `like`'s environment."""
    environment = environment_of(like)
    known = expression.xreplace(values_of(environment))
    hint = int(known) if known.is_Integer else None
    return environment.create_symintnode(expression, hint=hint)


def symbolic_number(expression: Any, like: Any) -> Any:
    """A symbolic number, an integer where the expression is one, of `like`'s environment."""
    if expression.is_integer:
        return symbolic_integer(expression, like)
    environment = environment_of(like)
    known = expression.xreplace(values_of(environment))
    hint = float(known) if known.is_number else None
    return environment.create_symfloatnode(expression, hint=hint)


def hint(number: Any) -> int:
    """The value of a size in this compile, for estimates: nothing is assumed by asking."""
    if isinstance(number, torch.SymInt):
        known = number.node.hint
        return 0 if known is None else int(known)
    return int(number)


def in_general(number: Any) -> int:
    """A number for an estimate, in which sizes that depend on data are large."""
    if not isinstance(number, torch.SymInt):
        return int(number)
    known = values_of(environment_of(number))
    expression = expression_of(number)
    large = {symbol: known.get(symbol, _LARGE) for symbol in expression.free_symbols}
    return int(expression.xreplace(large))


_LARGE = 1 << 16


def values_of(environment: Any) -> Any:
    """The values of symbols in this compile; 2.13 has another name for them than 2.11."""
    name = "backed_var_to_val" if hasattr(environment, "backed_var_to_val") else "var_to_val"
    return getattr(environment, name)
