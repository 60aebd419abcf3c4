"""Products, transforms, attention and LAPACK; a function here bears its primitive's name."""
# ruff: noqa: ANN001, ANN002, ANN201, ANN202

import math

import numpy as np
from flambeau_prims import PRIMS
from scipy import linalg
from scipy.linalg import lapack

from numpy_backend.arrays import wide


def addmm(x, a, b, beta, alpha):
    product = alpha * bmm(a, b)
    return product if beta == 0 else beta * wide(x) + product


def bmm(a, b):
    return wide(a) @ wide(b)


def fft_c2c(x, dims, forward, normalization=0):
    transform = np.fft.fftn if forward else np.fft.ifftn
    return transform(wide(x), None, dims, _norm(forward, normalization))


def _norm(forward, normalization):
    """NumPy's name for what ATen has a number for."""
    return (
        "ortho"
        if normalization == 1
        else "backward"
        if forward != (normalization == 2)
        else "forward"
    )


def fft_r2c(x, dims, onesided, normalization=0):
    transform = np.fft.rfftn if onesided else np.fft.fftn
    return transform(wide(x), axes=dims, norm=_norm(True, normalization))


def fft_c2r(x, dims, last_size, normalization=0):
    x = fft_c2c(x, dims[:-1], False, normalization) if dims[1:] else wide(x)
    return np.fft.irfft(x, last_size, dims[-1], norm=_norm(False, normalization))


def _scores(q, k, bias, is_causal, scale):
    """Softmax of the scores, the logarithm of its denominators, and the scale."""
    scale = scale or q.shape[-1] ** -0.5
    scores = wide(q) @ np.swapaxes(_shared(k, q), -1, -2) * scale
    scores = scores if bias is None else scores + bias
    if is_causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
    lse = np.logaddexp.reduce(scores, -1, keepdims=True)
    return np.exp(scores - lse), lse[..., 0], scale


