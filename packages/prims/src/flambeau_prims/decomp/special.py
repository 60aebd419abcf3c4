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

from flambeau_prims.decomp import emit as e
from flambeau_prims.decomp.emit import canonical, elementwise, p
from flambeau_prims.decomp.pointwise.declared import formula
from flambeau_prims.decomp.reduction import summed_dtype
from flambeau_prims.decomposition_table import decomposition, overloads, same
from flambeau_prims.promotion import Promotion, compute_dtype

aten = torch.ops.aten

same(aten.frexp.Tensor, "frexp")
FLOAT, SAME = Promotion.FLOAT, Promotion.SAME


@decomposition(aten.polygamma.default)
def polygamma(n: int, x: Tensor) -> Tensor:
    if n == 0:
        return elementwise(p.digamma, (x,), FLOAT)
    return elementwise(lambda y: p.polygamma(n, y), (x,), FLOAT)


@decomposition(aten.mvlgamma.default)
def mvlgamma(x: Tensor, order: int) -> Any:
    """log of pi**(p(p-1)/4) times the product of gamma(x - j/2) for j below p."""
    if order < 1:
        return NotImplemented  # eager has the message

    def compute(y: Tensor) -> Tensor:
        total = p.lgamma(y)
        for j in range(1, order):
            total = p.add(total, p.lgamma(e.sub(y, 0.5 * j)))
        return e.add(total, order * (order - 1) * 0.25 * math.log(math.pi))

    return e.in_format(elementwise(compute, (x,), FLOAT), torch.contiguous_format)


@decomposition(aten._dirichlet_grad.default)
def dirichlet_grad(x: Tensor, alpha: Tensor, total: Tensor) -> Tensor:
    return elementwise(p.dirichlet_grad, (x, alpha, total), FLOAT)


def _times_log(x: Tensor, y: Tensor, log: Any) -> Tensor:
    value = e.where(e.eq(x, 0.0), 0.0, p.mul(x, log(y)))
    return p.where(p.isnan(y), y, value)


@formula(*overloads("xlogy", "Tensor", "Scalar_Self", "Scalar_Other"), promotion=FLOAT)
def xlogy(x: Tensor, y: Tensor) -> Tensor:
    return _times_log(x, y, p.log)


@formula(*overloads("special_xlog1py", "default", "self_scalar", "other_scalar"), promotion=FLOAT)
def xlog1py(x: Tensor, y: Tensor) -> Tensor:
    return _times_log(x, y, p.log1p)


@formula(aten.special_entr.default, promotion=FLOAT)
def entr(x: Tensor) -> Tensor:
    """-x log x, 0 at 0, -inf below."""
    inside = e.where(e.eq(x, 0.0), 0.0, p.neg(p.mul(x, p.log(x))))
    return p.where(p.isnan(x), x, e.where(e.lt(x, 0.0), float("-inf"), inside))


@formula(aten.sinc.default, promotion=FLOAT)
def sinc(x: Tensor) -> Tensor:
    """sin(pi x) / (pi x), 1 at 0."""
    scaled = e.mul(x, math.pi)
    return e.where(e.eq(x, 0), 1, p.div(p.sin(scaled), scaled))


@formula(aten.logit.default, promotion=FLOAT)
def logit(x: Tensor, eps: float | None = None) -> Tensor:
    if eps is not None:  # NaN is no bound
        x = e.where(e.lt(x, eps), eps, e.where(e.gt(x, 1.0 - eps), 1.0 - eps, x))
    return p.log(p.div(x, e.sub(1.0, x)))


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
        return e.first_of_one(x) if x.ndim == 0 else tuple(op(x, where))

    return call


decomposition(aten.cummax.default)(_extreme(p.cummax))
decomposition(aten.cummin.default)(_extreme(p.cummin))


@decomposition(aten.logcumsumexp.default, aten._logcumsumexp.default)
def logcumsumexp(x: Tensor, dim: int) -> Any:
    where = canonical(dim, x.ndim)
    if x.ndim == 0:
        return p.clone(x)
    return e.cast(p.logcumsumexp(e.widen(x), where), x.dtype)
