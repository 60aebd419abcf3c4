"""Lowering of creation primitives.

In: sizes and numbers. Out: `Literal` and `Position` nodes. Invariant: nothing here needs memory.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from flambeau_inductor.indexing import Expr
from flambeau_inductor.ir.loops import Scalar
from flambeau_inductor.ir.tensors import Node, Position, dims_of
from flambeau_inductor.lowering.context import Context, LoweringError
from flambeau_inductor.lowering.registry import rule


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
        whole = ctx.node((length,), torch.int64, device, Position(index))
        return ctx.cast(whole, dtype)
    if isinstance(start, Expr) or isinstance(step, Expr):
        raise LoweringError("a float sequence from an open size")
    count = ctx.node((length,), torch.float64, device, Position(d0))
    scaled = count if step == 1 else ctx.point("mul", (count, ctx.like(float(step), count)))
    moved = scaled if start == 0 else ctx.point("add", (scaled, ctx.like(float(start), scaled)))
    return ctx.cast(moved, dtype)


def _whole(value: Scalar | Expr) -> int | Expr:
    return value if isinstance(value, Expr) else int(value)
