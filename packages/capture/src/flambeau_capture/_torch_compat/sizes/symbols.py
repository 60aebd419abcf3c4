"""Backed and unbacked symbols: sizes and numbers left dynamic.

In: a fake mode, tensors and numbers. Out: symbols, and what was assumed of them. Invariant: all of
torch's is imported at first use; the shape environment brings sympy with it. Tried on torch 2.11,
2.13 and 2.14.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from weakref import WeakMethod

import torch

from flambeau_capture._torch_compat.sizes.shape_environments import (
    NUMBERS,
    data_symbols,
    shape_environment,
    source_class,
    sympy_of_torch,
)


def to_symbolic_fake(
    mode: Any, tensor: torch.Tensor, dims: Any, strides: frozenset[int] = frozenset()
) -> torch.Tensor:
    """A fake tensor whose sizes in `dims` (a mapping to bounds) are symbols: from 2 on, or from 1
    where a bound says so. strides: dimensions whose strides are symbols of their own."""
    from torch.fx.experimental import symbolic_shapes

    environment = shape_environment(mode)
    kinds = symbolic_shapes.DimDynamic
    rank = tensor.dim()
    context: Any = symbolic_shapes.StatelessSymbolicContext(
        dynamic_sizes=[kinds.DYNAMIC if i in dims else kinds.STATIC for i in range(rank)],
        dynamic_strides=[
            kinds.DYNAMIC if i in strides else kinds.INFER_STRIDE for i in range(rank)
        ],
        constraint_sizes=[None] * rank,
    )
    environment.from_one = any(least == 1 for least, _ in dims.values())
    fake: torch.Tensor = mode.from_tensor(tensor, static_shapes=False, symbolic_context=context)
    environment.from_one = False
    for dim, (least, most) in dims.items():
        size = fake.shape[dim]
        now = tensor.size(dim)
        within = (now if least is None else least) <= now <= (now if most is None else most)
        if isinstance(size, torch.SymInt) and within and (least, most) != (None, None):
            symbolic_shapes.constrain_range(size, min=least, max=most)
    return fake


def strides_of_their_own(tensor: torch.Tensor) -> set[int]:
    """The dimensions of a fake tensor whose open strides are no size times a stride."""
    spans: list[Any] = [size * stride for size, stride in zip(tensor.shape, tensor.stride())]
    known = {span.node.expr for span in spans if isinstance(span, torch.SymInt)}
    return {
        dim
        for dim, stride in enumerate(tensor.stride())
        if isinstance(stride, torch.SymInt) and stride.node.expr not in known
    }


def symbolic_number(mode: Any, value: int | float, name: str) -> Any:
    """A symbol for an integer or a float."""
    from torch.fx.experimental.symbolic_shapes import DimDynamic

    environment = shape_environment(mode)
    source = source_class()(name)
    symbol = environment.create_unspecified_symbol(
        value, source=source, dynamic_dim=DimDynamic.DYNAMIC
    )
    is_float = isinstance(value, float)
    make = environment.create_symfloatnode if is_float else environment.create_symintnode
    return make(symbol, hint=value, source=source)


def is_negated(number: Any) -> bool:
    """Whether a number is written as the negative of another."""
    return bool(number.node.expr.as_coeff_Mul()[0].is_negative)


def is_extreme(number: Any) -> bool:
    """Whether a number is written as the larger or the smaller of others."""
    return isinstance(number, NUMBERS) and type(number.node.expr).__name__ in ("Max", "Min")


def symbolic_condition(mode: Any, expression: Any) -> Any:
    """A condition for an expression."""
    from torch.fx.experimental.sym_node import SymNode

    return torch.SymBool(SymNode(expression, mode.shape_env, bool, None))


def assert_operator() -> Any:
    """What raises in a graph where a condition on numbers does not hold."""
    return torch.ops.aten._assert_scalar.default


def symbolic_integer(mode: Any, symbol: Any, value: int | None) -> Any:
    """The integer that a symbol of a size is; None: it depends on data."""
    return mode.shape_env.create_symintnode(symbol, hint=value)


def number_of(mode: Any, expr: Any) -> Any:
    """A number for an expression, a plain one for a constant; it depends on data else."""
    if expr.is_number:
        return int(expr) if expr.is_Integer else float(expr)
    if expr.is_integer:
        return symbolic_integer(mode, expr, None)
    return mode.shape_env.create_symfloatnode(expr, hint=None)


def expression(number: Any) -> Any:
    """The symbolic expression that a number was made as."""
    return number.node._expr


def decided(number: Any) -> Any:
    """That expression by all that has been assumed since; an int where one number is left."""
    known = number.node.expr
    return int(known) if known.is_number else known


def hint(number: Any) -> Any:
    """The value that a symbolic number has in this capture; None: it depends on data, which a size
    that was found to be equal to one that does not no longer does."""
    known = number.node.hint
    if known is None and isinstance(number, torch.SymInt) and not data_symbols(number):
        return value_of(number.node.shape_env, number.node.expr)
    return known


def value_of(environment: Any, expr: Any) -> int:
    """The value in this capture of an expression of sizes none of which depends on data."""
    known = getattr(environment, "guarding_hint_or_throw", environment.size_hint)
    return int(known(expr))


def is_decided(mode: Any, symbol: Any) -> bool:
    """Whether a symbol has been assumed to be the number that it is now."""
    return bool(mode.shape_env.replace(symbol).is_number)


def note_constants(mode: Any, line: WeakMethod[Callable[[], Any]]) -> None:
    """Note from here on where the program is when a symbol becomes a constant."""

    def now() -> Any:
        found = line()
        return None if found is None else found()

    shape_environment(mode).line = now


def made_constant(mode: Any, symbol: Any) -> Any:
    """Where the program was when a symbol became a constant; None: that was not in its code."""
    return mode.shape_env.made_constants.get(symbol)


def count_of_decisions(mode: Any) -> int:
    """A number that grows with whatever is assumed of the symbols of a fake mode."""
    known = mode.shape_env
    return 0 if known is None else len(known.guards) + len(known.replacements)


@dataclass(frozen=True)
class ShapeConditions:
    """What an environment has assumed: conditions, symbols that equal expressions, and ranges."""

    guards: tuple[Any, ...]
    equal: tuple[tuple[Any, Any], ...]
    ranges: tuple[tuple[Any, int | None, int | None], ...]


def shape_conditions(mode: Any) -> ShapeConditions:
    """The assumptions of a fake mode's environment."""
    known = mode.shape_env
    guards = tuple(guard.expr for guard in known.guards)
    ranges = [(s, _bound(r.lower), _bound(r.upper)) for s, r in known.var_to_range.items()]
    # what is assumed of unbacked symbols the graph checks
    equal = [pair for pair in known.replacements.items() if not data_symbols(*pair)]
    return ShapeConditions(guards, tuple(equal), tuple(ranges))


def _bound(number: Any) -> int | None:
    return int(number) if number.is_Integer else None


def same(one: Any, other: Any) -> Any:
    """The condition that two symbolic expressions are equal."""
    return sympy_of_torch().Eq(one, other)


def symbol(name: str) -> Any:
    """A symbol to show in a condition."""
    return sympy_of_torch().Symbol(name)
