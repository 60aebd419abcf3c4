"""Lowering of pointwise primitives, casts and identity copies.

In: operands of one shape. Out: a `Pointwise` node. Invariant: the op's name is the primitive's,
or that of a part of it that has a device function.

Lowering of creation primitives: constants, sequences, random numbers. In: sizes, numbers; a seed
and a counter. Out: `Literal`, `Position` and `Pointwise` nodes. Invariant: constants need no
memory; only seeds are drawn: counter-based numbers are computed where they are used, as
`flambeau_prims.philox` defines them. What dropout draws of eager's generator is drawn in eager's
order, a byte an element.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

import torch
from flambeau_prims.ops.pointwise import POINTWISE

from flambeau_inductor.indexing import Expr, is_open
from flambeau_inductor.ir.loops import Scalar
from flambeau_inductor.ir.tensors import Node, Pointwise, Position, dims_of, dot, flat_strides
from flambeau_inductor.lowering.context import Context, LoweringError
from flambeau_inductor.lowering.graph import is_dense
from flambeau_inductor.lowering.registry import OF_NAMES, ON_CUDA, Lowered, rule, rule_of_tag
from flambeau_inductor.lowering.rules.indexing import single
from flambeau_inductor.lowering.rules.reduction import in_half
from flambeau_inductor.lowering.rules.scatter import narrowed
from flambeau_inductor.runtime.cpu.random import BERNOULLI

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


@rule("full")
def full(
    ctx: Context, shape: Sequence[int], value: Scalar, *, dtype: torch.dtype, device: torch.device
) -> Node:
    return ctx.literal(value, shape, dtype, torch.device(device))


@rule("iota")
def iota(
    ctx: Context,
    length: int,
    start: Scalar,
    step: Scalar,
    *,
    dtype: torch.dtype,
    device: torch.device,
) -> Node:
    """Formed in int64 or float64, then rounded, as the primitive says."""
    device = torch.device(device)
    (d0,) = dims_of(1)
    if not dtype.is_floating_point:
        index = d0 * _whole(step) + _whole(start)
        return ctx.cast(ctx.node((length,), torch.int64, device, Position(index)), dtype)
    if isinstance(start, Expr) or isinstance(step, Expr):
        raise LoweringError("a float sequence from an open size")
    count = ctx.node((length,), torch.float64, device, Position(d0))
    scaled = count if step == 1 else ctx.point("mul", (count, ctx.like(float(step), count)))
    moved = scaled if start == 0 else ctx.point("add", (scaled, ctx.like(float(start), scaled)))
    return ctx.cast(moved, dtype)


def _whole(value: Scalar | Expr) -> int | Expr:
    return value if isinstance(value, Expr) else int(value)


ON_GPU = frozenset(
    {
        ("philox_uniform", torch.float32),
        ("philox_uniform", torch.float16),
        ("philox_uniform", torch.bfloat16),
        ("philox_bits", torch.int32),
    }
)
"""What a kernel of a GPU computes where it is used; the rest is drawn by the primitive itself."""


@rule("seed")
def seed(ctx: Context, *, device: torch.device) -> Lowered:
    target = "flambeau_prims.seed.default"
    return single(ctx.call(target, (), (("device", torch.device(device)),), impure=True))


@rule("philox_uniform", "philox_normal", "philox_bits")
def philox(
    ctx: Context,
    name: str,
    shape: Sequence[int],
    seed: Node,
    offset: int,
    *,
    dtype: torch.dtype,
    device: torch.device,
) -> Lowered:
    place = torch.device(device)
    same = place.type == seed.device.type and place.index in (None, seed.device.index)
    known = (name, dtype) in ON_GPU and _counted(shape, offset)
    if not same or (place.type != "cpu" and not known):
        kwargs = (("dtype", dtype), ("device", place))
        args = (tuple(shape), seed, offset)
        return single(ctx.call(f"flambeau_prims.{name}.default", args, kwargs))
    # a block has the bits of four elements, or of two that are wide
    block = 2 if dtype == torch.int64 else 4
    flat = dot(dims_of(len(shape)), flat_strides(shape), offset * block)
    here = seed.device
    position = ctx.node(shape, torch.int64, here, Position(flat))
    return ctx.node(shape, dtype, here, Pointwise(name, (ctx.view(seed, shape, ()), position)))


def _counted(shape: Sequence[int], offset: int) -> bool:
    """Whether a kernel of a GPU counts so far, which it does in 32 bits."""
    return not is_open(shape) and prod(shape) + 4 * offset < 2**31


@rule("aten.bernoulli.p")
def bernoulli(ctx: Context, x: Node, p: Any = 0.5, *, generator: Any = None) -> Lowered:
    meta = ctx.meta
    known = isinstance(p, float) and 0.0 <= p <= 1.0 and generator is None
    # a processor's library may draw other numbers for float64
    if not known or x.device.type != "cpu" or meta.dtype == torch.float64:
        raise LoweringError("no decomposition")
    if not is_dense(meta.shape, meta.stride):
        raise LoweringError("draws in another order than that of memory")
    args = (tuple(meta.shape), tuple(meta.stride), p)
    mask = single(ctx.call(BERNOULLI, args, impure=True, metas=(replace(meta, dtype=torch.bool),)))
    return ctx.cast(mask, meta.dtype)
