"""Lowering of library primitives: pooling's derivatives, attention, sorting, transfers.

In: operands. Out: `LibraryCall`s on ATen overloads. Invariant: results have the layouts that the
primitive's shape rule promised (`out` variants write into them; the wrapper ensures it of others).
"""

from __future__ import annotations

from typing import Any

import torch

from flambeau_inductor.indexing import Expr, known
from flambeau_inductor.ir.tensors import (
    Choose,
    Node,
    Pointwise,
    Reduction,
    Result,
    TensorScan,
    View,
    dims_of,
    dot,
)
from flambeau_inductor.lowering.context import Context
from flambeau_inductor.lowering.registry import Lowered, rule
from flambeau_inductor.lowering.rules.indexing import single

SAME_ARGUMENTS = {
    "max_pool2d_with_indices_backward": "aten.max_pool2d_with_indices_backward.default",
    "avg_pool2d_backward": "aten.avg_pool2d_backward.default",
    "topk": "aten.topk.default",
}
"""Primitive: the overload that takes its arguments in the same order."""


@rule(*SAME_ARGUMENTS)
def same_arguments(ctx: Context, name: str, *args: Any) -> Lowered:
    return called(ctx, SAME_ARGUMENTS[name], *args)


def called(ctx: Context, target: str, *args: Any) -> Lowered:
    """The results of a library call."""
    results = ctx.call(target, args)
    return single(results) if len(results) == 1 else tuple(results)


@rule("sort")
def sort(ctx: Context, a: Node, dim: int, descending: bool, stable: bool) -> Lowered:
    kwargs = (("stable", stable), ("dim", dim), ("descending", descending))
    return tuple(ctx.call("aten.sort.stable", (a,), kwargs))


@rule("device_put")
def device_put(ctx: Context, a: Node, *, device: torch.device) -> Lowered:
    """A copy to a GPU waits for the GPU only where somebody else may write to the operand
    meanwhile: memory that is not pinned has been read when the call returns."""
    there = torch.device(device)
    queued = (a.device.type, there.type) == ("cpu", "cuda") and _made_here(a)
    kwargs = (("device", there), *((("non_blocking", True),) if queued else ()))
    return single(ctx.call("aten._to_copy.default", (a,), kwargs))


def _made_here(a: Node) -> bool:
    """Whether a value has memory that this program allocates."""
    define = a.define
    if isinstance(define, View):
        return _made_here(define.base)
    if isinstance(define, Result):
        return define.call.out
    return isinstance(define, Choose | Pointwise | Reduction | TensorScan)


def _rows(ctx: Context, *operands: Node) -> tuple[Node, ...]:
    """Operands with unit steps along rows, which a CPU's kernels take for granted."""
    return tuple(node if _unit_step(node) else ctx.point("clone", (node,)) for node in operands)


def _unit_step(node: Node) -> bool:
    """Whether neighbours along the last dimension are neighbours in memory."""
    step: int | Expr | None = node.stride[-1]
    if isinstance(node.define, View):
        inner = dims_of(len(node.shape))[-1].name
        step = dot(node.define.index, node.define.base.stride).coefficient(inner)
    return step is not None and known("eq", step, 1) is True


@rule("attention")
def attention(
    ctx: Context, q: Node, k: Node, v: Node, bias: Node | None, *how: Any, scale: Any = None
) -> Lowered:
    if q.device.type != "cpu":
        target = "flambeau_prims.attention.default"
        return tuple(ctx.call(target, (q, k, v, bias, *how), (("scale", scale),)))
    target = "aten._scaled_dot_product_flash_attention_for_cpu.default"
    kwargs = (("attn_mask", bias), ("scale", scale))
    return tuple(ctx.call(target, (*_rows(ctx, q, k, v), *how), kwargs))


@rule("attention_backward")
def attention_backward(ctx: Context, *args: Any, scale: Any = None) -> Lowered:
    *operands, logsumexp, bias, dropout_p, is_causal = args
    if operands[0].device.type != "cpu":
        target = "flambeau_prims.attention_backward.default"
        return tuple(ctx.call(target, args, (("scale", scale),)))
    target = "aten._scaled_dot_product_flash_attention_for_cpu_backward.default"
    kwargs = (("attn_mask", bias), ("scale", scale))
    rows = _rows(ctx, *operands)
    return tuple(ctx.call(target, (*rows, logsumexp, dropout_p, is_causal), kwargs))
