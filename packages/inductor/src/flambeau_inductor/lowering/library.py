"""Primitives that a library kernel runs: products, convolutions, pooling, attention, sorting.

In: operands. Out: `Call`s on ATen overloads. Invariant: the call's results have the layouts that
the primitive's shape rule promised (`out` variants write into them; the wrapper holds others to
them).
"""

from __future__ import annotations

from typing import Any

import torch

from flambeau_inductor.indexing import same_sizes
from flambeau_inductor.ir.loops import Scalar
from flambeau_inductor.ir.tensors import Node, View, dims_of
from flambeau_inductor.lowering.context import Context
from flambeau_inductor.lowering.indexing import single
from flambeau_inductor.lowering.registry import Lowered, rule

PRODUCTS = {"mm": "aten.mm.out", "bmm": "aten.bmm.out"}
"""Matrix products: they take operands of any strides and write into given memory."""

SAME_ARGUMENTS = {
    "convolution": "aten.convolution.default",
    "convolution_backward": "aten.convolution_backward.default",
    "max_pool2d_with_indices": "aten.max_pool2d_with_indices.default",
    "max_pool2d_with_indices_backward": "aten.max_pool2d_with_indices_backward.default",
    "avg_pool2d": "aten.avg_pool2d.default",
    "avg_pool2d_backward": "aten.avg_pool2d_backward.default",
    "topk": "aten.topk.default",
}
"""Primitive: the overload that takes its arguments in the same order."""


@rule(*PRODUCTS)
def product(ctx: Context, name: str, a: Node, b: Node) -> Lowered:
    return single(ctx.call(PRODUCTS[name], (a, b), out=True, any_strides=True))


@rule("addmm", "baddbmm")
def product_and_sum(
    ctx: Context, name: str, x: Node, a: Node, b: Node, beta: Scalar, alpha: Scalar
) -> Lowered:
    kwargs = (("beta", beta), ("alpha", alpha))
    args = (_row(x) if name == "addmm" else x, a, b)
    return single(ctx.call(f"aten.{name}.out", args, kwargs, out=True, any_strides=True))


def _row(x: Node) -> Node:
    """The row that `x` repeats, if it does: libraries add it as they store the product, while a
    whole matrix would be copied first."""
    define = x.define
    if isinstance(define, View) and same_sizes(define.base.shape, x.shape[1:]):
        if define.index == dims_of(2)[1:]:
            return define.base
    return x


@rule(*SAME_ARGUMENTS)
def same_arguments(ctx: Context, name: str, *args: Any) -> Lowered:
    results = ctx.call(SAME_ARGUMENTS[name], args)
    return single(results) if len(results) == 1 else tuple(results)


@rule("cumsum", "cumprod")
def cumulative(ctx: Context, name: str, a: Node, dim: int) -> Lowered:
    return single(ctx.call(f"aten.{name}.out", (a, dim), (("dtype", a.dtype),), out=True))


@rule("sort")
def sort(ctx: Context, a: Node, dim: int, descending: bool, stable: bool) -> Lowered:
    kwargs = (("stable", stable), ("dim", dim), ("descending", descending))
    return tuple(ctx.call("aten.sort.stable", (a,), kwargs))


@rule("device_put")
def device_put(ctx: Context, a: Node, *, device: torch.device) -> Lowered:
    return single(ctx.call("aten._to_copy.default", (a,), (("device", torch.device(device)),)))


@rule("seed")
def seed(ctx: Context, *, device: torch.device) -> Lowered:
    target = "flambeau_prims.seed.default"
    return single(ctx.call(target, (), (("device", torch.device(device)),), impure=True))


@rule("philox_uniform", "philox_normal")
def philox(ctx: Context, name: str, *args: Any, **kwargs: Any) -> Lowered:
    return single(ctx.call(f"flambeau_prims.{name}.default", args, tuple(kwargs.items())))


@rule("attention")
def attention(
    ctx: Context,
    q: Node,
    k: Node,
    v: Node,
    bias: Node | None,
    dropout_p: float,
    is_causal: bool,
    *,
    scale: float | None = None,
) -> Lowered:
    if q.device.type != "cpu":
        args = (q, k, v, bias, dropout_p, is_causal)
        return tuple(ctx.call("flambeau_prims.attention.default", args, (("scale", scale),)))
    target = "aten._scaled_dot_product_flash_attention_for_cpu.default"
    kwargs = (("attn_mask", bias), ("scale", scale))
    return tuple(ctx.call(target, (q, k, v, dropout_p, is_causal), kwargs))


@rule("attention_backward")
def attention_backward(
    ctx: Context,
    grad: Node,
    q: Node,
    k: Node,
    v: Node,
    out: Node,
    logsumexp: Node,
    bias: Node | None,
    dropout_p: float,
    is_causal: bool,
    *,
    scale: float | None = None,
) -> Lowered:
    operands = (grad, q, k, v, out, logsumexp)
    if q.device.type != "cpu":
        target = "flambeau_prims.attention_backward.default"
        args = (*operands, bias, dropout_p, is_causal)
        return tuple(ctx.call(target, args, (("scale", scale),)))
    target = "aten._scaled_dot_product_flash_attention_for_cpu_backward.default"
    kwargs = (("attn_mask", bias), ("scale", scale))
    return tuple(ctx.call(target, (*operands, dropout_p, is_causal), kwargs))
