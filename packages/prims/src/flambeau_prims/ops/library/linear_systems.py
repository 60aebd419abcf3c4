"""Library primitives of linear systems.

In: factors or matrices, and right sides as matrices in the last two dimensions. Out: solutions,
column by column in memory.
Invariant: batches and dtypes of both are equal; a singular system gives infinities or NaN.
"""

from __future__ import annotations

from typing import Any

import torch

from flambeau_prims._op import MetaResult, require
from flambeau_prims.layout import Size, TensorMeta
from flambeau_prims.ops.complex import REAL_OF
from flambeau_prims.ops.library.linalg import (
    GOLUB,
    NAN,
    check_matrices,
    columns,
    cubic,
    leaf,
    least,
)

aten = torch.ops.aten


def _per_right_side(args: tuple[Any, ...], result: MetaResult) -> Size:
    del result
    a, b = args[0], args[-1] if isinstance(args[-1], TensorMeta) else args[1]
    total: Size = 2 * a.shape[-1] * b.numel()
    return total


def check_system(name: str, a: TensorMeta, b: TensorMeta, left: bool) -> None:
    """Raise unless `a x = b` (or `x a = b`) is a system with one batch shape and dtype."""
    n, _ = check_matrices(name, a, square=True)
    require(a.dtype == b.dtype, f"{name}: dtypes {a.dtype} and {b.dtype} differ; cast first")
    good = b.ndim == a.ndim and a.shape[:-2] == b.shape[:-2]
    good = good and bool(b.shape[-2 if left else -1] == n)
    require(good, f"{name}: a right side {b.shape} for matrices {a.shape}, left={left}")


def _lu_solve_rule(
    lu: TensorMeta, pivots: TensorMeta, b: TensorMeta, left: bool, adjoint: bool
) -> TensorMeta:
    del adjoint
    check_system("lu_solve", lu, b, left)
    good = pivots.dtype == torch.int32 and pivots.shape == lu.shape[:-1]
    require(good, f"lu_solve: pivots {pivots.dtype}{list(pivots.shape)} for {lu.shape}")
    return columns(b, b.shape)


def _lu_solve(
    lu: torch.Tensor, pivots: torch.Tensor, b: torch.Tensor, left: bool, adjoint: bool
) -> Any:
    return aten.linalg_lu_solve.default(lu, pivots, b, left=left, adjoint=adjoint)


_SINGULAR = {**NAN, "domain": "a zero on the diagonal gives infinities or NaN"}

leaf(
    "lu_solve(Tensor lu, Tensor pivots, Tensor b, bool left, bool adjoint) -> Tensor",
    _lu_solve_rule,
    _lu_solve,
    doc="x with a x = b (`left`) or x a = b, or with a^H for a (`adjoint`), from `lu_factor(a)`.",
    edge_cases=_SINGULAR,
    source=f"{GOLUB}, 3.4",
    flops=lambda args, result: 2 * args[0].shape[-1] * args[2].numel(),
)


def _triangular_rule(
    a: TensorMeta, b: TensorMeta, upper: bool, left: bool, unitriangular: bool
) -> TensorMeta:
    del upper, unitriangular
    check_system("solve_triangular", a, b, left)
    return columns(b, b.shape)


def _solve_triangular(
    a: torch.Tensor, b: torch.Tensor, upper: bool, left: bool, unitriangular: bool
) -> Any:
    return aten.linalg_solve_triangular.default(
        a, b, upper=upper, left=left, unitriangular=unitriangular
    )


leaf(
    "solve_triangular(Tensor a, Tensor b, bool upper, bool left, bool unitriangular) -> Tensor",
    _triangular_rule,
    _solve_triangular,
    doc="x with a x = b (`left`) or x a = b; only one half of `a` is read, and its diagonal is"
    " taken to be 1 if `unitriangular`.",
    edge_cases=_SINGULAR,
    source=f"{GOLUB}, 3.1",
    flops=_per_right_side,
)


def _lstsq_rule(
    a: TensorMeta, b: TensorMeta, rcond: float, driver: str
) -> tuple[TensorMeta, TensorMeta, TensorMeta, TensorMeta]:
    del rcond
    m, n = check_matrices("lstsq", a)
    require(a.dtype == b.dtype, f"lstsq: dtypes {a.dtype} and {b.dtype} differ; cast first")
    good = b.ndim == a.ndim and b.shape[:-1] == a.shape[:-1]
    require(good, f"lstsq: a right side {b.shape} for matrices {a.shape}")
    require(driver in ("gels", "gelsy", "gelsd", "gelss"), f"lstsq: driver {driver!r}")
    batch, dtype = a.shape[:-2], REAL_OF.get(a.dtype, a.dtype)
    solution = columns(a, (*batch, n, b.shape[-1]))
    residuals = a.like((*batch, b.shape[-1]), dtype=dtype)
    rank = a.like(batch, dtype=torch.int64)
    return solution, residuals, rank, a.like((*batch, least(m, n)), dtype=dtype)


def _lstsq(a: torch.Tensor, b: torch.Tensor, rcond: float, driver: str) -> Any:
    x, left_over, rank, values = aten.linalg_lstsq.default(a, b, rcond, driver=driver)
    batch, k = tuple(a.shape[:-2]), min(a.shape[-2], a.shape[-1])
    real = REAL_OF.get(a.dtype, a.dtype)
    # The library may have no use for it; and it conjugates lazily, which is lost below a mode.
    if tuple(left_over.shape) != (*batch, b.shape[-1]) or a.is_complex():
        left_over = (a @ x - b).abs().square().sum(-2)
    if driver == "gels":
        rank = torch.full(batch, k, dtype=torch.int64, device=a.device)
    if tuple(values.shape) != (*batch, k):
        values = torch.zeros((*batch, k), dtype=real, device=a.device)
    return x, left_over, rank, values


leaf(
    "lstsq(Tensor a, Tensor b, float rcond, str driver) -> (Tensor, Tensor, Tensor, Tensor)",
    _lstsq_rule,
    _lstsq,
    doc="x of least norm among those with the least |a x - b| (`gels` takes full rank for"
    " granted), |a x - b|^2, the rank, and the singular values (zeros from `gels`, `gelsy`).",
    edge_cases={**NAN, "domain": "values below rcond times the largest count as 0"},
    source=f"{GOLUB}, 5.3 and 5.5",
    flops=cubic(4),
)


def _ldl_solve_rule(
    ld: TensorMeta, pivots: TensorMeta, b: TensorMeta, hermitian: bool
) -> TensorMeta:
    del hermitian
    check_system("ldl_solve", ld, b, True)
    good = pivots.dtype == torch.int32 and pivots.shape == ld.shape[:-1]
    require(good, f"ldl_solve: pivots {pivots.dtype}{list(pivots.shape)} for {ld.shape}")
    return columns(b, b.shape)


leaf(
    "ldl_solve(Tensor ld, Tensor pivots, Tensor b, bool hermitian) -> Tensor",
    _ldl_solve_rule,
    lambda ld, pivots, b, hermitian: aten.linalg_ldl_solve.default(
        ld, pivots, b, hermitian=hermitian
    ),
    doc="x with a x = b, from `ldl_factor(a)`.",
    edge_cases=_SINGULAR,
    source="Bunch and Kaufman, Some Stable Methods for Calculating Inertia, 1977",
    flops=lambda args, result: 2 * args[0].shape[-1] * args[2].numel(),
)
