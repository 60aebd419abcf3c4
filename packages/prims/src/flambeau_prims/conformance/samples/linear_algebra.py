"""Sample calls of linear algebra: factorizations, systems, products, transforms, distances.

In: a generator. Out: calls on well-conditioned matrices, batched and empty ones among them.
Invariant: eigenvalues and singular values are distinct, so that vectors are determined but for
their phases; a backward call gets what the forward call of the same arguments returned.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Generator, Tensor

from flambeau_prims._op import PRIMS
from flambeau_prims.conformance.samples.registry import Call, call, gradients, samples
from flambeau_prims.conformance.samples.tensors import (
    BF16,
    C64,
    C128,
    F16,
    F32,
    F64,
    I32,
    I64,
    hermitian,
    matrix,
    signed,
)

_DTYPES = (F32, F64, C64, C128)


def _squares(g: Generator) -> Iterator[Tensor]:
    for dtype in _DTYPES:
        yield matrix((), 4, dtype, g)
        yield matrix((2, 3), 3, dtype, g).mT
        yield matrix((2,), 1, dtype, g)
        yield matrix((0,), 2, dtype, g)


def _rectangles(g: Generator) -> Iterator[Tensor]:
    for dtype in _DTYPES:
        yield signed((5, 3), dtype, g)
        yield signed((2, 3, 4), dtype, g)
        yield signed((2, 3, 4), dtype, g).mT
        yield signed((4, 4), dtype, g)


@samples("cholesky", "eigh", "eigvalsh")
def _hermitian(g: Generator) -> Iterator[Call]:
    for dtype in _DTYPES:
        for a in (hermitian((), 4, dtype, g), hermitian((2,), 3, dtype, g).mT):
            yield call(a, False)
            yield call(a, True)


@samples("cholesky_inverse")
def _cholesky_factors(g: Generator) -> Iterator[Call]:
    for (a, upper), _ in _hermitian(g):
        yield call(torch.linalg.cholesky(a, upper=upper), upper)


@samples("ldl_factor")
def _ldl(g: Generator) -> Iterator[Call]:
    for dtype in _DTYPES:
        yield call(hermitian((2,), 4, dtype, g), dtype.is_complex)


@samples("eig", "eigvals", "matrix_exp", of=_DTYPES)
def _square(g: Generator, dtype: torch.dtype) -> Iterator[Call]:
    spread = torch.diag(torch.arange(4)).to(dtype)
    yield call(signed((4, 4), dtype, g) * 0.1 + spread)
    yield call((signed((2, 4, 4), dtype, g) * 0.1 + spread).mT)


@samples("lu_factor")
def _lu_factor(g: Generator) -> Iterator[Call]:
    for a in (*_squares(g), *_rectangles(g)):
        yield call(a, True)


@samples("qr", "svd")
def _factors(g: Generator) -> Iterator[Call]:
    for a in _rectangles(g):
        yield call(a, False)
        yield call(a, True)


@samples("svdvals", "geqrf")
def _tall_and_wide(g: Generator) -> Iterator[Call]:
    for a in _rectangles(g):
        yield call(a)


@samples("pivots_to_permutation")
def _pivots(g: Generator) -> Iterator[Call]:
    yield call(torch.tensor([3, 3, 3, 4], dtype=I32), 4)
    yield call(torch.tensor([[3, 2], [1, 4]], dtype=I32), 4)
    yield call(torch.zeros((2, 0), dtype=I32), 3)
    for args, _ in _lu_factor(g):
        yield call(PRIMS["lu_factor"].overload(*args)[1], args[0].shape[-2])


@samples("lu_solve")
def _lu_solve(g: Generator) -> Iterator[Call]:
    for a in _squares(g):
        lu, pivots, _ = PRIMS["lu_factor"].overload(a, True)
        b = signed((*a.shape[:-1], 2), a.dtype, g)
        for adjoint in (False, True):
            yield call(lu, pivots, b, True, adjoint)
            yield call(lu, pivots, b.mT, False, adjoint)


@samples("solve_triangular")
def _solve_triangular(g: Generator) -> Iterator[Call]:
    for a in _squares(g):
        b = signed((*a.shape[:-1], 2), a.dtype, g)
        yield call(a, b, True, True, False)
        yield call(a, b.mT, False, False, False)
        yield call(a / a.shape[-1], b, False, True, True)


@samples("lstsq")
def _lstsq(g: Generator) -> Iterator[Call]:
    for a in _rectangles(g):
        b = signed((*a.shape[:-1], 2), a.dtype, g)
        for driver in ("gels", "gelsy", "gelsd", "gelss"):
            yield call(a, b, 1e-6, driver)


@samples("householder_product", of=_DTYPES)
def _householder(g: Generator, dtype: torch.dtype) -> Iterator[Call]:
    for a in (signed((5, 3), dtype, g), signed((2, 4, 3), dtype, g)):
        yield call(*PRIMS["geqrf"].overload(a))


@samples("ormqr", of=_DTYPES)
def _ormqr(g: Generator, dtype: torch.dtype) -> Iterator[Call]:
    for shape in ((5, 3), (2, 4, 3)):
        a, tau = PRIMS["geqrf"].overload(signed(shape, dtype, g))
        c = signed((*shape[:-1], 2), dtype, g)
        yield call(a, tau, c, True, False)
        yield call(a, tau, c.mT, False, True)


@samples("ldl_solve")
def _ldl_solve(g: Generator) -> Iterator[Call]:
    for args, _ in _ldl(g):
        ld, pivots, _info = PRIMS["ldl_factor"].overload(*args)
        b = signed((*ld.shape[:-1], 2), ld.dtype, g)
        yield call(ld, pivots, b, args[1])


@samples("fft_c2c", of=(C64, C128))
def _c2c(g: Generator, dtype: torch.dtype) -> Iterator[Call]:
    a = signed((3, 8, 5), dtype, g)
    for forward in (False, True):
        yield call(a, [1], forward)
        yield call(a.permute(2, 0, 1), [0, 2], forward)
        yield call(a, [0, 1], forward, 2 - forward)
    yield call(signed((1,), dtype, g), [0], True)
    yield call(signed((0, 4), dtype, g), [1], True)


@samples("fft_r2c", of=(F32, F64))
def _r2c(g: Generator, dtype: torch.dtype) -> Iterator[Call]:
    for onesided in (False, True):
        yield call(signed((3, 8, 5), dtype, g), [1], onesided)
        yield call(signed((3, 8, 5), dtype, g).permute(2, 0, 1), [2, 0], onesided, 2 - onesided)


@samples("fft_c2r", of=(C64, C128))
def _c2r(g: Generator, dtype: torch.dtype) -> Iterator[Call]:
    for n in (8, 9):
        half = PRIMS["fft_r2c"].overload(signed((3, n), F32 if dtype == C64 else F64, g), [1], True)
        yield call(half, [1], n)
        yield call(half.t().contiguous().t(), [1], n, n - 7)


@samples("addmm", of=(F32, F64, BF16, F16, C64))
def _addmm(g: Generator, dtype: torch.dtype) -> Iterator[Call]:
    a, b = signed((3, 4), dtype, g), signed((5, 4), dtype, g).t()
    yield call(signed((3, 5), dtype, g), a, b, 1, 1)
    yield call(signed((1, 5), dtype, g).expand(3, 5), a, b, 1, 1)
    yield call(torch.full((3, 5), float("nan")).to(dtype), a, b, 0, 2)
    yield call(signed((5, 3), dtype, g).t(), a, b, 0.5, -1)


@samples("baddbmm", of=(F32, F64, BF16, F16, C64))
def _baddbmm(g: Generator, dtype: torch.dtype) -> Iterator[Call]:
    a, b = signed((2, 3, 4), dtype, g), signed((2, 5, 4), dtype, g).mT
    yield call(signed((2, 3, 5), dtype, g), a, b, 1, 1)
    yield call(signed((2, 1, 5), dtype, g).expand(2, 3, 5), a, b, 0.5, 2)


@samples("int_mm")
def _int_mm(g: Generator) -> Iterator[Call]:
    a = torch.randint(-128, 128, (32, 16), generator=g).to(torch.int8)
    b = torch.randint(-128, 128, (16, 8), generator=g).to(torch.int8)
    yield call(a, b)
    yield call(a, torch.randint(-128, 128, (8, 16), generator=g).to(torch.int8).t())


@samples("check_factorization")
def _check_factorization(g: Generator) -> Iterator[Call]:
    yield call(torch.tensor(0, dtype=torch.int32), "linalg.solve", True)
    yield call(torch.zeros(2, 3, dtype=torch.int32), "linalg.solve", False)


_MULTIPLIED = (F32, F64, BF16, F16, I64, C64, C128)


@samples("mm", of=_MULTIPLIED)
def _mm(g: Generator, dtype: torch.dtype) -> Iterator[Call]:
    yield call(signed((3, 4), dtype, g), signed((4, 5), dtype, g))
    yield call(signed((3, 4), dtype, g), signed((5, 4), dtype, g).t())
    yield call(signed((4, 3), dtype, g).t(), signed((4, 5), dtype, g))
    yield call(signed((7, 33), dtype, g)[:, ::3], signed((11, 13), dtype, g))
    yield call(signed((1, 4), dtype, g).expand(3, 4), signed((4, 1), dtype, g))
    yield call(signed((3, 0), dtype, g), signed((0, 5), dtype, g))
    yield call(signed((0, 3), dtype, g), signed((3, 5), dtype, g))


@samples("bmm", of=_MULTIPLIED)
def _bmm(g: Generator, dtype: torch.dtype) -> Iterator[Call]:
    yield call(signed((2, 3, 4), dtype, g), signed((2, 4, 5), dtype, g))
    yield call(signed((2, 3, 4), dtype, g), signed((2, 5, 4), dtype, g).mT)
    yield call(signed((3, 2, 4), dtype, g).transpose(0, 1), signed((2, 4, 5), dtype, g))
    yield call(signed((1, 3, 4), dtype, g).expand(2, 3, 4), signed((2, 4, 1), dtype, g))
    yield call(signed((0, 3, 4), dtype, g), signed((0, 4, 5), dtype, g))
    yield call(signed((2, 3, 0), dtype, g), signed((2, 0, 5), dtype, g))


@samples("cdist", of=(F32, F64))
def _distances(g: Generator, dtype: torch.dtype) -> Iterator[Call]:
    a, b = signed((2, 4, 3), dtype, g), signed((2, 5, 3), dtype, g)
    for order in (0.0, 1.0, 2.0, 2.5, float("inf")):
        yield call(a, b, order)
    yield call(a[0], b[1], 2.0)


@samples("pdist", of=(F32, F64))
def _pairs(g: Generator, dtype: torch.dtype) -> Iterator[Call]:
    for order in (0.0, 1.0, 2.0, 2.5, float("inf")):
        yield call(signed((5, 3), dtype, g), order)
    yield call(signed((1, 3), dtype, g), 2.0)


gradients("cdist_backward", distance=lambda given: given["0"])
gradients("pdist_backward", distance=lambda given: given["0"])
