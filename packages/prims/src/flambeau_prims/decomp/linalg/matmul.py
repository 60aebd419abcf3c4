"""Decompositions of matrix products with additions.

In: ATen's mm, bmm, addmm and company. Out: `mm` and `bmm`, and pointwise prims around them.
Invariant: the operands of a product keep their dtype: the library accumulates wide by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from flambeau_prims.decomp import emit as e
from flambeau_prims.decomp.emit import Number, p
from flambeau_prims.decomp.nn.activation import gelu, relu
from flambeau_prims.decomp.views.view import unsqueezed
from flambeau_prims.decomposition_table import Arguments, by_name, decomposition, same
from flambeau_prims.shape_rules import product

aten = torch.ops.aten

same(aten.mm.default, "mm")
same(aten.bmm.default, "bmm")


HALF = (torch.float16, torch.bfloat16)


def _blend(x: Tensor, a: Tensor, b: Tensor, beta: Number, alpha: Number) -> Any:
    """beta * x + alpha * a b; with beta 0 `x` is not read, not even its NaN.

    Half precision rounds once, as eager does: the library adds before it rounds.
    """
    multiply, whole = (p.mm, p.addmm) if a.ndim == 2 else (p.bmm, p.baddbmm)
    shape = [*a.shape[:-1], b.shape[-1]]
    if x.ndim > len(shape):
        return NotImplemented
    if a.dtype in HALF and (beta != 0 or alpha != 1):
        return whole(e.expand(e.cast(x, a.dtype), shape), a, b, beta, alpha)
    product_ = multiply(a, b)
    total = product_ if e.is_one(alpha) else e.mul(product_, _exact(alpha, a.dtype))
    if beta != 0:
        added = e.cast(x, a.dtype)
        total = e.add(total, added if beta == 1 else e.mul(added, _exact(beta, a.dtype)))
    return total


def _exact(number: Number, dtype: torch.dtype) -> Number:
    """The number as an element of `dtype` takes it: integers truncate, as in eager."""
    if dtype.is_floating_point or dtype.is_complex or isinstance(number, complex):
        return number
    return int(number)


@decomposition(aten.addmm.default, aten.baddbmm.default)
def addmm(x: Tensor, a: Tensor, b: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Any:
    return _blend(x, a, b, beta, alpha)


@decomposition(aten._addmm_activation.default)
def addmm_activation(
    x: Tensor, a: Tensor, b: Tensor, *, beta: Number = 1, alpha: Number = 1, use_gelu: bool = False
) -> Any:
    total = addmm(x, a, b, beta=beta, alpha=alpha)
    if total is NotImplemented:
        return total
    if not use_gelu:
        return relu(total)
    # the fused CUDA epilogue uses the tanh form, the CPU fallback the exact one
    return gelu(total, approximate="none" if x.device.type == "cpu" else "tanh")


@decomposition(aten.addbmm.default)
def addbmm(x: Tensor, a: Tensor, b: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Any:
    # the sum over the batch is a product with the batch laid out along the inner dimension
    batch, rows, inner = a.shape
    wide = p.reshape(p.permute(a, [1, 0, 2]), [rows, batch * inner])
    return _blend(x, wide, p.reshape(b, [batch * inner, b.shape[2]]), beta, alpha)


@decomposition(aten.mm.dtype, aten.bmm.dtype)
def wide_product(a: Tensor, b: Tensor, out_dtype: torch.dtype) -> Tensor:
    """Of half precision with a result in float32: the operands, widened."""
    wide = e.cast(a, out_dtype), e.cast(b, out_dtype)
    return p.mm(*wide) if a.ndim == 2 else p.bmm(*wide)


@by_name(aten.addmm.dtype, aten.baddbmm.dtype)
def wide_sum(a: Arguments) -> Any:
    first, second = (a.mat1, a.mat2) if a.mat1 is not None else (a.batch1, a.batch2)
    wide = e.cast(first, a.out_dtype), e.cast(second, a.out_dtype)
    return _blend(a.self, *wide, a.beta, a.alpha)


@decomposition(aten._compute_linear_combination.default)
def linear_combination(x: Tensor, coefficients: Tensor) -> Tensor:
    rows, *rest = x.shape
    total = p.mm(coefficients, p.reshape(x, [rows, product(rest)]))
    return p.reshape(total, [coefficients.shape[0], *rest])


@decomposition(aten._int_mm.default)
def int_mm(a: Tensor, b: Tensor) -> Tensor:
    if a.dtype == torch.uint8 and b.dtype == torch.int8 and a.device.type == "cpu":
        # by (a - 128) b + 128 b; sums of 32 bits wrap alike
        less = e.cast(e.sub(e.cast(a, torch.int16), 128), torch.int8)
        columns = p.sum(e.mul(e.cast(b, torch.int32), 128), [0])
        return e.add(p.int_mm(less, b), e.cast(columns, torch.int32))
    return p.int_mm(a, b)


@decomposition(aten.mv.default)
def mv(a: Tensor, v: Tensor) -> Tensor:
    return p.reshape(p.mm(a, unsqueezed(v, 1)), [a.shape[0]])


@decomposition(aten.addmv.default)
def addmv(x: Tensor, a: Tensor, v: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Any:
    if x.ndim > 1:
        return NotImplemented
    column = e.expand(x, [a.shape[0]])
    total = _blend(unsqueezed(column, 1), a, unsqueezed(v, 1), beta, alpha)
    return p.reshape(total, [a.shape[0]])


@decomposition(aten.addr.default)
def addr(x: Tensor, u: Tensor, v: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Any:
    rows, columns = u.shape[0], v.shape[0]

    def combine(y: Tensor, left: Tensor, right: Tensor) -> Tensor:
        if y.dtype == torch.bool:
            both = p.logical_and(left, right) if alpha else e.const(False, left)
            return p.logical_or(both, y) if beta else both
        outer = p.mul(left if e.is_one(alpha) else e.mul(left, _exact(alpha, y.dtype)), right)
        if beta == 0:
            return outer
        return p.add(y if beta == 1 else e.mul(y, _exact(beta, y.dtype)), outer)

    placed = e.expand(x, [rows, columns])
    left = p.broadcast_in_dim(u, [rows, columns], [0])
    right = p.broadcast_in_dim(v, [rows, columns], [1])
    return e.elementwise(combine, (placed, left, right))


@decomposition(aten.dot.default)
def dot(a: Tensor, b: Tensor) -> Any:
    if a.ndim != 1 or b.ndim != 1:
        return NotImplemented  # eager has the message
    if a.dtype != b.dtype:
        raise RuntimeError(f"dot : expected both vectors to have same dtype, but found {a.dtype}"
                           f" and {b.dtype}")  # fmt: skip
    x, y = e.widen(a, b)
    return e.cast(p.sum(p.mul(x, y), [0]), a.dtype)


@decomposition(aten.vdot.default)
def vdot(a: Tensor, b: Tensor) -> Any:
    return dot(p.conj(a) if a.dtype.is_complex else a, b)


@by_name(aten._trilinear.default)
def trilinear(a: Arguments) -> Tensor:
    wide = []  # two products of pairs, as eager's: of the first what the third has not is summed
    for x, missing in ((a.i1, a.expand1), (a.i2, a.expand2), (a.i3, a.expand3)):
        total = x.ndim + len(missing)
        kept = [d for d in range(total) if d not in missing]
        sizes: list[Any] = [1] * total
        for d, n in zip(kept, x.shape, strict=True):
            sizes[d] = n
        wide.append(p.broadcast_in_dim(e.widen(x), sizes, kept))
    pair = e.mul(wide[0], wide[1])
    early = sorted(d for d in {*a.sumdim} & {*a.expand3} if d != a.unroll_dim)
    summed = e.keep_dims(p.sum(pair, early), pair.shape, early, True) if early else pair
    together = e.mul(e.widen(e.cast(summed, a.i1.dtype)), wide[2])
    return e.cast(p.sum(together, sorted(a.sumdim)), a.i1.dtype)


@decomposition(aten.linear.default)
def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    if weight.ndim != 2 or x.ndim == 0:
        return NotImplemented
    if bias is not None and bias.ndim > (2 if x.ndim == 2 else 1):
        return NotImplemented
    rows, width = product(x.shape[:-1]), x.shape[-1]
    flat, turned = p.reshape(x, [rows, width]), p.permute(weight, [1, 0])
    out = p.mm(flat, turned) if bias is None else _blend(bias, flat, turned, 1, 1)
    return p.reshape(out, [*x.shape[:-1], weight.shape[0]])


@decomposition(aten.linear_backward.default)
def linear_backward(x: Tensor, grad: Tensor, weight: Tensor, output_mask: Sequence[bool]) -> Any:
    rows = product(x.shape[:-1])
    g = p.reshape(grad, [rows, weight.shape[0]])
    flat = p.reshape(x, [rows, weight.shape[1]])
    return (
        p.reshape(p.mm(g, weight), list(x.shape)) if output_mask[0] else None,
        p.mm(p.permute(g, [1, 0]), flat) if output_mask[1] else None,
        e.cast(p.sum(e.widen(g), [0]), grad.dtype) if output_mask[2] else None,
    )
