"""Checks of index tensors as kernels.

In: a `CheckIndex` and where the index tensor's elements are. Out: a loop that looks at all of them.
Invariant: what it stores is true exactly if the check would not raise.
"""

from __future__ import annotations

import torch

from flambeau_inductor.indexing import Expr, Var, as_expr
from flambeau_inductor.ir.loops import (
    Axis,
    Const,
    IndexValue,
    Instr,
    Load,
    Loop,
    Point,
    Reduce,
    Store,
)
from flambeau_inductor.ir.program import CheckIndex, Layout
from flambeau_inductor.ir.tensors import dot
from flambeau_inductor.schedule.axes import normalised


def check_loop(name: str, check: CheckIndex, layout: Layout, result: str) -> Loop:
    """`result` (0-d, bool) becomes whether every element addresses the dimension."""
    shape, stride, offset = layout.static()
    axes = tuple(Axis(f"r{i}", size) for i, size in enumerate(shape))
    at = dot([Var(axis.var) for axis in axes], stride, offset)
    low = -check.size if check.wrap else 0
    body: list[Instr] = [
        Load(check.ref.buffer, at, layout.dtype),
        _whole(low, layout.dtype),
        _whole(check.size, layout.dtype),
        Point("ge", (0, 1), torch.bool),
        Point("lt", (0, 2), torch.bool),
        Point("logical_and", (3, 4), torch.bool),
    ]
    if axes:
        body.append(Reduce("all", 5, torch.bool))
    body.append(Store(result, as_expr(0), len(body) - 1))
    return normalised(Loop(name, (), axes, tuple(body)))


def _whole(size: int | Expr, dtype: torch.dtype) -> Instr:
    return IndexValue(size, dtype) if isinstance(size, Expr) else Const(size, dtype)
