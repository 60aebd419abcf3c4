"""Scans: running sums, products and logarithms of sums of exponentials.

In: a node and a dimension. Out: `Scan` nodes on a CPU, library calls elsewhere. Invariant: float32
is combined in float64 and half precision in float32, as in eager, and rounded once an element.
"""

from __future__ import annotations

import torch

from flambeau_inductor.ir.tensors import Node, Scan
from flambeau_inductor.lowering.context import Context, LoweringError
from flambeau_inductor.lowering.indexing import single
from flambeau_inductor.lowering.reduction import HALF
from flambeau_inductor.lowering.registry import Lowered, rule

KINDS = {"cumsum": "sum", "cumprod": "prod", "logcumsumexp": "logsumexp"}


@rule(*KINDS)
def scan(ctx: Context, name: str, a: Node, dim: int) -> Lowered:
    if a.dtype.is_complex or a.dtype == torch.bool:
        raise LoweringError(f"{name}: no kernel for {a.dtype}")
    if a.device.type != "cpu":
        if name == "logcumsumexp":
            return single(ctx.call("aten.logcumsumexp.default", (a, dim)))
        kwargs = (("dtype", a.dtype),)
        return single(ctx.call(f"aten.{name}.out", (a, dim), kwargs, out=True))
    if a.numel == 0 or a.shape[dim] == 1:
        return ctx.point("clone", (a,))
    wide = {torch.float32: torch.float64, **dict.fromkeys(HALF, torch.float32)}
    base = ctx.cast(a, wide.get(a.dtype, a.dtype))
    return ctx.node(a.shape, a.dtype, a.device, Scan(KINDS[name], base, dim))
