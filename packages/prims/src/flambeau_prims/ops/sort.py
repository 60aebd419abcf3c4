"""Sorting, selection and search primitives.

In: a tensor of at least one dimension and a non-negative `dim`. Out: values in the operand's
dtype, and positions (int64) along `dim`.
Invariant: NaN is larger than every number, in each of these.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from flambeau_prims._op import Rule, define, flops_per_input, flops_per_output, require
from flambeau_prims.layout import Size, TensorMeta, preserved_strides
from flambeau_prims.ops.pointwise import BOOL, FLOATS, REAL, Kind
from flambeau_prims.ops.reduction import check_dim

_KNUTH = "Knuth, The Art of Computer Programming, vol. 3"
_NAN = {"nan": "larger than every number"}


def _sort_rule(
    a: TensorMeta, dim: int, descending: bool, stable: bool
) -> tuple[TensorMeta, TensorMeta]:
    del descending, stable
    require(a.dtype in REAL | BOOL, f"sort: not defined on {a.dtype}")
    check_dim("sort", a, dim)
    strides = preserved_strides(a)
    values = a.like(a.shape, strides)
    return values, values.like(dtype=torch.int64)


def _sort(a: torch.Tensor, dim: int, descending: bool, stable: bool) -> Any:
    return torch.sort(a, dim=dim, descending=descending, stable=stable)


sort = define(
    "sort(Tensor a, int dim, bool descending, bool stable) -> (Tensor, Tensor)",
    rule=_sort_rule,
    eager=_sort,
    tags=("sort", "library"),
    doc="Values sorted along `dim`, and the positions (int64) they came from.",
    shape="that of the operand, twice",
    edge_cases={**_NAN, "ties": "in their order if `stable`, else in any", "signed zero": "equal"},
    source=f"{_KNUTH}, 5",
    flops=flops_per_input(16),
)


def _topk_rule(
    a: TensorMeta, k: Size, dim: int, largest: bool, sorted: bool
) -> tuple[TensorMeta, TensorMeta]:
    del largest, sorted
    require(a.dtype in REAL, f"topk: not defined on {a.dtype}")
    check_dim("topk", a, dim)
    require(bool(k >= 0) and bool(k <= a.shape[dim]), f"topk: k={k} of {a.shape[dim]} elements")
    values = a.like((*a.shape[:dim], k, *a.shape[dim + 1 :]))
    return values, values.like(dtype=torch.int64)


def _topk(a: torch.Tensor, k: Size, dim: int, largest: bool, sorted: bool) -> Any:
    return torch.topk(a, k, dim=dim, largest=largest, sorted=sorted)


topk = define(
    "topk(Tensor a, SymInt k, int dim, bool largest, bool sorted) -> (Tensor, Tensor)",
    rule=_topk_rule,
    eager=_topk,
    tags=("sort", "library"),
    doc="The `k` largest (or smallest) along `dim` and their positions (int64).",
    shape="the operand's, `k` long along `dim`, twice",
    edge_cases={**_NAN, "ties": "which positions are given is undefined", "out of range": "k > n"},
    source=f"{_KNUTH}, 5.3.3",
    flops=flops_per_input(8),
)


def _selection_rule(name: str, kind: Kind) -> Rule:
    """One element of each row along `dim`, which goes away, and its position."""

    def rule(a: TensorMeta, dim: int) -> tuple[TensorMeta, TensorMeta]:
        require(a.dtype in kind, f"{name}: not defined on {a.dtype}")
        check_dim(name, a, dim)
        require(bool(a.shape[dim] != 0), f"{name}: no elements along {dim}")
        values = a.like((*a.shape[:dim], *a.shape[dim + 1 :]))
        return values, values.like(dtype=torch.int64)

    return rule


def _kthvalue_rule(a: TensorMeta, k: Size, dim: int) -> tuple[TensorMeta, TensorMeta]:
    values, positions = _selection_rule("kthvalue", REAL)(a, dim)  # type: ignore[misc]
    require(
        bool(k >= 1) and bool(k <= a.shape[dim]),
        f"kthvalue: k={k} is not in 1..{a.shape[dim]}, the elements along {dim}",
    )
    return values, positions  # type: ignore[return-value]


kthvalue = define(
    "kthvalue(Tensor a, SymInt k, int dim) -> (Tensor, Tensor)",
    rule=_kthvalue_rule,
    eager=lambda a, k, dim: tuple(torch.kthvalue(a, k, dim)),
    tags=("sort", "library"),
    doc="The `k`th smallest along `dim` (from 1), and its position (int64).",
    shape="the operand's without `dim`, twice",
    edge_cases={**_NAN, "ties": "any of the equal elements' positions", "out of range": "k < 1"},
    source=f"{_KNUTH}, 5.3.3",
    flops=flops_per_input(4),
    dtypes=REAL,
)

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
        rule=_selection_rule(_name, _kind),
        eager=_selecting(_function),
        tags=("sort", "library"),
        doc=f"{_doc} And its position (int64).",
        shape="the operand's without `dim`, twice",
        edge_cases={**_edges, "empty": "an error"},
        source=f"{_KNUTH}, 5.3.3",
        flops=flops_per_input(8),
        dtypes=_kind,
    )


def _searchsorted_rule(boundaries: TensorMeta, values: TensorMeta, right: bool) -> TensorMeta:
    del right
    require(
        boundaries.dtype == values.dtype,
        f"searchsorted: values {values.dtype} among {boundaries.dtype}; cast first",
    )
    require(values.dtype in REAL, f"searchsorted: not defined on {values.dtype}")
    rows = boundaries.ndim == 1 or boundaries.shape[:-1] == values.shape[:-1]
    require(
        boundaries.ndim >= 1 and rows,
        f"searchsorted: rows of {values.shape} do not go with those of {boundaries.shape}",
    )
    return values.like(values.shape, dtype=torch.int64)


def _searchsorted(boundaries: torch.Tensor, values: torch.Tensor, right: bool) -> torch.Tensor:
    return torch.searchsorted(boundaries.contiguous(), values.contiguous(), right=right)


searchsorted = define(
    "searchsorted(Tensor boundaries, Tensor values, bool right) -> Tensor",
    rule=_searchsorted_rule,
    eager=_searchsorted,
    tags=("sort", "index"),
    doc="The number of elements of a sorted row of `boundaries` that are below each value"
    " (with `right`: not above it), int64.",
    shape="that of `values`; `boundaries` is 1-d or has the same leading dimensions",
    edge_cases={**_NAN, "empty": "0 in an empty row", "note": "unsorted rows: undefined"},
    source=f"{_KNUTH}, 6.2.1",
    flops=flops_per_output(20),
    differentiable=False,
    dtypes=REAL,
)


def _histc_rule(a: TensorMeta, bins: int, low: TensorMeta, high: TensorMeta) -> TensorMeta:
    require(a.dtype in FLOATS, f"histc: not defined on {a.dtype}")
    require(bins > 0, f"histc: bins={bins}")
    for name, bound in (("low", low), ("high", high)):
        require(
            bound.ndim == 0 and bound.dtype == a.dtype,
            f"histc: {name} is {bound.dtype}{list(bound.shape)}, not a 0-d {a.dtype}",
        )
    return a.like((bins,))


def _histc(a: torch.Tensor, bins: int, low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
    if bool((low > high) | ~torch.isfinite(high - low)):
        raise ValueError(f"histc: the range {low.item()} to {high.item()} is not one")
    if bool(low == high):  # the library would take the range from the elements
        low, high = low - 1, high + 1
    return torch.histc(a, bins, low.item(), high.item())


histc = define(
    "histc(Tensor a, int bins, Tensor low, Tensor high) -> Tensor",
    rule=_histc_rule,
    eager=_histc,
    tags=("index", "reduction"),
    doc="How many elements lie in each of `bins` equal parts of [low, high], in the dtype of `a`.",
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
