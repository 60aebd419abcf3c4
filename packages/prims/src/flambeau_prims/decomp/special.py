"""Decompositions of special functions and scans.

In: tensors and numbers of any shapes and dtypes that ATen takes. Out: special and scan prims.
Invariant: integers become floats, or int64 in sums; half precision is computed in float32 and
rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from flambeau_prims._op import PRIMS
from flambeau_prims._torch_compat import parameters
from flambeau_prims.decomp import emit as e
from flambeau_prims.decomp.emit import Operand, canonical, elementwise, p
from flambeau_prims.decomp.pointwise import binary, overloads, unary
from flambeau_prims.decomp.reduction import summed_dtype
from flambeau_prims.ops.pointwise import INTS, POINTWISE
from flambeau_prims.promotion import Promotion, compute_dtype
from flambeau_prims.table import decomposition

aten = torch.ops.aten
FLOAT, SAME = Promotion.FLOAT, Promotion.SAME

_KINDS = ("default", "x_scalar", "n_scalar", "self_scalar", "other_scalar")


def _register_functions() -> None:
    """ATen's operations that a primitive is: its declaration names them."""
    for name, function in POINTWISE.items():
        inexact = not function.kind & INTS and function.promotes
        make = unary if len(parameters(PRIMS[name].overload)) == 1 else binary
        for operation in function.aten:
            ops = overloads(operation, *_KINDS)
            decomposition(*ops)(make(getattr(p, name), FLOAT if inexact else SAME))


_register_functions()


@decomposition(aten.polygamma.default)
def polygamma(n: int, x: Tensor) -> Tensor:
    if n == 0:
        return elementwise(p.digamma, (x,), FLOAT)
    return elementwise(lambda y: p.polygamma(n, y), (x,), FLOAT)


@decomposition(aten.mvlgamma.default)
def mvlgamma(x: Tensor, order: int) -> Tensor:
    """log of pi**(p(p-1)/4) times the product of gamma(x - j/2) for j below p."""

    def compute(y: Tensor) -> Tensor:
        total = p.lgamma(y)
        for j in range(1, order):
            total = p.add(total, p.lgamma(e.sub(y, 0.5 * j)))
        return e.add(total, order * (order - 1) * 0.25 * math.log(math.pi))

    return e.in_format(elementwise(compute, (x,), FLOAT), torch.contiguous_format)


@decomposition(aten.frexp.Tensor)
def frexp(x: Tensor) -> tuple[Tensor, Tensor]:
    parts = p.frexp(x)
    return parts[0], parts[1]


@decomposition(aten._dirichlet_grad.default)
def dirichlet_grad(x: Tensor, alpha: Tensor, total: Tensor) -> Tensor:
    return elementwise(p.dirichlet_grad, (x, alpha, total), FLOAT)


def _times_log(log: Any) -> Any:
    def combine(x: Tensor, y: Tensor) -> Tensor:
        value = e.where(e.eq(x, 0.0), 0.0, p.mul(x, log(y)))
        return p.where(p.isnan(y), y, value)

    return combine


@decomposition(aten.xlogy.Tensor, aten.xlogy.Scalar_Self, aten.xlogy.Scalar_Other)
def xlogy(a: Operand, b: Operand) -> Tensor:
    return elementwise(_times_log(p.log), (a, b), FLOAT)


@decomposition(*overloads("special_xlog1py", "default", "self_scalar", "other_scalar"))
def xlog1py(a: Operand, b: Operand) -> Tensor:
    return elementwise(_times_log(p.log1p), (a, b), FLOAT)


@decomposition(aten.special_entr.default)
def entr(x: Tensor) -> Tensor:
    """-x log x, 0 at 0, -inf below."""

    def compute(y: Tensor) -> Tensor:
        inside = e.where(e.eq(y, 0.0), 0.0, p.neg(p.mul(y, p.log(y))))
        return p.where(p.isnan(y), y, e.where(e.lt(y, 0.0), float("-inf"), inside))

    return elementwise(compute, (x,), FLOAT)


@decomposition(aten.sinc.default)
def sinc(x: Tensor) -> Tensor:
    """sin(pi x) / (pi x), 1 at 0."""

    def compute(y: Tensor) -> Tensor:
        scaled = e.mul(y, math.pi)
        return e.where(e.eq(y, 0), 1, p.div(p.sin(scaled), scaled))

    return elementwise(compute, (x,), FLOAT)


@decomposition(aten.logit.default)
def logit(x: Tensor, eps: float | None = None) -> Tensor:
    def compute(y: Tensor) -> Tensor:
        if eps is not None:  # NaN is no bound
            y = e.where(e.lt(y, eps), eps, e.where(e.gt(y, 1.0 - eps), 1.0 - eps, y))
        return p.log(p.div(y, e.sub(1.0, y)))

    return elementwise(compute, (x,), FLOAT)


@decomposition(aten.logit_backward.default)
def logit_backward(grad: Tensor, x: Tensor, eps: float | None = None) -> Tensor:
    low, outside = (0.0, float("nan")) if eps is None else (eps, 0.0)
    vectors = e.by_vectors(x)

    def derive(g: Tensor, y: Tensor) -> Tensor:
        slope = p.div(g, p.mul(y, e.sub(1.0, y)))
        if not vectors:
            beyond = p.logical_or(e.lt(y, low), e.gt(y, 1.0 - low))
            return e.where(beyond, outside, slope)
        inside = p.logical_and(e.ge(y, low), e.le(y, 1.0 - low))  # NaN is not
        return e.where(inside, slope, outside)

    return elementwise(derive, (grad, x))


def first_of_one(x: Tensor) -> tuple[Tensor, Tensor]:
    """A 0-d tensor and its position in itself: what selecting from it gives."""
    return p.clone(x), p.full([], 0, dtype=torch.int64, device=x.device)


def _running(op: Callable[..., Tensor]) -> Callable[..., Any]:
    def call(x: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> Any:
        result = summed_dtype(x, dtype)
        where = canonical(dim, x.ndim)
        if x.ndim == 0:
            return p.clone(e.cast(x, result))
        return e.cast(op(e.cast(e.cast(x, result), compute_dtype(result)), where), result)

    return call


decomposition(aten.cumsum.default)(_running(p.cumsum))
decomposition(aten.cumprod.default)(_running(p.cumprod))


def _extreme(op: Callable[..., Any]) -> Callable[..., Any]:
    def call(x: Tensor, dim: int) -> Any:
        where = canonical(dim, x.ndim)
        return first_of_one(x) if x.ndim == 0 else tuple(op(x, where))

    return call


decomposition(aten.cummax.default)(_extreme(p.cummax))
decomposition(aten.cummin.default)(_extreme(p.cummin))


@decomposition(aten.logcumsumexp.default, aten._logcumsumexp.default)
def logcumsumexp(x: Tensor, dim: int) -> Any:
    where = canonical(dim, x.ndim)
    if x.ndim == 0:
        return p.clone(x)
    return e.cast(p.logcumsumexp(e.widen(x), where), x.dtype)
