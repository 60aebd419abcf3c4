"""Matrix products with their additions.

In: ATen's mm, bmm, addmm and company. Out: `mm` and `bmm`, and pointwise prims around them.
Invariant: the operands of a product keep their dtype: the library accumulates wide by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from flambeau_prims.decomp import emit as e
from flambeau_prims.decomp.activation import gelu, relu
from flambeau_prims.decomp.emit import Number, p
from flambeau_prims.decomp.view import unsqueezed
from flambeau_prims.layout import product
from flambeau_prims.table import decomposition

aten = torch.ops.aten


@decomposition(aten.mm.default)
def mm(a: Tensor, b: Tensor) -> Tensor:
    return p.mm(a, b)


@decomposition(aten.bmm.default)
def bmm(a: Tensor, b: Tensor) -> Tensor:
    return p.bmm(a, b)


def _blend(x: Tensor, product_: Tensor, beta: Number, alpha: Number) -> Tensor:
    """beta * x + alpha * product, computed wide; with beta 0 `x` is not read, not even its NaN."""
    wide = e.widen(product_)
    wide = wide if alpha == 1 else e.mul(wide, alpha)
    if beta != 0:
        added = e.cast(x, wide.dtype)
        wide = e.add(wide, added if beta == 1 else e.mul(added, beta))
    return e.cast(wide, product_.dtype)


@decomposition(aten.addmm.default)
def addmm(x: Tensor, a: Tensor, b: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
    return _blend(x, p.mm(a, b), beta, alpha)


@decomposition(aten._addmm_activation.default)
def addmm_activation(
    x: Tensor,
    a: Tensor,
    b: Tensor,
    *,
    beta: Number = 1,
    alpha: Number = 1,
    use_gelu: bool = False,
) -> Tensor:
    total = addmm(x, a, b, beta=beta, alpha=alpha)
    if not use_gelu:
        return relu(total)
    # the fused CUDA epilogue uses the tanh form, the CPU fallback the exact one
    return gelu(total, approximate="none" if x.device.type == "cpu" else "tanh")


@decomposition(aten.baddbmm.default)
def baddbmm(x: Tensor, a: Tensor, b: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
    return _blend(x, p.bmm(a, b), beta, alpha)


@decomposition(aten.mv.default)
def mv(a: Tensor, v: Tensor) -> Tensor:
    return p.reshape(p.mm(a, unsqueezed(v, 1)), [a.shape[0]])


@decomposition(aten.addmv.default)
def addmv(x: Tensor, a: Tensor, v: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
    return _blend(x, mv(a, v), beta, alpha)


@decomposition(aten.dot.default, aten.vdot.default)
def dot(a: Tensor, b: Tensor) -> Any:
    if a.dtype.is_complex:
        return NotImplemented
    x, y = e.widen(a, b)
    return e.cast(p.sum(p.mul(x, y), [0]), a.dtype)


@decomposition(aten.linear.default)
def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    if weight.ndim != 2 or x.ndim == 0:
        return NotImplemented
    rows, width = product(x.shape[:-1]), x.shape[-1]
    out = p.mm(p.reshape(x, [rows, width]), p.permute(weight, [1, 0]))
    if bias is not None:
        out = _blend(bias, out, 1, 1)
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
