"""Lowering of creation primitives: constants, sequences, random numbers.

In: sizes, numbers; a seed and a counter. Out: `Literal`, `Position` and `Pointwise` nodes.
Invariant: constants need no memory; only seeds are drawn: counter-based numbers are computed where
they are used, as `flambeau_prims.philox` defines them. What dropout draws of eager's generator is
drawn in eager's order, a byte an element.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

import torch

from flambeau_inductor.indexing import Expr, is_open
from flambeau_inductor.ir.loops import Scalar
from flambeau_inductor.ir.tensors import Node, Pointwise, Position, dims_of, dot, flat_strides
from flambeau_inductor.lowering.context import Context, LoweringError
from flambeau_inductor.lowering.graph import is_dense
from flambeau_inductor.lowering.registry import Lowered, rule
from flambeau_inductor.lowering.rules.indexing import single
from flambeau_inductor.runtime.cpu.random import BERNOULLI


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
