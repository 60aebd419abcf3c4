"""Sorting, selection and search primitives.

In: a tensor of at least one dimension and a non-negative `dim`. Out: values in the operand's
dtype, and positions (int64) along `dim`.
Invariant: NaN is larger than every number, in each of these.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from flambeau_prims._op import define, flops_per_input, flops_per_output, primitive, require
from flambeau_prims.ops.pointwise import BOOL, FLOATS, REAL, Kind
from flambeau_prims.ops.reduction import check_dim
from flambeau_prims.shape_rules import Size, TensorMeta, preserved_strides

_sorting = partial(primitive, tags=("sort", "library"))

_KNUTH = "Knuth, The Art of Computer Programming, vol. 3"
_NAN = {"nan": "larger than every number"}


def _with_positions(values: TensorMeta) -> tuple[TensorMeta, TensorMeta]:
    return values, values.like(dtype=torch.int64)


@_sorting(
    "sort(Tensor a, int dim, bool descending, bool stable) -> (Tensor, Tensor)",
    lambda a, dim, down, stable: torch.sort(a, dim=dim, descending=down, stable=stable),
    shape="that of the operand, twice",
    edge_cases={**_NAN, "ties": "in their order if `stable`, else in any", "signed zero": "equal"},
    source=f"{_KNUTH}, 5",
    flops=flops_per_input(16),
)
def sort_(a: TensorMeta, dim: int) -> tuple[TensorMeta, TensorMeta]:
    """Values sorted along `dim`, and the positions (int64) they came from."""
    require(a.dtype in REAL | BOOL, f"not defined on {a.dtype}")
    check_dim(a, dim)
    return _with_positions(a.like(a.shape, preserved_strides(a)))


@_sorting(
    "topk(Tensor a, SymInt k, int dim, bool largest, bool sorted) -> (Tensor, Tensor)",
    torch.topk,
    shape="the operand's, `k` long along `dim`, twice",
    edge_cases={**_NAN, "ties": "which positions are given is undefined", "out of range": "k > n"},
    source=f"{_KNUTH}, 5.3.3",
    flops=flops_per_input(8),
)
def topk(a: TensorMeta, k: Size, dim: int) -> tuple[TensorMeta, TensorMeta]:
    """The `k` largest (or smallest) along `dim` and their positions (int64)."""
    require(a.dtype in REAL, f"not defined on {a.dtype}")
    check_dim(a, dim)
    require(bool(k >= 0) and bool(k <= a.shape[dim]), f"k={k} of {a.shape[dim]} elements")
    return _with_positions(a.like((*a.shape[:dim], k, *a.shape[dim + 1 :])))


def _selected(a: TensorMeta, dim: int) -> tuple[TensorMeta, TensorMeta]:
    """One element of each row along `dim`, which goes away, and its position."""
    check_dim(a, dim)
    require(bool(a.shape[dim] != 0), f"no elements along {dim}")
    return _with_positions(a.like((*a.shape[:dim], *a.shape[dim + 1 :])))


@_sorting(
    "kthvalue(Tensor a, SymInt k, int dim) -> (Tensor, Tensor)",
    lambda a, k, dim: tuple(torch.kthvalue(a, k, dim)),
    shape="the operand's without `dim`, twice",
    edge_cases={**_NAN, "ties": "any of the equal elements' positions", "out of range": "k < 1"},
    source=f"{_KNUTH}, 5.3.3",
    flops=flops_per_input(4),
    dtypes=REAL,
)
def kthvalue(a: TensorMeta, k: Size, dim: int) -> tuple[TensorMeta, TensorMeta]:
    """The `k`th smallest along `dim` (from 1), and its position (int64)."""
    selected, size = _selected(a, dim), a.shape[dim]
    good = bool(k >= 1) and bool(k <= size)
    require(good, f"k={k} is not in 1..{size}, the elements along {dim}")
    return selected


# name: (eager, dtypes, doc, edge cases)
_SELECTIONS: dict[str, tuple[Callable[..., Any], Kind, str, dict[str, str]]] = {
    "median": (torch.median, REAL,
        "The element of rank (n - 1) // 2 along `dim` (the lower of two middle ones).",
        {"nan": "NaN if any is NaN, with the position of one", "ties": "any of the positions"}),
    "nanmedian": (torch.nanmedian, REAL,
        "The element of rank (m - 1) // 2 among the m along `dim` that are not NaN.",
        {"nan": "left out; NaN if all are NaN", "ties": "any of the positions"}),
    "mode": (torch.mode, REAL | BOOL,
        "The most frequent element along `dim`, the smallest if several are.",
        {"ties": "the last position of the element chosen, in eager", "nan": "differs from NaN"}),
}  # fmt: skip


def _selecting(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda a, dim: tuple(function(a, dim))


for _name, (_function, _kind, _doc, _edges) in _SELECTIONS.items():
    define(
        f"{_name}(Tensor a, int dim) -> (Tensor, Tensor)",
        rule=_selected,
        eager=_selecting(_function),
        tags=("sort", "library"),
        doc=f"{_doc} And its position (int64).",
        shape="the operand's without `dim`, twice",
        edge_cases={**_edges, "empty": "an error"},
        source=f"{_KNUTH}, 5.3.3",
        flops=flops_per_input(8),
        dtypes=_kind,
    )


@primitive(
    "searchsorted(Tensor boundaries, Tensor values, bool right) -> Tensor",
    lambda at, x, right: torch.searchsorted(at.contiguous(), x.contiguous(), right=right),
    tags=("sort", "index"),
    shape="that of `values`; `boundaries` is 1-d or has the same leading dimensions",
    edge_cases={**_NAN, "empty": "0 in an empty row", "note": "unsorted rows: undefined"},
    source=f"{_KNUTH}, 6.2.1",
    flops=flops_per_output(20),
    differentiable=False,
    dtypes=REAL,
)
def searchsorted(boundaries: TensorMeta, values: TensorMeta) -> TensorMeta:
    """The number of elements of a sorted row of `boundaries` that are below each value (with
    `right`: not above it), int64."""
    same = boundaries.dtype == values.dtype
    require(same, f"values {values.dtype} among {boundaries.dtype}; cast first")
    rows = boundaries.ndim == 1 or boundaries.shape[:-1] == values.shape[:-1]
    good = boundaries.ndim >= 1 and rows
    require(good, f"rows of {values.shape} do not go with those of {boundaries.shape}")
    return values.like(values.shape, dtype=torch.int64)


def _histc(a: torch.Tensor, bins: int, low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
    if bool((low > high) | ~torch.isfinite(high - low)):
        raise ValueError(f"histc: the range {low.item()} to {high.item()} is not one")
    if bool(low == high):  # the library would take the range from the elements
        low, high = low - 1, high + 1
    return torch.histc(a, bins, low.item(), high.item())


@primitive(
    "histc(Tensor a, int bins, Tensor low, Tensor high) -> Tensor",
    _histc,
    tags=("index", "reduction"),
    shape="(bins,)",
    edge_cases={
        "nan": "counted nowhere",
        "out of range": "counted nowhere; `high` itself is in the last part",
        "domain": "low > high or infinite is an error; low == high means low - 1 to high + 1",
    },
    source="Pearson, Contributions to the Mathematical Theory of Evolution, 1895",
    flops=flops_per_input(4),
    differentiable=False,
    dtypes=FLOATS,
)
def histc(a: TensorMeta, bins: int, low: TensorMeta, high: TensorMeta) -> TensorMeta:
    """How many elements lie in each of `bins` equal parts of [low, high], in the dtype of `a`."""
    require(bins > 0, f"bins={bins}")
    for name, bound in (("low", low), ("high", high)):
        good = bound.ndim == 0 and bound.dtype == a.dtype
        require(good, f"{name} is {bound.dtype}{list(bound.shape)}, not a 0-d {a.dtype}")
    return a.like((bins,))
