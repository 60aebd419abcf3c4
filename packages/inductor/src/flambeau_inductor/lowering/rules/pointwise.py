"""Lowering of pointwise primitives, casts and identity copies.

In: operands of one shape. Out: a `Pointwise` node. Invariant: the op's name is the primitive's,
or that of a part of it that has a device function.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from flambeau_prims.ops.pointwise import POINTWISE

from flambeau_inductor.ir.tensors import Node
from flambeau_inductor.lowering.context import Context, LoweringError
from flambeau_inductor.lowering.registry import OF_NAMES, ON_CUDA, rule, rule_of_tag
from flambeau_inductor.lowering.rules.reduction import in_half
from flambeau_inductor.lowering.rules.scatter import narrowed

OF_FLOATS = {"isnan": False, "isinf": False, "isfinite": True}
"""Questions about floating-point numbers, with the answer for all others."""

EXPENSIVE = frozenset(
    {"sqrt", "rsqrt", "div", "nextafter", "trigamma", "philox_uniform", "philox_normal"}
    | {"philox_bits"}
)
"""Not worth computing again for each reader of a large tensor, whatever their cost in additions."""


def is_expensive(op: str) -> bool:
    """Whether an operation is not worth computing again for each reader of a large tensor."""
    return op in EXPENSIVE or (op in POINTWISE and POINTWISE[op].cost >= 4)


@rule_of_tag("pointwise")
def pointwise(ctx: Context, name: str, *args: Node) -> Node:
    """A primitive that is declared as a function: its name is the operation's."""
    _no_complex(name, args)
    if name in OF_NAMES:
        raise LoweringError(f"{name}: {OF_NAMES[name]}")
    if name in ON_CUDA and args[0].device.type == "cuda":
        raise LoweringError(f"{name}: {ON_CUDA[name]}")
    if name == "nextafter" and args[0].dtype.itemsize < 4:
        raise LoweringError("nextafter of half precision steps by another distance than float32's")
    return ctx.point(name, args, POINTWISE[name].result)


@rule("fma")
def fma(ctx: Context, *args: Node) -> Node:
    return ctx.point("fma", args)


@rule(*OF_FLOATS)
def classification(ctx: Context, name: str, a: Node) -> Node:
    _no_complex(name, (a,))
    if not a.dtype.is_floating_point:
        return ctx.literal(OF_FLOATS[name], a.shape, torch.bool, a.device)
    return ctx.point(name, (a,), torch.bool)


@rule("signbit")
def signbit(ctx: Context, a: Node) -> Node:
    if a.dtype == torch.bool:
        return ctx.literal(False, a.shape, torch.bool, a.device)
    return ctx.point("signbit", (a,), torch.bool)


@rule("frexp")
def frexp(ctx: Context, a: Node) -> tuple[Node, Node]:
    return ctx.point("frexp_mantissa", (a,)), ctx.point("frexp_exponent", (a,), torch.int32)


@rule("polygamma")
def polygamma(ctx: Context, n: int, a: Node) -> Node:
    """(-1)**(n + 1) n! zeta(n + 1, a) (Abramowitz and Stegun, 6.4.10), as eager has it from the
    second order on; the first has a reflection for what is below 0."""
    if n < 2:
        return ctx.point("trigamma" if n else "digamma", (a,))
    dtype = torch.float64 if a.dtype == torch.float64 else torch.float32
    wide = ctx.cast(a, dtype)
    zeta = ctx.point("zeta", (ctx.like(n + 1.0, wide), wide))
    factorial = float(math.factorial(n)) if n < 171 else math.inf
    factor = ctx.like(math.copysign(factorial, n % 2 - 0.5), wide)
    return ctx.cast(ctx.point("mul", (factor, zeta)), a.dtype)


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
