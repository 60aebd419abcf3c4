"""Scans and sorting: results of the operand's shape that depend on an order along a dimension.

In: a tensor of at least one dimension and a non-negative `dim`. Out: same shape (topk: `k` long).
Invariant: cumsum and cumprod keep the operand's dtype; positions are int64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from flambeau_prims._op import Rule, define, flops_per_input, require
from flambeau_prims.layout import Size, TensorMeta, preserved_strides
from flambeau_prims.ops.pointwise import ANY, BOOL, NUMBER, REAL


def _check_dim(name: str, a: TensorMeta, dim: int) -> None:
    require(0 <= dim < a.ndim, f"{name}: dim {dim} of a {a.ndim}-d tensor")


def _cumulative_rule(name: str) -> Rule:
    def rule(a: TensorMeta, dim: int) -> TensorMeta:
        require(a.dtype in NUMBER, f"{name}: not defined on {a.dtype}")
        _check_dim(name, a, dim)
        return a.like(a.shape)

    return rule


def _cumulative(function: Callable[..., Any]) -> Callable[..., Any]:
    def eager(a: torch.Tensor, dim: int) -> Any:
        return function(a, dim, dtype=a.dtype).contiguous()

    return eager


cumsum = define(
    "cumsum(Tensor a, int dim) -> Tensor",
    rule=_cumulative_rule("cumsum"),
    eager=_cumulative(torch.cumsum),
    tags=("scan",),
    doc="Running sum along `dim`, the element itself included.",
    flops=flops_per_input(1),
)

cumprod = define(
    "cumprod(Tensor a, int dim) -> Tensor",
    rule=_cumulative_rule("cumprod"),
    eager=_cumulative(torch.cumprod),
    tags=("scan",),
    doc="Running product along `dim`, the element itself included.",
    flops=flops_per_input(1),
)


def _sort_rule(
    a: TensorMeta, dim: int, descending: bool, stable: bool
) -> tuple[TensorMeta, TensorMeta]:
    del descending, stable
    require(a.dtype in REAL | BOOL, f"sort: not defined on {a.dtype}")
    _check_dim("sort", a, dim)
    strides = preserved_strides(a)
    values = a.like(a.shape, strides)
    return values, values.like(dtype=torch.int64)


def _sort(a: torch.Tensor, dim: int, descending: bool, stable: bool) -> Any:
    return torch.sort(a, dim=dim, descending=descending, stable=stable)


sort = define(
    "sort(Tensor a, int dim, bool descending, bool stable) -> (Tensor, Tensor)",
    rule=_sort_rule,
    eager=_sort,
    tags=("scan",),
    doc="Values sorted along `dim`, and the positions (int64) they came from; NaN is largest.",
    flops=flops_per_input(16),
)


def _topk_rule(
    a: TensorMeta, k: Size, dim: int, largest: bool, sorted: bool
) -> tuple[TensorMeta, TensorMeta]:
    del largest, sorted
    require(a.dtype in ANY, f"topk: not defined on {a.dtype}")
    _check_dim("topk", a, dim)
    require(k >= 0 and k <= a.shape[dim], f"topk: k={k} of {a.shape[dim]} elements")
    shape = (*a.shape[:dim], k, *a.shape[dim + 1 :])
    values = a.like(shape)
    return values, values.like(dtype=torch.int64)


def _topk(a: torch.Tensor, k: Size, dim: int, largest: bool, sorted: bool) -> Any:
    return torch.topk(a, k, dim=dim, largest=largest, sorted=sorted)


topk = define(
    "topk(Tensor a, SymInt k, int dim, bool largest, bool sorted) -> (Tensor, Tensor)",
    rule=_topk_rule,
    eager=_topk,
    tags=("scan",),
    doc="The `k` largest (or smallest) along `dim` and their positions (int64).",
    flops=flops_per_input(8),
)
