"""Pointwise primitives, casts and the identity copy.

In: operands of one shape. Out: a `Pointwise` node. Invariant: the op's name is the primitive's.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from flambeau_inductor.ir.tensors import Node
from flambeau_inductor.lowering.context import Context, LoweringError
from flambeau_inductor.lowering.registry import rule
from flambeau_inductor.lowering.rules.scan import in_half
from flambeau_inductor.lowering.rules.scatter_add_rows import narrowed

SAME_DTYPE = (
    "abs", "neg", "sign", "ceil", "floor", "round", "trunc", "exp", "exp2", "expm1", "log", "log2",
    "log10", "log1p", "sqrt", "rsqrt", "reciprocal", "sin", "cos", "tan", "asin", "acos", "atan",
    "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "erfinv", "lgamma",
    "digamma", "sigmoid", "bitwise_not", "logical_not",
    "add", "sub", "mul", "div", "trunc_div", "floor_div", "remainder", "fmod", "pow", "atan2",
    "maximum", "minimum", "fmax", "fmin", "copysign", "nextafter", "bitwise_and", "bitwise_or",
    "bitwise_xor", "shift_left", "shift_right", "logical_and", "logical_or", "logical_xor",
    "fma",
)  # fmt: skip
"""Result dtype is the operands'."""

TO_BOOL = ("eq", "ne", "lt", "le", "gt", "ge")
"""Result dtype is bool."""

OF_FLOATS = {"isnan": False, "isinf": False, "isfinite": True}
"""Questions about floating-point numbers, with the answer for all others."""

EXPENSIVE = frozenset(
    {
        "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "sin", "cos",
        "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf",
        "erfc", "erfinv", "lgamma", "digamma", "sigmoid", "pow", "atan2", "nextafter", "div",
        "fmod", "remainder", "floor_div", "trunc_div", "philox_uniform", "philox_normal",
        "philox_bits",
    }
)  # fmt: skip
"""Not worth computing again for each reader of a large tensor."""


@rule(*SAME_DTYPE)
def pointwise(ctx: Context, name: str, *args: Node) -> Node:
    _no_complex(name, args)
    if name == "nextafter" and args[0].dtype.itemsize < 4:
        raise LoweringError("nextafter of half precision steps by another distance than float32's")
    return ctx.point(name, args)


@rule(*OF_FLOATS)
def classification(ctx: Context, name: str, a: Node) -> Node:
    _no_complex(name, (a,))
    if not a.dtype.is_floating_point:
        return ctx.literal(OF_FLOATS[name], a.shape, torch.bool, a.device)
    return ctx.point(name, (a,), torch.bool)


@rule(*TO_BOOL)
def comparison(ctx: Context, name: str, *args: Node) -> Node:
    _no_complex(name, args)
    return ctx.point(name, args, torch.bool)


@rule("where")
def where(ctx: Context, cond: Node, a: Node, b: Node) -> Node:
    _no_complex("where", (a, b))
    return ctx.point("where", (cond, a, b), a.dtype)


@rule("cast")
def cast(ctx: Context, a: Node, *, dtype: torch.dtype) -> Node:
    _no_complex("cast", (a,))
    if dtype.is_complex:
        raise LoweringError("complex numbers have no kernels")
    for in_dtype in (in_half, narrowed):
        if (made := in_dtype(ctx, a, dtype)) is not None:
            return made
    return ctx.point("cast", (a,), dtype)


@rule("clone")
def clone(ctx: Context, a: Node, *, order: Sequence[int] | None = None) -> Node:
    _no_complex("clone", (a,))
    return ctx.point("clone", (a,))


def _no_complex(name: str, args: Sequence[Node]) -> None:
    if any(a.dtype.is_complex for a in args):
        raise LoweringError(f"{name}: complex numbers have no kernels")
