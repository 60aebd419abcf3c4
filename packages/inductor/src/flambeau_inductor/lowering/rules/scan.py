"""Lowering of scans.

In: a node and a dimension. Out: `TensorScan` nodes on a CPU, library calls elsewhere. Invariant:
float32 is combined in float64 and half precision in float32, as in eager, and rounded once an
element.

Running sums and products of half precision along memory are the library's on a CPU too: numbers
that come one after the other are rounded one by one, which it does in half of the time.
"""

from __future__ import annotations

import torch

from flambeau_inductor.indexing import decide_equal
from flambeau_inductor.ir.tensors import Node, Pointwise, TensorScan
from flambeau_inductor.lowering.context import Context, LoweringError
from flambeau_inductor.lowering.registry import Lowered, rule
from flambeau_inductor.lowering.rules.indexing import single
from flambeau_inductor.lowering.rules.reduction import HALF

KINDS = {"cumsum": "sum", "cumprod": "prod", "logcumsumexp": "logsumexp"}

WIDE = (torch.float32, torch.float64)
LIBRARY = {"sum": "aten.cumsum.out", "prod": "aten.cumprod.out"}


@rule(*KINDS)
def scan(ctx: Context, name: str, a: Node, dim: int) -> Lowered:
    if a.dtype.is_complex or a.dtype == torch.bool:
        raise LoweringError(f"{name}: no kernel for {a.dtype}")
    if a.device.type != "cpu":
        if name == "logcumsumexp":
            return single(ctx.call("aten.logcumsumexp.default", (a, dim)))
        kwargs = (("dtype", a.dtype),)
        return single(ctx.call(LIBRARY[KINDS[name]], (a, dim), kwargs, out=True))
    if decide_equal(a.numel, 0) or decide_equal(a.shape[dim], 1):
        return ctx.point("clone", (a,))
    wide = {torch.float32: torch.float64, **dict.fromkeys(HALF, torch.float32)}
    base = ctx.cast(a, wide.get(a.dtype, a.dtype))
    return ctx.node(a.shape, a.dtype, a.device, TensorScan(KINDS[name], base, dim))


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
