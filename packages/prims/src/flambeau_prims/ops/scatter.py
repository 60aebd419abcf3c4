"""Scatter primitives.

In: a tensor, a dimension, int64 positions, and values of the tensor's dtype. Out: a contiguous
copy with the values stored.
Invariant: positions are not negative; the operands are never written to; out of range is an error
in eager and undefined in compiled code.
"""

from __future__ import annotations

from typing import Any

import torch

from flambeau_prims._op import Rule, define, flops_per_input, require
from flambeau_prims.layout import TensorMeta
from flambeau_prims.ops.indexing import check_index
from flambeau_prims.ops.pointwise import ANY, BOOL, REAL, Kind


def _rule(name: str, kind: Kind) -> Rule:
    def rule(a: TensorMeta, dim: int, index: TensorMeta, src: TensorMeta) -> TensorMeta:
        check_index(name, a, dim, index)
        require(a.dtype in kind, f"{name}: not defined on {a.dtype}")
        require(a.dtype == src.dtype, f"{name}: {src.dtype} into {a.dtype}; cast first")
        require(
            a.ndim == index.ndim == src.ndim,
            f"{name}: a has {a.ndim} dimensions, index {index.ndim}, src {src.ndim}",
        )
        for d in range(a.ndim):
            within = index.shape[d] <= src.shape[d] and (d == dim or index.shape[d] <= a.shape[d])
            require(
                bool(within) or bool(index.numel() == 0),
                f"{name}: index {index.shape} is larger than src {src.shape} or a {a.shape}"
                f" in dimension {d}",
            )
        return a.like(a.shape)

    return rule


def _eager(reduce: str | None) -> Any:
    def eager(a: torch.Tensor, dim: int, index: torch.Tensor, src: torch.Tensor) -> Any:
        copy = a.clone(memory_format=torch.contiguous_format)
        if reduce is None:
            return copy.scatter_(dim, index, src)
        if reduce == "sum":
            return copy.scatter_add_(dim, index, src)
        return copy.scatter_reduce_(dim, index, src, reduce, include_self=True)

    return eager


_SHAPE = "that of `a`; `index` is at most as large as `src`, and as `a` but along `dim`"
_RANGE = {"out of range": "an error in eager, undefined in compiled code", "empty": "a copy"}

# name: (reduction, dtypes, what happens to out[index[i, j], j] for dim 0, edge cases)
_SCATTERS: dict[str, tuple[str | None, Kind, str, dict[str, str]]] = {
    "scatter": (None, ANY, "becomes src[i, j]", {"duplicates": "which one wins is undefined"}),
    "scatter_add": ("sum", ANY, "gets src[i, j] added",
        {"duplicates": "all are added, in no particular order"}),
    "scatter_prod": ("prod", ANY, "is multiplied by src[i, j]",
        {"duplicates": "all are multiplied, in no particular order"}),
    "scatter_amax": ("amax", REAL | BOOL, "becomes the larger of itself and src[i, j]",
        {"nan": "wins over every number"}),
    "scatter_amin": ("amin", REAL | BOOL, "becomes the smaller of itself and src[i, j]",
        {"nan": "wins over every number"}),
}  # fmt: skip

for _name, (_reduce, _kind, _what, _edges) in _SCATTERS.items():
    define(
        f"{_name}(Tensor a, int dim, Tensor index, Tensor src) -> Tensor",
        rule=_rule(_name, _kind),
        eager=_eager(_reduce),
        tags=("index",),
        exact=_name not in ("scatter_add", "scatter_prod"),
        doc=f"A copy of `a` in which out[index[i, j], j] {_what} for dim 0, and so on.",
        shape=_SHAPE,
        edge_cases={**_edges, **_RANGE},
        source="scatter as in Blelloch, Vector Models for Data-Parallel Computing, 1990",
        flops=flops_per_input(1) if _reduce else None,
        dtypes=_kind,
    )
