"""Scan primitives.

In: a tensor of at least one dimension and a non-negative `dim`. Out: a contiguous tensor of the
same shape.
Invariant: the operand's dtype is kept; the element itself is included; positions are int64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from flambeau_prims._op import Rule, define, flops_per_input, require
from flambeau_prims.layout import TensorMeta
from flambeau_prims.ops.pointwise import BOOL, COMPLEX, FLOATS, NUMBER, REAL, Kind

_SOURCE = "Blelloch, Prefix Sums and Their Applications, 1990"


def check_dim(name: str, a: TensorMeta, dim: int) -> None:
    """Raise unless `dim` is a dimension of `a`, counted from the front."""
    require(0 <= dim < a.ndim, f"{name}: dim {dim} of a {a.ndim}-d tensor")


def _rule(name: str, kind: Kind, positions: bool) -> Rule:
    def rule(a: TensorMeta, dim: int) -> TensorMeta | tuple[TensorMeta, TensorMeta]:
        require(a.dtype in kind, f"{name}: not defined on {a.dtype}")
        check_dim(name, a, dim)
        values = a.like(a.shape)
        return (values, values.like(dtype=torch.int64)) if positions else values

    return rule


def _same_dtype(function: Callable[..., Any]) -> Callable[..., Any]:
    def eager(a: torch.Tensor, dim: int) -> Any:
        return function(a, dim, dtype=a.dtype).contiguous()

    return eager


def _paired(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda a, dim: tuple(part.contiguous() for part in function(a, dim))


def _logcumsumexp(a: torch.Tensor, dim: int) -> torch.Tensor:
    return torch.logcumsumexp(a, dim).contiguous()


_PASSED_ON = {"nan": "every element from a NaN on is NaN"}
_TIES = {"ties": "the last position of equal ones", "nan": "wins; the last NaN's position"}

# name: (eager, dtypes, with positions, doc, edge cases)
_SCANS: dict[str, tuple[Callable[..., Any], Kind, bool, str, dict[str, str]]] = {
    "cumsum": (_same_dtype(torch.cumsum), NUMBER, False, "Running sum along `dim`.",
        {**_PASSED_ON, "overflow": "integers wrap"}),
    "cumprod": (_same_dtype(torch.cumprod), NUMBER, False, "Running product along `dim`.",
        {**_PASSED_ON, "overflow": "integers wrap"}),
    "cummax": (_paired(torch.cummax), REAL | BOOL, True,
        "The largest element so far along `dim`, and its position (int64).", _TIES),
    "cummin": (_paired(torch.cummin), REAL | BOOL, True,
        "The smallest element so far along `dim`, and its position (int64).", _TIES),
    "logcumsumexp": (_logcumsumexp, FLOATS | (COMPLEX - {torch.complex32}), False,
        "Logarithm of the running sum of exponentials along `dim`, without overflow.",
        {**_PASSED_ON, "infinity": "-inf adds nothing; after inf all is inf"}),
}  # fmt: skip

for _name, (_eager, _kind, _positions, _doc, _edges) in _SCANS.items():
    define(
        f"{_name}(Tensor a, int dim) -> {'(Tensor, Tensor)' if _positions else 'Tensor'}",
        rule=_rule(_name, _kind, _positions),
        eager=_eager,
        tags=("scan",),
        exact=_name in ("cummax", "cummin"),
        doc=_doc,
        shape="that of the operand",
        edge_cases={**_edges, "empty": "nothing"},
        source=_SOURCE,
        flops=flops_per_input(8 if _name == "logcumsumexp" else 1),
        dtypes=_kind,
    )
