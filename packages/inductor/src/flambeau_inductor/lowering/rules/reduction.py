"""Lowering of reductions and scans.

In: a node and dimensions. Out: `Reduction` nodes, `TensorScan` nodes on a CPU, library calls.
Invariant: sums and products of half precision are formed in float32, scans of float32 in float64 as
in eager, and rounded once; a reduction over no elements is a constant. Running sums and products of
half precision along memory stay the library's, which rounds them in half of the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, nan, prod
from typing import Any

import torch

from flambeau_inductor.indexing import Expr, decide_equal, decide_less, depends_on_data, surely_less
from flambeau_inductor.ir.loops import Scalar
from flambeau_inductor.ir.tensors import Node, Pointwise, Reduction, Shape, TensorScan, dims_of
from flambeau_inductor.lowering.context import Context, LoweringError
from flambeau_inductor.lowering.registry import Lowered, rule
from flambeau_inductor.lowering.rules.indexing import single

HALF = (torch.bfloat16, torch.float16)

KINDS: dict[str, tuple[str, Scalar | None]] = {
    "sum": ("sum", 0),
    "prod": ("prod", 1),
    "amax": ("max", None),
    "amin": ("min", None),
    "any": ("any", False),
    "all": ("all", True),
}
"""Primitive: kind of `Reduce`, and the value over no elements (None: an error in eager)."""


def kept(shape: Shape, dims: Sequence[int]) -> Shape:
    """`shape` without `dims`."""
    return tuple(size for d, size in enumerate(shape) if d not in dims)


def _without_ones(ctx: Context, a: Node, dims: Sequence[int]) -> Node:
    """`a` with the dimensions `dims`, all of size 1, removed."""
    shape = kept(a.shape, dims)
    own = iter(dims_of(len(shape)))
    zero = dims_of(1)[0] * 0
    index = tuple(zero if d in dims else next(own) for d in range(len(a.shape)))
    return ctx.view(a, shape, index)


def _of_one(ctx: Context, kind: str, a: Node) -> Node:
    """A reduction or scan of single elements. A sum begins with 0: that of -0 is 0."""
    begins = "sum" in kind and a.dtype.is_floating_point
    return ctx.point("add", (a, ctx.like(0.0, a))) if begins else ctx.point("clone", (a,))


@rule(*KINDS)
def reduce(ctx: Context, name: str, a: Node, dims: Sequence[int]) -> Node:
    if a.dtype.is_complex:
        raise LoweringError(f"{name}: complex numbers have no kernels")
    kind, empty = KINDS[name]
    shape = kept(a.shape, dims)
    count = prod(a.shape[d] for d in dims)
    if decide_equal(count, 0) and empty is not None:
        return ctx.literal(empty, shape, a.dtype, a.device)
    if decide_equal(count, 1):
        return _of_one(ctx, kind, _without_ones(ctx, a, dims))
    if a.dtype == torch.bool:
        kind = {"max": "any", "min": "all", "sum": "any", "prod": "all"}.get(kind, kind)
    narrow = kind in ("sum", "prod") and a.dtype in HALF
    base = ctx.cast(a, torch.float32) if narrow else a
    define = Reduction(kind, base, tuple(dims))
    return ctx.cast(ctx.node(shape, base.dtype, a.device, define), a.dtype)


@rule("argmax", "argmin")
def argument(ctx: Context, name: str, a: Node, dim: int) -> Node:
    shape = kept(a.shape, (dim,))
    if decide_equal(a.shape[dim], 1):
        return ctx.literal(0, shape, torch.int64, a.device)
    return ctx.node(shape, torch.int64, a.device, Reduction(name, a, (dim,)))


@rule("var_mean")
def var_mean(ctx: Context, a: Node, dims: Sequence[int], *, correction: float) -> tuple[Node, Node]:
    shape = kept(a.shape, dims)
    count = prod(a.shape[d] for d in dims)
    divisor = _divisor(count, correction)
    if decide_equal(count, 0):
        nothing = ctx.literal(nan, shape, a.dtype, a.device)
        return nothing, ctx.point("clone", (nothing,))
    wide = ctx.cast(a, torch.float32) if a.dtype in HALF else a
    if decide_equal(count, 1):
        mean = _of_one(ctx, "sum", _without_ones(ctx, wide, dims))
        squares = ctx.point("sub", (mean, mean))
    else:
        parts = (Reduction("welford", wide, tuple(dims), part) for part in (0, 1))
        mean, squares = (ctx.node(shape, wide.dtype, a.device, define) for define in parts)
    if not isinstance(divisor, Expr) and divisor == 0.0:
        # 0 / 0 is NaN, as in eager; x / 0 is infinite.
        scale = ctx.like(inf, squares)
        var = ctx.point("mul", (squares, scale))
    else:
        var = ctx.point("div", (squares, ctx.like(divisor, squares)))
    return ctx.cast(var, a.dtype), ctx.cast(mean, a.dtype)


def _divisor(count: int | Expr, correction: float) -> Any:
    """What the sum of squares is divided by; 0 where the correction takes all there is."""
    if not isinstance(count, Expr):
        return max(float(count) - float(correction), 0.0)
    if correction != int(correction):
        raise LoweringError(f"a variance over an open size with the correction {correction}")
    if depends_on_data((count,)) and not surely_less(int(correction), count):
        raise LoweringError("a variance of perhaps too few elements")
    return count - int(correction) if decide_less(int(correction), count) else 0.0


SCANS = {"cumsum": "sum", "cumprod": "prod", "logcumsumexp": "logsumexp"}

WIDE = (torch.float32, torch.float64)
LIBRARY = {"sum": "aten.cumsum.out", "prod": "aten.cumprod.out"}


@rule(*SCANS)
def scan(ctx: Context, name: str, a: Node, dim: int) -> Lowered:
    if a.dtype.is_complex or a.dtype == torch.bool:
        raise LoweringError(f"{name}: no kernel for {a.dtype}")
    if a.device.type != "cpu":
        if name == "logcumsumexp":
            return single(ctx.call("aten.logcumsumexp.default", (a, dim)))
        kwargs = (("dtype", a.dtype),)
        return single(ctx.call(LIBRARY[SCANS[name]], (a, dim), kwargs, out=True))
    if decide_equal(a.numel, 0) or decide_equal(a.shape[dim], 1):
        return _of_one(ctx, SCANS[name], a)
    wide = {torch.float32: torch.float64, **dict.fromkeys(HALF, torch.float32)}
    base = ctx.cast(a, wide.get(a.dtype, a.dtype))
    return ctx.node(a.shape, a.dtype, a.device, TensorScan(SCANS[name], base, dim))


def in_half(ctx: Context, node: Node, dtype: torch.dtype) -> Node | None:
    """`node` as `dtype` by the library, where it is a scan along memory of numbers of this dtype,
    of half precision, that were widened for it; None for anything else."""
    define = node.define
    if dtype not in HALF or not isinstance(define, TensorScan) or define.dim != len(node.shape) - 1:
        return None
    source = define.base
    while source.dtype in WIDE and isinstance(source.define, Pointwise):
        if source.define.op != "cast":
            return None
        (source,) = source.define.args
    if source.dtype != dtype or define.kind not in LIBRARY:
        return None
    kwargs = (("dtype", dtype),)
    return single(ctx.call(LIBRARY[define.kind], (source, define.dim), kwargs, out=True))
