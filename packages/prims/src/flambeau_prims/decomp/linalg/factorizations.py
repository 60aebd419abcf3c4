"""Decompositions of matrix factorisations.

In: matrices in the last two dimensions, batched. Out: the linear algebra prims.
Invariant: a failure that eager raises about is raised here too, through `check_factorization`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from flambeau_prims.decomp import emit as e
from flambeau_prims.decomp.emit import p
from flambeau_prims.decomp.linalg.matrices import lower, upper
from flambeau_prims.decomposition_table import decomposition, same
from flambeau_prims.shape_rules import Size

aten = torch.ops.aten

same(aten.linalg_eig.default, "eig")
same(aten._linalg_eigvals.default, "eigvals")
same(aten.linalg_householder_product.default, "householder_product")
same(aten.geqrf.default, "geqrf")
same(aten.ormqr.default, "ormqr")


@decomposition(aten._linalg_check_errors.default)
def check_errors(info: Tensor, api_name: str, *, is_matrix: bool) -> None:
    p.check_factorization(info, api_name, is_matrix)


@decomposition(aten.linalg_cholesky_ex.default)
def cholesky_ex(x: Tensor, *, upper: bool = False, check_errors: bool = False) -> Any:
    factor, info = p.cholesky(x, upper)
    if check_errors:
        p.check_factorization(info, "linalg.cholesky_ex", x.ndim == 2)
    return factor, info


@decomposition(aten.cholesky.default)
def cholesky(x: Tensor, upper: bool = False) -> Any:
    factor, info = p.cholesky(x, upper)
    p.check_factorization(info, "cholesky", x.ndim == 2)
    return e.in_format(factor, torch.contiguous_format) if e.no_elements(x.shape) else factor


@decomposition(aten.linalg_qr.default)
def qr(x: Tensor, mode: str = "reduced") -> Any:
    if mode not in ("reduced", "complete", "r"):
        raise RuntimeError(f"qr received unrecognized mode {mode!r}")
    q, r = p.qr(x, mode == "complete")
    return (e.filled(x, [0]) if mode == "r" else q), r


@decomposition(aten._linalg_svd.default)
def svd(
    x: Tensor, full_matrices: bool = False, compute_uv: bool = True, *, driver: str | None = None
) -> Any:
    if driver is not None:
        return NotImplemented  # a choice among the libraries of one kind of device
    if not compute_uv:
        return e.filled(x, [0]), p.svdvals(x), e.filled(x, [0])
    return tuple(p.svd(x, full_matrices))


@decomposition(aten._linalg_eigh.default)
def eigh(x: Tensor, UPLO: str = "L", compute_v: bool = True) -> Any:
    upper = UPLO.upper() == "U"
    if compute_v:
        return tuple(p.eigh(x, upper))
    return p.eigvalsh(x, upper), e.filled(x, [0])


@decomposition(aten.linalg_lu_factor_ex.default)
def lu_factor_ex(x: Tensor, *, pivot: bool = True, check_errors: bool = False) -> Any:
    lu, pivots, info = p.lu_factor(x, pivot)
    if check_errors:
        p.check_factorization(info, "torch.linalg.lu_factor_ex", x.ndim == 2)
    return lu, pivots, info


@decomposition(aten.linalg_lu.default)
def lu(x: Tensor, *, pivot: bool = True) -> Any:
    factors, pivots, _ = p.lu_factor(x, pivot)
    order, low, high = unpack(factors, pivots, True, pivot)
    return order, low, high


@decomposition(aten.lu_unpack.default)
def unpack(
    factors: Tensor, pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True
) -> Any:
    m, n = factors.shape[-2], factors.shape[-1]
    k = m if m < n else n
    if list(pivots.shape) != [*factors.shape[:-2], k]:
        return NotImplemented  # eager's kernel repeats, or drops, what is left
    order, low, high = e.filled(factors, [0]), e.filled(factors, [0]), e.filled(factors, [0])
    if unpack_data:
        low, high = lower(_corner(factors, m, k), unit=True), upper(_corner(factors, k, n))
    if unpack_pivots:
        # column j of P has its 1 in the row that came to stand at j
        source = p.pivots_to_permutation(pivots, m)
        shape = [*source.shape[:-1], m, m]
        rows = e.counted(m, source.device)
        rows = p.broadcast_in_dim(rows, shape, [len(shape) - 2])
        kept = [*range(source.ndim - 1), len(shape) - 1]
        order = e.cast(p.eq(p.broadcast_in_dim(source, shape, kept), rows), factors.dtype)
    return order, low, high


def _corner(x: Tensor, rows: Size, columns: Size) -> Tensor:
    stop = [*x.shape[:-2], rows, columns]
    return p.slice(x, [0] * x.ndim, stop, [1] * x.ndim)


@decomposition(aten.linalg_ldl_factor_ex.default)
def ldl_factor_ex(x: Tensor, *, hermitian: bool = False, check_errors: bool = False) -> Any:
    factors, pivots, info = p.ldl_factor(x, hermitian)
    if check_errors:
        p.check_factorization(info, "torch.linalg.ldl_factor_ex", x.ndim == 2)
    return factors, pivots, info


@decomposition(aten.linalg_matrix_exp.default)
def matrix_exp(x: Tensor) -> Tensor:
    return e.cast(p.matrix_exp(e.widen(x)), x.dtype)
