"""Decompositions of activation functions.

In: ATen's overloads. Out: prims. Invariant: computed wide, rounded once.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from flambeau_prims._torch_compat import is_of_onednn
from flambeau_prims.decomp import emit as e
from flambeau_prims.decomp.emit import Number, Operand, canonical, elementwise, p
from flambeau_prims.decomp.pointwise.declared import formula
from flambeau_prims.decomp.pointwise.selection import at_least, clamp_to
from flambeau_prims.decomp.views.view import sliced
from flambeau_prims.decomposition_table import decomposition, overloads
from flambeau_prims.promotion import is_inexact
from flambeau_prims.shape_rules import product

aten = torch.ops.aten

SQRT_HALF = math.sqrt(0.5)
GELU_SCALE = math.sqrt(2.0 / math.pi)
GELU_CUBE = 0.044715


def _relu(x: Tensor) -> Tensor:
    """Of -0 itself on a CPU, 0 on a GPU."""
    return e.maximum(x, 0) if e.on_gpu(x) else at_least(x, e.const(0, x))


@decomposition(aten.relu.default)
def relu(x: Tensor) -> Tensor:
    return elementwise(_relu, (x,))


@decomposition(aten.hardtanh.default)
def hardtanh(x: Tensor, min_val: Number = -1, max_val: Number = 1) -> Tensor:
    if not is_inexact(x.dtype):  # the bounds are whole numbers too
        min_val, max_val = int(min_val), int(max_val)  # type: ignore[arg-type]
    return e.laid_out_as(x, clamp_to(x, min_val, max_val))


@decomposition(aten.relu6.default)
def relu6(x: Tensor) -> Tensor:
    return hardtanh(x, 0, 6)


@decomposition(aten.threshold.default)
def threshold(x: Tensor, threshold: Number, value: Number) -> Tensor:
    def cut(y: Tensor, limit: Tensor, other: Tensor) -> Tensor:
        return p.where(p.le(y, limit), other, y)

    numbers = (x, threshold, value)
    if not is_inexact(x.dtype):  # numbers are of the tensor's dtype whatever they are
        return elementwise(lambda y: e.where(e.le(y, threshold), value, y), (x,))
    return elementwise(cut, numbers, narrow=e.on_gpu(x), parameters=True)


@formula(aten.leaky_relu.default)
def leaky_relu(x: Tensor, negative_slope: Number = 0.01) -> Tensor:
    return p.where(e.gt(x, 0.0), x, e.mul(x, negative_slope))


@decomposition(aten._prelu_kernel.default)
def prelu(x: Tensor, weight: Tensor) -> Tensor:
    def activate(y: Tensor, slope: Tensor) -> Tensor:
        return p.where(e.gt(y, 0.0), y, p.mul(slope, y))

    return e.laid_out_as(x, elementwise(activate, (x, weight)))


@decomposition(aten.elu.default)
def elu(x: Tensor, alpha: Number = 1, scale: Number = 1, input_scale: Number = 1) -> Tensor:
    def activate(y: Tensor) -> Tensor:
        below = e.mul(p.expm1(_scaled(y, input_scale)), alpha * scale)
        return p.where(e.le(y, 0.0), below, _scaled(y, scale))

    return elementwise(activate, (x,))


def _scaled(x: Tensor, factor: Number) -> Tensor:
    return x if factor == 1 else e.mul(x, factor)


@decomposition(aten.silu.default, keep="silu")
def silu(x: Tensor) -> Any:
    if e.on_gpu(x) and x.dtype.is_complex:  # infinity over infinity, which sigmoid's kernel has not
        return NotImplemented
    return elementwise(lambda y: p.mul(y, p.sigmoid(y)), (x,))


def relu6_shifted(x: Tensor) -> Tensor:
    """min(max(x + 3, 0), 6), the piece that the hard activations share."""
    return e.minimum(e.maximum(e.add(x, 3.0), 0.0), 6.0)


SIXTH = 0.16666667163372040
"""1 / 6 in float32, by which kernels for a GPU, and of a derivative, multiply in every dtype."""


def _sixth(x: Tensor) -> Tensor:
    return e.mul(x, SIXTH) if e.on_gpu(x) else e.div(x, 6.0)


@formula(aten.hardswish.default)
def hardswish(x: Tensor) -> Tensor:
    return _sixth(p.mul(x, relu6_shifted(x)))


@formula(aten.hardsigmoid.default)
def hardsigmoid(x: Tensor) -> Tensor:
    return _sixth(relu6_shifted(x))


@decomposition(aten.gelu.default, keep="gelu")
def gelu(x: Tensor, *, approximate: str = "none") -> Tensor:
    def exact(y: Tensor) -> Tensor:
        return p.mul(e.mul(y, 0.5), e.add(p.erf(e.mul(y, SQRT_HALF)), 1.0))

    def by_tanh(y: Tensor) -> Tensor:
        cube = p.mul(p.mul(y, y), y)
        inner = e.mul(e.fused(cube, GELU_CUBE, y), GELU_SCALE)
        return p.mul(e.mul(y, 0.5), e.add(p.tanh(inner), 1.0))

    def of_library(y: Tensor) -> Tensor:
        whole = p.mul(y, e.add(p.erf(e.mul(y, SQRT_HALF)), 1.0))  # which may overflow
        return e.where(e.eq(y, math.inf), math.nan, e.mul(whole, 0.5))

    erf = of_library if gelu_by_library(x) else exact
    return elementwise({"none": erf, "tanh": by_tanh}[approximate], (x,))


def gelu_by_library(x: Tensor) -> bool:
    """Whether eager gives the error function's form to oneDNN, which makes NaN of infinity: of
    more than one element in a row, on a CPU."""
    return (
        x.device.type == "cpu"
        and is_of_onednn(x.dtype)
        and e.contiguous(x)
        and not e.is_one(product(x.shape))
    )


@formula(aten.softplus.default)
def softplus(x: Tensor, beta: Number = 1, threshold: Number = 20) -> Tensor:
    """log(1 + exp(beta x)) / beta, linear above the threshold."""
    scaled = _scaled(x, beta)
    soft = p.log1p(p.exp(scaled))
    return p.where(e.gt(scaled, threshold), x, soft if beta == 1 else e.div(soft, beta))


@formula(aten.mish.default)
def mish(x: Tensor) -> Tensor:
    return p.mul(x, p.tanh(softplus(x)))


@decomposition(aten.log_sigmoid_forward.default)
def log_sigmoid_forward(x: Tensor) -> tuple[Tensor, Tensor]:
    def activate(y: Tensor) -> Tensor:
        return p.sub(e.minimum(y, 0.0), p.log1p(p.exp(p.neg(p.abs(y)))))

    # The second result is eager's scratch space; the backward here does without it.
    out = elementwise(activate, (x,))
    out = e.laid_out_as(x, out) if e.on_gpu(x) else e.in_format(out, torch.contiguous_format)
    return out, e.filled(x, [0])


def halves(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """The two halves of `x` along `dim`."""
    size = x.shape[dim]
    if size % 2:
        raise RuntimeError(f"Halving dimension must be even, but dimension {dim} is size {size}")
    return sliced(x, dim, 0, size // 2), sliced(x, dim, size // 2, size)


@decomposition(aten.glu.default)
def glu(x: Tensor, dim: int = -1) -> Tensor:
    a, b = halves(x, canonical(dim, x.ndim))
    return elementwise(lambda y, gate: p.mul(y, p.sigmoid(gate)), (a, b))


@decomposition(aten.celu.default)
def celu(x: Tensor, alpha: Number = 1.0) -> Tensor:
    return elu(x, alpha, 1.0, 1.0 / alpha)


@formula(aten.hardshrink.default)
def hardshrink(x: Tensor, lambd: Number = 0.5) -> Tensor:
    return e.where(p.logical_and(e.ge(x, -lambd), e.le(x, lambd)), 0.0, x)


@decomposition(aten.softshrink.default)
def softshrink(x: Tensor, lambd: float = 0.5) -> Any:
    if lambd < 0:
        return NotImplemented  # eager has the message
    signed = x.dtype.itemsize < 4 and not e.on_gpu(x)  # zeros of these keep their sign

    def shrink(y: Tensor) -> Tensor:
        between = e.mul(y, 0.0) if signed else e.where(p.isnan(y), y, 0.0)
        below = p.where(e.lt(y, -lambd), e.add(y, lambd), between)
        return p.where(e.gt(y, lambd), e.sub(y, lambd), below)

    return elementwise(shrink, (x,))


@decomposition(*overloads("_add_relu", "Tensor", "Scalar"))
def add_relu(a: Tensor, b: Operand, alpha: Number = 1) -> Tensor:
    return elementwise(lambda x, y: _relu(p.add(x, e.mul(y, alpha))), (a, b))


@decomposition(aten.glu_jvp.default)
def glu_jvp(glu: Tensor, x: Tensor, dx: Tensor, dim: int) -> Tensor:
    """d(a s(b)) = da s(b) + a s(b) (1 - s(b)) db."""
    where = canonical(dim, x.ndim)
    _, b = halves(x, where)
    da, db = halves(dx, where)

    def derive(y: Tensor, gate: Tensor, u: Tensor, v: Tensor) -> Tensor:
        s = p.sigmoid(gate)
        return p.add(p.mul(u, s), p.mul(p.mul(y, e.sub(1.0, s)), v))

    return elementwise(derive, (glu, b, da, db))
