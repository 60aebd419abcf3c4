"""Decompositions of scans: running sums, products, extrema, log-sum-exp.

In: ATen's scans, on 0-d tensors too. Out: the scan prims.
Invariant: half precision is summed in float32; integers and bool sum to int64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from flambeau_prims.decomp import emit as e
from flambeau_prims.decomp.emit import canonical, p
from flambeau_prims.decomp.reduction import summed_dtype
from flambeau_prims.promotion import compute_dtype
from flambeau_prims.table import decomposition

aten = torch.ops.aten


def first_of_one(x: Tensor) -> tuple[Tensor, Tensor]:
    """A 0-d tensor and its position in itself: what selecting from it gives."""
    return p.clone(x), p.full([], 0, dtype=torch.int64, device=x.device)


def _running(op: Callable[..., Tensor]) -> Callable[..., Any]:
    def call(x: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Any:
        result = summed_dtype(x, dtype)
        where = canonical(dim, x.ndim)
        if x.ndim == 0:
            return p.clone(e.cast(x, result))
        return e.cast(op(e.cast(e.cast(x, result), compute_dtype(result)), where), result)

    return call


decomposition(aten.cumsum.default)(_running(p.cumsum))
decomposition(aten.cumprod.default)(_running(p.cumprod))


def _extreme(op: Callable[..., Any]) -> Callable[..., Any]:
    def call(x: Tensor, dim: int) -> Any:
        where = canonical(dim, x.ndim)
        return first_of_one(x) if x.ndim == 0 else tuple(op(x, where))

    return call


decomposition(aten.cummax.default)(_extreme(p.cummax))
decomposition(aten.cummin.default)(_extreme(p.cummin))


@decomposition(aten.logcumsumexp.default, aten._logcumsumexp.default)
def logcumsumexp(x: Tensor, dim: int) -> Any:
    where = canonical(dim, x.ndim)
    if x.ndim == 0:
        return p.clone(x)
    return e.cast(p.logcumsumexp(e.widen(x), where), x.dtype)
