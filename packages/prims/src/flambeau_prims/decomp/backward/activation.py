"""Decompositions of activation gradients.

In: the gradient of the result, and the input or the result. Out: the gradient of the input.
Invariant: formulas agree with eager also at the kinks, where one-sided derivatives are chosen. The
product and sum of one formula are rounded once, as in eager's kernels.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from flambeau_prims.decomp import emit as e
from flambeau_prims.decomp.emit import Number, canonical, elementwise, p
from flambeau_prims.decomp.nn.activation import (
    GELU_CUBE,
    GELU_SCALE,
    SIXTH,
    SQRT_HALF,
    halves,
    relu6_shifted,
)
from flambeau_prims.decomp.pointwise.declared import formula
from flambeau_prims.decomposition_table import Arguments, by_name, decomposition

aten = torch.ops.aten


@decomposition(aten.threshold_backward.default)
def threshold_backward(grad: Tensor, x: Tensor, threshold: Number) -> Tensor:
    # its layout is decided by `x`, which eager's kernel takes first
    return elementwise(lambda y, g: e.where(e.le(y, threshold), 0, g), (x, grad))


def conjugated(x: Tensor) -> Tensor:
    """The conjugate, by which a gradient is multiplied: of a real number it is itself."""
    return p.conj(x) if x.dtype.is_complex else x


@formula(aten.sigmoid_backward.default)
def sigmoid_backward(grad: Tensor, y: Tensor) -> Tensor:
    return p.mul(grad, conjugated(p.mul(e.sub(1, y), y)))


@formula(aten.tanh_backward.default)
def tanh_backward(grad: Tensor, y: Tensor) -> Tensor:
    return p.mul(grad, conjugated(e.sub(1, p.mul(y, y))))


@decomposition(aten.hardtanh_backward.default)
def hardtanh_backward(grad: Tensor, x: Tensor, min_val: Number, max_val: Number) -> Tensor:
    vectors = e.by_vectors(x)

    def derive(g: Tensor, y: Tensor) -> Tensor:
        if vectors:  # NaN has no slope
            return e.where(p.logical_and(e.gt(y, min_val), e.lt(y, max_val)), g, 0.0)
        outside = p.logical_or(e.le(y, min_val), e.ge(y, max_val))
        return e.where(outside, 0.0, g)

    return elementwise(derive, (grad, x))


@decomposition(aten.leaky_relu_backward.default)
def leaky_relu_backward(
    grad: Tensor, x: Tensor, negative_slope: Number, self_is_result: bool
) -> Tensor:
    del self_is_result  # the sign is the same
    # its layout is decided by `x`, which eager's kernel takes first
    return elementwise(lambda y, g: p.where(e.gt(y, 0.0), g, e.mul(g, negative_slope)), (x, grad))


@decomposition(aten._prelu_kernel_backward.default)
def prelu_backward(grad: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    def of_input(y: Tensor, w: Tensor, g: Tensor) -> Tensor:
        return p.where(e.gt(y, 0.0), g, p.mul(w, g))

    def of_weight(y: Tensor, g: Tensor) -> Tensor:
        return e.where(e.gt(y, 0.0), 0.0, p.mul(y, g))

    # their layout is decided by `x`, which eager's one kernel for both takes first
    of_weights = e.laid_out_by((x, weight, grad), elementwise(of_weight, (x, grad)))
    return elementwise(of_input, (x, weight, grad)), of_weights


@by_name(aten.elu_backward.default)
def elu_backward(a: Arguments) -> Tensor:
    vectors = e.by_vectors(a.self_or_result)

    def derive(g: Tensor, y: Tensor) -> Tensor:
        if a.is_result:
            below = e.mul(e.add(y, a.alpha * a.scale), a.input_scale)
        else:
            below = e.mul(p.exp(e.mul(y, a.input_scale)), a.alpha * a.scale * a.input_scale)
        if vectors:  # the slope at NaN is NaN
            return p.where(e.gt(y, 0.0), e.mul(g, a.scale), p.mul(g, below))
        return p.where(e.le(y, 0.0), p.mul(g, below), e.mul(g, a.scale))

    return elementwise(derive, (a.grad_output, a.self_or_result))


@formula(aten.silu_backward.default, keep="silu")
def silu_backward(grad: Tensor, x: Tensor) -> Tensor:
    s = p.sigmoid(x)
    return p.mul(grad, p.mul(s, e.fused(x, e.sub(1.0, s), e.const(1.0, x))))


@decomposition(aten.hardswish_backward.default)
def hardswish_backward(grad: Tensor, x: Tensor) -> Tensor:
    vectors = e.by_vectors(x)

    def derive(g: Tensor, y: Tensor) -> Tensor:
        middle = p.mul(g, e.add(e.div(y, 3.0), 0.5))
        inner = p.where(e.lt(y, 3.0), middle, g)
        if vectors:  # the slope at NaN is NaN
            inner = p.where(e.ge(y, 3.0), g, middle)
        return e.where(e.le(y, -3.0), 0.0, inner)

    return elementwise(derive, (grad, x))


@formula(aten.hardsigmoid_backward.default)
def hardsigmoid_backward(grad: Tensor, x: Tensor) -> Tensor:
    shifted = relu6_shifted(x)
    inside = p.logical_and(e.gt(shifted, 0.0), e.lt(shifted, 6.0))
    return e.where(inside, e.mul(grad, SIXTH), 0.0)


@decomposition(aten.gelu_backward.default, keep="gelu")
def gelu_backward(grad: Tensor, x: Tensor, *, approximate: str = "none") -> Tensor:
    def exact(g: Tensor, y: Tensor) -> Tensor:
        cdf = e.mul(e.add(p.erf(e.mul(y, SQRT_HALF)), 1.0), 0.5)
        pdf = e.mul(p.exp(e.mul(p.mul(y, y), -0.5)), 1.0 / math.sqrt(2.0 * math.pi))
        return p.mul(g, e.fused(y, pdf, cdf))

    def by_tanh(g: Tensor, y: Tensor) -> Tensor:
        # (1 + tanh(u)) / 2 is sigmoid(2u); below zero that keeps its digits, and so does its slope
        square, twice = p.mul(y, y), 2.0 * GELU_SCALE
        inner = p.mul(y, e.fused(square, twice * GELU_CUBE, e.const(twice, y)))
        steep = e.fused(square, 3.0 * twice * GELU_CUBE, e.const(twice, y))
        low = p.sigmoid(p.neg(p.abs(inner)))
        whole = p.where(e.lt(inner, 0.0), low, e.sub(1.0, low))
        # what vanishes is multiplied before what grows with the square, as eager does
        vanishing = p.mul(y, e.fused(p.neg(low), low, low))
        return p.mul(g, e.fused(vanishing, steep, whole))

    return elementwise({"none": exact, "tanh": by_tanh}[approximate], (grad, x))


@formula(aten.softplus_backward.default)
def softplus_backward(grad: Tensor, x: Tensor, beta: Number, threshold: Number) -> Tensor:
    scaled = x if beta == 1 else e.mul(x, beta)
    return p.where(e.gt(scaled, threshold), grad, p.mul(grad, p.sigmoid(scaled)))


@formula(aten.mish_backward.default)
def mish_backward(grad: Tensor, x: Tensor) -> Tensor:
    t = p.tanh(p.log1p(p.exp(x)))
    t = p.where(e.gt(x, 20.0), p.tanh(x), t)
    slope = p.mul(p.mul(x, p.sigmoid(x)), e.sub(1.0, p.mul(t, t)))
    return p.mul(grad, p.add(t, slope))


@decomposition(aten.log_sigmoid_backward.default)
def log_sigmoid_backward(grad: Tensor, x: Tensor, buffer: Tensor) -> Tensor:
    del buffer
    made = elementwise(lambda g, y: p.mul(g, p.sigmoid(p.neg(y))), (grad, x))
    return e.laid_out_as(grad, made)


@decomposition(aten.glu_backward.default)
def glu_backward(grad: Tensor, x: Tensor, dim: int) -> Tensor:
    where = canonical(dim, x.ndim)
    a, b = halves(x, where)

    def of_gate(g: Tensor, y: Tensor, gate: Tensor) -> Tensor:
        s = p.sigmoid(gate)
        # what vanishes first, as eager does: the others' product may overflow
        return p.mul(p.mul(p.mul(e.sub(1.0, s), s), y), g)

    first = elementwise(lambda g, gate: p.mul(g, p.sigmoid(gate)), (grad, b))
    both = p.cat([first, elementwise(of_gate, (grad, a, b))], where)
    return e.in_format(both, torch.contiguous_format)


@decomposition(aten.hardshrink_backward.default, aten.softshrink_backward.default)
def shrink_backward(grad: Tensor, x: Tensor, lambd: Number) -> Tensor:
    vectors = e.by_vectors(x)

    def derive(g: Tensor, y: Tensor) -> Tensor:
        if vectors:  # NaN has no slope
            return e.where(p.logical_or(e.lt(y, -lambd), e.gt(y, lambd)), g, 0.0)
        inside = p.logical_and(e.ge(y, -lambd), e.le(y, lambd))
        return e.where(inside, 0.0, g)

    return elementwise(derive, (grad, x))


@by_name(aten.rrelu_with_noise_backward.default)
def rrelu_backward(a: Arguments) -> Tensor:
    if a.training and a.upper - a.lower > 1e-6:
        return elementwise(p.mul, (a.noise, a.grad_output))
    return leaky_relu_backward(a.grad_output, a.self, (a.lower + a.upper) / 2, a.self_is_result)


@decomposition(aten.glu_backward_jvp.default)
def glu_backward_jvp(
    grad_x: Tensor, grad_glu: Tensor, x: Tensor, dgrad_glu: Tensor, dx: Tensor, dim: int
) -> Tensor:
    """The derivative of `glu_backward` along (dgrad_glu, dx), by the product rule."""
    where = canonical(dim, x.ndim)
    a, b = halves(x, where)
    da, db = halves(dx, where)
    del grad_x  # found again from the formula

    def first(g: Tensor, dg: Tensor, gate: Tensor, v: Tensor) -> Tensor:
        s = p.sigmoid(gate)
        ds = p.mul(p.mul(s, e.sub(1.0, s)), v)
        return p.add(p.mul(dg, s), p.mul(g, ds))

    def second(g: Tensor, dg: Tensor, y: Tensor, dy: Tensor, gate: Tensor, v: Tensor) -> Tensor:
        s = p.sigmoid(gate)
        slope = p.mul(s, e.sub(1.0, s))
        bend = p.mul(p.mul(slope, e.sub(1.0, e.mul(s, 2.0))), v)
        straight = p.mul(p.add(p.mul(dg, y), p.mul(g, dy)), slope)
        return p.add(straight, p.mul(p.mul(g, y), bend))

    parts = [
        elementwise(first, (grad_glu, dgrad_glu, b, db)),
        elementwise(second, (grad_glu, dgrad_glu, a, da, b, db)),
    ]
    return p.cat(parts, where)