def _shared(x, q):
    """Keys or values once for each head of the queries."""
    return np.repeat(wide(x), q.shape[1] // x.shape[1], 1)


def attention(q, k, v, bias, dropout_p, is_causal, *, scale=None):
    weights, lse, _ = _scores(q, k, bias, is_causal, scale)
    return weights @ _shared(v, q), lse


def attention_backward(grad, q, k, v, out, lse, bias, dropout_p, is_causal, *, scale=None):
    weights, _, scale = _scores(q, k, bias, is_causal, scale)
    rows = (wide(grad) * out).sum(-1, keepdims=True)
    inner = weights * (wide(grad) @ np.swapaxes(_shared(v, q), -1, -2) - rows) * scale
    pairs = (inner, wide(q)), (weights, wide(grad))
    dk, dv = (
        (np.swapaxes(a, -1, -2) @ b).reshape(*k.shape[:2], -1, k.shape[2], b.shape[-1]).sum(2)
        for a, b in pairs
    )
    return inner @ _shared(k, q), dk, dv


def _each(function, *inner):
    """`function` on each matrix of a batch; `inner` are the dimensions of each operand's items."""

    def call(*args):
        batch = args[0].shape[: args[0].ndim - inner[0]]
        count, rest = math.prod(batch), args[len(inner) :]
        items = [a.reshape(count, *a.shape[len(batch) :]) for a in args[: len(inner)]]
        if not count:  # nothing to do, but the shapes of the results are needed
            eyes = [np.eye(*a.shape[1:]) if a.ndim == 3 else 0 for a in items]
            items = [np.ones((1, *a.shape[1:]), a.dtype) + eye for a, eye in zip(items, eyes)]
        results = [function(*one, *rest) for one in zip(*items)]
        single = not isinstance(results[0], tuple)
        parts = [results] if single else zip(*results)
        whole = [np.stack(p)[:count].reshape((*batch, *np.shape(p[0]))) for p in parts]
        return whole[0] if single else whole

    return call


def _driver(name, *arrays):
    return lapack.get_lapack_funcs((name,), arrays)[0]


def _cholesky(a, upper):
    if not a.size:
        return a, np.int32(0)
    return _driver("potrf", a)(np.triu(a) if upper else np.tril(a), lower=not upper, clean=True)


def _cholesky_inverse(factor, upper):
    if not factor.size:
        return factor
    triangle = np.triu(factor) if upper else np.tril(factor)
    inverse = np.linalg.inv(triangle)
    return inverse @ inverse.conj().T if upper else inverse.conj().T @ inverse


def _lu_factor(a, pivot):
    if not a.size:
        return a, np.zeros(min(a.shape), np.int32), np.int32(0)
    lu, pivots, info = _driver("getrf", a)(a)
    return lu, pivots + 1, info


def _lu_solve(lu, pivots, b, left, adjoint):
    if not left:  # x a = b is a^H x^H = b^H
        return _lu_solve(lu, pivots, b.conj().T, True, not adjoint).conj().T
    return linalg.lu_solve((lu, pivots - 1), b, 2 if adjoint else 0)


def _solve_triangular(a, b, upper, left, unit):
    if not left:
        return _solve_triangular(a.T, b.T, not upper, True, unit).T
    return linalg.solve_triangular(a, b, lower=not upper, unit_diagonal=unit) if a.size else b


def _householder(a, tau):
    """The first columns of H1 H2 ... Hk."""
    q = np.eye(*a.shape, dtype=a.dtype)
    for i in range(len(tau))[::-1]:
        v = np.concatenate([np.zeros(i), [1], a[i + 1 :, i]])[:, None]
        q = q - tau[i] * v @ (v.conj().T @ q)
    return q


def _ormqr(a, tau, c, left, adjoint):
    q = _householder(np.concatenate([a, np.zeros((len(a),) * 2)], 1)[:, : len(a)], tau)
    q = q.conj().T if adjoint else q
    return q @ c if left else c @ q


def geqrf(a):
    h, tau = np.linalg.qr(a, "raw")
    return np.swapaxes(h, -1, -2), tau


def _ldl_factor(a, hermitian):
    if not a.size:
        return a, np.zeros(len(a)), 0
    name = "hetrf" if hermitian and a.dtype.kind == "c" else "sytrf"
    return _driver(name, a)(a, lower=1)


def _ldl_solve(ld, pivots, b, hermitian):
    if not b.size:
        return b
    name = "hetrs" if hermitian and ld.dtype.kind == "c" else "sytrs"
    return _driver(name, ld, b)(ld, pivots, b, lower=1)[0]


def _lstsq(a, b, rcond, driver):
    x, _, rank, values = linalg.lstsq(a, b, None if driver == "gels" else rcond)
    rank = min(a.shape) if driver == "gels" else rank
    return x, (np.abs(a @ x - b) ** 2).sum(-2), rank, values * (driver in ("gelsd", "gelss"))


def eigh(a, upper):
    return np.linalg.eigh(a, "U" if upper else "L")


FUNCTIONS = {
    **{name: f for name, f in globals().items() if name in PRIMS},
    "mm": bmm,
    "baddbmm": addmm,
    "int_mm": lambda a, b: a.astype(np.int32) @ b.astype(np.int32),
    "qr": lambda a, complete: np.linalg.qr(a, "complete" if complete else "reduced"),
    "svd": np.linalg.svd,
    "svdvals": lambda a: np.linalg.svd(a, compute_uv=False),
    "eigvalsh": lambda a, upper: eigh(a, upper)[0],
    "eig": np.linalg.eig,
    "eigvals": np.linalg.eigvals,
    "cholesky": _each(_cholesky, 2),
    "cholesky_inverse": _each(_cholesky_inverse, 2),
    "lu_factor": _each(_lu_factor, 2),
    "lu_solve": _each(_lu_solve, 2, 1, 2),
    "solve_triangular": _each(_solve_triangular, 2, 2),
    "lstsq": _each(_lstsq, 2, 2),
    "matrix_exp": _each(linalg.expm, 2),
    "householder_product": _each(_householder, 2, 1),
    "ormqr": _each(_ormqr, 2, 1, 2),
    "ldl_factor": _each(_ldl_factor, 2),
    "ldl_solve": _each(_ldl_solve, 2, 1, 2),
}
