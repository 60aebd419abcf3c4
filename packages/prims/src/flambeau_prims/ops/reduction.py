"""Reduction and scan primitives.

In: a tensor, and sorted, non-negative dimensions or one. Out: a contiguous tensor of the rest, or
of the same shape.
Invariant: the result has the operand's dtype (positions: int64); no hidden promotion; a scan
includes the element itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from flambeau_prims._op import Rule, define, flops_per_input, primitive, require
from flambeau_prims.ops.pointwise import ANY, BOOL, COMPLEX, FLOATS, NUMBER, REAL, Kind
from flambeau_prims.shape_rules import Size, TensorMeta


def kept_shape(a: TensorMeta, dims: Sequence[int]) -> tuple[Size, ...]:
    """The shape without `dims`, which must be sorted, distinct and in range."""
    good = all(0 <= d < a.ndim for d in dims) and all(p < q for p, q in itertools.pairwise(dims))
    require(good, f"dims {list(dims)} are not sorted dimensions of a {a.ndim}-d tensor")
    gone = set(dims)
    return tuple(size for d, size in enumerate(a.shape) if d not in gone)


def _rule(needs_elements: bool) -> Rule:
    def rule(a: TensorMeta, dims: Sequence[int]) -> TensorMeta:
        shape = kept_shape(a, dims)
        if needs_elements:
            require(all(a.shape[d] != 0 for d in dims), f"no elements along {list(dims)}")
        return a.like(shape)

    return rule


def _reducing(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """The function over all of `dims`; without any, each element is folded by itself."""

    def eager(a: torch.Tensor, dims: Sequence[int]) -> torch.Tensor:
        if not dims:
            return function(a.contiguous().unsqueeze(0), [0])
        return function(a, list(dims))

    return eager


def _sum(a: torch.Tensor, dims: list[int]) -> torch.Tensor:
    return torch.sum(a, dims, dtype=a.dtype)


def _prod(a: torch.Tensor, dims: list[int]) -> torch.Tensor:
    for dim in reversed(dims):
        a = torch.prod(a, dim, dtype=a.dtype)
    return a


_FOLD = "reduction: Iverson, A Programming Language, 1962"
_SHAPE = "the operand's sizes but those of `dims`, contiguous"
_ORDER = "the order is not fixed"
_NAN = {"nan": "NaN if any is NaN", "empty": "an error", "signed zero": "-0 and 0 are equal"}

# name: (eager, dtypes, whether an empty reduction has no value, doc, edge cases)
_REDUCTIONS: dict[str, tuple[Callable[..., Any], Kind, bool, str, dict[str, str]]] = {
    "sum": (_sum, ANY, False, "The sum over `dims`, in the operand's dtype.",
        {"empty": "0", "integers": "wrap; of bool: whether any", "note": _ORDER}),
    "prod": (_prod, ANY, False, "The product over `dims`, in the operand's dtype.",
        {"empty": "1", "integers": "wrap; of bool: whether all", "note": _ORDER}),
    "amax": (torch.amax, REAL | BOOL, True, "The largest over `dims`.", _NAN),
    "amin": (torch.amin, REAL | BOOL, True, "The smallest over `dims`.", _NAN),
    "any": (torch.any, BOOL, False, "Whether any is true over `dims`.", {"empty": "false"}),
    "all": (torch.all, BOOL, False, "Whether all are true over `dims`.", {"empty": "true"}),
}  # fmt: skip

for _name, (_eager, _kind, _needs, _doc, _edges) in _REDUCTIONS.items():
    define(
        f"{_name}(Tensor a, int[] dims) -> Tensor",
        rule=_rule(_needs),
        eager=_reducing(_eager),
        tags=("reduction",),
        doc=_doc,
        shape=_SHAPE,
        edge_cases=_edges,
        source=_FOLD,
        flops=flops_per_input(1),
        dtypes=_kind,
        exact=_name not in ("sum", "prod"),
    )


def _position_rule(a: TensorMeta, dim: int) -> TensorMeta:
    require(a.dtype in REAL, f"not defined on {a.dtype}")
    shape = kept_shape(a, (dim,))
    require(a.shape[dim] != 0, f"no elements along {dim}")
    return a.like(shape, dtype=torch.int64)


for _name, _eager, _which in (
    ("argmax", torch.argmax, "largest"),
    ("argmin", torch.argmin, "smallest"),
):
    define(
        f"{_name}(Tensor a, int dim) -> Tensor",
        rule=_position_rule,
        eager=_eager,
        tags=("reduction",),
        doc=f"Position (int64) of the first {_which} element along `dim`.",
        shape="the operand's sizes but that of `dim`",
        edge_cases={
            "nan": f"counts as {_which}",
            "ties": "the first position",
            "empty": "an error",
        },
        source=_FOLD,
        flops=flops_per_input(1),
        differentiable=False,
        exact=True,
    )


@primitive(
    "var_mean(Tensor a, int[] dims, *, float correction) -> (Tensor, Tensor)",
    lambda a, dims, correction: torch.var_mean(a, list(dims), correction=correction),
    tags=("reduction",),
    shape=f"{_SHAPE}, twice",
    edge_cases={"nan": "NaN if any is NaN", "empty": "NaN", "domain": "divisor 0: inf or NaN"},
    source="Welford, Note on a Method for Calculating Corrected Sums of Squares, 1962",
    flops=flops_per_input(4),
    dtypes=FLOATS,
)
def var_mean(a: TensorMeta, dims: Sequence[int]) -> tuple[TensorMeta, TensorMeta]:
    """Variance with divisor max(0, n - correction), and mean, over `dims`."""
    require(bool(dims) or a.ndim == 0, "no dims given")
    result = a.like(kept_shape(a, dims))
    return result, result


_SOURCE = "Blelloch, Prefix Sums and Their Applications, 1990"


def check_dim(a: TensorMeta, dim: int) -> None:
    """Raise unless `dim` is a dimension of `a`, counted from the front."""
    require(0 <= dim < a.ndim, f"dim {dim} of a {a.ndim}-d tensor")


def _scan_rule(a: TensorMeta, dim: int) -> TensorMeta:
    check_dim(a, dim)
    return a.like(a.shape)


def _with_positions(a: TensorMeta, dim: int) -> tuple[TensorMeta, TensorMeta]:
    values = _scan_rule(a, dim)
    return values, values.like(dtype=torch.int64)


def _same_dtype(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda a, dim: function(a, dim, dtype=a.dtype).contiguous()


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
        rule=_with_positions if _positions else _scan_rule,
        eager=_eager,
        family="scan",
        tags=("scan",),
        exact=_name in ("cummax", "cummin"),
        doc=_doc,
        shape="that of the operand",
        edge_cases={**_edges, "empty": "nothing"},
        source=_SOURCE,
        flops=flops_per_input(8 if _name == "logcumsumexp" else 1),
        dtypes=_kind,
    )
