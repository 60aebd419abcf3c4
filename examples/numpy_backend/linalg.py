"""Linear algebra: NumPy's and SciPy's LAPACK, matrix by matrix."""
# ruff: noqa: ANN001, ANN002, ANN202

import itertools

import numpy as np
from scipy import linalg
from scipy.linalg import lapack


def _each(function, *inner):
    """`function` on each matrix of a batch; `inner` are the dimensions of each operand's items."""

    def call(*args):
        arrays, rest = args[: len(inner)], args[len(inner) :]
        batch = arrays[0].shape[: arrays[0].ndim - inner[0]]
        where = list(itertools.product(*map(range, batch)))
        if not where:  # nothing to do, but the shapes of the results are needed
            arrays = [np.ones((*[1] * len(batch), *a.shape[len(batch) :]), a.dtype) for a in arrays]
            arrays = [a + np.eye(*a.shape[-2:]) if n == 2 else a for a, n in zip(arrays, inner)]
            results = [function(*(a.reshape(a.shape[len(batch) :]) for a in arrays), *rest)]
        else:
            results = [function(*(a[i] for a in arrays), *rest) for i in where]
        if not isinstance(results[0], tuple):
            return _stacked(results, batch)
        return tuple(_stacked(parts, batch) for parts in zip(*results))

    return call


def _stacked(parts, batch):
    parts = [np.asarray(p) for p in parts]
    whole = np.stack(parts)
    return whole[: int(np.prod(batch))].reshape((*batch, *parts[0].shape))


def _driver(name, *arrays):
    return lapack.get_lapack_funcs((name,), arrays)[0]


def _cholesky(a, upper):
    if not a.size:
        return a, np.int32(0)
    half = np.triu(a) if upper else np.tril(a)
    factor, info = _driver("potrf", a)(half, lower=not upper, clean=True)
    return factor, np.int32(info)


def _lu_factor(a, pivot):
    if not a.size:
        return a, np.zeros(min(a.shape), np.int32), np.int32(0)
    lu, pivots, info = _driver("getrf", a)(a)
    return lu, pivots + 1, np.int32(info)


def _parts(lu):
    return np.tril(lu, -1) + np.eye(len(lu), dtype=lu.dtype), np.triu(lu)


def _exchanged(x, pivots, backward=False):
    x = x.copy()
    for i, j in list(enumerate(pivots - 1))[:: -1 if backward else 1]:
        x[[i, j]] = x[[j, i]]
    return x


def _lu_solve(lu, pivots, b, left, adjoint):
    lower, upper = _parts(lu)
    if not left:  # x a = b is a^H x^H = b^H
        return _lu_solve(lu, pivots, b.conj().T, True, not adjoint).conj().T
    if adjoint:
        return _exchanged(
            np.linalg.solve(lower.conj().T, np.linalg.solve(upper.conj().T, b)), pivots, True
        )
    return np.linalg.solve(upper, np.linalg.solve(lower, _exchanged(b, pivots)))


def _solve_triangular(a, b, upper, left, unit):
    if not left:
        return _solve_triangular(a.T, b.T, not upper, True, unit).T
    return linalg.solve_triangular(a, b, lower=not upper, unit_diagonal=unit) if a.size else b


def _qr(a, complete):
    return tuple(np.linalg.qr(a, "complete" if complete else "reduced"))


def _householder(a, tau):
    """The first columns of H1 H2 ... Hk."""
    q = np.eye(*a.shape, dtype=a.dtype)
    for i in range(len(tau))[::-1]:
        v = np.concatenate([np.zeros(i), [1], a[i + 1 :, i]]).astype(a.dtype)[:, None]
        q -= tau[i] * v @ (v.conj().T @ q)
    return q


def _ormqr(a, tau, c, left, adjoint):
    rows = a.shape[0]
    square = np.concatenate([a, np.zeros((rows, rows), a.dtype)], 1)[:, :rows]
    q = _householder(square, tau)
    q = q.conj().T if adjoint else q
    return q @ c if left else c @ q


def _geqrf(a):
    if not a.size:
        return a, np.zeros(min(a.shape), a.dtype)
    return _driver("geqrf", a)(a)[:2]


def _ldl_factor(a, hermitian):
    if not a.size:
        return a, np.zeros(len(a), np.int32), np.int32(0)
    name = "hetrf" if hermitian and a.dtype.kind == "c" else "sytrf"
    ld, pivots, info = _driver(name, a)(a, lower=1)
    return ld, np.asarray(pivots, np.int32), np.int32(info)


def _ldl_solve(ld, pivots, b, hermitian):
    if not ld.size or not b.size:
        return b
    name = "hetrs" if hermitian and ld.dtype.kind == "c" else "sytrs"
    return _driver(name, ld, b)(ld, pivots, b, lower=1)[0]


def _lstsq(a, b, rcond, driver):
    x, _, rank, values = linalg.lstsq(
        a, b, None if driver == "gels" else rcond, lapack_driver="gelsd"
    )
    keep = driver in ("gelsd", "gelss")
    residuals = (np.abs(a @ x - b) ** 2).sum(-2)
    rank = min(a.shape) if driver == "gels" else rank
    return x, residuals, np.int64(rank), values if keep else np.zeros_like(values)


def _eigh(a, upper):
    return tuple(np.linalg.eigh(a, "U" if upper else "L"))


FUNCTIONS = {
    "cholesky": _each(_cholesky, 2),
    "qr": _qr,
    "svd": lambda a, full: tuple(np.linalg.svd(a, full)),
    "svdvals": lambda a: np.linalg.svd(a, compute_uv=False),
    "eigh": _eigh,
    "eigvalsh": lambda a, upper: _eigh(a, upper)[0],
    "eig": lambda a: tuple(np.linalg.eig(a)),
    "eigvals": np.linalg.eigvals,
    "lu_factor": _each(_lu_factor, 2),
    "lu_solve": _each(_lu_solve, 2, 1, 2),
    "solve_triangular": _each(_solve_triangular, 2, 2),
    "lstsq": _each(_lstsq, 2, 2),
    "matrix_exp": _each(linalg.expm, 2),
    "householder_product": _each(_householder, 2, 1),
    "geqrf": _each(_geqrf, 2),
    "ormqr": _each(_ormqr, 2, 1, 2),
    "ldl_factor": _each(_ldl_factor, 2),
    "ldl_solve": _each(_ldl_solve, 2, 1, 2),
}
